"""How well a tokenizer serves a text: bytes a token, tokens a word, sizes of tokens, use of the vocabulary.

All of them depend on the text as much as on the tokenizer: compare tokenizers on one text, and on one they
were not trained on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bytemill.errors import CorpusError, TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Encodes(Protocol):
    """Anything that turns text into ids."""

    def encode(self, text: str, /) -> list[int]:
        """The ids of `text`."""
        ...


@dataclass(frozen=True)
class TextMetrics:
    """What a text and its tokens count, and the ratios that tokenizers are judged by."""

    n_bytes: int
    """UTF-8 bytes of the text."""
    n_characters: int
    """Code points of the text."""
    n_words: int
    """Words of the text: what stands between white space."""
    n_tokens: int
    n_distinct_tokens: int
    """Different ids among the tokens."""

    @property
    def bytes_per_token(self) -> float:
        """The compression ratio: the higher, the more text fits into a model's context."""
        return self.n_bytes / self.n_tokens

    @property
    def characters_per_token(self) -> float:
        """Code points a token."""
        return self.n_characters / self.n_tokens

    @property
    def tokens_per_word(self) -> float:
        """The fertility: 1 would be a token a word. Raises CorpusError for a text that is all white space.

        Says little of languages that are written without white space between words, as Chinese and Thai.
        """
        if self.n_words == 0:
            raise CorpusError("the text has no words, only white space", hint="measure a text with words")
        return self.n_tokens / self.n_words


def measure(tokenizer: Encodes, text: str) -> TextMetrics:
    """The metrics of `text` as `tokenizer` encodes it, with special tokens as `encode` takes them by default.

    Raises CorpusError for an empty text, TokenizerError where a text that is not empty has no tokens.

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
            f"the tokenizer gives no tokens for a text of {len(text)} characters",
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
    """UTF-8 bytes per token; `ByteTokenizer` has 1 for every text.

    Raises what `measure` raises.

    >>> from bytemill.analysis.baselines import CharacterTokenizer
    >>> compression_ratio(CharacterTokenizer.train("日本"), "日本")
    3.0
    """
    return measure(tokenizer, text).bytes_per_token


def fertility(tokenizer: Encodes, text: str) -> float:
    """Tokens per word, where words are what stands between white space.

    The whole text is encoded, white space with it. Raises CorpusError for a text without words, and what
    `measure` raises.

    >>> from bytemill.analysis.baselines import ByteTokenizer
    >>> fertility(ByteTokenizer(), "so it is")
    2.6666666666666665
    """
    return measure(tokenizer, text).tokens_per_word


def token_size_histogram(tokens: Iterable[bytes]) -> dict[int, int]:
    """How many tokens have how many bytes, by size: {bytes: tokens}.

    Give it the tokens of a vocabulary (`vocab.values()`), or those of a text in the order they come, each as
    often as it occurs (`tokenizer.decode_tokens_bytes(ids)`).

    >>> token_size_histogram([b"the", b" ", b"cat", b" "])
    {1: 2, 3: 2}
    """
    return dict(sorted(Counter(len(token) for token in tokens).items()))


def vocabulary_use(ids: Iterable[int], n_vocab: int) -> float:
    """The share of the vocabulary that occurs among `ids`, from 0 to 1.

    Raises TokenizerError for an empty vocabulary or an id outside 0 to `n_vocab` - 1.

    >>> vocabulary_use([3, 1, 3], n_vocab=4)
    0.5
    """
    if n_vocab < 1:
        raise TokenizerError(f"n_vocab is {n_vocab}", hint="give the number of ids that there are")
    used = set(ids)
    for token_id in used:
        if not 0 <= token_id < n_vocab:
            raise TokenizerError(
                f"id {token_id} is outside a vocabulary of {n_vocab}",
                hint="give ids and n_vocab of one tokenizer",
            )
    return len(used) / n_vocab
