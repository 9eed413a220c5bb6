"""Reading of files and JSON with errors that name the file and the place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from bytemill.errors import TokenizerFileError

if TYPE_CHECKING:
    import os

GGUF_MAGIC = b"GGUF"
"""How files begin that may be as large as a model, and of which only the head is read."""


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The file's bytes. Raises TokenizerFileError where it cannot be read or holds nothing."""
    file = Path(path)
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise TokenizerFileError(f"{file}: no such file", hint="Check the path.") from error
    except IsADirectoryError as error:
        raise TokenizerFileError(f"{file}: is a folder, not a file") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TokenizerFileError(f"{file}: cannot be read: {reason}") from error
    if not data.strip():
        raise TokenizerFileError(f"{file}: the file is empty")
    return data


def begins_with(path: Path, magic: bytes) -> bool:
    """Whether a regular file begins with `magic`. A pipe is left as it is: it could not be read a second time."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except (OSError, ValueError):  # who reads the file afterwards will say what is wrong
        return False


def decode_utf8(data: bytes, where: str) -> str:
    """`data` as text, without a byte order mark. Raises TokenizerFileError naming the first wrong byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerFileError(
            f"{where}: not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}"
        ) from error


def parse_json(text: str, where: str) -> Any:
    """The JSON value in `text`. Raises TokenizerFileError naming line and column of what is wrong."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TokenizerFileError(
            f"{where}: not valid JSON at line {error.lineno} column {error.colno}: {error.msg}",
            hint="The file may be cut short: fetch or write it again.",
        ) from error
    except RecursionError as error:
        raise TokenizerFileError(f"{where}: not a tokenizer: its JSON is nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise TokenizerFileError(f"{where}: not valid JSON: {error}") from error


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Whether a JSON value is an array."""
    return isinstance(value, list)


def shown(value: object, n_characters: int = 60) -> str:
    """`value` as it may stand in an error message: its repr cut to `n_characters`; of containers only the
    kind.

    >>> shown("x" * 100, 10)
    "'xxxxxxxx…"
    >>> shown([1, 2])
    'an array'
    """
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = "null" if value is None else repr(value)
    return text if len(text) <= n_characters else text[: n_characters - 1] + "…"
