"""minbpe's `.model` files, and those of simple-bpe, which differ in the first line alone.

    minbpe v1
    THE PATTERN, an empty line for none
    THE NUMBER OF SPECIAL TOKENS
    TEXT ID         one line a special token; the text may hold blanks
    LEFT RIGHT      one line a merge, of which the first makes token 256, the second 257, …

The bytes are the tokens 0-255. The `.vocab` file beside a model is a listing for people (`vocab_listing`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, TypeAlias

from bytemill._core import check_pattern
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import decode_utf8, read_bytes, shown
from bytemill.formats.ids import MAX_ID
from bytemill.formats.ranks import merges_of_ranks, unreachable_token
from bytemill.formats.spec import TokenizerSpec, check_expressible
from bytemill.formats.vocabulary import check_merges, check_special_tokens, ordinary_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Dialect: TypeAlias = Literal["minbpe", "simple-bpe"]

_HEADERS: dict[str, Dialect] = {"minbpe v1": "minbpe", "simple-bpe v1": "simple-bpe"}

_MAX_MERGES = 1 << 21
"""More than that no encoder of bytemill takes."""

_MAX_TOKEN_BYTES = 1 << 26
"""Bytes of all tokens together. Sixty lines can name a token of 2^60 bytes, each merging the one before with
itself; the largest published vocabulary has 1.4 MB."""


def read(path: str | os.PathLike[str]) -> TokenizerSpec:
    """The tokenizer in a `.model` file. Raises TokenizerFileError naming the line that is wrong."""
    location = os.fspath(path)
    return from_text(decode_utf8(read_bytes(path), location), location)


def dialect_of(data: bytes) -> Dialect | None:
    """Whose file begins with `data`, by its first line; None where it is neither's.

    >>> dialect_of(b"minbpe v1\\r\\n")
    'minbpe'
    """
    first = data[:64].removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].strip()
    return _HEADERS.get(first.decode("ascii", "replace"))


def from_text(text: str, location: str) -> TokenizerSpec:
    """As `read`, of a file's content; `location` names it in errors."""
    n_lines = text.count("\n")
    if n_lines > _MAX_MERGES:
        raise TokenizerFileError(f"{location} has {n_lines} lines, and {_MAX_MERGES} merges are the most")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines[0].strip() not in _HEADERS:
        raise TokenizerFileError(
            f"{location}:1: is {shown(lines[0])}, not {' or '.join(map(repr, _HEADERS))}"
        )
    if len(lines) < 3:
        raise TokenizerFileError(
            f"{location}:{len(lines)}: the file ends before the number of special tokens",
            hint="It is cut short: fetch or write it again.",
        )
    if lines[-1]:
        raise TokenizerFileError(
            f"{location}:{len(lines)}: {shown(lines[-1])} is a line without an end, which may be cut short",
            hint="Fetch or write the file again; if it is whole, add a line break at its end.",
        )
    special_tokens, first_merge = _read_special_tokens(lines, location)
    vocab, merges = _read_merges(lines, first_merge, location)
    _check_special_ids(special_tokens, vocab, location)
    return TokenizerSpec(
        pattern=_checked_pattern(lines[1], location),
        special_tokens=special_tokens,
        vocab=vocab,
        merges=merges,
    )


def write(spec: TokenizerSpec, dialect: Dialect = "minbpe") -> str:
    """The text of a `.model` file.

    Raises TokenizerError where the file, or minbpe that opens it, could not say what `spec` says: where ids
    are not the byte values and then the merges in order, where a token has no merge, and where the pattern or
    a special token holds what minbpe's reader takes apart.
    """
    check_expressible(spec, "a .model")
    tokens = ordinary_tokens(spec)
    check_special_tokens(spec, tokens)
    merges = spec.merges if spec.merges is not None else merges_of_ranks(spec.ranks or {})
    check_merges(merges, tokens.values())
    _check_ids(tokens, merges)
    if spec.ignore_merges or spec.ranks is not None:
        unmerged = unreachable_token(merges, list(tokens.values()))
        if unmerged is not None:
            raise TokenizerError(
                f"no sequence of merges makes token {unmerged!r}, and minbpe has no other way to it",
                hint="Write a tokenizer.json.",
            )
    pattern = spec.pattern or ""
    if pattern != pattern.strip() or len(pattern.splitlines()) > 1:
        raise TokenizerError(
            f"pattern {shown(pattern)} begins or ends with white space or has several lines, and minbpe "
            "would read another one",
            hint="Write a tokenizer.json.",
        )
    special_tokens = _in_minbpes_order(spec.special_tokens)
    for text in special_tokens:
        if len(text.split()) != 1 or text != text.strip():
            raise TokenizerError(
                f"special token {text!r} holds white space, and minbpe does not read such a file",
                hint="Write a tokenizer.json.",
            )
    ids = {token: token_id for token_id, token in tokens.items()}
    header = next(line for line, of in _HEADERS.items() if of == dialect)
    lines = [
        *(header, pattern, str(len(special_tokens))),
        *(f"{text} {token_id}" for text, token_id in special_tokens.items()),
        *(f"{ids[left]} {ids[right]}" for left, right in merges),
    ]
    return "\n".join(lines) + "\n"


def _checked_pattern(line: str, location: str) -> str | None:
    # minbpe's own reader strips the line. A pattern that begins with " ?" would lose its meaning.
    if not line:
        return None
    try:
        check_pattern(line)
    except ValueError as error:
        raise TokenizerFileError(f"{location}:2: pattern {shown(line)}: {error}") from error
    return line


