"""Summarize a tokenizer: sizes, settings and longest tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bytemill._core import named_pattern
from bytemill.analysis.metrics import token_size_histogram, tokenizer_metrics
from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bytemill.formats.spec import Ties
    from bytemill.tokenizer.explanation import TokenInfo
    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.tokenizer.training_report import TrainingReport


@dataclass(frozen=True)
class TokenizerSummary:
    """Sizes, settings and longest tokens of a tokenizer."""

    n_vocab: int
    """The highest id + 1."""
    n_tokens: int
    """Number of tokens, less than `n_vocab` if there are gaps between ids."""
    n_merges: int
    special_tokens: dict[str, int]
    pattern: str | None
    """Regular expression of the pre-tokenizer. None: no pre-tokenization."""
    pattern_name: str | None
    """Name of the pattern, if it is a known one."""
    normalizer: str | None
    """Unicode normalization of the text before pre-tokenization."""
    engine: str
    """What encodes and decodes (`Tokenizer.engine`)."""
    engine_reason: str | None
    """Why a library runs the tokenizer; None if the core does."""
    dtype: Literal["uint16", "uint32"]
    """Smaller of the two array types that hold every id."""
    ties: Ties | None
    has_counts: bool
    """Whether the tokenizer has the count of each merge in the training corpus."""
    fingerprint: str
    token_sizes: dict[int, int]
    """Number of ordinary tokens by size in bytes."""
    longest_tokens: list[tuple[int, bytes]]
    """(id, bytes) of the longest ordinary tokens, longest first, then by id."""
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Metrics by name (`analysis.metrics`)."""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types; each metric is a key of its own."""
        values = asdict(self)
        metrics = {name: round(value, 4) for name, value in values.pop("metrics").items()}
        longest = [{"id": token_id, **token_to_dict(token)} for token_id, token in self.longest_tokens]
        return values | metrics | {"longest_tokens": longest}


def describe(tokenizer: Tokenizer, n_longest: int = 20) -> TokenizerSummary:
    """Summarize a tokenizer.

    Args:
        tokenizer: The tokenizer.
        n_longest: Number of longest tokens to include.

    >>> from bytemill import Tokenizer
    >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
    >>> summary = describe(tok)
    >>> summary.pattern_name, summary.token_sizes, summary.longest_tokens[0]
    ('gpt2', {1: 256, 2: 1}, (256, b'th'))
    """
    special_ids = set(tokenizer.special_tokens.values())
    vocab = tokenizer.vocab
    ordinary = {token_id: token for token_id, token in vocab.items() if token_id not in special_ids}
    return TokenizerSummary(
        n_vocab=tokenizer.n_vocab,
        n_tokens=len(vocab),
        n_merges=len(tokenizer.merges),
        special_tokens=dict(sorted(tokenizer.special_tokens.items(), key=lambda item: item[1])),
        pattern=tokenizer.pattern,
        pattern_name=None if tokenizer.pattern is None else named_pattern(tokenizer.pattern),
        engine=tokenizer.engine,
        engine_reason=tokenizer.engine_reason,
        dtype=tokenizer.core.dtype,
        normalizer=tokenizer.normalizer,
        ties=tokenizer.ties,
        has_counts=tokenizer.merge_counts is not None,
        fingerprint=tokenizer.fingerprint,
        token_sizes=token_size_histogram(ordinary.values()),
        longest_tokens=_longest(ordinary.items(), n_longest),
        metrics=tokenizer_metrics(tokenizer),
    )


def longest_words(tokenizer: Tokenizer, n_longest: int = 20) -> list[tuple[int, bytes]]:
    """Return the longest tokens that consist of letters, optionally after one space.

    Args:
        tokenizer: The tokenizer.
        n_longest: Number of tokens.

    Returns:
        (id, bytes), longest first, then by id.

    >>> from bytemill import Tokenizer
    >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b" a", 257: b"--"}
    >>> longest_words(Tokenizer(vocab, [(b" ", b"a"), (b"-", b"-")]), 1)
    [(256, b' a')]
    """
    special_ids = set(tokenizer.special_tokens.values())
    words = (
        (token_id, token)
        for token_id, token in tokenizer.vocab.items()
        if token_id not in special_ids and token.decode("utf-8", "replace").removeprefix(" ").isalpha()
    )
    return _longest(words, n_longest)


def token_infos(tokenizer: Tokenizer, ids: Iterable[int] | None = None) -> Iterator[TokenInfo]:
    """Yield details of tokens.

    Args:
        tokenizer: The tokenizer.
        ids: Ids of the tokens. None yields all, by id.

    Raises:
        TokenizerError: No token has one of the ids.
    """
    for token_id in tokenizer.vocab if ids is None else ids:
        try:
            yield tokenizer.token(token_id)
        except (KeyError, OverflowError) as error:
            raise TokenizerError(
                f"no token has the id {token_id}",
                hint=f"the ids of this tokenizer are 0 to {tokenizer.n_vocab - 1}",
            ) from error


def size_buckets(token_sizes: dict[int, int], last: int = 16) -> list[tuple[str, int]]:
    """Group token counts by size, without gaps.

    Args:
        token_sizes: Number of tokens by size in bytes.
        last: Tokens of this size and above share the last bucket.

    Returns:
        (label, number of tokens) per bucket.

    >>> size_buckets({1: 256, 3: 7, 5: 2, 9: 1}, last=4)
    [('1', 256), ('2', 0), ('3', 7), ('4+', 3)]
    """
    largest = max(token_sizes, default=1)
    sizes = range(1, min(largest, last - 1) + 1)
    buckets = [(str(size), token_sizes.get(size, 0)) for size in sizes]
    if largest >= last:
        buckets.append((f"{last}+", sum(n for size, n in token_sizes.items() if size >= last)))
    return buckets


def training_to_dict(report: TrainingReport) -> dict[str, Any]:
    """Convert a training report to JSON types."""
    return {
        **asdict(report),
        "longest_tokens": [token_to_dict(token) for token in report.longest_tokens],
        "seconds": report.seconds,
        "peak_memory_bytes": report.peak_memory_bytes,
        "stopped_early": report.stopped_early,
    }


def token_to_dict(token: bytes) -> dict[str, Any]:
    """Convert a token to JSON types: its text (None if it is not valid UTF-8) and its bytes in hexadecimal."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        text = None
    return {"text": text, "bytes": token.hex()}


def token_info_to_dict(info: TokenInfo) -> dict[str, Any]:
    """Convert the details of a token to JSON types."""
    return {
        "id": info.id,
        **token_to_dict(info.bytes),
        "special": info.special,
        "rank": info.rank,
        "parts": info.parts,
        "count": info.count,
    }


def _longest(tokens: Iterable[tuple[int, bytes]], n_longest: int) -> list[tuple[int, bytes]]:
    return sorted(tokens, key=lambda item: (-len(item[1]), item[0]))[:n_longest]
