"""A file that is being fetched: what has come so far, and of what it is a part."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import time
from typing import TYPE_CHECKING, BinaryIO

from bytemill.system.atomic_files import output_error, sync_folder, write_json
from bytemill.system.file_lock import try_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

_SECONDS_BETWEEN_LOOKS = 0.2


class PartialFile:
    """`NAME.partial`, which one process at a time writes to, and `NAME.partial.json`, which says what it began as."""

    def __init__(self, target: Path, file: BinaryIO) -> None:
        self.target = target
        self.path = partial_path(target)
        self._notes = notes_path(target)
        self._file = file
        self.n_bytes = os.fstat(file.fileno()).st_size

    def append(self, data: bytes) -> None:
        """Write more of the file. Raises `OutputError`; what fits is kept."""
        rest = memoryview(data)
        try:
            while rest:
                n_written = self._file.write(rest)  # unbuffered, so it may take less than it is given
                self.n_bytes += n_written
                rest = rest[n_written:]
        except OSError as error:
            raise output_error(error, self.target) from error

    def start_afresh(self) -> None:
        """Forget what has come."""
        try:
            self._notes.unlink(missing_ok=True)
            self._file.truncate(0)
        except OSError as error:
            raise output_error(error, self.target) from error
        self.n_bytes = 0

    def remember(self, validator: str | None) -> None:
        """Note by what the server knows whether the rest belongs to what has come: ETag or Last-Modified."""
        write_json(self._notes, {"validator": validator})

    def validator(self) -> str | None:
        """What was remembered; None where nothing was, or it is damaged."""
        try:
            validator: object = json.loads(self._notes.read_bytes())["validator"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return validator if isinstance(validator, str) else None

    def commit(self) -> None:
        """Give the file its name."""
        try:
            os.fsync(self._file.fileno())
            self._notes.unlink(missing_ok=True)
            self.path.replace(self.target)
            sync_folder(self.target.parent)
        except OSError as error:
            raise output_error(error, self.target) from error

    def remove(self) -> None:
        """Leave nothing of it."""
        with contextlib.suppress(OSError):
            self._notes.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)


@contextlib.contextmanager
def hold_partial(target: Path, on_wait: Callable[[], None]) -> Generator[PartialFile]:
    """The partial file of `target` for this process alone; where another has it, waits, and calls `on_wait` meanwhile.

    Where nothing has come when the block ends, nothing stays.
    """
    path = partial_path(target)
    while True:
        try:
            lock = try_lock(path.with_name(f"{path.name}.lock"))
        except OSError as error:
            raise output_error(error, target) from error
        if lock is not None:
            break
        on_wait()
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    with lock, _opened(path, target) as file:
        # Names of `AtomicFile`, which cuts long ones; who left them has been killed, or it would hold the file.
        for name in (target.name, notes_path(target).name):
            for leftover in target.parent.glob(f".{glob.escape(name[:60])}.????????.tmp"):
                leftover.unlink(missing_ok=True)
        partial = PartialFile(target, file)
        try:
            yield partial
        finally:
            if partial.n_bytes == 0:
                partial.remove()


def _opened(path: Path, target: Path) -> BinaryIO:
    try:
        return path.open("ab", buffering=0)
    except OSError as error:
        raise output_error(error, target) from error


def partial_path(target: Path) -> Path:
    """Where what has come of `target` is kept."""
    return target.with_name(f"{target.name}.partial")


def notes_path(target: Path) -> Path:
    """Where it is noted of what that is a part."""
    return target.with_name(f"{target.name}.partial.json")
