"""The folder in which tasks leave their results, shared by all workers.

A result is a small JSON file that names its data files. A task writes the data under names of its own attempt and then
the JSON under the name of the result, which succeeds for the first attempt only. So a result is whole or absent, and of
two copies of a task one counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from bytemill.system.atomic_files import make_folder, output_errors

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

_SUFFIX = ".json"


@dataclass(frozen=True)
class Stage:
    """A folder of results."""

    folder: Path

    def create(self) -> None:
        """Make the folder. Raises OutputError."""
        make_folder(self.folder)

    def remove(self) -> None:
        """Remove the folder and everything in it. Raises OutputError."""
        with output_errors(self.folder), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder)

    def result(self, name: str) -> dict[str, Any] | None:
        """Return the record of a result, or None if it is absent or damaged."""
        try:
            document = json.loads((self.folder / (name + _SUFFIX)).read_bytes())
            files = document["files"].values()
            is_whole = all((self.folder / file).stat().st_size == n_bytes for file, n_bytes in files)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return document if is_whole else None

    def results(self, names: Iterable[str]) -> dict[int, dict[str, Any]]:
        """Return the records of the results that are there, by the index of their name."""
        found = ((index, self.result(name)) for index, name in enumerate(names))
        return {index: result for index, result in found if result is not None}

    def attempt(self, name: str) -> Attempt:
        """Begin an attempt at a result."""
        return Attempt(self, name)

    def sweep(self) -> None:
        """Remove what belongs to no result: the files of attempts that were killed."""
        paths = list(self.folder.iterdir())
        kept: set[str] = set()
        for path in paths:
            if path.suffix == _SUFFIX and (document := self.result(path.stem)) is not None:
                kept |= {path.name, *(file for file, _ in document["files"].values())}
        for path in paths:
            if path.name not in kept:
                with contextlib.suppress(OSError):
                    if path.is_dir():
                        shutil.rmtree(path)
                    else:
                        path.unlink()


class Attempt:
    """The files of one attempt. As a context manager it removes them, unless they were published."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self._name = name
        self._tag = os.urandom(6).hex()
        self._files: dict[str, Path] = {}
        self._is_published = False

    def file(self, label: str) -> Path:
        """Return the path for a data file."""
        self._files[label] = path = self._stage.folder / f"{self._name}.{self._tag}.{label}"
        return path

    def folder(self) -> Path:
        """Return a new folder for temporary files, removed at the end of the block."""
        path = self._stage.folder / f"{self._name}.{self._tag}.tmp"
        with output_errors(path):
            path.mkdir()
        return path

    def publish(self, record: dict[str, Any]) -> dict[str, Any]:
        """Make the files the result, unless there is one, and return the record of the result.

        Raises:
            OutputError: A file cannot be written.
        """
        final = self._stage.folder / (self._name + _SUFFIX)
        with output_errors(final):
            files = {label: [path.name, _synced_size(path)] for label, path in self._files.items()}
            document = {**record, "files": files}
            temporary = self._stage.folder / f"{self._name}.{self._tag}{_SUFFIX}"
            with temporary.open("xb") as file:
                file.write(json.dumps(document).encode())
                file.flush()
                os.fsync(file.fileno())
            try:
                if self._stage.result(self._name) is None:
                    _first(temporary, final, is_damaged=final.exists())
                    self._is_published = True
            except FileExistsError:
                pass
            finally:
                temporary.unlink(missing_ok=True)
        result = self._stage.result(self._name)
        return document if result is None else result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            shutil.rmtree(self._stage.folder / f"{self._name}.{self._tag}.tmp", ignore_errors=True)
            if not self._is_published:
                for path in self._files.values():
                    path.unlink(missing_ok=True)


def _first(temporary: Path, final: Path, *, is_damaged: bool) -> None:
    """Give a file its final name; raises FileExistsError if another one has it, unless that one is damaged."""
    if is_damaged:
        temporary.replace(final)
        return
    try:
        os.link(temporary, final)
    except FileExistsError:
        raise
    except OSError:
        # File systems without links; of two attempts the later one counts, which has the same content.
        temporary.replace(final)


def _synced_size(path: Path) -> int:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return file.seek(0, os.SEEK_END)


def digest(*parts: Any) -> str:
    """Return a name for what JSON values determine."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
