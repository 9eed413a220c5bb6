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
