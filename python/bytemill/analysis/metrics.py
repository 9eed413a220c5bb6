"""Metrics of a tokenizer on a text: compression, fertility, token sizes, vocabulary use.

All of them depend on the text. Compare tokenizers on the same text, and on one that neither was trained on. Those that
`tokenizer show` and `tokenizer inspect` report are registered at the end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bytemill.errors import CorpusError, TokenizerError
from bytemill.system.units import format_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bytemill.tokenizer.tokenizer import Tokenizer


class Encodes(Protocol):
    """Anything that encodes text."""

    def encode(self, text: str, /) -> list[int]:
        """Return the ids of `text`."""
        ...


@dataclass(frozen=True)
class TextMetrics:
    """Counts of a text and its tokens, and the ratios derived from them."""

    n_bytes: int
    """UTF-8 bytes of the text."""
    n_characters: int
    """Code points of the text."""
    n_words: int
    """Words of the text, separated by white space."""
    n_tokens: int
    n_distinct_tokens: int
    """Distinct ids among the tokens."""

    @property
    def bytes_per_token(self) -> float:
        """Compression ratio. The higher it is, the more text fits into a model's context."""
        return self.n_bytes / self.n_tokens

    @property
    def characters_per_token(self) -> float:
        """Code points per token."""
        return self.n_characters / self.n_tokens

    @property
    def tokens_per_word(self) -> float:
        """Fertility. Not meaningful for languages written without spaces, such as Chinese and Thai.

        Raises:
            CorpusError: The text contains only white space.
        """
        if self.n_words == 0:
            raise CorpusError("the text has no words, only white space", hint="measure a text with words")
        return self.n_tokens / self.n_words


def measure(tokenizer: Encodes, text: str) -> TextMetrics:
    """Encode a text and compute its metrics.

    Args:
        tokenizer: Anything with an `encode` method, which is called with its defaults.
        text: A text, not empty.

    Raises:
        CorpusError: The text is empty.
        TokenizerError: `encode` returns no tokens.

    >>> from bytemill.analysis.baselines import ByteTokenizer
    >>> measure(ByteTokenizer(), "déjà vu")
    TextMetrics(n_bytes=9, n_characters=7, n_words=2, n_tokens=9, n_distinct_tokens=8)
    """
    if not text:
        raise CorpusError(
            "the text is empty, so it has no bytes per token", hint="measure a text with characters"
        )
    ids = tokenizer.encode(text)
    if len(ids) == 0:
        raise TokenizerError(
            f"the tokenizer returns no tokens for a text of {len(text)} characters",
            hint="use a tokenizer that covers the text",
        )
    return TextMetrics(
        n_bytes=len(text.encode()),
        n_characters=len(text),
        n_words=len(text.split()),
        n_tokens=len(ids),
        n_distinct_tokens=len(set(ids)),
    )


def compression_ratio(tokenizer: Encodes, text: str) -> float:
    """Return UTF-8 bytes per token, which is 1 for `ByteTokenizer`.

    Args:
        tokenizer: Anything with an `encode` method.
        text: A text, not empty.

    Raises:
        CorpusError: The text is empty.
        TokenizerError: `encode` returns no tokens.

    >>> from bytemill.analysis.baselines import CharacterTokenizer
    >>> compression_ratio(CharacterTokenizer.train("日本"), "日本")
    3.0
    """
    return measure(tokenizer, text).bytes_per_token


def token_size_histogram(tokens: Iterable[bytes]) -> dict[int, int]:
    """Count tokens by size in bytes.

    Args:
        tokens: Tokens of a vocabulary (`vocab.values()`) or of a text (`tokenizer.decode_tokens_bytes(ids)`).

    Returns:
        Number of tokens by size, ordered by size.

    >>> token_size_histogram([b"the", b" ", b"cat", b" "])
    {1: 2, 3: 2}
    """
    return dict(sorted(Counter(len(token) for token in tokens).items()))


