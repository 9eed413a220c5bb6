"""Ids as text, to and from, in memory that does not grow with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from bytemill.errors import TokenizerError, UnknownTokenError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.cli.text_input import TextInput
    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.tokenizer.types import AllowedSpecial

_BETWEEN_IDS = bytes.maketrans(b",;[]", b"    ")
"""Lists of Python and JSON and comma-separated values are ids with more than blanks between them."""

_DIGITS_SHOWN = 40


def encode_text(
    tokenizer: Tokenizer,
    text: TextInput,
    *,
    allowed_special: AllowedSpecial = "all",
    errors: Literal["strict", "replace"] = "strict",
    num_threads: int | None = None,
) -> Iterator[NDArray[np.uint16] | NDArray[np.uint32]]:
    """The ids of a text, array by array as they become certain.

    Raises `CorpusError` for what is not UTF-8 (with `errors="strict"`) or cannot be read.
    """
    stream = tokenizer.core.stream(allowed_special, errors, num_threads)
    try:
        for block in text.blocks():
            yield stream.feed(block)
        yield stream.finish()
    except UnicodeDecodeError as error:
        raise text.not_utf8(error) from error


def ids_as_text(arrays: Iterable[NDArray[Any]], *, as_json: bool = False) -> Iterator[str]:
    """One line with all ids and blanks between them, or a JSON list of them, piece by piece.

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
    """The ids that text spells, list by list; blanks, commas, semicolons and brackets stand between them.

    Blocks may be cut inside a number. Raises `TokenizerError` for what is no number, with its place.

    >>> list(read_ids([b"[262, 2", b"57]\\n"], "ids.json"))
    [[262], [257]]
    """
    rest, n_ids = b"", 0
    for block in blocks:
        head, last = _split_before_last(rest + block.translate(_BETWEEN_IDS))
        if len(last) > 4096:  # no number is as long: do not collect a file of another kind
            raise _no_id(last, n_ids, name)
        rest = last
        if ids := _ids(head, n_ids, name):
            n_ids += len(ids)
            yield ids
    if ids := _ids(rest, n_ids, name):
        yield ids


def decode_stream(tokenizer: Tokenizer, ids: Iterable[list[int]]) -> Iterator[bytes]:
    """The bytes of ids, piece by piece. Raises `TokenizerError` for an id that no token has."""
    for some in ids:
        yield decode_ids(tokenizer, some)


def decode_ids(tokenizer: Tokenizer, ids: list[int] | NDArray[Any]) -> bytes:
    """The bytes of `ids`. Raises `TokenizerError` for an id that no token has."""
    try:
        return tokenizer.decode_bytes(ids)
    except UnknownTokenError as error:
        raise TokenizerError(
            str(error),
            hint=f"the ids of this tokenizer go from 0 to {tokenizer.n_vocab - 1}",
        ) from error


def _split_before_last(text: bytes) -> tuple[bytes, bytes]:
    """The text up to its last blank, and what follows it: a number that may go on in the next block."""
    end = len(text)
    trimmed = text.rstrip()
    if len(trimmed) < end:
        return text, b""
    parts = text.rsplit(maxsplit=1)
    return (parts[0], parts[1]) if len(parts) == 2 else (b"", text)


def _ids(text: bytes, n_before: int, name: str) -> list[int]:
    ids: list[int] = []
    words = text.split()
    try:
        ids.extend(map(int, words))
    except ValueError as error:
        # `extend` has taken the numbers before the word that is none.
        raise _no_id(words[len(ids)], n_before + len(ids), name) from error
    return ids


def _no_id(word: bytes, place: int, name: str) -> TokenizerError:
    shown = repr(word[:_DIGITS_SHOWN].decode("utf-8", "replace")) + ("…" if len(word) > _DIGITS_SHOWN else "")
    return TokenizerError(
        f"{name}: entry {place + 1} is {shown}, no id",
        hint="ids are whole numbers with blanks or commas between them, as `tokenizer encode` prints them",
    )
