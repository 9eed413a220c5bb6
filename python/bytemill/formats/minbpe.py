"""minbpe's `.model` files, and simple-bpe's, which differ only in the first line.

    minbpe v1
    PATTERN         an empty line for none
    NUMBER OF SPECIAL TOKENS
    TEXT ID         one line per special token; the text may contain blanks
    LEFT RIGHT      one line per merge; the first produces token 256, the second 257, …

The bytes are tokens 0-255. The `.vocab` file beside a model is a listing for people (`vocab_listing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from bytemill._core import check_pattern
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import MAX_ID, shown
from bytemill.formats.ranks import unreachable_token
from bytemill.formats.spec import TokenizerSpec, check_expressible, checked_parts, training_left_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from bytemill.formats.registry import Content

Dialect: TypeAlias = Literal["minbpe", "simple-bpe"]

_HEADERS: dict[str, Dialect] = {"minbpe v1": "minbpe", "simple-bpe v1": "simple-bpe"}

_MAX_MERGES = 1 << 21
"""bytemill's encoder accepts no more."""

_MAX_TOKEN_BYTES = 1 << 26
"""Limit for all tokens together. Sixty lines, each merging the previous token with itself, define a token of 2^60
bytes; the largest published vocabulary has 1.4 MB."""

_TRUNCATED = "the file is truncated: download or write it again"
_WRITE_JSON = "write a tokenizer.json"


def recognize(content: Content) -> bool:
    """Return whether a file's first line names a dialect."""
    return dialect_of(content.data) is not None


def read(content: Content) -> TokenizerSpec:
    """Read a file. Raises TokenizerFileError."""
    text = content.text
    content.refuse_arguments()
    return from_text(text, content.location)


def render(spec: TokenizerSpec, path: Path) -> dict[Path, bytes]:
    """Return the file to write. Raises as `write`."""
    return {path: write(spec).encode()}


def left_out(spec: TokenizerSpec) -> list[str]:
    """Describe what the file does not store."""
    return training_left_out(spec)


def dialect_of(data: bytes) -> Dialect | None:
    """Return the dialect that the first line of a file names, if any.

    >>> dialect_of(b"minbpe v1\\r\\n")
    'minbpe'
    """
    first = data[:64].removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].strip()
    return _HEADERS.get(first.decode("ascii", "replace"))


def from_text(text: str, location: str) -> TokenizerSpec:
    """Read the text of a `.model` file; `location` names the file in errors, before the line number."""
    n_lines = text.count("\n")
    if n_lines > _MAX_MERGES:
        raise TokenizerFileError(
            f"{location} has {n_lines} lines; at most {_MAX_MERGES} merges are supported"
        )
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines[0].strip() not in _HEADERS:
        raise TokenizerFileError(
            f"{location}:1: header is {shown(lines[0])}, not {' or '.join(map(repr, _HEADERS))}"
        )
    if len(lines) < 3:
        raise TokenizerFileError(
            f"{location}:{len(lines)}: the file ends before the number of special tokens", hint=_TRUNCATED
        )
    if lines[-1]:
        raise TokenizerFileError(
            f"{location}:{len(lines)}: the last line {shown(lines[-1])} has no line break and may be truncated",
            hint="download or write the file again, or end it with a line break if it is complete",
        )
    special_tokens, first_merge = _read_special_tokens(lines, location)
    vocab, merges = _read_merges(lines, first_merge, location)
    _check_special_ids(special_tokens, vocab, location)
    return TokenizerSpec(
        pattern=_read_pattern(lines[1], location), special_tokens=special_tokens, vocab=vocab, merges=merges
    )


def _read_pattern(line: str, location: str) -> str | None:
    # Not stripped, unlike in minbpe's parser: a pattern that begins with " ?" would change its meaning.
    if not line:
        return None
    try:
        check_pattern(line)
    except ValueError as error:
        raise TokenizerFileError(f"{location}:2: pattern {shown(line)}: {error}") from error
    return line


def _read_special_tokens(lines: list[str], location: str) -> tuple[dict[str, int], int]:
    """Return the special tokens and the index of the line after them."""
    n_special = _number(lines[2].strip())
    if n_special is None:
        raise TokenizerFileError(f"{location}:3: {shown(lines[2])} is not a number of special tokens")
    special_tokens: dict[str, int] = {}
    texts: dict[int, str] = {}
    if n_special > len(lines) - 3:
        raise TokenizerFileError(
            f"{location}:3: announces {n_special} special tokens, but only {len(lines) - 3} lines follow",
            hint=_TRUNCATED,
        )
    for index in range(3, 3 + n_special):
        line_location = f"{location}:{index + 1}"
        text, _, id_text = lines[index].rpartition(" ")
        token_id = _number(id_text)
        if not text or token_id is None:
            raise TokenizerFileError(
                f"{line_location}: {shown(lines[index])} is not a special token and its id"
            )
        if text in special_tokens:
            raise TokenizerFileError(f"{line_location}: special token {shown(text)} appears twice")
        if token_id in texts:
            raise TokenizerFileError(
                f"{line_location}: special tokens {shown(texts[token_id])} and {shown(text)} have the same id "
                f"{token_id}"
            )
        special_tokens[text] = token_id
        texts[token_id] = text
    hidden = hidden_token(special_tokens)
    if hidden is not None:
        shorter, longer = hidden
        raise TokenizerFileError(
            f"{location}: special token {shown(shorter)} precedes {shown(longer)}, which begins with it, so minbpe "
            "never finds the longer one; bytemill would",
            hint="put the longer token first, or remove it",
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
                f"{location}:{number}: merges token {max(left, right)}, which is not defined yet: "
                f"this line defines token {len(tokens)}"
            )
        n_bytes += len(tokens[left]) + len(tokens[right])
        if n_bytes > _MAX_TOKEN_BYTES:
            raise TokenizerFileError(
                f"{location}:{number}: the tokens up to this line have {n_bytes} bytes in total; "
                f"at most {_MAX_TOKEN_BYTES} are supported"
            )
        joined = tokens[left] + tokens[right]
        if ids.setdefault(joined, len(tokens)) != len(tokens):
            raise TokenizerFileError(
                f"{location}:{number}: produces {shown(joined)}, which is already token {ids[joined]}"
            )
        tokens.append(joined)
        merges.append((tokens[left], tokens[right]))
    return dict(enumerate(tokens)), merges


