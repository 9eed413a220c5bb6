"""HellaSwag (Zellers et al. 2019): the share of items whose correct ending of four is the most likely one."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import torch

from bytemill.errors import CheckpointError, CorpusError
from bytemill.lm.device import autocast, shared_cores
from bytemill.lm.generation.text_generation import prompt_ids
from bytemill.lm.loss import token_losses
from bytemill.lm.tensors import not_finite
from bytemill.system.atomic_files import output_error, output_errors

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer


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


NORMALIZATIONS = ("sum", "tokens", "characters", "bytes")
"""Divisors of the log-likelihood of an ending: 1, or its number of tokens, characters or bytes."""


@dataclass(frozen=True)
class HellaSwagScore:
    """Accuracy on HellaSwag."""

    n_items: int
    accuracy: dict[str, float]
    """By normalization; lm-evaluation-harness calls "sum" acc and "characters" acc_norm."""
    n_cut: int
    """Number of endings whose context was cut on the left to fit the model."""
    n_unaligned: int
    """Number of endings for which the tokens of the context are not the first tokens of context and ending."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _Ending:
    ids: list[int]
    """Ids of context and ending, as many as fit."""
    n_ending: int
    """Number of ids of the ending, which are the last ones."""
    was_cut: bool
    is_aligned: bool
    """The tokens of the context are the first ones of context and ending."""


def evaluate_hellaswag(
    model: TransformerLM,
    tokenizer: Tokenizer,
    items: Sequence[HellaSwagItem],
    *,
    bos_id: int | None = None,
    batch_size: int = 16,
    dtype: torch.dtype = torch.float32,
    results: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> HellaSwagScore:
    """Compute the accuracy over `items`.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        items: The items.
        bos_id: Id of the token that began every training document; it precedes each context.
        batch_size: A batch holds at most this number times the context length in ids, padding included, or one item.
        dtype: Type of matrix products.
        results: File to append the log-likelihoods of each item to; items in the file are not computed again, so an
            interrupted evaluation resumes.
        progress: Called with the number of scored items and their total.

    Raises:
        CheckpointError: The file is of another model or other items.
        NotFiniteError: The weights or the logits are not finite.
        RunConfigError: A context is empty, and there is no token to start a document with.
        OutputError: The file cannot be read or written.
    """
    identity = "" if results is None else _identity(model, tokenizer, items, bos_id)
    device = next(model.parameters()).device
    with _Results(results, identity) as known, shared_cores(device):
        remaining = [number for number in range(len(items)) if number not in known.lines]
        # Sort by length to reduce padding; the scores do not depend on the order.
        endings = {number: _endings(model, tokenizer, items[number], bos_id) for number in remaining}
        remaining.sort(key=lambda number: max(len(ending.ids) for ending in endings[number]))
        limit = batch_size * model.config.context_length
        for batch in _batches(remaining, lambda number: _n_padded(endings[number]), limit):
            rows = [ending for number in batch for ending in endings[number]]
            sums = iter(_log_likelihoods(model, rows, dtype))
            for number in batch:
                own = endings[number]
                known.add(
                    {
                        "item": number,
                        "log_likelihoods": [next(sums) for _ in own],
                        "n_tokens": [ending.n_ending for ending in own],
                        "n_cut": sum(ending.was_cut for ending in own),
                        "n_unaligned": sum(not ending.is_aligned for ending in own),
                    }
                )
            if progress:
                progress(len(known.lines), len(items))
        return _score(items, [known.lines[number] for number in range(len(items))])


def _endings(
    model: TransformerLM, tokenizer: Tokenizer, item: HellaSwagItem, bos_id: int | None
) -> list[_Ending]:
    """Encode each ending after the context, as lm-evaluation-harness does: spaces before an ending belong to it."""
    context = item.context.rstrip()
    spaces = item.context[len(context) :]
    before = tokenizer.encode_ordinary(context)
    start = [] if before and bos_id is None else prompt_ids(tokenizer, "", bos_id)
    before = [*start, *before]
    wholes = [[*start, *tokenizer.encode_ordinary(f"{context}{spaces} {ending}")] for ending in item.endings]
    return [_cut(before, whole, model.config.context_length) for whole in wholes]


def _cut(before: list[int], whole: list[int], context_length: int) -> _Ending:
    # A token may span the end of the context; the last token is always one of the ending.
    n_ending = max(1, len(whole) - len(before))
    whole = [before[0], *whole] if n_ending == len(whole) else whole
    # One id of the context must remain to predict the first id of the ending.
    n_kept = min(n_ending, context_length)
    whole = whole[: len(whole) - n_ending + n_kept]
    kept = whole[-(context_length + 1) :]
    return _Ending(kept, n_kept, len(kept) < len(whole), whole[: len(before)] == before)


def _n_padded(endings: list[_Ending]) -> int:
    return len(endings) * max(len(ending.ids) for ending in endings)


def _batches(items: Sequence[int], n_padded: Callable[[int], int], limit: int) -> Iterator[list[int]]:
    """Divide items, of increasing length, into batches of at most `limit` padded ids."""
    batch: list[int] = []
    for item in items:
        if batch and (len(batch) + 1) * n_padded(item) > limit:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


@torch.inference_mode()
def _log_likelihoods(model: TransformerLM, rows: Sequence[_Ending], dtype: torch.dtype) -> list[float]:
    """Return the log-likelihood of each ending after its context, in nats."""
    device = next(model.parameters()).device
    model.eval()
    length = max(len(row.ids) for row in rows)
    # Pad on the right, where the causal mask hides the padding.
    ids = torch.zeros((len(rows), length), dtype=torch.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)] = torch.tensor(row.ids)
    ids = ids.to(device)
    with autocast(device, dtype):
        hidden = model.hidden(ids[:, :-1])
    losses: list[torch.Tensor] = []
    for index, row in enumerate(rows):
        # Compute only the logits of the ending; those of all positions would take far more memory.
        end = len(row.ids) - 1
        span = slice(end - row.n_ending, end)
        with autocast(device, dtype):
            logits = model.logits(hidden[index, span])
        targets = ids[index, span.start + 1 : span.stop + 1]
        losses.append(token_losses(logits, targets).double().sum())
    sums = [-float(loss) for loss in torch.stack(losses).cpu()]  # waits for the device once
    if not all(map(math.isfinite, sums)):
        raise not_finite(model)
    return sums


