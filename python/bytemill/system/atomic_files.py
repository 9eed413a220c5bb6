"""Files that stand under their name whole or not at all.

A result is written to a temporary name in the same folder, synced to the disk, and only then renamed. Whoever
looks while it is written, or after it was interrupted, finds the old file or none, never half of a new one.
"""

import contextlib
import errno
import io
import json
import os
import stat
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TextIO

from bytemill.errors import OutputError
from bytemill.system.paths import require_local

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class AtomicFile:
    """A binary file that grows under a temporary name; `commit` gives it its own, `discard` removes it.

    As a context manager it commits at the end and discards on any exception. A link is followed: the file
    that it points to is replaced. What is no regular file (a device, a named pipe) is written directly, since
    to rename something over it would destroy it.

    Raises `OutputError` (with the `errno` of the cause) wherever writing fails.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        require_local(path)
        self.path = Path(path)
        self._final = Path(os.path.realpath(path))
        mode = _writable_mode(self.path, self._final)
        self._direct = mode is not None and not stat.S_ISREG(mode)
        self._written_to = self._final if self._direct else _temporary_name(self._final)
        try:
            # A new file is open for reading too: who patches a header may need to read the whole again.
            self.file: io.BufferedRandom | io.BufferedWriter = (
                self._written_to.open("wb") if self._direct else self._written_to.open("x+b")
            )
        except OSError as error:
            raise output_error(error, self.path) from error
        if mode is not None and not self._direct:
            with contextlib.suppress(OSError):  # the file system may know no permissions
                self._written_to.chmod(stat.S_IMODE(mode))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append all of `data`."""
        try:
            self.file.write(data)
        except OSError as error:
            raise output_error(error, self.path) from error

    def commit(self) -> None:
        """Sync, close and rename: from now on the file stands under its name."""
        try:
            self.file.flush()
            if not self._direct:
                os.fsync(self.file.fileno())
            self.file.close()
            if not self._direct:
                self._written_to.replace(self._final)
                sync_folder(self._final.parent)
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError):
                raise output_error(error, self.path) from error
            raise

    def discard(self) -> None:
        """Close and remove what was written; the file that stood under the name before stays."""
        # Flushing what did not fit fails a second time, but the descriptor is closed then too.
        with contextlib.suppress(OSError):
            self.file.close()
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if not self._direct:
            with contextlib.suppress(OSError):
                self._written_to.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.commit()
            return
        self.discard()
        # Only writing runs out of space; other errors (say, of a file that the block reads) stay what they
        # are.
        if isinstance(error, OSError) and not isinstance(error, OutputError) and error.errno in _NO_SPACE:
            raise output_error(error, self.path) from error


@contextlib.contextmanager
def open_bytes(path: str | os.PathLike[str]) -> Generator[BinaryIO]:
    """A binary file to write to, which takes its name when the block ends without an exception."""
    with AtomicFile(path) as atomic:
        yield atomic.file


@contextlib.contextmanager
def open_text(path: str | os.PathLike[str]) -> Generator[TextIO]:
    r"""A UTF-8 text file to write to, which takes its name when the block ends without an exception.

    Line ends are written as they are given (no `\r\n` on any system).
    """
    with AtomicFile(path) as atomic:
        text = io.TextIOWrapper(atomic.file, encoding="utf-8", newline="")
        yield text
        text.detach()


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` as the whole file, atomically. Raises `OutputError`."""
    with AtomicFile(path) as atomic:
        atomic.write(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as the whole file in UTF-8, atomically. Raises `OutputError`."""
    write_bytes(path, text.encode())


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write `document` as indented JSON with a final newline, atomically. Raises `OutputError`.

    Text stays readable in every script, unless a file name that is not UTF-8 asks for escapes.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = json.dumps(document, indent=2).encode()
    write_bytes(path, data + b"\n")


def make_folder(folder: str | os.PathLike[str]) -> None:
    """Create `folder` and its missing parents. Raises `OutputError`."""
    require_local(folder)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(error, folder) from error


def remove_temporaries(folder: Path, name_glob: str) -> None:
    """Remove what killed runs left of the files in `folder` whose names match `name_glob`."""
    for leftover in folder.glob(f".{name_glob}.*.tmp"):
        leftover.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make new names in `folder` survive a power cut, on systems where folders can be synced."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems know no fsync of folders
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def output_error(error: OSError, path: str | os.PathLike[str]) -> OutputError:
    """The `OutputError` that says why `path` cannot be written and what to do; it keeps the `errno`."""
    target = Path(path)
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            reason = "no space is left for it" if error.errno == errno.ENOSPC else "the disk quota is used up"
            hint = "free some space or choose a folder on another disk, then run it again"
        case errno.EFBIG:
            reason = "the file would grow beyond the size limit for files"
            hint = "raise the limit (`ulimit -f`) or choose another file system, then run it again"
        case errno.EACCES | errno.EPERM:
            reason = "permission denied"
            hint = "choose a place that you may write to, or change the permissions of this one"
        case errno.EROFS:
            reason = "the file system is read-only"
            hint = "choose a place that you may write to"
        case errno.EISDIR:
            reason = "it is a folder"
            hint = f"give the name of a file, for example {target / 'NAME'}"
        case errno.ENOENT | errno.ENOTDIR | errno.EEXIST if obstacle := _file_in_the_way(target):
            reason = f"{obstacle} is a file, not a folder"
            hint = "choose another place, or rename that file"
        case errno.ENOENT if not target.parent.exists():
            reason = f"the folder {target.parent} does not exist"
            hint = f"make it first: mkdir -p {target.parent}"
        case _:
            reason = error.strerror or str(error)
            hint = "choose another place, or mend the cause and run it again"
    converted = OutputError(f"cannot write {target}: {reason}", hint=hint)
    converted.errno = error.errno
    return converted


def _writable_mode(path: Path, final: Path) -> int | None:
    """`st_mode` of the file that stands under the name, None where there is none."""
    try:
        mode = final.stat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise output_error(error, path) from error
    if stat.S_ISDIR(mode):
        raise output_error(IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)), path)
    # Renaming would replace a write-protected file without a word, if only its folder may be written.
    if not os.access(final, os.W_OK):
        raise output_error(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), path)
    return mode


def _temporary_name(final: Path) -> Path:
    # 60 characters of at most 4 bytes keep even the longest name below the usual 255 bytes.
    return final.with_name(f".{final.name[:60]}.{os.urandom(4).hex()}.tmp")


def _file_in_the_way(target: Path) -> Path | None:
    """The file that stands where a folder on the way to `target` should be."""
    for place in (target, *target.parents):
        if place.exists():
            return None if place.is_dir() else place
    return None
