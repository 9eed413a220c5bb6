"""tiktoken's interface: its names, defaults, results and errors, with bytemill underneath.

    from bytemill.compat import tiktoken

    enc = tiktoken.get_encoding("cl100k_base")

Ids are tiktoken's for every text. Errors have its types and say the same in other words; where tiktoken panics (ranks
without all bytes, two tokens of one rank), there is a `TokenizerError`, which is a ValueError. Of two special tokens
that start together the longer is taken; tiktoken leaves that to the order of a hash table.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from bytemill._core import NAMED_PATTERNS, Encoder
from bytemill.compat.tiktoken_models import ENCODING_NAMES, encoding_name_for_model
from bytemill.errors import SpecialTokenError, TokenizerError, UnknownTokenError
from bytemill.tokenizer.special_options import options, refuse
from bytemill.tokenizer.token_starts import text_and_starts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.tokenizer.types import AllowedSpecial, DisallowedSpecial, TokenIds

__all__ = [
    "Encoding",
    "encoding_for_model",
    "encoding_name_for_model",
    "get_encoding",
    "list_encoding_names",
]

_NONE: Set[str] = frozenset()


class Encoding:
    """tiktoken's `Encoding`. Immutable; several threads may use one at once."""

    def __init__(
        self,
        name: str,
        *,
        pat_str: str,
        mergeable_ranks: dict[bytes, int],
        special_tokens: dict[str, int],
        explicit_n_vocab: int | None = None,
    ) -> None:
        """An encoding from its parts: the ranks are ids and priorities at once.

        Raises TokenizerError where they contradict each other, and AssertionError where they have not
        `explicit_n_vocab` tokens.
        """
        # Where the expression is the name of another, it must not be taken for that.
        pattern = f"(?:{pat_str})" if pat_str in NAMED_PATTERNS else pat_str
        core = Encoder.from_ranks(mergeable_ranks, special_tokens, pattern, drops_unmatched=True)
        self._set(name, core, pat_str, mergeable_ranks, special_tokens)
        if explicit_n_vocab and not (
            len(mergeable_ranks) + len(special_tokens) == explicit_n_vocab == self.n_vocab
        ):
            raise AssertionError(
                f"{len(mergeable_ranks)} ranks and {len(special_tokens)} special tokens with ids up to "
                f"{self.max_token_value} are not {explicit_n_vocab} tokens"
            )

    def _set(
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
        """A tokenizer with tiktoken's interface. Any will do; only `to_tiktoken` asks for one that ranks stand for."""
        encoding = cls.__new__(cls)
        core = tokenizer.core
        encoding._set(name or tokenizer.name, core, tokenizer.pattern, None, tokenizer.special_tokens)
        encoding.made_from = encoding._tokenizer = tokenizer
        return encoding

    made_from: Tokenizer | None = None
    """The tokenizer that this is a view of; None for an encoding made from parts."""
    _tokenizer: Tokenizer | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer with the same ids. Raises TokenizerError where there is none: see `Tokenizer.from_tiktoken`."""
        if self._tokenizer is None:
            from bytemill.tokenizer.tokenizer import Tokenizer

            self._tokenizer = Tokenizer.from_tiktoken(self)
        return self._tokenizer

    # What encodings are extended by, under tiktoken's names, which its users know though they are private.

    @property
    def _pat_str(self) -> str:
        from bytemill.formats.tiktoken.pattern import pattern_to

        return (
            self._pattern
            if self.made_from is None and self._pattern is not None
            else pattern_to(self._pattern)
        )

    @property
    def _mergeable_ranks(self) -> dict[bytes, int]:
        if self._ranks is None:
            from bytemill.formats.tiktoken.tiktoken import same_ranks

            self._ranks = same_ranks(self.tokenizer.to_spec())
        return self._ranks

    def __repr__(self) -> str:
        return f"<Encoding {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if _MADE.get(self.name) is self:
            return get_encoding, (self.name,)
        if self.made_from is not None:
            return _from_tokenizer, (type(self), self.made_from, self.name)
        return _from_parts, (type(self), self.name, self._pattern, self._ranks, self._special_tokens)

    # Text to ids

    def encode_ordinary(self, text: str) -> list[int]:
        """The ids of `text`, with special tokens as plain text."""
        return self._core.encode(text, "none", None)

    def encode(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | Set[str] = _NONE,
        disallowed_special: DisallowedSpecial = "all",
    ) -> list[int]:
        """The ids of `text`.

        `allowed_special` are recognised. `disallowed_special` (`"all"`: the special tokens that are not allowed) raise
        a ValueError where they stand in the text. All other special tokens are plain text.
        """
        if allowed_special is _NONE and isinstance(disallowed_special, str) and disallowed_special == "all":
            try:
                return self._core.encode(text, "none_raise", None)
            except SpecialTokenError:
                pass  # to be raised below, in the words that fit these options
        return self._core.encode(text, self._checked([text], allowed_special, disallowed_special), None)

    def encode_to_numpy(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | Set[str] = _NONE,
        disallowed_special: DisallowedSpecial = "all",
    ) -> NDArray[np.uint32]:
        """As `encode`, as an array that cannot be written to. Raises UnicodeEncodeError for lone surrogates."""
        import numpy as np

        recognised = self._checked([text], allowed_special, disallowed_special)
        _refuse_surrogates(text)
        ids = self._core.encode_to_numpy(text, recognised, None).astype(np.uint32, copy=False)
        ids.flags.writeable = False
        return ids

    def encode_ordinary_batch(self, text: list[str], *, num_threads: int = 8) -> list[list[int]]:
        """As `encode_ordinary`, of each text, on up to `num_threads` threads."""
        return self._core.encode_batch(list(text), "none", _threads(num_threads))

    def encode_batch(
        self,
        text: list[str],
        *,
        num_threads: int = 8,
        allowed_special: Literal["all"] | Set[str] = _NONE,
        disallowed_special: DisallowedSpecial = "all",
    ) -> list[list[int]]:
        """As `encode`, of each text, on up to `num_threads` threads."""
        texts = list(text)
        if not isinstance(disallowed_special, str):
            disallowed_special = frozenset(disallowed_special)
        recognised = self._checked(texts, allowed_special, disallowed_special)
        return self._core.encode_batch(texts, recognised, _threads(num_threads))

    def encode_with_unstable(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | Set[str] = _NONE,
        disallowed_special: DisallowedSpecial = "all",
    ) -> tuple[list[int], list[list[int]]]:
        """The ids that more text cannot change, and the lists of ids that may follow them."""
        recognised = self._checked([text], allowed_special, disallowed_special)
        _refuse_surrogates(text)
        return self._core.encode_with_unstable(text, recognised)

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        """The id of a token, special or not. Raises KeyError where there is no such token."""
        token = text_or_bytes.encode() if isinstance(text_or_bytes, str) else text_or_bytes
        if not isinstance(token, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a token is a str or bytes, not {type(token).__name__}")
        found = self._core.bytes_to_id(token)
        if found is None:
            # What is not UTF-8 becomes a str that is no special token.
            found = self._special_tokens.get(token.decode("utf-8", "surrogateescape"))
        if found is None:
            raise KeyError(token)
        return found

    def _checked(
        self, texts: Sequence[str], allowed: Literal["all"] | Set[str], disallowed: DisallowedSpecial | None
    ) -> AllowedSpecial:
        """What the core is to recognise. Raises ValueError where a text holds what is disallowed."""
        if isinstance(allowed, str) and allowed == "all":
            if isinstance(disallowed, str) and disallowed == "all":
                return "all"
            allowed = self._special_tokens.keys()
        elif not isinstance(allowed, (set, frozenset)):
            raise TypeError(f"allowed_special must be 'all' or a set, not {type(allowed).__name__}")
        elif not all(isinstance(token, str) for token in allowed):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("allowed_special must be a set of str")
        recognised, refused = options(self._special_tokens, allowed, disallowed or ())
        if not all(isinstance(token, str) for token in refused):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("disallowed_special must be a collection of str")
        for text in texts:
            refuse(text, refused)
        return recognised

    # Ids to text

    def decode_bytes(self, tokens: TokenIds) -> bytes:
        """The bytes of `tokens`. Raises KeyError for an id that no token has."""
        _refuse_no_sequence(tokens)
        try:
            return self._core.decode_bytes(tokens)
        except UnknownTokenError as error:
            _raise_unknown(error)

    def decode(self, tokens: TokenIds, errors: str = "replace") -> str:
        """The text of `tokens`; what is not UTF-8 is treated as `errors` says."""
        _refuse_no_sequence(tokens)
        try:
            return self._core.decode(tokens, errors)
        except UnknownTokenError as error:
            _raise_unknown(error)

    def decode_single_token_bytes(self, token: int) -> bytes:
        """The bytes of one token. Raises KeyError for an id that no token has."""
        try:
            return self._core.token_bytes(token)
        except UnknownTokenError as error:
            _raise_unknown(error)

    def decode_tokens_bytes(self, tokens: Iterable[int]) -> list[bytes]:
        """The bytes of each token."""
        return [self.decode_single_token_bytes(token) for token in tokens]

    def decode_with_offsets(self, tokens: Iterable[int]) -> tuple[str, list[int]]:
        """The text of `tokens`, and the index of the first character that each has a byte of.

        Raises UnicodeDecodeError where they are not UTF-8 together.
        """
        return text_and_starts(self.decode_tokens_bytes(tokens))

    def decode_batch(
        self, batch: Iterable[TokenIds], *, errors: str = "replace", num_threads: int = 8
    ) -> list[str]:
        """As `decode`, of each sequence of ids."""
        _threads(num_threads)
        return [self.decode(tokens, errors) for tokens in batch]

    def decode_bytes_batch(self, batch: Iterable[TokenIds], *, num_threads: int = 8) -> list[bytes]:
        """As `decode_bytes`, of each sequence of ids."""
        _threads(num_threads)
        return [self.decode_bytes(tokens) for tokens in batch]

    # Facts

    def token_byte_values(self) -> list[bytes]:
        """The bytes of all tokens that are not special, in the order of the bytes."""
        return self._core.sorted_tokens()

    @property
    def eot_token(self) -> int:
        """The id of `<|endoftext|>`. Raises KeyError where it is no special token."""
        return self._special_tokens["<|endoftext|>"]

    @property
    def special_tokens_set(self) -> set[str]:
        """The special tokens."""
        return set(self._special_tokens)

    def is_special_token(self, token: int) -> bool:
        """True for the id of a special token. Raises AssertionError for what is no int."""
        if not isinstance(token, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AssertionError(f"an id is an int, not {type(token).__name__}")  # noqa: TRY004
        return token in self._special_ids

    @property
    def n_vocab(self) -> int:
        """The highest id + 1."""
        return self.max_token_value + 1


_MADE: dict[str, Encoding] = {}
_MAKING = threading.RLock()


def get_encoding(encoding_name: str) -> Encoding:
    """The encoding of a name, the same object each time, by way of `Tokenizer.from_pretrained`.

    Raises ValueError for a name that is none.
    """
    if not isinstance(encoding_name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"the name of an encoding is a str, not {type(encoding_name).__name__}")  # noqa: TRY004
    if encoding_name not in ENCODING_NAMES:
        raise ValueError(f"unknown encoding {encoding_name!r}: there are {', '.join(ENCODING_NAMES)}")
    with _MAKING:
        if encoding_name not in _MADE:
            _MADE[encoding_name] = _pretrained(encoding_name)
        return _MADE[encoding_name]


def _pretrained(name: str) -> Encoding:
    from bytemill.tokenizer.tokenizer import Tokenizer

    if name == "o200k_harmony":
        raise TokenizerError(
            "o200k_harmony gives the id 200018 to two special tokens, which bytemill does not do",
            hint="Take o200k_base, or an Encoding with special tokens of your own.",
        )
    return Encoding.from_tokenizer(Tokenizer.from_pretrained(name), name)


def encoding_for_model(model_name: str) -> Encoding:
    """The encoding of a model of OpenAI's. Raises KeyError for a model that is not known."""
    return get_encoding(encoding_name_for_model(model_name))


def list_encoding_names() -> list[str]:
    """The names that `get_encoding` knows."""
    return list(ENCODING_NAMES)


def _from_parts(
    cls: type[Encoding],
    name: str,
    pat_str: str,
    mergeable_ranks: dict[bytes, int],
    special_tokens: dict[str, int],
) -> Encoding:
    return cls(name, pat_str=pat_str, mergeable_ranks=mergeable_ranks, special_tokens=special_tokens)


def _from_tokenizer(cls: type[Encoding], tokenizer: Tokenizer, name: str) -> Encoding:
    return cls.from_tokenizer(tokenizer, name)


def _threads(num_threads: int | None) -> int | None:
    if num_threads is None:
        return None
    if num_threads <= 0:
        raise ValueError(f"num_threads must be greater than 0, not {num_threads}")
    return min(num_threads, 256)


def _refuse_surrogates(text: str) -> None:
    if not text.isascii():
        text.encode()


def _refuse_no_sequence(tokens: Any) -> None:
    if not hasattr(tokens, "__getitem__"):
        raise TypeError(f"ids come in a sequence, not in {type(tokens).__name__}")


def _raise_unknown(error: UnknownTokenError) -> NoReturn:
    """Raise tiktoken's error: OverflowError for an id outside of 32 bits, else KeyError."""
    if not 0 <= error.token_id < 2**32:
        raise OverflowError(f"the id {error.token_id} is not between 0 and {2**32 - 1}") from error
    raise KeyError(str(error)) from error
