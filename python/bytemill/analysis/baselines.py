"""Baselines for byte-level BPE: byte, character and word-level tokenizers.

Characters and bytes give long sequences from small vocabularies, words the opposite. Of the three, only bytes encode
every text without loss. All have `encode`, `decode` and `n_vocab` like `Tokenizer`, so that metrics take either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

UNKNOWN = "<unk>"
"""Text of the unknown token, which stands for everything outside the vocabulary."""


class ByteTokenizer:
    """Every UTF-8 byte is a token, and its value the id. Lossless; nothing to train.

    >>> ByteTokenizer().encode("né")
    [110, 195, 169]
    """

    @property
    def n_vocab(self) -> int:
        """Always 256."""
        return 256

    def encode(self, text: str) -> list[int]:
        """Return the UTF-8 bytes of `text`. Raises UnicodeEncodeError for a lone surrogate."""
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, with U+FFFD for invalid UTF-8. Raises KeyError with the first unknown id."""
        return bytes(_checked(ids, self.n_vocab)).decode("utf-8", errors="replace")


class _LookupTokenizer(ABC):
    """A tokenizer with a fixed list of tokens, followed by the unknown token. It does not split tokens further."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._id_of = {token: token_id for token_id, token in enumerate(tokens)}

    @abstractmethod
    def _split(self, text: str) -> Iterable[str]:
        """Split a text into what may be tokens."""

    @property
    def unknown_id(self) -> int:
        """Id of the unknown token."""
        return len(self._tokens)

    @property
    def n_vocab(self) -> int:
        """Number of tokens, including `<unk>`."""
        return len(self._tokens) + 1

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`. Raises UnicodeEncodeError for a lone surrogate that is no token."""
        return [self._id_of.get(token, self.unknown_id) for token in self._split(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the tokens of `ids`, joined. Raises KeyError with the first unknown id."""
        tokens = [*self._tokens, UNKNOWN]
        return "".join(tokens[token_id] for token_id in _checked(ids, len(tokens)))


class CharacterTokenizer(_LookupTokenizer):
    """Every character of a training text is a token, with ids in code point order.

    Lossy: all other characters share the last id, which decodes to `<unk>`.

    Args:
        characters: Characters of the vocabulary.

    Raises:
        TokenizerError: A string has not exactly one character.

    >>> tokenizer = CharacterTokenizer.train("banana")
    >>> tokenizer.encode("nab!")
    [2, 0, 1, 3]
    >>> tokenizer.decode([2, 0, 1, 3])
    'nab<unk>'
    """

    def __init__(self, characters: Iterable[str]) -> None:
        self.characters = sorted(set(characters))
        """The characters by id."""
        for character in self.characters:
            if len(character) != 1:
                raise TokenizerError(f"{character!r} is not one character", hint="pass single characters")
        super().__init__(self.characters)

    @classmethod
    def train(cls, text: str | Iterable[str]) -> CharacterTokenizer:
        """Build a tokenizer from the characters of one document or several."""
        return cls(character for document in _documents(text) for character in document)

    def _split(self, text: str) -> str:
        return text


class WordTokenizer(_LookupTokenizer):
    """The most frequent pre-tokens of a training text are tokens, most frequent first.

    Lossy: all other pre-tokens share the last id, which decodes to `<unk>`. Pre-tokens include their white space, so
    known ones decode exactly.

    Args:
        words: Pre-tokens of the vocabulary, by id.
        pattern: Name or regular expression of the pre-tokenizer. None: a text is one pre-token.

    Raises:
        TokenizerError: A word occurs twice.

    >>> tokenizer = WordTokenizer.train("to be or not to be", vocab_size=4, pattern="gpt2")
    >>> tokenizer.words
    [' be', ' not', ' or']
    >>> tokenizer.decode(tokenizer.encode("nor to be"))
    '<unk><unk> be'
    """

    def __init__(self, words: Sequence[str], pattern: str | None = "gpt2") -> None:
        self.words = list(words)
        """The words by id."""
        self.pattern = pattern
        """Name or regular expression of the pre-tokenizer."""
        super().__init__(self.words)
        if len(self._id_of) < len(self.words):
            word, n_times = Counter(self.words).most_common(1)[0]
            raise TokenizerError(f"word {word!r} occurs {n_times} times", hint="pass each word once")

    @classmethod
    def train(cls, text: str | Iterable[str], vocab_size: int, pattern: str | None = "gpt2") -> WordTokenizer:
        """Build a tokenizer from the most frequent pre-tokens.

        Args:
            text: One document or several.
            vocab_size: Largest number of tokens, including `<unk>`. Equally frequent words are taken in sort order.
            pattern: Name or regular expression of the pre-tokenizer. None: a document is one pre-token.

        Raises:
            TokenizerError: `vocab_size` is below 1.
        """
        if vocab_size < 1:
            raise TokenizerError(f"vocab_size {vocab_size} has no room for {UNKNOWN}", hint="use at least 1")
        counts = Counter(word for document in _documents(text) for word in _pretokens(document, pattern))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(ranked[: vocab_size - 1], pattern)

    def _split(self, text: str) -> Iterator[str]:
        return _pretokens(text, self.pattern)


def _documents(text: str | Iterable[str]) -> Iterable[str]:
    return [text] if isinstance(text, str) else text


def _pretokens(text: str, pattern: str | None) -> Iterator[str]:
    from bytemill._core import pretoken_spans
    from bytemill.formats.spec import BYTES_SEPARATOR

    data = text.encode()
    # Words are texts: steps on bytes would divide characters.
    of_texts = (pattern or "").partition(BYTES_SEPARATOR)[0] or None
    for start, end in pretoken_spans(text, of_texts):
        yield data[start:end].decode()


def _checked(ids: Iterable[int], n_vocab: int) -> Iterator[int]:
    """Yield the ids. Raises KeyError with the first id out of range."""
    for token_id in ids:
        if not 0 <= token_id < n_vocab:
            raise KeyError(token_id)
        yield token_id
