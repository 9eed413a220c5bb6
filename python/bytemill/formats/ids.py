"""Checks of token ids and special token texts."""

from __future__ import annotations

from typing import Any

from bytemill.formats.files import wrong_value

MAX_ID = 2**32 - 1
"""Ids are unsigned 32-bit integers in every tool of the field."""


def check_id(value: Any, location: str) -> None:
    """Raise TokenizerFileError if a JSON value is not a token id."""
    if type(value) is not int or not 0 <= value <= MAX_ID:
        raise wrong_value(location, value, f"an id between 0 and {MAX_ID}")


def is_text(text: str) -> bool:
    """Return whether `text` can be encoded as UTF-8, that is, contains no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
