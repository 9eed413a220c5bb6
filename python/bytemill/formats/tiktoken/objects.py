"""Tokenizers from tiktoken's `Encoding` and to it, where both give the same ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from bytemill.errors import MissingExtraError, TokenizerError
from bytemill.formats.files import shown
from bytemill.formats.pattern_coverage import coverage_gap
from bytemill.formats.spec import STEP_SEPARATOR, TokenizerSpec
from bytemill.formats.tiktoken.pattern import pattern_from, pattern_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    import tiktoken


class EncodingView(Protocol):
    """An encoding of `bytemill.compat.tiktoken`."""

    name: str


def spec_of(encoding: Any) -> TokenizerSpec:
    """The tokenizer that a tiktoken `Encoding` is. Raises TokenizerError where bytemill has none with the same ids."""
    source_tokenizer = getattr(encoding, "made_from", None)  # of an encoding of bytemill.compat.tiktoken
    if source_tokenizer is not None:
        return source_tokenizer.to_spec()
    parts: Any = encoding
    try:
        ranks: Mapping[bytes, int] = parts._mergeable_ranks
        special_tokens: Mapping[str, int] = parts._special_tokens
        expression: str = parts._pat_str
    except AttributeError as error:
        raise TypeError(f"a tiktoken Encoding is wanted, not {type(encoding).__name__}") from error
    pattern = pattern_from(expression)
    if pattern is not None and STEP_SEPARATOR in pattern:
        raise TokenizerError(
            f"the pattern {shown(pattern)} holds {STEP_SEPARATOR}, which parts the steps of a pattern here"
        )
    if pattern is not None and (reason := coverage_gap(pattern)) is not None:
        raise TokenizerError(
            f"tiktoken passes over text that the pattern {shown(pattern)} does not match, and it is not seen that it "
            f"matches all text: {reason}",
            hint=r"Add alternatives for the rest, such as |\s|\S; bytemill.compat.tiktoken takes any pattern.",
        )
    check_longer_wins(encoding, special_tokens)
    return TokenizerSpec(
        pattern=pattern, special_tokens=dict(special_tokens), ranks=dict(ranks), ignore_merges=True
    )


def encoding_of(spec: TokenizerSpec, name: str) -> tiktoken.Encoding:
    """See `Tokenizer.to_tiktoken`."""
    try:
        import tiktoken
    except ImportError as error:
        raise MissingExtraError(
            "to_tiktoken needs tiktoken, which is not installed", hint="pip install tiktoken"
        ) from error
    from bytemill.formats.tiktoken.tiktoken import same_ranks

    ranks, expression = same_ranks(spec), pattern_to(spec.pattern)
    try:
        encoding = tiktoken.Encoding(
            name, pat_str=expression, mergeable_ranks=ranks, special_tokens=spec.special_tokens
        )
    except ValueError as error:
        raise TokenizerError(f"tiktoken does not take the pattern {shown(expression)}: {error}") from error
    check_longer_wins(encoding, spec.special_tokens)
    return encoding


def check_longer_wins(encoding: Any, special_tokens: Mapping[str, int]) -> None:
    """Raise TokenizerError where of two special tokens that start together tiktoken takes the shorter.

    Which one it takes is decided by the order of a hash table. bytemill takes the longer.
    """
    lengths = sorted({len(token) for token in special_tokens})
    for token, token_id in special_tokens.items():
        for length in lengths:
            if length >= len(token):
                break
            begun = token[:length]
            if begun in special_tokens and encoding.encode(token, allowed_special="all") != [token_id]:
                raise TokenizerError(
                    f"special token {begun!r} begins {token!r}, and tiktoken takes the shorter of the two, "
                    "bytemill the longer"
                )
