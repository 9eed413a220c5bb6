"""HellaSwag (Zellers et al. 2019): the share of items whose correct ending of four is the most likely one."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

from bytemill.errors import CorpusError
from bytemill.lm.item_files import read_text
from bytemill.lm.multiple_choice import MultipleChoiceItem, MultipleChoiceScore, evaluate_multiple_choice

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer

HellaSwagItem = MultipleChoiceItem
HellaSwagScore = MultipleChoiceScore
_N_ENDINGS = 4
_DOWNLOAD_HINT = "to download the items: bytemill data get hellaswag"
_FIELDS_HINT = "an item needs the fields ctx_a, ctx_b, endings and label"


def read_items(path: str | os.PathLike[str]) -> list[HellaSwagItem]:
    """Read the items of a file: the original JSON lines, or six lines per item (context, label, four endings).

    The file may be compressed.

    Marks such as [header] and [title] are removed like in lm-evaluation-harness.

    Raises:
        CorpusError: The file cannot be read or has another format; the message names the line.
    """
    text = read_text(path, hint=_DOWNLOAD_HINT)
    # At line feeds alone: `str.splitlines` also divides at U+2028, which JSON strings may contain.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines[0].lstrip().startswith("{"):
        items = [_from_json(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    else:
        items = _from_six_lines(lines, str(path))
    if not items:
        raise CorpusError(f"{path} contains no items", hint=_DOWNLOAD_HINT)
    return items


def _from_json(line: str, position: str) -> HellaSwagItem:
    try:
        record = cast("dict[str, Any]", json.loads(line))
    except ValueError as error:
        raise CorpusError(f"{position} is not a HellaSwag item: {error!r}", hint=_FIELDS_HINT) from error
    return hellaswag_item(record, position)


def hellaswag_item(record: dict[str, Any], position: str) -> HellaSwagItem:
    """Return the item of a row of the original data.

    Args:
        record: Values by name: `ctx_a` and `ctx_b`, or `ctx`; `endings`, `label`, and `activity_label` if there is one.
        position: Where the row is, for messages.

    Raises:
        CorpusError: A field is missing or has another type.
    """
    try:
        endings = tuple(_clean(ending) for ending in record["endings"])
        label = int(record["label"])
        context = f"{record['ctx_a']} {record['ctx_b'].capitalize()}" if "ctx_a" in record else record["ctx"]
        context = _clean(f"{record['activity_label']}: {context}" if "activity_label" in record else context)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"{position} is not a HellaSwag item: {error!r}", hint=_FIELDS_HINT) from error
    if len(endings) != _N_ENDINGS or not 0 <= label < _N_ENDINGS:
        raise CorpusError(
            f"{position}: an item needs 4 endings and a label from 0 to 3, not {len(endings)} and {label}"
        )
    return HellaSwagItem(context, endings, label)


def _from_six_lines(lines: list[str], path: str) -> list[HellaSwagItem]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    if len(lines) % 6:
        raise CorpusError(
            f"{path} has {len(lines):,} lines, not a multiple of six",
            hint="write six lines per item: context, label, four endings",
        )
    items: list[HellaSwagItem] = []
    for first in range(0, len(lines), 6):
        context, label, *endings = lines[first : first + 6]
        if label not in ("0", "1", "2", "3"):
            raise CorpusError(f"{path}:{first + 2}: the label is {label!r}", hint="write 0, 1, 2 or 3")
        items.append(HellaSwagItem(context, tuple(endings), int(label)))
    return items


def _clean(text: str) -> str:
    text = re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


def evaluate_hellaswag(
    model: TransformerLM, tokenizer: Tokenizer, items: Sequence[HellaSwagItem], **options: Any
) -> HellaSwagScore:
    """Compute the accuracy over `items`.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        items: The items.
        options: Options of `multiple_choice.evaluate_multiple_choice`.

    Raises:
        CheckpointError: The file of results is of another model or other items.
        NotFiniteError: The weights or the logits are not finite.
        RunConfigError: A context is empty, and there is no token to start a document with.
        OutputError: The file of results cannot be read or written.
    """
    return evaluate_multiple_choice(model, tokenizer, items, task="hellaswag", **options)
