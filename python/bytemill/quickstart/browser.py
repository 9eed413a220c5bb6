"""Open the report in a browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def open_page(path: Path) -> bool:
    """Open a page in a graphical browser, and return whether there is one."""
    has_screen = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return has_screen and webbrowser.open(path.resolve().as_uri())
