"""The metrics file of a run: one JSON object per line, the only source of every curve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bytemill.errors import RunConfigError
from bytemill.system.atomic_files import output_error, write_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator


class MetricsLog:
    """Append-only file of records; other processes can read a record as soon as `append` returns.

    A resumed run repeats the steps after its checkpoint. `after_step` removes their old records, so that the file
    equals that of an uninterrupted run. Damaged lines are moved to a file beside it.
    """

    def __init__(self, path: str | os.PathLike[str], *, after_step: int | None = None) -> None:
        """Open the file.

        Args:
            path: The file; it is created if necessary.
            after_step: Keep the records up to this step; None keeps no records.

        Raises:
            OutputError: The file cannot be written.
        """
        self.path = Path(path)
        self.damaged_path = self.path.with_suffix(".damaged.jsonl")
        kept, damaged = ([], []) if after_step is None else _lines_up_to(self.path, after_step)
        self.n_damaged = len(damaged)
        """Lines that could not be read, and were appended to `damaged_path`."""
        try:
            if damaged:
                with self.damaged_path.open("ab") as file:
                    file.writelines(damaged)
        except OSError as error:
            raise output_error(error, self.damaged_path) from error
        write_bytes(self.path, b"".join(kept))
        try:
            self._file = self.path.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise output_error(error, self.path) from error

    def append(self, record: dict[str, Any]) -> None:
        """Write a record; a value that is not finite becomes null, since JSON has no NaN."""
        finite = {
            key: None if isinstance(value, float) and value - value != 0.0 else value
            for key, value in record.items()
        }
        try:
            self._file.write(json.dumps(finite, ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise output_error(error, self.path) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: str | os.PathLike[str], kind: str | None = None) -> list[dict[str, Any]]:
    """Read the records of `metrics.jsonl`, in order; damaged lines and an incomplete last one are left out.

    Args:
        path: The file.
        kind: Return only records of this kind, such as "step" or "validation".

    Raises:
        RunConfigError: The file cannot be read.
    """
    try:
        records = [record for record, _ in _records(Path(path)) if record is not None]
    except OSError as error:
        raise RunConfigError(
            f"cannot read {path}: {error.strerror or error}", hint="name the metrics.jsonl of a run folder"
        ) from error
    return [record for record in records if kind is None or record.get("kind") == kind]


def _lines_up_to(path: Path, step: int) -> tuple[list[bytes], list[bytes]]:
    """Return the lines of records up to a step, and the damaged lines."""
    kept: list[bytes] = []
    damaged: list[bytes] = []
    try:
        for record, line in _records(path):
            if record is None:
                damaged.append(line)
            elif record["step"] <= step:
                kept.append(line)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise output_error(error, path) from error
    return kept, damaged


def _records(path: Path) -> Iterator[tuple[dict[str, Any] | None, bytes]]:
    """Yield records and their lines, with None for a damaged one; leave out an incomplete last line."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _record(line), line


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record: object = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, or not UTF-8
        return None
    if not isinstance(record, dict):
        return None
    found = cast("dict[str, Any]", record)
    return found if isinstance(found.get("kind"), str) and isinstance(found.get("step"), int) else None
