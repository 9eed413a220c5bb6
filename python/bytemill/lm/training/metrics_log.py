"""The metrics file of a run: one JSON object per line, the only source of every curve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bytemill.errors import RunConfigError
from bytemill.system.atomic_files import open_text, output_error

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator


class MetricsLog:
    """Append-only file of records; other processes can read a record as soon as `append` returns.

    A resumed run repeats the steps after its checkpoint. `after_step` removes their old records, so that the file
    equals that of an uninterrupted run.
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
        kept = [] if after_step is None else _lines_up_to(self.path, after_step)
        with open_text(self.path) as file:
            file.writelines(kept)
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
    """Read the records of `metrics.jsonl`, in order; an incomplete last line is ignored.

    Args:
        path: The file.
        kind: Return only records of this kind, such as "step" or "validation".

    Raises:
        RunConfigError: The file cannot be read.
    """
    try:
        return [record for record, _ in _records(Path(path)) if kind is None or record.get("kind") == kind]
    except OSError as error:
        raise RunConfigError(
            f"cannot read {path}: {error.strerror or error}", hint="name the metrics.jsonl of a run folder"
        ) from error


def _lines_up_to(path: Path, step: int) -> list[str]:
    try:
        return [line for record, line in _records(path) if int(record.get("step", 0)) <= step]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise output_error(error, path) from error


def _records(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield records and their lines, up to a line that a killed process left incomplete."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for line in file:
            try:
                record: object = json.loads(line)
            except ValueError:
                return
            if not isinstance(record, dict) or not line.endswith("\n"):
                return
            yield cast("dict[str, Any]", record), line
