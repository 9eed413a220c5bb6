"""Results of an evaluation item by item, in a file from which an interrupted evaluation resumes.

A file holds one task or several. A line names a task and what its results depend on; lines of its items follow:

    {"hellaswag": "sha256 of model, tokenizer, items and options", "items": "sha256 of the items", "settings": {…}}
    {"item": 0, "log_likelihoods": [-12.5, -11.0], …}
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

from bytemill.errors import CheckpointError
from bytemill.system.atomic_files import output_error, output_errors

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    import torch

    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer

Line = dict[str, Any]


class Item(Protocol):
    """An item of a task."""

    def record(self) -> dict[str, Any]:
        """Return what results depend on, for JSON."""
        ...


class ItemResults:
    """Results of the items of one task; a context manager.

    Args:
        path: File to read and to append to; None keeps the results in memory.
        task: Name of the task.
        identity: Hash of everything that the results depend on.
        items: Hash of the items.
        settings: What must be equal where results of two models are compared.

    Raises:
        CheckpointError: The file is damaged, or has the task with another identity.
        OutputError: The file cannot be read or written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        task: str,
        identity: str,
        items: str = "",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.lines: dict[int, Line] = {}
        """Results by number of item."""
        self._path = None if path is None else Path(path)
        self._header = {task: identity, "items": items, "settings": dict(settings or {})}
        self._task = task
        self._file: TextIO | None = None

    def __enter__(self) -> ItemResults:
        if self._path is None:
            return self
        try:
            text = self._path.read_bytes() if self._path.exists() else b""
            # Remove an incomplete last line, which an interrupted process left.
            n_complete = text.rfind(b"\n") + 1
            last_task = self._parse(text[:n_complete].splitlines())
            self._file = self._path.open("a", encoding="utf-8", newline="")
            self._file.truncate(n_complete)
            if last_task != self._task:
                self._file.write(json.dumps(self._header) + "\n")
                self._file.flush()
        except OSError as error:
            raise output_error(error, self._path) from error
        return self

    def _parse(self, lines: Iterable[bytes]) -> str | None:
        """Read the lines of the task; return the task of the last line."""
        task: str | None = None
        for record in _records(self._path, lines):
            if "item" not in record:
                task = next(iter(record))
                if task == self._task and record[task] != self._header[task]:
                    raise _not_results(self._path)
            elif task == self._task:
                self.lines[int(record["item"])] = record
        return task

    def add(self, line: Line) -> None:
        """Add the result of an item, whose number is `line["item"]`."""
        self.lines[line["item"]] = line
        if self._file is not None and self._path is not None:
            with output_errors(self._path):
                self._file.write(json.dumps(line) + "\n")
                self._file.flush()

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def read_results(path: str | os.PathLike[str], task: str) -> tuple[Line, dict[int, Line]]:
    """Return the line that names a task, and the results by number of item.

    Raises:
        CheckpointError: The file is damaged or lacks the task.
        OutputError: The file cannot be read.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise output_error(error, path) from error
    current, header, found = "", None, dict[int, Line]()
    for record in _records(path, text[: text.rfind(b"\n") + 1].splitlines()):
        if "item" not in record:
            current = next(iter(record))
            header = record if current == task else header
        elif current == task:
            found[int(record["item"])] = record
    if header is None:
        raise CheckpointError(
            f"{path} has no results of {task}", hint=f"make them with: bytemill lm eval RUN --results {path}"
        )
    return header, found


def _records(path: str | os.PathLike[str] | None, lines: Iterable[bytes]) -> Iterable[Line]:
    for number, line in enumerate(lines):
        try:
            record: Any = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        is_item = isinstance(record, dict) and "item" in record
        if not isinstance(record, dict) or not record or (number == 0 and is_item):
            raise _not_results(path)
        if is_item and not isinstance(record["item"], int):
            raise _not_results(path)
        yield cast("Line", record)


def _not_results(path: str | os.PathLike[str] | None) -> CheckpointError:
    return CheckpointError(
        f"{path} is not a results file of this model and these items",
        hint="use another file for --results, or remove this one",
    )


def items_hash(items: Sequence[Item]) -> str:
    """Hash items, in their order."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(json.dumps(item.record()).encode())
    return digest.hexdigest()


def results_identity(
    model: TransformerLM,
    tokenizer: Tokenizer,
    items: Sequence[Item],
    bos_id: int | None,
    options: Mapping[str, Any] | None = None,
) -> str:
    """Hash everything that results depend on: tokenizer, items, weights, and options that are set."""
    digest = hashlib.sha256(tokenizer.fingerprint.encode())
    digest.update(b"" if bos_id is None else str(bos_id).encode())
    for item in items:
        digest.update(json.dumps(item.record()).encode())
    for name, tensor in cast("dict[str, torch.Tensor]", model.state_dict()).items():
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    if set_options := {name: value for name, value in (options or {}).items() if value}:
        digest.update(json.dumps(set_options, sort_keys=True).encode())
    return digest.hexdigest()
