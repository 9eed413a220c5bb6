"""Text to ids and ids to text, and what is known of the tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from bytemill.formats.bytes_to_unicode import bytes_to_text, text_to_bytes
from bytemill.tokenizer.explanation import Explanation, TokenInfo, explain
from bytemill.tokenizer.offsets import EncodedText, encode_with_offsets
from bytemill.tokenizer.special_options import BY_DEFAULT, allowed_in
from bytemill.tokenizer.stream_decoder import StreamDecoder
from bytemill.tokenizer.token_starts import text_and_starts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray

    from bytemill._core import Encoder
    from bytemill.tokenizer.types import AllowedSpecial, DisallowedSpecial, TokenArray, TokenIds


class Codec:
    """What `Tokenizer` does with text and ids. Where tokenizers come from and go to is `Tokenizer`'s part.

    In every method, `allowed_special` says what happens to special tokens in a text: `"all"` recognises them (where
    two overlap, the leftmost wins, and of those that start together the longest), `"none"` treats them as plain text,
    `"none_raise"` raises `SpecialTokenError`, and a set recognises its members alone. A text that comes from outside
    is encoded with `encode_ordinary`, which never sees special tokens.

    Where there is a `disallowed_special` and it is given, both options mean what they mean in tiktoken: strings that
    may not stand in the text (`"all"`: the special tokens that are not allowed) raise `SpecialTokenError`, and
    `allowed_special` is empty unless it is given too. `bytemill.compat.tiktoken` has tiktoken's defaults as well.

    A `str` with lone surrogates is encoded as if they were U+FFFD; surrogate pairs are joined.
    """

    core: Encoder
    """The Rust part."""
    special_tokens: dict[str, int]
    """Special tokens and their ids."""
    merge_counts: list[int] | None
    """How often each merge's pair stood in the training corpus when it was merged, where that is known."""

    # Facts

    @property
    def n_vocab(self) -> int:
        """The highest id + 1."""
        return self.core.n_vocab

    @property
    def max_token_value(self) -> int:
        """The highest id."""
        return self.core.n_vocab - 1

    @property
    def pattern(self) -> str | None:
        """The regular expression of the pre-tokenizer; None where there is none."""
        return self.core.pattern

    @property
    def normalizer(self) -> Literal["NFC"] | None:
        """What is done to a text between its special tokens before it is split; only files of others ask for it.

        Decoding gives back what that has left.
        """
        return "NFC" if self.core.nfc else None

    @property
    def special_tokens_set(self) -> set[str]:
        """The special tokens."""
        return set(self.special_tokens)

    @property
    def eot_token(self) -> int:
        """The id of `<|endoftext|>`. Raises KeyError where it is no special token."""
        return self.special_tokens["<|endoftext|>"]

    @property
    def vocab(self) -> dict[int, bytes]:
        """All tokens by id, the special ones as their UTF-8 bytes. Made anew at each call."""
        special = {i: token.encode() for token, i in self.special_tokens.items()}
        return dict(sorted((self.core.vocab() | special).items()))

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges in order of rank. Made anew at each call.

        Empty where the tokenizer comes from ranks that no list of merges stands for.
        """
        return self.core.merges()

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        """The id of a token, special or not (of two with the same bytes, the ordinary one), by its text or its bytes.

        Raises KeyError where there is no such token.
        """
        token = text_or_bytes.encode() if isinstance(text_or_bytes, str) else text_or_bytes
        found = self.core.bytes_to_id(token)
        if found is None:
            found = self._id_of(token)
        if found is None:
            raise KeyError(text_or_bytes)
        return found

    def _id_of(self, text_or_bytes: str | bytes) -> int | None:
        if isinstance(text_or_bytes, str):
            special = self.special_tokens.get(text_or_bytes)
            return self.core.bytes_to_id(text_or_bytes.encode()) if special is None else special
        ordinary = self.core.bytes_to_id(text_or_bytes)
        if ordinary is not None:
            return ordinary
        try:
            return self.special_tokens.get(text_or_bytes.decode())
        except UnicodeDecodeError:
            return None

    def decode_single_token_bytes(self, token: int) -> bytes:
        """The bytes of one token. Raises KeyError for an id that no token has."""
        return self.core.token_bytes(token)

    def is_special_token(self, token: int) -> bool:
        """True for the id of a special token."""
        return token in self.special_tokens.values()

    def token_byte_values(self) -> list[bytes]:
        """The bytes of all ordinary tokens, in the order of the bytes."""
        return self.core.sorted_tokens()

    def token(self, token_id: int) -> TokenInfo:
        """What is known of a token: its bytes, the pair it is merged from, rank, count in training.

        Raises KeyError for an id that no token has.

        >>> import bytemill
        >>> tok = bytemill.train_from_iterator(["low low lower lowest"], vocab_size=258)
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

    def explain(self, text: str, *, allowed_special: AllowedSpecial = "all") -> list[Explanation]:
        """How `text` becomes ids: its special tokens and pre-tokens, and for each every merge in order.

        >>> from bytemill import Tokenizer
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> for part in tok.explain("the the"):
        ...     print(part)
        'the' -> 'th' 'e' (256 101): t+h
        ' the' -> ' ' 'th' 'e' (32 256 101): t+h
        """
        return explain(self.core, text, allowed_special)

    # Hugging Face's names, with its spelling: a character for each byte ("Ġ" is the space); special tokens as they are

    def token_to_id(self, token: str | bytes) -> int | None:
        """The id of a token, special or not; None where there is no such token.

        A `str` is Hugging Face's spelling (`"Ġthe"`, `"Ã©"`); one with a character that stands for no byte, such as a
        space, can be none and is taken as text. Bytes are the token's bytes.

        >>> from bytemill import Tokenizer
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b" t"}, [(b" ", b"t")])
        >>> tok.token_to_id("Ġt"), tok.token_to_id(" t"), tok.token_to_id(b" t"), tok.token_to_id("Ġx")
        (256, 256, 256, None)
        """
        if isinstance(token, bytes) or token in self.special_tokens:
            return self._id_of(token)
        try:
            return self.core.bytes_to_id(text_to_bytes(token))
        except ValueError:
            return self._id_of(token)

    def id_to_token(self, token_id: int) -> str | None:
        """The spelling of a token; None for an id that no token has.

        >>> from bytemill import Tokenizer
        >>> Tokenizer({i: bytes([i]) for i in range(256)} | {256: b" t"}, [(b" ", b"t")]).id_to_token(256)
        'Ġt'
        """
        special = next((text for text, i in self.special_tokens.items() if i == token_id), None)
        if special is not None:
            return special
        try:
            return bytes_to_text(self.core.token_bytes(token_id))
        except KeyError:
            return None

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        """All tokens by spelling, in the order of their ids; without the special ones on request.

        >>> from bytemill import Tokenizer
        >>> vocab = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<x>"]).get_vocab()
        >>> vocab["Ġ"], vocab["<x>"]
        (32, 256)
        """
        special = {i: token for token, i in self.special_tokens.items()}
        ordinary = {
            i: bytes_to_text(token)
            for i, token in self.core.vocab().items()
            if special.get(i, "").encode() != token or len(token) == 1
        }
        by_id = ordinary | special if with_added_tokens else ordinary
        return {token: i for i, token in sorted(by_id.items())}

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        """How many tokens there are (`n_vocab` is the highest id + 1); without the special ones on request."""
        return len(self.get_vocab(with_added_tokens))

    # Text to ids

    def encode(
        self,
        text: str,
        *,
        allowed_special: AllowedSpecial = BY_DEFAULT,
        disallowed_special: DisallowedSpecial | None = None,
        num_threads: int | None = None,
    ) -> list[int]:
        """The ids of `text`.

        A long text is encoded on `num_threads` threads (default: as many as the machine runs at once), cut only
        where no token can change.
        """
        if disallowed_special is not None:
            allowed_special = allowed_in([text], self.special_tokens, allowed_special, disallowed_special)
        return self.core.encode(text, allowed_special, num_threads)

    def encode_ordinary(self, text: str, *, num_threads: int | None = None) -> list[int]:
        """As `encode`, with special tokens as plain text."""
        return self.core.encode(text, "none", num_threads)

    def encode_batch(
        self,
        texts: Iterable[str],
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial = BY_DEFAULT,
        disallowed_special: DisallowedSpecial | None = None,
    ) -> list[list[int]]:
        """The ids of each text of an iterable, on `num_threads` threads (default: as many as the machine runs at once).

        The texts are taken from the iterable before the first is encoded. Raises TypeError naming the index of one
        that is no `str`.
        """
        if disallowed_special is not None:
            texts = list(texts)
            allowed_special = allowed_in(texts, self.special_tokens, allowed_special, disallowed_special)
        return self.core.encode_batch(texts, allowed_special, num_threads)

    def encode_ordinary_batch(
        self, texts: Iterable[str], *, num_threads: int | None = None
    ) -> list[list[int]]:
        """As `encode_batch`, with special tokens as plain text."""
        return self.core.encode_batch(texts, "none", num_threads)

    def encode_to_numpy(
        self,
        text: str,
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial = BY_DEFAULT,
        disallowed_special: DisallowedSpecial | None = None,
    ) -> TokenArray:
        """The ids of `text` as a 1-D array: uint16 where every id of the vocabulary fits, else uint32.

        A long text is encoded on `num_threads` threads (default: as many as the machine runs at once), cut only
        where no token can change.
        """
        if disallowed_special is not None:
            allowed_special = allowed_in([text], self.special_tokens, allowed_special, disallowed_special)
        return self.core.encode_to_numpy(text, allowed_special, num_threads)

    def encode_batch_to_numpy(
        self,
        texts: Iterable[str],
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial = BY_DEFAULT,
        disallowed_special: DisallowedSpecial | None = None,
    ) -> tuple[TokenArray, NDArray[np.int64]]:
        """The ids of all texts of an iterable in one array, and the n + 1 places between which those of each text are.

        Those of text number k are `ids[offsets[k] : offsets[k + 1]]`. The ids are as `encode_to_numpy` gives them, the
        offsets int64, from 0 to `len(ids)`, as in Arrow's lists. `np.split(ids, offsets[1:-1])` gives an array a text.

        The texts are taken from the iterable before the first is encoded, on `num_threads` threads (default: as many
        as the machine runs at once). Raises TypeError naming the index of one that is no `str`.

        >>> from bytemill import Tokenizer
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> ids, offsets = tok.encode_batch_to_numpy(["the", "", "a th"])
        >>> ids.tolist(), offsets.tolist()
        ([256, 101, 97, 32, 256], [0, 2, 2, 5])
        """
        if disallowed_special is not None:
            texts = list(texts)
            allowed_special = allowed_in(texts, self.special_tokens, allowed_special, disallowed_special)
        return self.core.encode_batch_to_numpy(texts, allowed_special, num_threads)

    def encode_files(
        self,
        paths: Iterable[str | PathLike[str]],
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial = "all",
    ) -> list[TokenArray]:
        """The ids of each file, an array as `encode_to_numpy` gives it, in the order of `paths`.

        A file is one text in UTF-8, and its bytes are taken as they are: line ends stay what they are, and a byte order
        mark is a character like others. Its ids are those of `encode_to_numpy(path.read_bytes().decode())`. It is read
        as it is encoded, part by part, and is never in memory as a whole. Several files are encoded at the same time,
        and a large one by several threads: `num_threads` in all (default: as many as the machine runs at once).

        Raises OSError where a file cannot be read (before anything is encoded where one is missing, a folder, or a
        pipe), UnicodeDecodeError where one is not UTF-8, with the offset in the file as its `start`, and with
        `allowed_special="none_raise"` `SpecialTokenError`. All name the file.

        >>> import tempfile
        >>> from pathlib import Path
        >>> from bytemill import Tokenizer
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = [Path(folder, "a.txt"), Path(folder, "b.txt")]
        ...     n_bytes = [path.write_bytes(text) for path, text in zip(paths, [b"the", b""])]
        ...     [ids.tolist() for ids in tok.encode_files(paths)]
        [[256, 101], []]
        """
        return self.core.encode_files(paths, allowed_special, num_threads)

    def encode_with_unstable(
        self,
        text: str,
        *,
        allowed_special: AllowedSpecial = BY_DEFAULT,
        disallowed_special: DisallowedSpecial | None = None,
    ) -> tuple[list[int], list[list[int]]]:
        """The ids of `text` that more text cannot change, and what may follow them, as in tiktoken.

        Each of the second is a shortest list of ids with which the bytes of the whole begin with `text`; they are in
        order. They are all that end with a token which begins inside the text. None is there after a special token.

        Raises `TokenizerError` where the last pre-token has so many thousand bytes that this would take minutes.

        >>> from bytemill import Tokenizer
        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"th", 257: b"the"}
        >>> Tokenizer(vocab, [(b"t", b"h"), (b"th", b"e")]).encode_with_unstable("a th")
        ([97], [[32, 256], [32, 257]])
        """
        if disallowed_special is not None:
            allowed_special = allowed_in([text], self.special_tokens, allowed_special, disallowed_special)
        return self.core.encode_with_unstable(text, allowed_special)

    def encode_with_offsets(
        self, text: str, *, allowed_special: AllowedSpecial = "all", num_threads: int | None = None
    ) -> EncodedText:
        """The ids of `text`, and for each the bytes and the characters that it stands for, as arrays.

        Byte offsets are exact: they count in the UTF-8 of the text, and each token starts where the one before ends.
        Character offsets count in `text` itself; a token that begins or ends inside a character covers all of it. So
        tokens that share a character overlap there. In `text` a lone surrogate is one place and three bytes (those of
        U+FFFD), a surrogate pair two places and four bytes. White space that a special token takes in is part of it.

        Raises `TokenizerError` where a normalizer changes `text`.

        >>> from bytemill import Tokenizer
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)}, [])
        >>> encoded = tok.encode_with_offsets("né!")
        >>> encoded.tokens
        [b'n', b'\xc3', b'\xa9', b'!']
        >>> encoded.byte_offsets.tolist()
        [[0, 1], [1, 2], [2, 3], [3, 4]]
        >>> encoded.char_offsets.tolist()
        [[0, 1], [1, 2], [1, 2], [2, 3]]
        """
        return encode_with_offsets(self.core, text, allowed_special, num_threads)

    def encode_iterable(
        self, iterable: Iterable[str], *, allowed_special: AllowedSpecial = "all"
    ) -> Iterator[int]:
        """The ids of the joined pieces of `iterable`, one by one, in memory that does not grow with them.

        They are those of `encode("".join(iterable))`, wherever the pieces are cut. Pieces are taken as ids are asked
        for, some kilobytes ahead. (Where nothing may be cut, memory grows up to the next place where it may: inside
        one endless word, and with a pattern of one's own up to the next special token. A surrogate pair that is cut
        in two becomes two U+FFFD.) Raises TypeError naming the index of a piece that is no `str`.
        """
        return self.core.encode_iterable(iterable, allowed_special)

    def count(self, text: str, *, allowed_special: AllowedSpecial = "all") -> int:
        """How many ids `text` has."""
        return self.core.count(text, allowed_special)

    # Ids to text

    def decode(self, ids: TokenIds, errors: str = "replace") -> str:
        """The text of `ids`; what is not UTF-8 becomes U+FFFD unless `errors` says otherwise.

        Raises KeyError for an id that no token has, and TokenizerError where another thread writes to an array of ids
        meanwhile.
        """
        return self.core.decode(ids, errors)

    def decode_bytes(self, ids: TokenIds) -> bytes:
        """The bytes of `ids`, lossless. Raises as `decode` does."""
        return self.core.decode_bytes(ids)

    def decode_tokens_bytes(self, ids: TokenIds) -> list[bytes]:
        """The bytes of each id. Raises KeyError for an id that no token has."""
        return [self.core.token_bytes(i) for i in ids]

    def decode_with_offsets(self, ids: TokenIds) -> tuple[str, list[int]]:
        """The text of `ids` and the character at which each token starts.

        A token that starts inside a character has the offset of this character. Raises UnicodeDecodeError where the
        bytes are not UTF-8, and KeyError for an id that no token has.

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
        num_threads: int | None = None,  # noqa: ARG002
    ) -> list[str]:
        """The text of each sequence of ids of an iterable.

        One thread decodes, whatever `num_threads` (tiktoken has it) says: it takes less than to divide the work.
        """
        return self.core.decode_batch(batch, errors)

    def decode_bytes_batch(
        self,
        batch: Sequence[TokenIds],
        *,
        num_threads: int | None = None,  # noqa: ARG002
    ) -> list[bytes]:
        """The bytes of each sequence of ids, as `decode_batch`."""
        return [self.core.decode_bytes(ids) for ids in batch]

    def stream_decoder(self) -> StreamDecoder:
        """A decoder for ids that come one by one: it never gives half a character.

        >>> from bytemill import Tokenizer
        >>> decoder = Tokenizer({i: bytes([i]) for i in range(256)}, []).stream_decoder()
        >>> [decoder.feed(byte) for byte in "é!".encode()]
        ['', 'é', '!']
        """
        return StreamDecoder(self.core.token_bytes)
