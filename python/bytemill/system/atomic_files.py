"""Atomic publication of files.

A file is written under a temporary name in its folder, synced to the disk and renamed. Readers find the old file or
the complete new one. `AtomicFile` discards its temporary file if writing fails. `PartialFile` keeps it, and a later
process can resume it.
"""

import contextlib
import errno
import glob
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

try:
    import fcntl
except ImportError:  # Windows, which does not remove open files
    fcntl = None

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NAME_LENGTH = 60
"""Characters of a file name in its temporary name: at 4 bytes each, below the usual limit of 255 bytes."""


class AtomicFile:
    """A binary file that replaces `path` on `commit`.

    As a context manager it commits at the end and discards on an exception. A symbolic link is followed: its target is
    replaced. Devices and named pipes are written directly. Temporary files that killed processes left for the same path
    are removed.

    Args:
        path: The file to create or replace.

    Raises:
        OutputError: If writing fails, with the `errno` of the cause. Also raised by every method.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        require_local(path)
        self.path = Path(path)
        self._final = Path(os.path.realpath(path))
        mode = _writable_mode(self.path, self._final)
        self._direct = mode is not None and not stat.S_ISREG(mode)
        self.file: io.BufferedRandom | io.BufferedWriter
        with output_errors(self.path):
            if self._direct:
                self._temporary, self.file = self._final, self._final.open("wb")
                return
            self._temporary, self.file = _new_temporary(self._final)
        remove_temporaries(self._final.parent, glob.escape(self._final.name[:_NAME_LENGTH]))
        if mode is not None:
            with contextlib.suppress(OSError):  # the file system may not support permissions
                self._temporary.chmod(stat.S_IMODE(mode))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data`."""
        with output_errors(self.path):
            self.file.write(data)

    def commit(self) -> None:
        """Sync, close and rename the file."""
        try:
            with output_errors(self.path):
                self.file.flush()
                if self._direct:
                    self.file.close()
                else:
                    _publish(self.file, self._temporary, self._final)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Close and remove the temporary file. An existing file at `path` remains."""
        # Closing flushes again and may fail again, but it always closes the descriptor.
        with contextlib.suppress(OSError):
            self.file.close()
        if not self._direct:
            with contextlib.suppress(OSError):
                self._temporary.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.commit()
            return
        self.discard()
        # Other errors may come from files that the block reads. Only writing runs out of space.
        if isinstance(error, OSError) and not isinstance(error, OutputError) and error.errno in _NO_SPACE:
            raise output_error(error, self.path) from error


class PartialFile:
    """An append-only file under a temporary name, `.NAME.partial`. A later process can resume it.

    The caller ensures that one process at a time writes the file.

    Args:
        path: The file to create or replace.
        n_bytes: Bytes to keep of the file that an earlier process left, under its temporary or its final name.

    Raises:
        OutputError: If writing fails, or if fewer than `n_bytes` are left. Also raised by every method.
    """

    def __init__(self, path: Path, *, n_bytes: int = 0) -> None:
        self.path = path
        self.temporary = path.with_name(partial_name(path.name))
        self.n_bytes = n_bytes
        """Bytes of the file so far."""
        with output_errors(path):
            if n_bytes and path.exists():
                path.replace(self.temporary)
            mode = "r+b" if self.temporary.exists() else "x+b"
            self._file: io.FileIO = self.temporary.open(mode, buffering=0)
        try:
            self._keep_bytes(n_bytes)
        except BaseException:
            self.close()
            raise

    def append(self, data: bytes | memoryview) -> None:
        """Append all of `data`."""
        self._write_at(self.n_bytes, data)
        self.n_bytes += len(data)

    def sync(self) -> None:
        """Sync the file to the disk."""
        with output_errors(self.path):
            os.fsync(self._file.fileno())

    def commit(self) -> None:
        """Sync, close and rename the file."""
        with output_errors(self.path):
            _publish(self._file, self.temporary, self.path)

    def close(self) -> None:
        """Close the file and keep it under its temporary name."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _keep_bytes(self, n_bytes: int) -> None:
        with output_errors(self.path):
            n_found = os.fstat(self._file.fileno()).st_size
            self._file.truncate(min(n_found, n_bytes))
        if n_found < n_bytes:
            raise OutputError(
                f"cannot resume {self.path}: {self.temporary.name} has {n_found:,} bytes of {n_bytes:,}",
                hint="start over with --overwrite (overwrite=True)",
            )

    def _write_at(self, offset: int, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        with output_errors(self.path):
            self._file.seek(offset)
            while rest:
                # One call may write less, for example just before the disk is full.
                rest = rest[self._file.write(rest) :]


def partial_name(name: str) -> str:
    """Return the temporary name of a `PartialFile`.

    >>> partial_name("shard_00000.npy")
    '.shard_00000.npy.partial'
    """
    return f".{name}.partial"


@contextlib.contextmanager
def open_text(path: str | os.PathLike[str]) -> Generator[TextIO]:
    r"""Open a UTF-8 text file that replaces `path` when the block ends without an exception.

    Line ends are written unchanged on every system.
    """
    with AtomicFile(path) as atomic:
        text = _NamedText(atomic)
        yield text
        with output_errors(path):
            text.detach()


class _NamedText(io.TextIOWrapper):
    """The text of an atomic file. Errors of writing name its path; the block may read other files."""

    def __init__(self, atomic: AtomicFile) -> None:
        super().__init__(atomic.file, encoding="utf-8", newline="")
        self._path = atomic.path

    def write(self, text: str, /) -> int:
        with output_errors(self._path):
            return super().write(text)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a binary file atomically. Raises `OutputError`."""
    with AtomicFile(path) as atomic:
        atomic.write(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a UTF-8 text file atomically. Raises `OutputError`."""
    write_bytes(path, text.encode())


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write an indented JSON file atomically (`indented_json`). Raises `OutputError`."""
    write_bytes(path, indented_json(document))


def indented_json(document: Any) -> bytes:
    """Return a document as indented JSON with a final newline.

    Text is not escaped, except in documents with lone surrogates (from file names that are not UTF-8).
    """
    text = json.dumps(document, indent=2, ensure_ascii=False)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = json.dumps(document, indent=2).encode()
    return data + b"\n"


def check_output_file(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Check that a file can be created at `path`. Devices and named pipes always pass.

    Args:
        path: Output file.
        overwrite: Accept an existing file.

    Raises:
        OutputError: If the file cannot be written, exists already without `overwrite`, or is a URL.
    """
    target = Path(path)
    if target.exists() and not target.is_file() and not target.is_dir():
        return
    if target.is_file() and not overwrite:
        raise OutputError(
            f"{target} already exists",
            hint="choose another name, or replace it with --overwrite (overwrite=True)",
        )
    # Only creating the temporary file finds every possible obstacle.
    AtomicFile(target).discard()


def make_folder(folder: str | os.PathLike[str]) -> None:
    """Create a folder and its missing parents. Raises `OutputError`."""
    require_local(folder)
    with output_errors(folder):
        Path(folder).mkdir(parents=True, exist_ok=True)


def remove_temporaries(folder: Path, name_glob: str) -> None:
    """Remove temporary files of killed processes. Files that a live process writes remain.

    Args:
        folder: Folder of the files.
        name_glob: Pattern of the final file names; the first 60 characters count.
    """
    for leftover in folder.glob(f".{name_glob}.????????.tmp"):
        # An unreadable file belongs to somebody else; Windows refuses to remove an open one.
        with contextlib.suppress(OSError):
            if fcntl is None:
                leftover.unlink()
                continue
            with leftover.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()


def sync_folder(folder: Path) -> None:
    """Sync the file names of a folder to the disk, on systems that support it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems do not support fsync on folders
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def output_errors(path: str | os.PathLike[str]) -> Generator[None]:
    """Convert an `OSError` of the block to an `OutputError` that names `path`."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise output_error(error, path) from error


def output_error(error: OSError, path: str | os.PathLike[str]) -> OutputError:
    """Return an `OutputError` with the `errno` of `error`, a reason and a hint.

    Args:
        error: What the system raised.
        path: The file or folder that cannot be written.
    """
    target = Path(path)
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            reason = (
                "no space is left on the device"
                if error.errno == errno.ENOSPC
                else "the disk quota is exceeded"
            )
            hint = "free some space or choose a folder on another disk, then run it again"
        case errno.EFBIG:
            reason = "the file would grow beyond the size limit for files"
            hint = "raise the limit (`ulimit -f`) or choose another file system, then run it again"
        case errno.EACCES | errno.EPERM:
            reason = "permission denied"
            hint = "choose another path, or change the permissions"
        case errno.EROFS:
            reason = "the file system is read-only"
            hint = "choose a path on another file system"
        case errno.EISDIR:
            reason = "it is a folder"
            hint = f"name a file, for example {target / 'NAME'}"
        case errno.ENOENT | errno.ENOTDIR | errno.EEXIST if obstacle := _file_in_the_way(target):
            reason = f"{obstacle} is a file, not a folder"
            hint = "choose another path, or rename that file"
        case errno.ENOENT if not target.parent.exists():
            reason = f"the folder {target.parent} does not exist"
            hint = f"create it: mkdir -p {target.parent}"
        case _:
            reason = error.strerror or str(error)
            hint = "choose another path, or fix the cause and run it again"
    converted = OutputError(f"cannot write {target}: {reason}", hint=hint)
    converted.errno = error.errno
    return converted


def _writable_mode(path: Path, final: Path) -> int | None:
    """Return `st_mode` of an existing file, or None. Raises `OutputError` for a folder or a read-only file."""
    try:
        mode = final.stat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise output_error(error, path) from error
    if stat.S_ISDIR(mode):
        raise output_error(IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)), path)
    # Renaming replaces a write-protected file if its folder is writable.
    if not os.access(final, os.W_OK):
        raise output_error(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), path)
    return mode


def _new_temporary(final: Path) -> tuple[Path, io.BufferedRandom]:
    """Create a temporary file with a lock that marks it as in use until it is closed."""
    while True:
        path = final.with_name(f".{final.name[:_NAME_LENGTH]}.{os.urandom(4).hex()}.tmp")
        file = path.open("x+b")
        if fcntl is not None:
            with contextlib.suppress(OSError):  # some network file systems do not support locks
                fcntl.flock(file, fcntl.LOCK_EX)
            # Another process may have removed the file before it was locked.
            if os.fstat(file.fileno()).st_nlink == 0:
                file.close()
                continue
        return path, file


def _publish(file: BinaryIO | io.FileIO, temporary: Path, final: Path) -> None:
    """Sync a file, rename it and close it."""
    os.fsync(file.fileno())
    if fcntl is None:  # Windows does not rename open files
        file.close()
    temporary.replace(final)
    file.close()  # only now, since closing releases the lock
    sync_folder(final.parent)


def _file_in_the_way(target: Path) -> Path | None:
    """Return the file that occupies the path of a parent folder of `target`, or None."""
    for path in (target, *target.parents):
        if path.exists():
            return None if path.is_dir() else path
    return None
