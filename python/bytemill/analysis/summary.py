"""What a tokenizer is: its sizes, its settings and its longest tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from bytemill._core import named_pattern
from bytemill.analysis.metrics import token_size_histogram
from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bytemill.formats.spec import Normalizer, Ties
    from bytemill.tokenizer.explanation import TokenInfo
    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.tokenizer.training_report import TrainingReport


@dataclass(frozen=True)
class TokenizerSummary:
    """A tokenizer at a glance."""

    n_vocab: int
    """The highest id + 1."""
    n_tokens: int
    """Tokens that there are; fewer than `n_vocab` where ids have gaps."""
    n_merges: int
    special_tokens: dict[str, int]
    pattern: str | None
    """The expression, None for no pre-tokenization."""
    pattern_name: str | None
    """Its name where it is one of the hand-written ones."""
    normalizer: Normalizer | None
    """What is done to texts before they are split."""
    dtype: Literal["uint16", "uint32"]
    """Smallest of the two array types that every id fits."""
    ties: Ties | None
    has_counts: bool
    """Whether the counts of the merges in the training corpus are known."""
    fingerprint: str
    token_sizes: dict[int, int]
    """Bytes -> how many ordinary tokens have that many."""
    longest_tokens: list[tuple[int, bytes]]
    """Ordinary tokens with the most bytes, (id, bytes), the longest first, then by id."""

    def to_dict(self) -> dict[str, Any]:
        """The facts for JSON."""
        return {
            "n_vocab": self.n_vocab,
            "n_tokens": self.n_tokens,
            "n_merges": self.n_merges,
            "special_tokens": self.special_tokens,
            "pattern": self.pattern,
            "pattern_name": self.pattern_name,
            "normalizer": self.normalizer,
            "dtype": self.dtype,
            "ties": self.ties,
            "has_counts": self.has_counts,
            "fingerprint": self.fingerprint,
            "token_sizes": self.token_sizes,
            "longest_tokens": [
                {"id": token_id, **token_to_dict(token)} for token_id, token in self.longest_tokens
            ],
        }


def describe(tokenizer: Tokenizer, n_longest: int = 20) -> TokenizerSummary:
    """The facts of a tokenizer.

    >>> from bytemill import Tokenizer
    >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
    >>> facts = describe(tok)
    >>> facts.pattern_name, facts.token_sizes, facts.longest_tokens[0]
    ('gpt2', {1: 256, 2: 1}, (256, b'th'))
    """
    special_ids = set(tokenizer.special_tokens.values())
    vocab = tokenizer.vocab
    ordinary = {token_id: token for token_id, token in vocab.items() if token_id not in special_ids}
    longest = sorted(ordinary.items(), key=lambda item: (-len(item[1]), item[0]))[:n_longest]
    return TokenizerSummary(
        n_vocab=tokenizer.n_vocab,
        n_tokens=len(vocab),
        n_merges=len(tokenizer.merges),
        special_tokens=dict(sorted(tokenizer.special_tokens.items(), key=lambda item: item[1])),
        pattern=tokenizer.pattern,
        pattern_name=None if tokenizer.pattern is None else named_pattern(tokenizer.pattern),
        dtype=tokenizer.core.dtype,
        normalizer=tokenizer.normalizer,
        ties=tokenizer.ties,
        has_counts=tokenizer.merge_counts is not None,
        fingerprint=tokenizer.fingerprint,
        token_sizes=token_size_histogram(ordinary.values()),
        longest_tokens=longest,
    )


def longest_words(tokenizer: Tokenizer, n_longest: int = 20) -> list[tuple[int, bytes]]:
    """The longest of the tokens that are letters and at most a space before them: (id, bytes), then by id.

    >>> from bytemill import Tokenizer
    >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b" a", 257: b"--"}
    >>> longest_words(Tokenizer(vocab, [(b" ", b"a"), (b"-", b"-")]), 1)
    [(256, b' a')]
    """
    special_ids = set(tokenizer.special_tokens.values())
    words = [
        (token_id, token)
        for token_id, token in tokenizer.vocab.items()
        if token_id not in special_ids and token.decode("utf-8", "replace").removeprefix(" ").isalpha()
    ]
    return sorted(words, key=lambda item: (-len(item[1]), item[0]))[:n_longest]


def token_infos(tokenizer: Tokenizer, ids: Iterable[int] | None = None) -> Iterator[TokenInfo]:
    """What is known of tokens: of those with these ids, by default of all, by id.

    Raises `TokenizerError` for an id that no token has.
    """
    for token_id in tokenizer.vocab if ids is None else ids:
        try:
            yield tokenizer.token(token_id)
        except (KeyError, OverflowError) as error:
            raise TokenizerError(
                f"no token has the id {token_id}",
                hint=f"the ids of this tokenizer go from 0 to {tokenizer.n_vocab - 1}",
            ) from error


def size_buckets(token_sizes: dict[int, int], last: int = 16) -> list[tuple[str, int]]:
    """How many tokens have how many bytes, `last` bytes and more in one bucket, no size left out.

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
    """What training found out, for JSON."""
    return {
        **asdict(report),
        "longest_tokens": [token_to_dict(token) for token in report.longest_tokens],
        "seconds": report.seconds,
        "peak_memory_bytes": report.peak_memory_bytes,
        "stopped_early": report.stopped_early,
    }


def token_to_dict(token: bytes) -> dict[str, Any]:
    """A token for JSON: its text (None where it is not whole characters) and its bytes in hexadecimal."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        text = None
    return {"text": text, "bytes": token.hex()}


def token_info_to_dict(info: TokenInfo) -> dict[str, Any]:
    """What is known of a token, for JSON."""
    return {
        "id": info.id,
        **token_to_dict(info.bytes),
        "special": info.special,
        "rank": info.rank,
        "parts": info.parts,
        "count": info.count,
    }
