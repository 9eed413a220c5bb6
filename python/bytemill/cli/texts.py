"""The text or the ids that a command works on: arguments, a file or standard input.

Files are read and ids are written in constant memory.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import CycloptsError

from bytemill.cli import output
from bytemill.corpus import Source, not_utf8, read_blocks, resolve_inputs
from bytemill.errors import CorpusError, TokenizerError, UnknownTokenError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.tokenizer.encoding import AllowedSpecial
    from bytemill.tokenizer.tokenizer import Tokenizer

_BETWEEN_IDS = bytes.maketrans(b",;[]", b"    ")
"""Accepts lists of Python and JSON, and comma-separated values."""

_DIGITS_SHOWN = 40


@dataclass(frozen=True)
class TextInput:
    """A text that can be read once."""

    name: str
    source: Source | None
    data: bytes = b""
    """The text if there is no source."""

    @classmethod
    def from_argument(cls, text: str) -> TextInput:
        """Use an argument, which may contain bytes that are not UTF-8."""
        return cls("TEXT", None, os.fsencode(text))

    @classmethod
    def from_file(cls, name: str) -> TextInput:
        """Use a file, or standard input for "-". Raises `CorpusError` if there is no such file."""
        sources = resolve_inputs([name])
        if len(sources) > 1:
            raise CorpusError(f"{name} matches {len(sources)} files", hint="name one of them")
        return cls(sources[0].name, sources[0])

    def blocks(self) -> Iterable[bytes]:
        """Return the bytes of the text in order. Raises `CorpusError` if reading fails."""
        return [self.data] if self.source is None else read_blocks(self.source)

    def read(self, errors: Literal["strict", "replace"] = "strict") -> str:
        """Return the whole text. Raises `CorpusError` if it is not UTF-8 and `errors` is "strict"."""
        data = b"".join(self.blocks())
        try:
            return data.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise self.not_utf8(error) from error

    def not_utf8(self, error: UnicodeDecodeError) -> CorpusError:
        """Make the error that names the position; `error.start` is the byte offset in the text."""
        if self.source is not None:
            return not_utf8(self.source, error)
        return CorpusError(f"{self.name}: byte offset {error.start} is not valid UTF-8")


def text_input(text: str | None, file: str | None) -> TextInput:
    """Return the text of an argument, of a file, or of standard input if both are None."""
    if text is not None and file is not None:
        raise CycloptsError("give TEXT or --file, not both")
    if text is not None and text != "-":
        return TextInput.from_argument(text)
    if file is None or file == "-":
        typed = _typed()
        return TextInput.from_file("-") if typed is None else TextInput("<stdin>", None, typed)
    return TextInput.from_file(file)


def id_blocks(ids: tuple[str, ...]) -> tuple[Iterable[bytes], str]:
    """Return ids as text, from arguments or standard input, and the name of their origin for errors."""
    if ids and ids != ("-",):
        return [" ".join(ids).encode("utf-8", "replace")], "IDS"
    source = resolve_inputs("-")[0]
    typed = _typed()
    return read_blocks(source) if typed is None else [typed], source.name


def _typed() -> bytes | None:
    """Return what the user types if standard input is a terminal, else None.

    It is read at once, so that one Ctrl-D ends it; reading in blocks would require a second one.
    """
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        return None
    output.note("reading what you type; end with Ctrl-D on a line of its own")
    return sys.stdin.buffer.read()


def encode_text(
    tokenizer: Tokenizer,
    text: TextInput,
    *,
    allowed_special: AllowedSpecial = "all",
    errors: Literal["strict", "replace"] = "strict",
    num_threads: int | None = None,
) -> Iterator[NDArray[np.uint16] | NDArray[np.uint32]]:
    """Encode a text and yield its ids as arrays.

    Raises:
        CorpusError: The text cannot be read, or is not UTF-8 and `errors` is "strict".
    """
    stream = tokenizer.core.stream(allowed_special, errors, num_threads)
    try:
        for block in text.blocks():
            yield stream.feed(block)
        yield stream.finish()
    except UnicodeDecodeError as error:
        raise text.not_utf8(error) from error


def ids_as_text(arrays: Iterable[NDArray[Any]], *, as_json: bool = False) -> Iterator[str]:
    """Yield the ids as one line separated by blanks, or as a JSON list, in parts.

    >>> import numpy as np
    >>> arrays = [np.array([262, 257]), np.array([]), np.array([3])]
    >>> "".join(ids_as_text(arrays)), "".join(ids_as_text(arrays, as_json=True))
    ('262 257 3\\n', '[262, 257, 3]\\n')
    """
    between = ", " if as_json else " "
    yield "[" if as_json else ""
    is_first = True
    for ids in arrays:
        if len(ids):
            yield ("" if is_first else between) + between.join(map(str, ids.tolist()))
            is_first = False
    yield "]\n" if as_json else "\n"


def read_ids(blocks: Iterable[bytes], name: str) -> Iterator[list[int]]:
    """Parse ids separated by blanks, commas, semicolons or brackets, and yield them in lists.

    Args:
        blocks: The text; a block may end inside a number.
        name: Name of the text for errors.

    Raises:
        TokenizerError: An entry is not a number.

    >>> list(read_ids([b"[262, 2", b"57]\\n"], "ids.json"))
    [[262], [257]]
    """
    rest, n_ids = b"", 0
    for block in blocks:
        head, last = _split_before_last(rest + block.translate(_BETWEEN_IDS))
        if len(last) > 4096:  # not a number: do not collect a file of another kind
            raise _no_id(last, n_ids, name)
        rest = last
        if ids := _ids(head, n_ids, name):
            n_ids += len(ids)
            yield ids
    if ids := _ids(rest, n_ids, name):
        yield ids


def decode_stream(tokenizer: Tokenizer, ids: Iterable[list[int]]) -> Iterator[bytes]:
    """Decode lists of ids and yield their bytes. Raises `TokenizerError` for an unknown id."""
    for each in ids:
        yield decode_ids(tokenizer, each)


def decode_ids(tokenizer: Tokenizer, ids: list[int] | NDArray[Any]) -> bytes:
    """Decode ids. Raises `TokenizerError` for an unknown id."""
    try:
        return tokenizer.decode_bytes(ids)
    except UnknownTokenError as error:
        raise TokenizerError(
            str(error),
            hint=f"the ids of this tokenizer go from 0 to {tokenizer.n_vocab - 1}",
        ) from error


def _split_before_last(text: bytes) -> tuple[bytes, bytes]:
    """Split a text after its last blank; a number there may continue in the next block."""
    if text[-1:].isspace():
        return text, b""
    last = text.rsplit(maxsplit=1)[-1] if text else b""
    return text[: len(text) - len(last)], last


def _ids(text: bytes, n_before: int, name: str) -> list[int]:
    ids: list[int] = []
    words = text.split()
    try:
        ids.extend(map(int, words))
    except ValueError as error:
        # `extend` has added the numbers before the invalid word.
        raise _no_id(words[len(ids)], n_before + len(ids), name) from error
    return ids


def _no_id(word: bytes, n_before: int, name: str) -> TokenizerError:
    shown = repr(word[:_DIGITS_SHOWN].decode("utf-8", "replace")) + ("…" if len(word) > _DIGITS_SHOWN else "")
    return TokenizerError(
        f"{name}: entry {n_before + 1} is {shown}, not an id",
        hint="ids are whole numbers separated by blanks or commas, as `bytemill tokenizer encode` prints them",
    )