def vocabulary_use(ids: Iterable[int], n_vocab: int) -> float:
    """Return the share of the vocabulary that occurs among `ids`, from 0 to 1.

    Args:
        ids: Ids of a text.
        n_vocab: Size of the vocabulary.

    Raises:
        TokenizerError: `n_vocab` is below 1, or an id is not in 0 to `n_vocab` - 1.

    >>> vocabulary_use([3, 1, 3], n_vocab=4)
    0.5
    """
    if n_vocab < 1:
        raise TokenizerError(f"n_vocab is {n_vocab}", hint="pass the size of the vocabulary")
    used = set(ids)
    for token_id in used:
        if not 0 <= token_id < n_vocab:
            raise TokenizerError(
                f"id {token_id} is outside a vocabulary of {n_vocab}",
                hint="pass ids and n_vocab of the same tokenizer",
            )
    return len(used) / n_vocab


@dataclass(frozen=True)
class TokenizedText:
    """A text with its tokens."""

    tokenizer: Tokenizer
    text: str
    ids: Sequence[int]


@dataclass(frozen=True)
class TextMetric:
    """A metric of a tokenized text, reported by `tokenizer inspect`."""

    name: str
    """Key in the JSON output."""
    unit: str
    """Unit after the number, for example "bytes/token"."""
    compute: Callable[[TokenizedText], float | None]
    """Returns None if the metric is not defined for the text."""
    format: Callable[[float], str] = format_ratio
    """Renders the number."""


@dataclass(frozen=True)
class TokenizerMetric:
    """A metric of a tokenizer alone, reported by `tokenizer show`."""

    name: str
    """Key in the JSON output."""
    label: str
    """Label of the row."""
    compute: Callable[[Tokenizer], float | None]
    """Returns None if the metric is not defined for the tokenizer."""
    format: Callable[[float], str] = format_ratio
    """Renders the number."""


TEXT_METRICS: dict[str, TextMetric] = {}
TOKENIZER_METRICS: dict[str, TokenizerMetric] = {}


def register_metric(metric: TextMetric | TokenizerMetric) -> None:
    """Add a metric.

    Raises:
        ValueError: There is a metric of this name.
    """
    if metric.name in TEXT_METRICS or metric.name in TOKENIZER_METRICS:
        raise ValueError(f"the metric {metric.name!r} is already registered")
    if isinstance(metric, TextMetric):
        TEXT_METRICS[metric.name] = metric
    else:
        TOKENIZER_METRICS[metric.name] = metric


def text_metrics(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> dict[str, float]:
    """Compute the metrics of a tokenized text, by name."""
    tokenized = TokenizedText(tokenizer, text, ids)
    values = {metric.name: metric.compute(tokenized) for metric in TEXT_METRICS.values()}
    return {name: value for name, value in values.items() if value is not None}


def tokenizer_metrics(tokenizer: Tokenizer) -> dict[str, float]:
    """Compute the metrics of a tokenizer, by name."""
    values = {metric.name: metric.compute(tokenizer) for metric in TOKENIZER_METRICS.values()}
    return {name: value for name, value in values.items() if value is not None}


def format_text_metrics(values: Mapping[str, float]) -> list[str]:
    """Render metrics of a text with their units.

    >>> format_text_metrics({"bytes_per_token": 4.056})
    ['4.06 bytes/token']
    """
    return [f"{TEXT_METRICS[name].format(value)} {TEXT_METRICS[name].unit}" for name, value in values.items()]


def format_tokenizer_metrics(values: Mapping[str, float]) -> list[tuple[str, str]]:
    """Render metrics of a tokenizer as rows of label and number."""
    return [
        (TOKENIZER_METRICS[name].label, TOKENIZER_METRICS[name].format(value))
        for name, value in values.items()
    ]


register_metric(
    TextMetric("bytes_per_token", "bytes/token", lambda text: len(text.text.encode()) / len(text.ids))
)
