"""Conversion from and to tiktoken's `Encoding`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from bytemill.errors import TokenizerError
from bytemill.formats.files import shown
from bytemill.formats.pattern_coverage import coverage_gap
from bytemill.formats.spec import BYTES_SEPARATOR, STEP_SEPARATOR, TokenizerSpec
from bytemill.formats.tiktoken.pattern import pattern_from, pattern_to
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from collections.abc import Mapping

    import tiktoken


class EncodingView(Protocol):
    """An `Encoding` of `bytemill.compat.tiktoken`."""

    name: str


def spec_of(encoding: Any) -> TokenizerSpec:
    """Convert a tiktoken `Encoding`. Raises TokenizerError if no tokenizer has the same ids."""
    tokenizer = getattr(encoding, "source_tokenizer", None)  # of an encoding of bytemill.compat.tiktoken
    if tokenizer is not None:
        return tokenizer.to_spec()
    try:
        ranks: Mapping[bytes, int] = encoding._mergeable_ranks
        special_tokens: Mapping[str, int] = encoding._special_tokens
        expression: str = encoding._pat_str
    except AttributeError as error:
        raise TypeError(f"expected a tiktoken Encoding, not {type(encoding).__name__}") from error
    pattern = pattern_from(expression)
    for reserved in (STEP_SEPARATOR, BYTES_SEPARATOR):
        if pattern is not None and reserved in pattern:
            raise TokenizerError(f"the pattern {shown(pattern)} contains {reserved}, which bytemill reserves")
    if pattern is not None and (reason := coverage_gap(pattern)) is not None:
        raise TokenizerError(
            f"tiktoken drops text that the pattern {shown(pattern)} does not match, and the pattern is not known to "
            f"match all text: {reason}",
            hint=r"add alternatives for the rest, such as |\s|\S; bytemill.compat.tiktoken accepts any pattern",
        )
    check_longer_wins(encoding, special_tokens)
    return TokenizerSpec(
        pattern=pattern, special_tokens=dict(special_tokens), ranks=dict(ranks), ignore_merges=True
    )


def encoding_of(spec: TokenizerSpec, name: str) -> tiktoken.Encoding:
    """Implement `Tokenizer.to_tiktoken`."""
    tiktoken = import_library("tiktoken", "to_tiktoken")
    from bytemill.formats.tiktoken.tiktoken import same_ranks

    ranks, expression = same_ranks(spec), pattern_to(spec.pattern)
    try:
        encoding = tiktoken.Encoding(
            name, pat_str=expression, mergeable_ranks=ranks, special_tokens=spec.special_tokens
        )
    except ValueError as error:
        raise TokenizerError(f"tiktoken rejects the pattern {shown(expression)}: {error}") from error
    check_longer_wins(encoding, spec.special_tokens)
    return encoding


def check_longer_wins(encoding: Any, special_tokens: Mapping[str, int]) -> None:
    """Raise TokenizerError if tiktoken recognizes a special token inside a longer one that begins with it.

    In tiktoken this depends on the order of a hash table. bytemill recognizes the longer token.
    """
    lengths = sorted({len(token) for token in special_tokens})
    for token, token_id in special_tokens.items():
        for length in lengths:
            if length >= len(token):
                break
            prefix = token[:length]
            if prefix in special_tokens and encoding.encode(token, allowed_special="all") != [token_id]:
                raise TokenizerError(
                    f"special token {token!r} begins with {prefix!r}, and tiktoken recognizes the shorter of the two, "
                    "bytemill the longer"
                )
