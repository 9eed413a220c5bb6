"""Open a page in the browser."""

from __future__ import annotations

import os
import sys
import webbrowser


def open_page(url: str) -> bool:
    """Open an address in a graphical browser, and return whether there is one."""
    has_screen = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return has_screen and webbrowser.open(url)
