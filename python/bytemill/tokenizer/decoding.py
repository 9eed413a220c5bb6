"""Decoding methods of a tokenizer: ids to text and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.tokenizer.stream_decoder import LeadingSpaces, StreamDecoder
from bytemill.tokenizer.token_starts import text_and_starts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bytemill._core import Encoder
    from bytemill.formats.spec import CharacterModel, TokenFlags
    from bytemill.tokenizer.types import TokenIds


class DecodingMethods:
    """Methods of `Tokenizer` that take ids. An id that no token has raises `UnknownTokenError`."""

    core: Encoder
    special_tokens: dict[str, int]
    token_flags: dict[str, TokenFlags]
    characters: CharacterModel | None

    def decode(
        self,
        ids: TokenIds,
        errors: str = "replace",
        *,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool = False,  # noqa: ARG002
    ) -> str:
        """Return the text of `ids`.

        Args:
            ids: A sequence or array of ids.
            errors: Error handler for invalid UTF-8, as for `bytes.decode`; by default U+FFFD replaces it.
            skip_special_tokens: Leave out special tokens.
            clean_up_tokenization_spaces: Ignored, as transformers does for BPE: it would lose spaces of the text.

        Raises:
            UnknownTokenError: An id belongs to no token.
            TokenizerError: Another thread changed the array of ids.
        """
        if skip_special_tokens:
            ids = self._without_special(ids)
        return self._stripped(self.core.decode(ids, errors), ids)

    def _stripped(self, text: str, ids: TokenIds) -> str:
        """The text without the spaces that SentencePiece puts before it."""
        if self.characters is None or not text.startswith(" "):
            return text
        stripped = LeadingSpaces(self.characters.decode_strip)
        n_spaces = 0
        for token_id in ids:
            if not stripped.is_active:
                break
            token = self.core.decode_bytes([token_id])
            n_spaces += len(token) - len(stripped.from_token(token))
        return text[n_spaces:]

    def decode_bytes(self, ids: TokenIds) -> bytes:
        """Return the bytes of `ids`, without loss. Raises as `decode` does.

        Unlike in `decode`, the space that SentencePiece puts before a text is part of the result.
        """
        return self.core.decode_bytes(ids)

    def decode_tokens_bytes(self, ids: TokenIds) -> list[bytes]:
        """Return the bytes of each id, which joined are `decode_bytes`. Raises as `decode` does."""
        return [self.core.decode_bytes([i]) for i in ids]

    def decode_with_offsets(self, ids: TokenIds) -> tuple[str, list[int]]:
        """Return the text of `ids` and the character offset at which each token starts.

        A token that starts inside a character has that character's offset.

        Raises:
            UnicodeDecodeError: The bytes are not valid UTF-8.
            UnknownTokenError: An id belongs to no token.

        >>> from bytemill import Tokenizer
        >>> Tokenizer({i: bytes([i]) for i in range(256)}, []).decode_with_offsets(list("né!".encode()))
        ('né!', [0, 1, 1, 2])
        """
        return text_and_starts(self.decode_tokens_bytes(ids))

    def decode_batch(
        self,
        batch: Iterable[TokenIds],
        *,
        errors: str = "replace",
        skip_special_tokens: bool = False,
        num_threads: int | None = None,  # noqa: ARG002
    ) -> list[str]:
        """Return the text of each sequence of ids.

        Args:
            batch: Sequences or arrays of ids.
            errors: As in `decode`.
            skip_special_tokens: As in `decode`.
            num_threads: Ignored; tiktoken has it. Decoding on one thread is faster than dividing the work.
        """
        if skip_special_tokens:
            batch = [self._without_special(ids) for ids in batch]
        if self.characters is None:
            return self.core.decode_batch(batch, errors)
        return [self.decode(ids, errors) for ids in batch]

    def decode_bytes_batch(
        self,
        batch: Sequence[TokenIds],
        *,
        num_threads: int | None = None,  # noqa: ARG002
    ) -> list[bytes]:
        """Return the bytes of each sequence of ids; `num_threads` is ignored as in `decode_batch`."""
        return [self.core.decode_bytes(ids) for ids in batch]

    def _without_special(self, ids: TokenIds) -> list[int]:
        """The ids without those that Hugging Face's files mark as special."""
        skipped = {
            i
            for token, i in self.special_tokens.items()
            if token not in self.token_flags or self.token_flags[token].special
        }
        return [i for i in ids if i not in skipped]

    def stream_decoder(self) -> StreamDecoder:
        """Return a decoder for ids that arrive one at a time. It never returns part of a character.

        >>> from bytemill import Tokenizer
        >>> decoder = Tokenizer({i: bytes([i]) for i in range(256)}, []).stream_decoder()
        >>> [decoder.feed(byte) for byte in "é!".encode()]
        ['', 'é', '!']
        """
        mode = "none" if self.characters is None else self.characters.decode_strip
        return StreamDecoder(lambda token_id: self.core.decode_bytes([token_id]), mode)