def _read_special_tokens(lines: list[str], location: str) -> tuple[dict[str, int], int]:
    """The special tokens, and the index of the line that follows them."""
    n_special = _number(lines[2].strip())
    if n_special is None:
        raise TokenizerFileError(f"{location}:3: {shown(lines[2])} is not a number of special tokens")
    special_tokens: dict[str, int] = {}
    texts: dict[int, str] = {}
    if n_special > len(lines) - 3:
        raise TokenizerFileError(
            f"{location}:3: {n_special} special tokens are announced, and {len(lines) - 3} lines follow",
            hint="The file is cut short: fetch or write it again.",
        )
    for index in range(3, 3 + n_special):
        place = f"{location}:{index + 1}"
        text, _, id_text = lines[index].rpartition(" ")
        token_id = _number(id_text)
        if not text or token_id is None:
            raise TokenizerFileError(f"{place}: {shown(lines[index])} is not a special token and its id")
        if text in special_tokens:
            raise TokenizerFileError(f"{place}: special token {shown(text)} appears twice")
        if token_id in texts:
            raise TokenizerFileError(
                f"{place}: special tokens {shown(texts[token_id])} and {shown(text)} have the same id {token_id}"
            )
        special_tokens[text] = token_id
        texts[token_id] = text
    hidden = hidden_token(special_tokens)
    if hidden is not None:
        shorter, longer = hidden
        raise TokenizerFileError(
            f"{location}: special token {shown(shorter)} stands before {shown(longer)}, which begins with it: "
            "minbpe never finds the longer one, and bytemill would",
            hint="Put the longer token first if it is to be found, or take it out.",
        )
    return special_tokens, 3 + n_special


def _read_merges(
    lines: list[str], first: int, location: str
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    tokens = [bytes([byte]) for byte in range(256)]
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    merges: list[tuple[bytes, bytes]] = []
    n_bytes = 256
    for number, line in enumerate(lines[first:], start=first + 1):
        parts = line.split()
        if not parts:
            continue
        left, right = map(_number, parts) if len(parts) == 2 else (None, None)
        if left is None or right is None:
            raise TokenizerFileError(f"{location}:{number}: {shown(line)} is not two ids")
        if left >= len(tokens) or right >= len(tokens):
            raise TokenizerFileError(
                f"{location}:{number}: merges token {max(left, right)}, but this line makes token {len(tokens)}, "
                "and only those below it are there already"
            )
        n_bytes += len(tokens[left]) + len(tokens[right])
        if n_bytes > _MAX_TOKEN_BYTES:
            raise TokenizerFileError(
                f"{location}:{number}: up to this line the tokens have {n_bytes} bytes together, and bytemill "
                f"takes at most {_MAX_TOKEN_BYTES}"
            )
        joined = tokens[left] + tokens[right]
        if ids.setdefault(joined, len(tokens)) != len(tokens):
            raise TokenizerFileError(
                f"{location}:{number}: makes {shown(joined)}, which is token {ids[joined]} already"
            )
        tokens.append(joined)
        merges.append((tokens[left], tokens[right]))
    return dict(enumerate(tokens)), merges


def _check_special_ids(special_tokens: Mapping[str, int], vocab: Mapping[int, bytes], location: str) -> None:
    for place, (text, token_id) in enumerate(special_tokens.items(), start=4):
        if vocab.get(token_id, text.encode()) != text.encode():
            made_by = "is a byte" if token_id < 256 else "a merge makes"
            raise TokenizerFileError(
                f"{location}:{place}: special token {shown(text)} has id {token_id}, which {made_by}: "
                f"{shown(vocab[token_id])}"
            )


def hidden_token(texts: Iterable[str]) -> tuple[str, str] | None:
    """A text and a later one that begins with it, None where there are no such two.

    minbpe looks for special tokens with an expression of alternatives, of which the first that fits wins.
    """
    places = {text: place for place, text in enumerate(texts)}
    # Sorted, a text is preceded by those it begins with; on the stack each knows the earliest of them.
    stack: list[tuple[str, str]] = []
    for text in sorted(places):
        while stack and not text.startswith(stack[-1][0]):
            stack.pop()
        first = stack[-1][1] if stack else text
        if places[first] < places[text]:
            return first, text
        stack.append((text, text))
    return None


def _in_minbpes_order(special_tokens: Mapping[str, int]) -> Mapping[str, int]:
    """As they are, but the longest first where minbpe would not find a token otherwise."""
    if hidden_token(special_tokens) is None:
        return special_tokens
    return dict(sorted(special_tokens.items(), key=lambda item: -len(item[0])))


def _check_ids(tokens: Mapping[int, bytes], merges: list[tuple[bytes, bytes]]) -> None:
    expected = [bytes([byte]) for byte in range(256)] + [left + right for left, right in merges]
    for token_id, token in enumerate(expected):
        if tokens.get(token_id) != token:
            there = f"is {tokens[token_id]!r}" if token_id in tokens else "is no ordinary token"
            raise TokenizerError(
                f"minbpe's ids are the byte values and then the merges in order, so that {token!r} is "
                f"{token_id}; here {token_id} {there}",
                hint="Write a tokenizer.json.",
            )
    if len(tokens) > len(expected):
        orphan = next(token for token_id, token in tokens.items() if token_id >= len(expected))
        raise TokenizerError(
            f"no merge makes token {orphan!r}, and minbpe has no other way to it",
            hint="Write a tokenizer.json.",
        )


def _number(text: str) -> int | None:
    """The id or count that `text` is; None where it is none. Ten digits hold every id."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        return None
    number = int(text)
    return number if number <= MAX_ID else None
