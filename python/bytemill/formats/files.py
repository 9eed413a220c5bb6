"""Read files and JSON with errors that name the file and the position; names of files that belong together."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, TypeGuard

from bytemill.errors import TokenizerFileError

GGUF_MAGIC = b"GGUF"
"""First bytes of a GGUF file. These may be as large as a model, so only their head is read."""

SIDECAR_FILES = (
    *("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "added_tokens.json"),
    "config.json",
)
"""Files beside a tokenizer.json, or beside vocab.json and merges.txt, that Hugging Face's transformers reads."""

GPT2_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""Names of GPT-2's two files."""

MAX_ID = 2**32 - 1
"""Ids are unsigned 32-bit integers in every tool of the field."""

MAX_FILE_BYTES = 1 << 28
"""Limit for all other files. The largest published tokenizer files have 35 MB."""


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a file. Raises TokenizerFileError if it is unreadable, too large, or empty."""
    file = Path(path)
    try:
        data = file.read_bytes() if _has_bounded_size(file) else _read_stream(file)
    except TokenizerFileError:
        raise
    except FileNotFoundError as error:
        raise TokenizerFileError(f"{file}: no such file", hint="check the path") from error
    except IsADirectoryError as error:
        raise TokenizerFileError(f"{file} is a folder, not a file") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TokenizerFileError(f"{file}: cannot be read: {reason}") from error
    if not data or data.isspace():  # `strip` would copy the data
        raise TokenizerFileError(f"{file}: the file is empty")
    return data


def _has_bounded_size(file: Path) -> bool:
    """Return False for devices and pipes, whose size is unknown."""
    status = file.stat()
    if status.st_size > MAX_FILE_BYTES:
        raise _too_large(file)
    return stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)


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
        f"{file} has more than {MAX_FILE_BYTES >> 20} MiB, which no tokenizer file has",
        hint="give the tokenizer's file, not the weights of its model or a corpus",
    )


def begins_with(path: Path, magic: bytes) -> bool:
    """Return whether a regular file begins with `magic`. Never reads from a pipe, which cannot be read twice."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except (OSError, ValueError):  # the reader will report the problem
        return False


def decode_utf8(data: bytes, location: str) -> str:
    """Decode `data` without a byte-order mark. Raises TokenizerFileError with the offset of the first invalid byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerFileError(
            f"{location}: not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}"
        ) from error


def parse_json(text: str, location: str) -> Any:
    """Parse JSON. Raises TokenizerFileError with line and column."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TokenizerFileError(
            f"{location}: not valid JSON at line {error.lineno} column {error.colno}: {error.msg}",
            hint="the file may be truncated: download or write it again",
        ) from error
    except RecursionError as error:
        raise TokenizerFileError(f"{location}: not a tokenizer: its JSON is nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise TokenizerFileError(f"{location}: not valid JSON: {error}") from error


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 file. Raises as `read_bytes` and `decode_utf8` do."""
    return decode_utf8(read_bytes(path), os.fspath(path))


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file. Raises as `read_text` and `parse_json` do."""
    return parse_json(read_text(path), os.fspath(path))


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)


def wrong_value(location: str, value: object, expected: str) -> TokenizerFileError:
    """Return the error for a JSON value of the wrong kind."""
    return TokenizerFileError(f"{location} is {shown(value)}, not {expected}")


def object_at(value: Any, location: str, expected: str = "an object") -> dict[str, Any]:
    """Return a JSON value that must be an object. Raises TokenizerFileError."""
    if not is_object(value):
        raise wrong_value(location, value, expected)
    return value


def array_at(value: Any, location: str) -> list[Any]:
    """Return a JSON value that must be an array. Raises TokenizerFileError."""
    if not is_array(value):
        raise wrong_value(location, value, "an array")
    return value


def bool_at(value: Any, location: str) -> bool:
    """Return a JSON value that must be a boolean. Raises TokenizerFileError."""
    if not isinstance(value, bool):
        raise wrong_value(location, value, "true or false")
    return value


def shown(value: object, n_characters: int = 60) -> str:
    """Return a short form of `value` for messages: its repr, or the kind of a JSON container.

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
        value = value[:n_characters]  # the repr of a huge string would be huge
    text = "null" if value is None else repr(value)
    return text if len(text) <= n_characters else text[: n_characters - 1] + "…"


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


def vocab_and_merges_paths(path: Path) -> tuple[Path, Path]:
    """Return the paths of GPT-2's two files, where `path` names one of them or a folder.

    >>> [file.name for file in vocab_and_merges_paths(Path("gpt2_vocab.json"))]
    ['gpt2_vocab.json', 'gpt2_merges.txt']
    """
    if not path.is_dir():
        for vocab_name, merges_name in GPT2_FILES:
            for name in (vocab_name, merges_name):
                if path.name.endswith(name):
                    start = path.name.removesuffix(name)
                    return path.with_name(start + vocab_name), path.with_name(start + merges_name)
    return path / "vocab.json", path / "merges.txt"
