"""The tokenizers that byte-pair encoding is compared with: characters, bytes and words.

Characters and bytes make long sequences of few tokens, words short ones of many, and of these only bytes can
write every text. All of them have `encode`, `decode` and `n_vocab` as `Tokenizer` has, so metrics take
either.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

UNKNOWN = "<unk>"
"""What `decode` writes for the id that stands for everything outside a vocabulary."""


class TextTokenizer(Protocol):
    """Anything that turns text into ids and back: the baselines, `Tokenizer`, a `tiktoken.Encoding`."""

    @property
    def n_vocab(self) -> int:
        """The highest id + 1."""
        ...

    def encode(self, text: str, /) -> list[int]:
        """The ids of `text`."""
        ...

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of `ids`."""
        ...


class ByteTokenizer:
    """Every UTF-8 byte is a token and its value the id. Lossless; nothing to train.

    >>> ByteTokenizer().encode("né")
    [110, 195, 169]
    """

    @property
    def n_vocab(self) -> int:
        """Always 256."""
        return 256

    def encode(self, text: str) -> list[int]:
        """The UTF-8 bytes of `text`. Raises UnicodeEncodeError for a lone surrogate."""
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, with U+FFFD for what is not UTF-8. Raises KeyError with the first unknown id."""
        return bytes(_known_ids(ids, self.n_vocab)).decode("utf-8", errors="replace")


class CharacterTokenizer:
    """Every character of a training text is a token, numbered by code point from 0.

    Lossy: all other characters share the last id, which decodes to `<unk>`.

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
                raise TokenizerError(f"{character!r} is not one character", hint="give single characters")
        self._id_of = {character: token_id for token_id, character in enumerate(self.characters)}

    @classmethod
    def train(cls, text: str | Iterable[str]) -> CharacterTokenizer:
        """A tokenizer for the characters of one document or several."""
        return cls(character for document in _documents(text) for character in document)

    @property
    def unknown_id(self) -> int:
        """The id of characters outside the vocabulary."""
        return len(self.characters)

    @property
    def n_vocab(self) -> int:
        """The number of characters, and one for `<unk>`."""
        return len(self.characters) + 1

    def encode(self, text: str) -> list[int]:
        """One id for each character of `text`."""
        return [self._id_of.get(character, self.unknown_id) for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        """The characters of `ids`, joined. Raises KeyError with the first id that no token has."""
        return _join(self.characters, ids)


class WordTokenizer:
    """The most frequent pre-tokens of a training text are tokens, the most frequent first.

    Lossy: all other pre-tokens share the last id, which decodes to `<unk>`. White space belongs to
    pre-tokens, so known ones decode to exactly what they were.

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
        """Name or regular expression of the pre-tokenizer; None: a text is one word."""
        self._id_of = {word: token_id for token_id, word in enumerate(self.words)}
        if len(self._id_of) < len(self.words):
            word, n_times = Counter(self.words).most_common(1)[0]
            raise TokenizerError(f"word {word!r} is given {n_times} times", hint="give each word once")

    @classmethod
    def train(cls, text: str | Iterable[str], vocab_size: int, pattern: str | None = "gpt2") -> WordTokenizer:
        """A tokenizer for the most frequent words of one document or several.

        The vocabulary has at most `vocab_size` tokens, `<unk>` among them. Of equally frequent words the one
        that sorts first is taken first. Raises TokenizerError for a `vocab_size` below 1.
        """
        if vocab_size < 1:
            raise TokenizerError(
                f"vocab_size {vocab_size} has no room for {UNKNOWN}", hint="ask for at least 1"
            )
        counts = Counter(word for document in _documents(text) for word in _words(document, pattern))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(ranked[: vocab_size - 1], pattern)

    @property
    def unknown_id(self) -> int:
        """The id of words outside the vocabulary."""
        return len(self.words)

    @property
    def n_vocab(self) -> int:
        """The number of words, and one for `<unk>`."""
        return len(self.words) + 1

    def encode(self, text: str) -> list[int]:
        """One id for each pre-token of `text`. Raises UnicodeEncodeError for a lone surrogate."""
        return [self._id_of.get(word, self.unknown_id) for word in _words(text, self.pattern)]

    def decode(self, ids: Sequence[int]) -> str:
        """The words of `ids`, joined. Raises KeyError with the first id that no token has."""
        return _join(self.words, ids)


def _documents(text: str | Iterable[str]) -> Iterable[str]:
    return [text] if isinstance(text, str) else text


def _words(text: str, pattern: str | None) -> Iterator[str]:
    """The pre-tokens of `text`."""
    from bytemill._core import pretoken_spans

    data = text.encode()
    for start, end in pretoken_spans(text, pattern):
        yield data[start:end].decode()


def _join(tokens: Sequence[str], ids: Iterable[int]) -> str:
    """The tokens of `ids`, the id after the last being `<unk>`."""
    with_unknown = [*tokens, UNKNOWN]
    return "".join(with_unknown[token_id] for token_id in _known_ids(ids, len(with_unknown)))


def _known_ids(ids: Iterable[int], n_vocab: int) -> Iterator[int]:
    """The ids again. Raises KeyError with the first that no token has, also a negative one."""
    for token_id in ids:
        if not 0 <= token_id < n_vocab:
            raise KeyError(token_id)
        yield token_id
