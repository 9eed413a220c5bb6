"""Opens the report where somebody sits in front of the machine."""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def open_page(path: Path) -> bool:
    """Opens a page in a browser, and tells whether there is one; browsers inside a terminal do not count."""
    has_screen = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return has_screen and webbrowser.open(path.resolve().as_uri())
