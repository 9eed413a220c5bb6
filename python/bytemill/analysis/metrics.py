"""Metrics of a tokenizer on a text: compression, fertility, token sizes, vocabulary use.

All of them depend on the text. Compare tokenizers on the same text, and on one that neither was trained on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bytemill.errors import CorpusError, TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable


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
