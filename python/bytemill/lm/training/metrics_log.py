"""The metrics of a run: one JSON object a line, written as the run goes, the one source of every curve."""

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
    """Appends records to a file; each is there for others to read as soon as `append` returns.

    A run that goes on from its checkpoint writes again what it had written after that: `after_step` cuts those lines
    off, so that the file reads as if the run had never stopped.
    """

    def __init__(self, path: str | os.PathLike[str], *, after_step: int | None = None) -> None:
        """Opens `path`. With `after_step`, records of later steps are removed; without, all are.

        Raises `OutputError` where it cannot be written.
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
        """Writes one record; a value that is not finite becomes null, which every JSON reader knows."""
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
        """Closes the file."""
        self._file.close()


def read_metrics(path: str | os.PathLike[str], kind: str | None = None) -> list[dict[str, Any]]:
    """The records of a run's `metrics.jsonl`, all or those of one `kind` ("step", "validation", …), in order.

    A last line that is still being written is left out. Raises `RunConfigError` where the file cannot be read.
    """
    try:
        return [record for record, _ in _records(Path(path)) if kind is None or record.get("kind") == kind]
    except OSError as error:
        raise RunConfigError(
            f"cannot read {path}: {error.strerror or error}", hint="give the folder of a run"
        ) from error


def _lines_up_to(path: Path, step: int) -> list[str]:
    try:
        return [line for record, line in _records(path) if int(record.get("step", 0)) <= step]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise output_error(error, path) from error


def _records(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Records and their lines, up to the first that is cut short: what a killed process left."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for line in file:
            try:
                record: object = json.loads(line)
            except ValueError:
                return
            if not isinstance(record, dict) or not line.endswith("\n"):
                return
            yield cast("dict[str, Any]", record), line
