"""Files that the studio opens, and their stamps.

Files are regular ones, inside the folder that they were found in: a folder may hold pipes, which would block a thread
for ever, and links that lead out of it. What was loaded from files is used until their stamp changes.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections import OrderedDict
from hashlib import blake2s
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar, cast

from bytemill.errors import BytemillError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

K = TypeVar("K")
T = TypeVar("T")

MAX_LEVELS = 32
"""Levels of a value from a file that are sent to the page."""
# Neither waits for the other end of a pipe, nor follows a link that has taken the file's place. Windows has neither.
_FLAGS = (
    os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)


def problem_of(path: Path, root: Path) -> str | None:
    """Return why a file or folder that was found below `root` is not read; None if it is.

    Args:
        path: The file or folder, whose parent was reached without links.
        root: Folder that links may not lead out of, without links itself.
    """
    try:
        str(path.relative_to(root)).encode()
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            mode = _resolved(path, root).stat().st_mode
        if not stat.S_ISDIR(mode):
            _require_regular(mode)
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    except OSError as error:
        return error.strerror or str(error)
    return None


def open_regular(path: Path, root: Path) -> BinaryIO:
    """Open a file for reading that must be a regular one below `root`.

    Raises:
        OSError: It is another kind of file or elsewhere, or cannot be read.
    """
    real = _resolved(path, root)
    _require_regular(real.stat().st_mode)  # opening a device may already do something
    descriptor = os.open(real, _FLAGS)
    try:
        _require_regular(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def require_regular(paths: Iterable[Path], root: Path, error_type: type[BytemillError]) -> None:
    """Check files before code that knows nothing of `root` reads them; missing files are left to that code.

    Raises:
        BytemillError: One is not a regular file below `root` (`error_type`).
    """
    for path in paths:
        if not os.path.lexists(path):
            continue
        try:
            _require_regular(_resolved(path, root).stat().st_mode)
        except OSError as error:
            raise error_type(
                f"{path} cannot be read: {error.strerror}", hint="put a regular file in its place"
            ) from error


def shown_name(name: str | os.PathLike[str]) -> str:
    """Return a name as text for people, also one that is not UTF-8.

    >>> shown_name("caf\\udce9")
    'caf\ufffd'
    """
    return os.fsencode(name).decode(errors="replace")


def plain(value: Any, levels: int = MAX_LEVELS) -> Any:
    """Return a value of JSON or TOML that can be sent: halves of surrogate pairs become question marks.

    Raises:
        ValueError: It is nested too deeply.
    """
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case dict() | list() | tuple() if not levels:
            raise ValueError("it is nested too deeply")
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {plain(name): plain(own, levels - 1) for name, own in items}
        case list() | tuple():
            return [plain(own, levels - 1) for own in cast("list[Any]", value)]
        case _:
            return value


def _resolved(path: Path, root: Path) -> Path:
    """Return the path without links. Raises OSError if it leads to nothing, to itself, or out of `root`."""
    try:
        real = Path(os.path.realpath(path, strict=True))
    except OSError as error:
        reason = {
            errno.ELOOP: "it is a link that leads to itself",
            errno.ENOENT: "it is a link that leads to nothing" if path.is_symlink() else "it is gone",
        }.get(error.errno or 0, error.strerror)
        raise OSError(error.errno, reason) from error
    if not real.is_relative_to(root):
        raise OSError(errno.EACCES, "it is a link that leads outside this folder")
    return real


def _require_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


MAX_HASHED_BYTES = 1 << 26
MAX_FILES = 1024
"""Files whose stamps are kept."""
_RECENT_NS = 2_500_000_000
"""File systems count in steps of up to two seconds: a file may change twice in one, and keep its size."""
_N_TRIES = 3


class ChangingError(BytemillError, OSError):
    """Files keep changing while they are read."""

    status = 503


class Recent(Generic[K, T]):
    """The values that were put last, by key; threads may share them.

    Args:
        n: Number of values that are kept.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._values: OrderedDict[K, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> T | None:
        """Return a value, or None."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: K, value: T) -> None:
        """Keep a value; the one that was put first makes room."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._n:
                self._values.popitem(last=False)

    def keys(self) -> list[K]:
        """Return all keys."""
        with self._lock:
            return list(self._values)


class Stamps:
    """Stamps of the files that were opened.

    The stamp of a file is a hash of its content, which is read again only after its size, time or inode have changed.
    So a file that was written again with the same content is the same. Of a file over 64 MB, size, time and inode are
    the stamp.
    """

    def __init__(self) -> None:
        self._known: Recent[Path, tuple[tuple[int, ...], str]] = Recent(MAX_FILES)

    def of(self, paths: Sequence[Path]) -> str:
        """Return the stamp of files together; one that is missing is a part of it too."""
        found = blake2s(digest_size=8)
        for path in paths:
            found.update(self._of_file(path).encode() + b"\n")
        return found.hexdigest()

    def of_opened(self, paths: Sequence[Path]) -> str | None:
        """Return the stamp of files as they are now, or None if nobody has opened them: then nobody asks for it."""
        return None if any(self._known.get(path) is None for path in paths) else self.of(paths)

    def of_all_opened(self) -> str:
        """Return the stamp of all files that were opened, as they are now."""
        return self.of(sorted(self._known.keys()))

    def read(self, name: str, paths: Sequence[Path], read: Callable[[], T]) -> tuple[T, str]:
        """Return what `read` makes of files, and their stamp; files that change meanwhile are read again.

        Args:
            name: What messages call the files.
            paths: All files that `read` reads.
            read: Reads them.

        Raises:
            ChangingError: They keep changing.
            BytemillError: `read` failed on files that did not change.
        """
        for _ in range(_N_TRIES):
            before = self.of(paths)
            try:
                found = read()
            except BytemillError:
                if self.of(paths) == before:
                    raise
                continue
            if self.of(paths) == before:
                return found, before
        raise ChangingError(
            f"{name} is being written, so it cannot be read now",
            hint="try again when the program that writes it has ended",
        )

    def _of_file(self, path: Path) -> str:
        try:
            found = path.stat()
            signature = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            known = self._known.get(path)
            if known is not None and known[0] == signature:
                return known[1]
            if stat.S_ISREG(found.st_mode) and found.st_size <= MAX_HASHED_BYTES:
                own = blake2s(path.read_bytes(), digest_size=16).hexdigest()
                if time.time_ns() - found.st_mtime_ns < _RECENT_NS:
                    signature = ()  # to be read again
            else:
                own = repr(signature)
        except OSError:
            signature, own = (), "missing"
        self._known.put(path, (signature, own))
        return own
