"""Files that the studio opens: regular ones, inside the folder that they were found in.

A folder may hold pipes, which would block a thread for ever, and links that lead out of it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bytemill.errors import BytemillError

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
