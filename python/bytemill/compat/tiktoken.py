"""Drop-in replacement for tiktoken: the same names, defaults, ids and exception types.

    from bytemill.compat import tiktoken

    enc = tiktoken.get_encoding("cl100k_base")

Where tiktoken panics (ranks without all bytes, two tokens with one rank), this raises `TokenizerError`, a ValueError.
Of special tokens that start together the longest is recognized; tiktoken leaves this to the order of a hash table.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from bytemill._core import NAMED_PATTERNS, Encoder
from bytemill.compat.unstable import encode_cut_off, encode_with_unstable
from bytemill.errors import SpecialTokenError, UnknownTokenError
from bytemill.tokenizer.encoding import options, refuse, text_and_starts
from bytemill.tokenizer.pretrained import ENCODING_NAMES, HARMONY_SPECIAL_TOKENS, encoding_name_for_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.tokenizer.encoding import AllowedSpecial, DisallowedSpecial, TokenIds
    from bytemill.tokenizer.tokenizer import Tokenizer

__all__ = [
    "Encoding",
    "encoding_for_model",
    "encoding_name_for_model",
    "get_encoding",
    "list_encoding_names",
]

_NONE: Set[str] = frozenset()


class Encoding:
    """tiktoken's `Encoding`. Immutable and thread-safe."""

    def __init__(
        self,
        name: str,
        *,
        pat_str: str,
        mergeable_ranks: dict[bytes, int],
        special_tokens: dict[str, int],
        explicit_n_vocab: int | None = None,
    ) -> None:
        """Create an encoding from its parts.

        Args:
            name: Name of the encoding.
            pat_str: Regular expression of the pre-tokenizer.
            mergeable_ranks: Token -> rank, which is both id and priority.
            special_tokens: Special tokens and their ids.
            explicit_n_vocab: Expected number of tokens.

        Raises:
            TokenizerError: The parts contradict each other.
            AssertionError: The number of tokens is not `explicit_n_vocab`.
        """
        # The core would take an expression such as "gpt2" for the name of a pattern.
        pattern = f"(?:{pat_str})" if pat_str in NAMED_PATTERNS else pat_str
        core = Encoder.from_ranks(mergeable_ranks, special_tokens, pattern, drops_unmatched=True)
        self._initialize(name, core, pat_str, mergeable_ranks, special_tokens)
        if explicit_n_vocab and not (
            len(mergeable_ranks) + len(special_tokens) == explicit_n_vocab == self.n_vocab
        ):
            raise AssertionError(
                f"{len(mergeable_ranks)} ranks and {len(special_tokens)} special tokens with ids up to "
                f"{self.max_token_value} are not {explicit_n_vocab} tokens"
            )

    def _initialize(
        self,
        name: str,
        core: Encoder,
        pattern: str | None,
        ranks: dict[bytes, int] | None,
        special_tokens: dict[str, int],
    ) -> None:
        self.name = name
        self.max_token_value = core.n_vocab - 1
        self._core = core
        self._ranks = ranks
        self._pattern = pattern
        self._special_tokens = special_tokens
        self._special_ids = set(special_tokens.values())

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer, name: str | None = None) -> Self:
        """Return a view of any tokenizer with tiktoken's interface."""
        encoding = cls.__new__(cls)
        core = tokenizer.core
        encoding._initialize(name or tokenizer.name, core, tokenizer.pattern, None, tokenizer.special_tokens)
        encoding.source_tokenizer = encoding._tokenizer = tokenizer
        return encoding

    source_tokenizer: Tokenizer | None = None
    """The tokenizer behind this view; None for an encoding made from parts."""
    _tokenizer: Tokenizer | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer with the same ids. Raises `TokenizerError` as `Tokenizer.from_tiktoken` does."""
        if self._tokenizer is None:
            from bytemill.tokenizer.tokenizer import Tokenizer

            self._tokenizer = Tokenizer.from_tiktoken(self)
        return self._tokenizer

    # Private attributes that tiktoken's documentation uses to extend an encoding.

    @property
    def _pat_str(self) -> str:
        from bytemill.formats.tiktoken_patterns import pattern_to

        return (
            self._pattern
            if self.source_tokenizer is None and self._pattern is not None
            else pattern_to(self._pattern)
        )

    @property
    def _mergeable_ranks(self) -> dict[bytes, int]:
        if self._ranks is None:
            from bytemill.formats.tiktoken import same_ranks

            self._ranks = same_ranks(self.tokenizer.to_spec())
        return self._ranks

    def __repr__(self) -> str:
        return f"<Encoding {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if _ENCODINGS.get(self.name) is self:
            return get_encoding, (self.name,)
        if self.source_tokenizer is not None:
            return self.from_tokenizer, (self.source_tokenizer, self.name)
        parts = {
            "pat_str": self._pattern,
            "mergeable_ranks": self._ranks,
            "special_tokens": self._special_tokens,
        }
        return partial(type(self), **parts), (self.name,)

    # Encoding

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the ids of `text` with special tokens treated as text."""
        return self._core.encode(text, "none", None)

    def encode(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | Set[str] = _NONE,
        disallowed_special: DisallowedSpecial = "all",
    ) -> list[int]:
        """Return the ids of `text`. Special tokens that are neither allowed nor disallowed are plain text.

        Args:
            text: The text.
            allowed_special: Special tokens to recognize.
            disallowed_special: Strings that raise a ValueError; `"all"` for the special tokens that are not allowed.
        """
        if allowed_special is _NONE and isinstance(disallowed_special, str) and disallowed_special == "all":
            try:
                return self._core.encode(text, "none_raise", None)
            except SpecialTokenError:
                pass  # raised below, with the hint for these options
        return self._core.encode(text, self._checked([text], allowed_special, disallowed_special), None)

    def encode_to_numpy(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | Set[str] = _NONE,
        disallowed_special: DisallowedSpecial = "all",
    ) -> NDArray[np.uint32]:
        """Return the ids of `text` as a read-only array. Raises UnicodeEncodeError for lone surrogates."""
        import numpy as np

        recognized = self._checked([text], allowed_special, disallowed_special)
        _refuse_surrogates(text)
        ids = self._core.encode_to_numpy(text, recognized, None).astype(np.uint32, copy=False)
        ids.flags.writeable = False
        return ids

    def encode_ordinary_batch(self, text: list[str], *, num_threads: int = 8) -> list[list[int]]:
        """Return the ids of each text as `encode_ordinary` does, on up to `num_threads` threads."""
        return self._core.encode_batch(list(text), "none", _threads(num_threads))

    def _encode_bytes(self, text: bytes) -> list[int]:
        """Return the ids of bytes that may end inside a character. tiktoken documents it as unstable."""
        return encode_cut_off(self._core, text)

    def encode_batch(
        self,
        text: list[str],
        *,
        num_threads: int = 8,
        allowed_special: Literal["all"] | Set[str] = _NONE,
        disallowed_special: DisallowedSpecial = "all",
    ) -> list[list[int]]:
        """Return the ids of each text as `encode` does, on up to `num_threads` threads."""
        texts = list(text)
        if not isinstance(disallowed_special, str):
            disallowed_special = frozenset(disallowed_special)
        recognized = self._checked(texts, allowed_special, disallowed_special)
        return self._core.encode_batch(texts, recognized, _threads(num_threads))

    def encode_with_unstable(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | Set[str] = _NONE,
        disallowed_special: DisallowedSpecial = "all",
    ) -> tuple[list[int], list[list[int]]]:
        """Return the ids that further text cannot change, and the possible continuations."""
        recognized = self._checked([text], allowed_special, disallowed_special)
        _refuse_surrogates(text)
        return encode_with_unstable(self._core, text, recognized)

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        """Return the id of a token, special or ordinary. Raises KeyError if there is no such token."""
        token = text_or_bytes.encode() if isinstance(text_or_bytes, str) else text_or_bytes
        if not isinstance(token, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a token must be a str or bytes, not {type(token).__name__}")
        found = self._core.bytes_to_id(token)
        if found is None:
            # Invalid UTF-8 becomes a str that is not a special token.
            found = self._special_tokens.get(token.decode("utf-8", "surrogateescape"))
        if found is None:
            raise KeyError(token)
        return found

    def _checked(
        self, texts: Sequence[str], allowed: Literal["all"] | Set[str], disallowed: DisallowedSpecial | None
    ) -> AllowedSpecial:
        """Return which special tokens the core recognizes. Raises ValueError if a text contains a disallowed string."""
        if isinstance(allowed, str) and allowed == "all":
            if isinstance(disallowed, str) and disallowed == "all":
                return "all"
            allowed = self._special_tokens.keys()
        elif not isinstance(allowed, (set, frozenset)):
            raise TypeError(f"allowed_special must be 'all' or a set, not {type(allowed).__name__}")
        elif not all(isinstance(token, str) for token in allowed):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("allowed_special must be a set of str")
        recognized, refused = options(self._special_tokens, allowed, disallowed or ())
        if not all(isinstance(token, str) for token in refused):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("disallowed_special must be a collection of str")
        for text in texts:
            refuse(text, refused)
        return recognized

    # Decoding

    def decode_bytes(self, tokens: TokenIds) -> bytes:
        """Return the bytes of `tokens`. Raises KeyError for an id that belongs to no token."""
        _check_sequence(tokens)
        try:
            return self._core.decode_bytes(tokens)
        except UnknownTokenError as error:
            _raise_unknown(error)

    def decode(self, tokens: TokenIds, errors: str = "replace") -> str:
        """Return the text of `tokens`; `errors` is the error handler for invalid UTF-8."""
        _check_sequence(tokens)
        try:
            return self._core.decode(tokens, errors)
        except UnknownTokenError as error:
            _raise_unknown(error)

    def decode_single_token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token. Raises KeyError for an id that belongs to no token."""
        try:
            return self._core.token_bytes(token)
        except UnknownTokenError as error:
            _raise_unknown(error)

    def decode_tokens_bytes(self, tokens: Iterable[int]) -> list[bytes]:
        """Return the bytes of each token."""
        return [self.decode_single_token_bytes(token) for token in tokens]

    def decode_with_offsets(self, tokens: Iterable[int]) -> tuple[str, list[int]]:
        """Return the text of `tokens` and the character offset at which each token starts.

        Raises:
            UnicodeDecodeError: The concatenated tokens are not valid UTF-8.
        """
        return text_and_starts(self.decode_tokens_bytes(tokens))

    def decode_batch(
        self, batch: Iterable[TokenIds], *, errors: str = "replace", num_threads: int = 8
    ) -> list[str]:
        """Return the text of each sequence of ids."""
        _threads(num_threads)
        return [self.decode(tokens, errors) for tokens in batch]

    def decode_bytes_batch(self, batch: Iterable[TokenIds], *, num_threads: int = 8) -> list[bytes]:
        """Return the bytes of each sequence of ids."""
        _threads(num_threads)
        return [self.decode_bytes(tokens) for tokens in batch]

    # Vocabulary

    def token_byte_values(self) -> list[bytes]:
        """Return the bytes of all ordinary tokens in byte order."""
        return self._core.sorted_tokens()

    @property
    def eot_token(self) -> int:
        """The id of `<|endoftext|>`. Raises KeyError if it is not a special token."""
        return self._special_tokens["<|endoftext|>"]

    @property
    def special_tokens_set(self) -> set[str]:
        """The special tokens."""
        return set(self._special_tokens)

    def is_special_token(self, token: int) -> bool:
        """Return whether `token` is the id of a special token. Raises AssertionError for another type than int."""
        if not isinstance(token, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AssertionError(f"an id must be an int, not {type(token).__name__}")  # noqa: TRY004
        return token in self._special_ids

    @property
    def n_vocab(self) -> int:
        """The highest id + 1."""
        return self.max_token_value + 1


_ENCODINGS: dict[str, Encoding] = {}
_ENCODINGS_LOCK = threading.RLock()


def get_encoding(encoding_name: str) -> Encoding:
    """Return the encoding of a name, the same object each time. Loads it with `Tokenizer.from_pretrained`.

    Raises:
        ValueError: The name is unknown.
    """
    if not isinstance(encoding_name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"the name of an encoding must be a str, not {type(encoding_name).__name__}")  # noqa: TRY004
    if encoding_name not in ENCODING_NAMES:
        raise ValueError(f"unknown encoding {encoding_name!r}; the encodings are {', '.join(ENCODING_NAMES)}")
    with _ENCODINGS_LOCK:
        if encoding_name not in _ENCODINGS:
            _ENCODINGS[encoding_name] = _load(encoding_name)
        return _ENCODINGS[encoding_name]


def _load(name: str) -> Encoding:
    from bytemill.formats.tiktoken import same_ranks
    from bytemill.formats.tiktoken_patterns import pattern_to
    from bytemill.tokenizer.tokenizer import Tokenizer

    if name != "o200k_harmony":
        return Encoding.from_tokenizer(Tokenizer.from_pretrained(name), name)
    # Two of its special tokens have one id, which a `Tokenizer` does not allow.
    base = Tokenizer.from_pretrained("o200k_base")
    return Encoding(
        name,
        pat_str=pattern_to(base.pattern),
        mergeable_ranks=same_ranks(base.to_spec()),
        special_tokens=base.special_tokens | HARMONY_SPECIAL_TOKENS,
    )


def encoding_for_model(model_name: str) -> Encoding:
    """Return the encoding of an OpenAI model. Raises KeyError for an unknown model."""
    return get_encoding(encoding_name_for_model(model_name))


def list_encoding_names() -> list[str]:
    """Return the names that `get_encoding` accepts."""
    return list(ENCODING_NAMES)


def _threads(num_threads: int | None) -> int | None:
    if num_threads is None:
        return None
    if num_threads <= 0:
        raise ValueError(f"num_threads must be greater than 0, not {num_threads}")
    return min(num_threads, 256)


def _refuse_surrogates(text: str) -> None:
    if not text.isascii():
        text.encode()


def _check_sequence(tokens: Any) -> None:
    if not hasattr(tokens, "__getitem__"):
        raise TypeError(f"ids must be a sequence, not {type(tokens).__name__}")


def _raise_unknown(error: UnknownTokenError) -> NoReturn:
    """Raise tiktoken's error: OverflowError for an id outside of 32 bits, else KeyError."""
    if not 0 <= error.token_id < 2**32:
        raise OverflowError(f"the id {error.token_id} is not between 0 and {2**32 - 1}") from error
    raise KeyError(str(error)) from error