def _score(items: Sequence[HellaSwagItem], lines: Sequence[dict[str, Any]]) -> HellaSwagScore:
    n_correct = dict.fromkeys(NORMALIZATIONS, 0)
    for item, line in zip(items, lines, strict=True):
        lengths = {
            "sum": [1] * len(item.endings),
            "tokens": line["n_tokens"],
            "characters": [len(ending) for ending in item.endings],
            "bytes": [len(ending.encode()) for ending in item.endings],
        }
        for name in NORMALIZATIONS:
            scores = [
                value / max(1, length)
                for value, length in zip(line["log_likelihoods"], lengths[name], strict=True)
            ]
            n_correct[name] += scores.index(max(scores)) == item.label
    accuracy = {name: n / len(items) for name, n in n_correct.items()}
    n_cut, n_unaligned = (sum(line[name] for line in lines) for name in ("n_cut", "n_unaligned"))
    return HellaSwagScore(len(items), accuracy, n_cut, n_unaligned)


class _Results:
    """Results file: a first line that identifies model and items, then a line per item."""

    def __init__(self, path: str | os.PathLike[str] | None, identity: str) -> None:
        self.lines: dict[int, dict[str, Any]] = {}
        self._path = None if path is None else Path(path)
        self._identity = identity
        self._file: TextIO | None = None

    def __enter__(self) -> _Results:
        if self._path is None:
            return self
        try:
            text = self._path.read_bytes() if self._path.exists() else b""
            # Remove an incomplete last line, which an interrupted process left.
            n_complete = text.rfind(b"\n") + 1
            self._parse(text[:n_complete].splitlines())
            self._file = self._path.open("a", encoding="utf-8", newline="")
            self._file.truncate(n_complete)
            if n_complete == 0:
                self._file.write(json.dumps({"hellaswag": self._identity}) + "\n")
                self._file.flush()
        except OSError as error:
            raise output_error(error, self._path) from error
        return self

    def _parse(self, lines: Iterable[bytes]) -> None:
        for number, line in enumerate(lines):
            try:
                record = cast("dict[str, Any]", json.loads(line))
                if number == 0 and record["hellaswag"] == self._identity:
                    continue
                if number > 0:
                    self.lines[int(record["item"])] = record
                    continue
            except (ValueError, KeyError, TypeError):
                pass
            raise CheckpointError(
                f"{self._path} is not a results file of this model and these items",
                hint="use another file for --results, or remove this one",
            )

    def add(self, line: dict[str, Any]) -> None:
        self.lines[line["item"]] = line
        if self._file is not None and self._path is not None:
            with output_errors(self._path):
                self._file.write(json.dumps(line) + "\n")
                self._file.flush()

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _identity(
    model: TransformerLM, tokenizer: Tokenizer, items: Sequence[HellaSwagItem], bos_id: int | None
) -> str:
    """Hash everything that the results depend on: tokenizer, items and weights."""
    digest = hashlib.sha256(tokenizer.fingerprint.encode())
    digest.update(b"" if bos_id is None else str(bos_id).encode())
    for item in items:
        digest.update(json.dumps(asdict(item)).encode())
    for name, tensor in _tensors(model):
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _tensors(model: TransformerLM) -> Iterator[tuple[str, torch.Tensor]]:
    yield from cast("dict[str, torch.Tensor]", model.state_dict()).items()
