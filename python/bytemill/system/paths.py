"""Where bytemill keeps what it has fetched."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """The folder for things of one kind: in `$BYTEMILL_CACHE`, else in bytemill's folder in the user's cache."""
    own = os.environ.get("BYTEMILL_CACHE")
    if own:
        return Path(own).expanduser() / kind
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # A relative path there is to be passed over, says the standard.
    base = Path(shared) if Path(shared).is_absolute() else Path("~/.cache").expanduser()
    return base / "bytemill" / kind
