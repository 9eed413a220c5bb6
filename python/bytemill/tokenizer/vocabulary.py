"""Vocabulary methods of a tokenizer: sizes, single tokens, and byte-level text."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from bytemill.errors import UnknownTokenError
from bytemill.formats.bytes_to_unicode import bytes_to_text, text_to_bytes
from bytemill.formats.spec import describe_normalizer
from bytemill.tokenizer.explanation import TokenInfo

if TYPE_CHECKING:
    from bytemill._core import Encoder
    from bytemill.formats.spec import CharacterModel


class VocabularyMethods:
    """Methods of `Tokenizer` that look up tokens."""

    core: Encoder
    """The Rust encoder."""
    special_tokens: dict[str, int]
    """Special tokens and their ids."""
    characters: CharacterModel | None
    merge_counts: list[int] | None
    """The count of each merge's pair in the training corpus when it was merged, if known."""

    def __len__(self) -> int:
        """Return the number of tokens, special tokens included."""
        return self._n_tokens

    def __bool__(self) -> bool:
        return True

    @property
    def vocab_size(self) -> int:
        """Number of tokens, special tokens included: the `vocab_size` of `bytemill.train`, and `len(tok)`.

        In transformers, `vocab_size` leaves out tokens added after training; a bytemill tokenizer does not tell these
        from other special tokens. Where ids have gaps, `n_vocab` is larger: use it to size an embedding.
        """
        return self._n_tokens

    @cached_property
    def _n_tokens(self) -> int:
        return len(self.core.vocab().keys() | set(self.special_tokens.values()))

    @property
    def n_vocab(self) -> int:
        """The highest id + 1, as in tiktoken."""
        return self.core.n_vocab

    @property
    def max_token_value(self) -> int:
        """The highest id."""
        return self.core.n_vocab - 1

    @property
    def pattern(self) -> str | None:
        """The regular expression of the pre-tokenizer, or None for no pre-tokenization."""
        return self.core.pattern

    @property
    def normalizer(self) -> str | None:
        """The changes applied to text between special tokens, such as `"NFC"` or `"NFD, Lowercase"`, or None.

        Only files from other tools request them. Decoding returns the normalized text.
        """
        return describe_normalizer(self.core.normalizer) or None

    @property
    def special_tokens_set(self) -> set[str]:
        """The special tokens."""
        return set(self.special_tokens)

    @property
    def eot_token(self) -> int:
        """The id of `<|endoftext|>`. Raises KeyError if it is not a special token."""
        return self.special_tokens["<|endoftext|>"]

    @property
    def vocab(self) -> dict[int, bytes]:
        """All tokens by id, special tokens as UTF-8. A new dict on each access, so that it may be changed.

        Keep it in a variable where it is needed often; `decode_single_token_bytes` and `token` look up one token.
        """
        return self._vocab.copy()

    @cached_property
    def _vocab(self) -> dict[int, bytes]:
        special = {i: token.encode() for token, i in self.special_tokens.items()}
        return dict(sorted((self.core.vocab() | special).items()))

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges in rank order. A new list on each access, so that it may be changed.

        Empty for a tokenizer from ranks that no list of merges can express.
        """
        return self._merges.copy()

    @cached_property
    def _merges(self) -> list[tuple[bytes, bytes]]:
        return self.core.merges()

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        """Return the id of a token, special or ordinary. An ordinary token takes precedence over a special one.

        Raises:
            KeyError: There is no such token.
        """
        token = text_or_bytes.encode() if isinstance(text_or_bytes, str) else text_or_bytes
        found = self._id_of(token)
        if found is None:
            raise KeyError(text_or_bytes)
        return found

    def _id_of(self, token: bytes) -> int | None:
        ordinary = self.core.bytes_to_id(token)
        if ordinary is not None:
            return ordinary
        try:
            return self.special_tokens.get(token.decode())
        except UnicodeDecodeError:
            return None

    def decode_single_token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token.

        Raises:
            UnknownTokenError: No token has this id.
        """
        return self.core.token_bytes(token)

    def is_special_token(self, token: int) -> bool:
        """Return whether `token` is the id of a special token."""
        return token in self._special_by_id

    @cached_property
    def _special_by_id(self) -> dict[int, str]:
        # The first of several texts with one id, which decoding gives too.
        return {i: token for token, i in reversed(self.special_tokens.items())}

    def token_byte_values(self) -> list[bytes]:
        """Return the bytes of all ordinary tokens in byte order."""
        return self.core.sorted_tokens()

    def token(self, token_id: int) -> TokenInfo:
        """Describe a token: its bytes, rank, the pair it is merged from, and the pair's count in training.

        Raises:
            UnknownTokenError: No token has this id.

        >>> import bytemill
        >>> tok = bytemill.train_from_iterator(["low low lower lowest"], vocab_size=258, special_tokens=[])
        >>> tok.token(257)
        TokenInfo(id=257, bytes=b'low', special=False, rank=1, parts=(108, 256), count=4)
        """
        merge = self.core.merge_of(token_id)
        counts = self.merge_counts
        return TokenInfo(
            id=token_id,
            bytes=self.core.token_bytes(token_id),
            special=self.is_special_token(token_id),
            rank=merge[0] if merge else None,
            parts=merge[1:] if merge else None,
            count=counts[merge[0]] if merge and counts else None,
        )

    # Byte-level text has one character per byte, as in Hugging Face's vocabularies ("Ġ" is the space). Tokens of
    # characters, as in SentencePiece, are text with "▁" for spaces, and "<0x0A>" for the token of a byte.

    def token_to_id(self, token: str | bytes) -> int | None:
        """Return the id of a token, special or ordinary, or None if there is no such token.

        Args:
            token: The token's bytes, or a str of byte-level text (`"Ġthe"`, `"Ã©"`). A str that contains another
                character, such as a space, is taken as text.

        >>> from bytemill import Tokenizer
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b" t"}, [(b" ", b"t")])
        >>> tok.token_to_id("Ġt"), tok.token_to_id(" t"), tok.token_to_id(b" t"), tok.token_to_id("Ġx")
        (256, 256, 256, None)
        """
        if isinstance(token, bytes):
            return self._id_of(token)
        if token in self.special_tokens:
            return self.special_tokens[token]
        if self.characters is not None:
            return self._ids_of_texts.get(token)
        try:
            return self.core.bytes_to_id(text_to_bytes(token))
        except ValueError:
            return self.core.bytes_to_id(token.encode())

    def id_to_token(self, token_id: int) -> str | None:
        """Return a token as byte-level text, or None if no token has this id.

        >>> from bytemill import Tokenizer
        >>> Tokenizer({i: bytes([i]) for i in range(256)} | {256: b" t"}, [(b" ", b"t")]).id_to_token(256)
        'Ġt'
        """
        special = self._special_by_id.get(token_id)
        if special is not None:
            return special
        try:
            return self._text_of(token_id, self.core.token_bytes(token_id))
        except UnknownTokenError:
            return None

    def _text_of(self, token_id: int, token: bytes) -> str:
        """An ordinary token as its file writes it."""
        if self.characters is None:
            return bytes_to_text(token)
        if self.characters.byte_ids is not None and self.characters.byte_ids.get(token[0]) == token_id:
            return f"<0x{token[0]:02X}>"
        text = token.decode()
        return text.replace(" ", "\u2581") if self.characters.writes_spaces_as_meta else text

    @cached_property
    def _ids_of_texts(self) -> dict[str, int]:
        return self.get_vocab()

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        """Return all tokens as byte-level text with their ids, in id order.

        Args:
            with_added_tokens: Include the special tokens.

        >>> from bytemill import Tokenizer
        >>> vocab = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<x>"]).get_vocab()
        >>> vocab["Ġ"], vocab["<x>"]
        (32, 256)
        """
        special = {i: token for token, i in self.special_tokens.items()}
        ordinary = {
            i: self._text_of(i, token)
            for i, token in self.core.vocab().items()
            if special.get(i, "").encode() != token or len(token) == 1
        }
        by_id = ordinary | special if with_added_tokens else ordinary
        return {token: i for i, token in sorted(by_id.items())}

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        """Return the number of tokens, by default including the special tokens."""
        return len(self.get_vocab(with_added_tokens))