def _check_special_ids(special_tokens: Mapping[str, int], vocab: Mapping[int, bytes], location: str) -> None:
    for number, (text, token_id) in enumerate(special_tokens.items(), start=4):
        if vocab.get(token_id, text.encode()) != text.encode():
            owner = "a byte" if token_id < 256 else "the product of a merge"
            raise TokenizerFileError(
                f"{location}:{number}: special token {shown(text)} has id {token_id}, which is {owner}: "
                f"{shown(vocab[token_id])}"
            )


def hidden_token(texts: Iterable[str]) -> tuple[str, str] | None:
    """Return a text and a later one that begins with it, if any.

    minbpe matches special tokens with a regular expression of alternatives, of which the first match wins.
    """
    positions = {text: position for position, text in enumerate(texts)}
    # In sorted order, the prefixes of a text precede it; each stack entry has the earliest prefix of its text.
    stack: list[tuple[str, str]] = []
    for text in sorted(positions):
        while stack and not text.startswith(stack[-1][0]):
            stack.pop()
        first = stack[-1][1] if stack else text
        if positions[first] < positions[text]:
            return first, text
        stack.append((text, text))
    return None


def write(spec: TokenizerSpec, dialect: Dialect = "minbpe") -> str:
    """Return the text of a `.model` file.

    Raises:
        TokenizerError: minbpe could not read the file correctly: ids are not the byte values followed by the merges in
            order, a token has no merge, or minbpe's parser would change the pattern or a special token.
    """
    check_expressible(spec, "a .model")
    tokens, merges = checked_parts(spec)
    _check_ids(tokens, merges)
    if spec.ignore_merges or spec.ranks is not None:
        unmerged = unreachable_token(merges, list(tokens.values()))
        if unmerged is not None:
            raise TokenizerError(
                f"no sequence of merges produces token {unmerged!r}, which minbpe requires", hint=_WRITE_JSON
            )
    pattern = spec.pattern or ""
    if pattern != pattern.strip() or "\n" in pattern or "\r" in pattern:
        raise TokenizerError(
            f"pattern {shown(pattern)} begins or ends with white space or has several lines, which minbpe's parser "
            "would change",
            hint=_WRITE_JSON,
        )
    special_tokens = spec.special_tokens
    if hidden_token(special_tokens) is not None:
        # Longest first, so that minbpe finds each of them.
        special_tokens = dict(sorted(special_tokens.items(), key=lambda item: -len(item[0])))
    for text in special_tokens:
        if len(text.split()) != 1 or text != text.strip():
            raise TokenizerError(
                f"special token {text!r} contains white space, which minbpe cannot read", hint=_WRITE_JSON
            )
    ids = {token: token_id for token_id, token in tokens.items()}
    header = next(line for line, of in _HEADERS.items() if of == dialect)
    lines = [
        *(header, pattern, str(len(special_tokens))),
        *(f"{text} {token_id}" for text, token_id in special_tokens.items()),
        *(f"{ids[left]} {ids[right]}" for left, right in merges),
    ]
    return "\n".join(lines) + "\n"


def _check_ids(tokens: Mapping[int, bytes], merges: list[tuple[bytes, bytes]]) -> None:
    expected = [bytes([byte]) for byte in range(256)] + [left + right for left, right in merges]
    for token_id, token in enumerate(expected):
        if tokens.get(token_id) != token:
            actual = f"is {tokens[token_id]!r}" if token_id in tokens else "is not an ordinary token"
            raise TokenizerError(
                f"minbpe numbers the bytes and then the merges in order, so {token!r} must have id {token_id}, "
                f"but id {token_id} {actual}",
                hint=_WRITE_JSON,
            )
    ids = {token: token_id for token_id, token in enumerate(expected)}
    for token_id, (left, right) in enumerate(merges, 256):
        if max(ids[left], ids[right]) >= token_id:
            raise TokenizerError(
                f"minbpe requires the order of merges to be that of their parts, unlike for {left + right!r}",
                hint=_WRITE_JSON,
            )
    if len(tokens) > len(expected):
        orphan = next(token for token_id, token in tokens.items() if token_id >= len(expected))
        raise TokenizerError(f"no merge produces token {orphan!r}, which minbpe requires", hint=_WRITE_JSON)


def _number(text: str) -> int | None:
    """Parse an id or a count, which has at most ten digits; None for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        return None
    number = int(text)
    return number if number <= MAX_ID else None
