"""What a token's id may be, and the text of a special token."""

from __future__ import annotations

from typing import Any

from bytemill.errors import TokenizerFileError
from bytemill.formats.files import shown

MAX_ID = 2**32 - 1
"""Ids are unsigned 32-bit numbers in every tool of the field."""


def check_id(value: Any, place: str) -> None:
    """Raise TokenizerFileError where a JSON value is no token id."""
    if type(value) is not int or not 0 <= value <= MAX_ID:
        raise TokenizerFileError(f"{place}: is {shown(value)}, not an id between 0 and {MAX_ID}")


def is_text(text: str) -> bool:
    """Whether `text` can be UTF-8: that it holds no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
