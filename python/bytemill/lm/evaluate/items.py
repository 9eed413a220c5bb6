"""Items of HellaSwag (Zellers et al. 2019): a context and four endings, of which one is correct."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bytemill.errors import CorpusError

if TYPE_CHECKING:
    import os

_N_ENDINGS = 4
_DOWNLOAD_HINT = "to download the items: bytemill data get hellaswag"


@dataclass(frozen=True)
class HellaSwagItem:
    """A context and its endings."""

    context: str
    endings: tuple[str, ...]
    label: int
    """Index of the correct ending."""


def read_items(path: str | os.PathLike[str]) -> list[HellaSwagItem]:
    """Read the items of a file: the original JSON lines, or six lines per item (context, label, four endings).

    Marks such as [header] and [title] are removed like in lm-evaluation-harness.

    Raises:
        CorpusError: The file cannot be read or has another format; the message names the line.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}", hint=_DOWNLOAD_HINT) from error
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} is not UTF-8: {error}") from error
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
        endings = tuple(_clean(ending) for ending in record["endings"])
        label = int(record["label"])
        context = f"{record['ctx_a']} {record['ctx_b'].capitalize()}" if "ctx_a" in record else record["ctx"]
        context = _clean(f"{record['activity_label']}: {context}" if "activity_label" in record else context)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(
            f"{position} is not a HellaSwag item: {error!r}",
            hint="an item needs the fields ctx_a, ctx_b, endings and label",
        ) from error
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
