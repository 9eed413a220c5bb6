"""Checks of a vocabulary before it is written: one token per id, all 256 bytes, merges of known tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from bytemill.errors import TokenizerError
from bytemill.formats.ids import MAX_ID, is_text
from bytemill.formats.ranks import merges_of_ranks

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bytemill.formats.spec import TokenizerSpec

Key = TypeVar("Key")
Value = TypeVar("Value")

SINGLE_BYTES: frozenset[bytes] = frozenset(bytes([byte]) for byte in range(256))


def checked_parts(spec: TokenizerSpec) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Return the ordinary tokens by id, in id order, and the merges.

    Raises:
        TokenizerError: Vocabulary, merges and special tokens contradict each other.
    """
    tokens = ordinary_tokens(spec)
    _check_special_tokens(spec, tokens)
    if spec.merges is None:
        return tokens, merges_of_ranks(spec.ranks or {})
    _check_merges(spec.merges, tokens.values())
    return tokens, spec.merges


def ordinary_tokens(spec: TokenizerSpec) -> dict[int, bytes]:
    """Return the ordinary tokens by id, in id order.

    Raises:
        TokenizerError: Not exactly one of merges and ranks is set, two ids share a token, or a byte has no token.
    """
    if (spec.merges is None) == (spec.ranks is None):
        raise TokenizerError("a tokenizer needs either merges or ranks, and not both")
    if spec.ranks is not None:
        tokens = {token_id: token for token, token_id in spec.ranks.items()}
        if len(tokens) != len(spec.ranks):
            raise TokenizerError("two tokens have the same rank")
    else:
        tokens = spec.vocab
    tokens = dict(sorted(tokens.items()))
    if (duplicate := first_duplicate(tokens)) is not None:
        raise TokenizerError("ids {} and {} are the same token {!r}".format(*duplicate))
    tokens = _with_ordinary_special_tokens(spec, tokens)
    missing = missing_bytes(tokens.values())
    if missing is not None:
        raise TokenizerError(f"the vocabulary lacks {missing}", hint="byte-level BPE needs all 256 bytes")
    _check_ids(tokens)
    return tokens


def _with_ordinary_special_tokens(spec: TokenizerSpec, tokens: dict[int, bytes]) -> dict[int, bytes]:
    """Add the special tokens that are also a single byte or part of a merge.

    Some tokenizers leave a token out of the vocabulary because it is special, although merges still need it.
    """
    needed = {
        part for left, right in spec.merges or () for part in (left, right, left + right)
    } | SINGLE_BYTES
    needed.difference_update(tokens.values())
    also_ordinary = {
        token_id: text.encode() for text, token_id in spec.special_tokens.items() if is_text(text)
    }
    more = {token_id: token for token_id, token in also_ordinary.items() if token in needed}
    return dict(sorted((more | tokens).items())) if more else tokens


def _check_ids(ids: Collection[int]) -> None:
    if ids and not (min(ids) >= 0 and max(ids) <= MAX_ID):
        wrong = min(ids) if min(ids) < 0 else max(ids)
        raise TokenizerError(f"token id {wrong} is not between 0 and {MAX_ID}")


def _check_special_tokens(spec: TokenizerSpec, tokens: dict[int, bytes]) -> None:
    _check_ids(list(spec.special_tokens.values()))
    if (duplicate := first_duplicate(spec.special_tokens)) is not None:
        raise TokenizerError("special tokens {!r} and {!r} have the same id {}".format(*duplicate))
    for text, token_id in spec.special_tokens.items():
        if not text:
            raise TokenizerError("a special token is empty")
        if not is_text(text):
            raise TokenizerError(
                f"special token {text!r} contains a lone surrogate, which UTF-8 cannot encode"
            )
        if tokens.get(token_id, text.encode()) != text.encode():
            raise TokenizerError(
                f"special token {text!r} and ordinary token {tokens[token_id]!r} have the same id {token_id}"
            )


def _check_merges(merges: list[tuple[bytes, bytes]], tokens: Collection[bytes]) -> None:
    known = set(tokens)
    for index, (left, right) in enumerate(merges):
        for token in (left, right, left + right):
            if token not in known:
                raise TokenizerError(
                    f"merge {index} ({left!r}, {right!r}): {token!r} is not in the vocabulary"
                )
    if (duplicate := first_duplicate(dict(enumerate(merges)))) is not None:
        raise TokenizerError("merges {} and {} are the same: {!r}".format(*duplicate))


def first_duplicate(values: Mapping[Key, Value]) -> tuple[Key, Key, Value] | None:
    """Return the first two keys with the same value, and the value; None if all values differ.

    >>> first_duplicate({"a": 1, "b": 2, "c": 1})
    ('a', 'c', 1)
    """
    if len(set(values.values())) == len(values):
        return None
    seen: dict[Value, Key] = {}
    return next(
        (seen[value], key, value) for key, value in values.items() if seen.setdefault(value, key) != key
    )


def missing_bytes(tokens: Collection[bytes]) -> str | None:
    """Describe the bytes that have no token, or return None if all 256 have one.

    >>> missing_bytes([bytes([byte]) for byte in range(255)])
    '1 of the 256 bytes (0xff)'
    """
    missing = sorted(SINGLE_BYTES.difference(tokens))
    if not missing:
        return None
    named = ", ".join(f"0x{byte.hex()}" for byte in missing[:3]) + (", …" if len(missing) > 3 else "")
    return f"{len(missing)} of the 256 bytes ({named})"
