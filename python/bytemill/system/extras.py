"""Hints for installing optional dependencies."""

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def is_checkout() -> bool:
    """Check whether bytemill runs from a source checkout rather than an installed package."""
    return (_ROOT / "pyproject.toml").is_file() and (_ROOT / "crates" / "bytemill").is_dir()


def install_hint(extra: str) -> str:
    """Return the command that installs an extra, for use in an error hint.

    Args:
        extra: Name of the extra, for example "data" or "lm".
    """
    if is_checkout():
        return f"uv sync --extra {extra}"
    return f"pip install 'bytemill[{extra}]'"
