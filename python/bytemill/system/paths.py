"""Paths: the cache folder, and the check that an output path is local."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bytemill.errors import OutputError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
"""A scheme of at least two letters, so that a Windows drive does not match. `Path` turns `s3://` into `s3:/`."""


def require_local(path: str | os.PathLike[str]) -> None:
    """Check that an output path is not a URL, which would create a local folder such as `s3:`.

    Args:
        path: Output file or folder.

    Raises:
        OutputError: If the path starts with a scheme such as `s3://`.
    """
    text = os.fspath(path)
    if match := _URL.match(text):
        url = f"{match[1]}://{text[match.end() :]}"
        raise OutputError(
            f"cannot write {url}: output must be a local path, {match[1]}:// is not supported",
            hint="write to a local path, then copy the result with the store's own tool",
        )


def relative_name(name: str) -> str:
    """Return a name with slashes that stays inside the folder it is relative to.

    Args:
        name: Name from a file that others may have written.

    Raises:
        ValueError: It is absolute, leaves the folder, or cannot be a name on this machine.

    >>> relative_name("optimizer/process_00000.safetensors")
    'optimizer/process_00000.safetensors'
    """
    is_odd = "\\" in name or not name.isprintable() or (os.name != "posix" and ":" in name)
    if is_odd or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError("it must be a name inside its folder")
    return name


def file_name(name: str) -> str:
    """Return the name of a file or folder, without a folder. Raises ValueError for other names.

    >>> file_name("own-8k.tiny.seed0")
    'own-8k.tiny.seed0'
    """
    if "/" in name:
        raise ValueError("it must be a name without a folder")
    return relative_name(name)


def cache_folder(kind: str) -> Path:
    """Return the cache folder for one kind of downloads.

    Args:
        kind: Name of the subfolder, for example "tokenizers".

    Returns:
        A folder in `$BYTEMILL_CACHE` if it is set, else in `bytemill` in the user's cache folder.
    """
    own = os.environ.get("BYTEMILL_CACHE")
    if own:
        return Path(own).expanduser() / kind
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification requires relative paths to be ignored.
    base = Path(shared) if Path(shared).is_absolute() else Path("~/.cache").expanduser()
    return base / "bytemill" / kind
