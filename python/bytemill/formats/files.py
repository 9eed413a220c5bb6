"""Reading of files and JSON with errors that name the file and the place."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from bytemill._core import NAMED_PATTERNS, check_pattern
from bytemill.errors import TokenizerError, TokenizerFileError

if TYPE_CHECKING:
    import os

GGUF_MAGIC = b"GGUF"
"""How files begin that may be as large as a model, and of which only the head is read."""


MAX_FILE_BYTES = 1 << 28
"""More than a tokenizer file has: the largest published ones have 35 MB."""


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The file's bytes. Raises TokenizerFileError where it cannot be read, is far too large, or is empty."""
    file = Path(path)
    try:
        data = file.read_bytes() if _is_small(file) else _read_stream(file)
    except TokenizerFileError:
        raise
    except FileNotFoundError as error:
        raise TokenizerFileError(f"{file}: no such file", hint="Check the path.") from error
    except IsADirectoryError as error:
        raise TokenizerFileError(f"{file}: is a folder, not a file") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TokenizerFileError(f"{file}: cannot be read: {reason}") from error
    if not data or data.isspace():  # `strip` would copy it
        raise TokenizerFileError(f"{file}: the file is empty")
    return data


def _is_small(file: Path) -> bool:
    """Whether it is a file of a size that is known and bounded; not so a device or a pipe."""
    facts = file.stat()
    if facts.st_size > MAX_FILE_BYTES:
        raise _too_large(file)
    return stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)


def _read_stream(file: Path) -> bytes:
    data = bytearray()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            data += block
            if len(data) > MAX_FILE_BYTES:
                raise _too_large(file)
    return bytes(data)


def _too_large(file: Path) -> TokenizerFileError:
    return TokenizerFileError(
        f"{file}: has more than {MAX_FILE_BYTES >> 20} MiB, which no tokenizer file has",
        hint="Give the tokenizer's file, not the weights of its model or a corpus.",
    )


def begins_with(path: Path, magic: bytes) -> bool:
    """Whether a regular file begins with `magic`. A pipe is left as it is: it could not be read a second time."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except (OSError, ValueError):  # who reads the file afterwards will say what is wrong
        return False


def decode_utf8(data: bytes, location: str) -> str:
    """`data` as text, without a byte order mark. Raises TokenizerFileError naming the first wrong byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerFileError(
            f"{location}: not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}"
        ) from error


def parse_json(text: str, location: str) -> Any:
    """The JSON value in `text`. Raises TokenizerFileError naming line and column of what is wrong."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TokenizerFileError(
            f"{location}: not valid JSON at line {error.lineno} column {error.colno}: {error.msg}",
            hint="The file may be cut short: fetch or write it again.",
        ) from error
    except RecursionError as error:
        raise TokenizerFileError(f"{location}: not a tokenizer: its JSON is nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise TokenizerFileError(f"{location}: not valid JSON: {error}") from error


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Whether a JSON value is an array."""
    return isinstance(value, list)


def checked_pattern(pattern: str | None) -> str | None:
    """A pattern that a caller gives, by name or as an expression, as an expression; None for no splitting.

    Raises TokenizerError where it is neither.
    """
    if pattern is None:
        return None
    try:
        check_pattern(pattern)
    except ValueError as error:
        raise TokenizerError(f"pattern {shown(pattern)}: {error}") from error
    return NAMED_PATTERNS.get(pattern, pattern)


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
    if isinstance(value, str | bytes):
        value = value[
            :n_characters
        ]  # what is longer is cut anyway, and its repr may be hundreds of megabytes
    text = "null" if value is None else repr(value)
    return text if len(text) <= n_characters else text[: n_characters - 1] + "…"
