"""The tokenizer: one class, in reading order, and `open_tokenizer`.

Rust does the work (`bytemill._core.Encoder`), or a library for what the core does not support. `encoding` and
`explanation` have what the methods need beside it, `model_inputs` and `chat` prepare inputs of models, `pretrained`
finds published tokenizers, and `bytemill.formats` reads and writes files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from bytemill._core import Encoder
from bytemill.errors import TokenizerError, TokenizerFileError, UnknownTokenError
from bytemill.formats.byte_level import bytes_to_text, text_to_bytes
from bytemill.formats.encoder import Loaded, build
from bytemill.formats.patterns import Pattern, resolve_pattern
from bytemill.formats.spec import (
    CharacterModel,
    PretokenShape,
    SpecialTokens,
    Ties,
    TokenFlags,
    TokenizerMetadata,
    TokenizerSpec,
    describe_normalizer,
    special_rules,
)
from bytemill.storage import is_url, local_output
from bytemill.tokenizer import exact_ids
from bytemill.tokenizer.encoding import (
    StreamDecoder,
    TextStreamDecoder,
    recognized_tokens,
    text_and_starts,
    without_leading_spaces,
)
from bytemill.tokenizer.explanation import (
    EncodedText,
    Explanations,
    TokenInfo,
    encode_with_offsets,
    explain,
    table_html,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import tiktoken
    from numpy.typing import NDArray

    from bytemill.formats.tiktoken import EncodingView
    from bytemill.tokenizer.encoding import AllowedSpecial, DisallowedSpecial, TokenArray, TokenIds
    from bytemill.tokenizer.exact_ids import AppendedIds, CanonicalIds, GrowingText
    from bytemill.tokenizer.model_inputs import (
        BatchEncoding,
        Encoded,
        Padding,
        PostProcessor,
        Side,
        Truncation,
    )
    from bytemill.tokenizer.training_report import TrainingReport


class Tokenizer:
    """A byte-level BPE tokenizer. Immutable and thread-safe.

    `allowed_special` controls special tokens in a text: `"all"` (the default) recognizes them, `"none"` treats them as
    text, `"none_raise"` raises `SpecialTokenError`, and a set recognizes its members only. Of overlapping special
    tokens the leftmost is recognized, and of those that start together the longest. Use `encode_ordinary` for
    untrusted text: it never recognizes special tokens. Tokens that a file adds with `special: false` are part of the
    text and always recognized.

    `disallowed_special` has tiktoken's meaning: a text that contains one of these strings (`"all"`: a special token
    that is not allowed) raises `SpecialTokenError`. If it is set, `allowed_special` defaults to no tokens, as in
    tiktoken. `bytemill.compat.tiktoken` has tiktoken's other defaults too.

    A lone surrogate in a `str` is encoded as U+FFFD; surrogate pairs are joined. Methods with `num_threads` use all
    available cores by default, and their result does not depend on it. An id that no token has raises
    `UnknownTokenError`.

    >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"th", 257: b"the"}
    >>> tok = Tokenizer(vocab, [(b"t", b"h"), (b"th", b"e")], ["<|endoftext|>"])
    >>> tok.encode("the cat<|endoftext|>")
    [257, 32, 99, 97, 116, 258]
    >>> tok.decode([257, 258])
    'the<|endoftext|>'
    """

    # Make and load

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Sequence[tuple[bytes, bytes]],
        special_tokens: Iterable[str] | Mapping[str, int] | None = None,
        *,
        pattern: str | Pattern | None = "gpt2",
    ) -> None:
        """Create a tokenizer from its parts.

        Args:
            vocab: Tokens by id.
            merges: Pairs of tokens in rank order.
            special_tokens: Special tokens. Those in the vocabulary keep their ids; the others get their explicit ids or
                the next ids after the highest one.
            pattern: A known name such as `gpt2` or `cl100k` (see `Pattern.named`), a `Pattern`, or None for no
                pre-tokenization.

        Raises:
            TokenizerError: The parts contradict each other.
        """
        special = _with_ids(vocab, special_tokens)
        spec = TokenizerSpec(resolve_pattern(pattern), special, vocab=dict(vocab), merges=list(merges))
        self._initialize(build(spec))

    @classmethod
    def from_spec(cls, spec: TokenizerSpec) -> Self:
        """Create a tokenizer from a spec. Raises `TokenizerError` as the constructor does."""
        return cls._from_loaded(build(spec))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        pattern: str | Pattern | EllipsisType | None = ...,
        special_tokens: SpecialTokens | None = None,
    ) -> Self:
        """Load a tokenizer file of any supported format, recognized by its content.

        Args:
            path: A file or a folder, also the URL of one in an object store. For GPT-2's two files, the path of either
                one.
            pattern: Pattern for a file that stores none: a rank file that is not a published one and has no
                `.tiktoken.json` beside it, or GPT-2's files (default: GPT-2's pattern).
            special_tokens: Special tokens for a file that stores none.

        Raises:
            TokenizerFileError: The file is missing, damaged, or has a feature that is not supported exactly.
        """
        from bytemill.formats import registry

        expression = pattern if isinstance(pattern, EllipsisType) else resolve_pattern(pattern)
        return cls._from_loaded(registry.load(path, expression, special_tokens))

    @classmethod
    def from_files(
        cls,
        vocab_filepath: str | os.PathLike[str],
        merges_filepath: str | os.PathLike[str],
        special_tokens: Iterable[str] | None = None,
        *,
        pattern: str | Pattern | None = "gpt2",
    ) -> Self:
        """Load GPT-2's two files, `vocab.json` and `merges.txt`.

        Args:
            vocab_filepath: The vocabulary file.
            merges_filepath: The merges file.
            special_tokens: Special tokens. Those in the vocabulary keep their ids; the others get the next ids after
                the highest one.
            pattern: As in the constructor.

        Raises:
            TokenizerFileError: A file is damaged, or the files contradict each other.
        """
        from bytemill.formats import gpt2

        spec = gpt2.read_pair(
            vocab_filepath, merges_filepath, special_tokens, pattern=resolve_pattern(pattern)
        )
        return cls.from_spec(spec)

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike[str],
        *,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool = False,
    ) -> Self:
        """Load a published tokenizer by name, or a repository of Hugging Face's hub.

        Looks in bytemill's cache, tiktoken's cache and Hugging Face's cache, then downloads with `tiktoken` or
        `huggingface_hub`, if installed. Files of published names must have the published checksums.

        Args:
            name: `gpt2`, `r50k_base`, `p50k_base`, `p50k_edit`, `cl100k_base`, `o200k_base`, `llama3`, a model of
                OpenAI that has one of these (`gpt-4`), or a repository. An existing path takes precedence, as in
                transformers.
            revision: Version of the repository.
            cache_dir: bytemill's cache; by default `$BYTEMILL_CACHE/tokenizers`, or `bytemill/tokenizers` in the user's
                cache folder.
            local_files_only: Never download.

        Raises:
            TokenizerFileError: The tokenizer is not found; the hint says where to save which file.
        """
        from bytemill.tokenizer import pretrained

        tokenizer = cls._from_loaded(
            pretrained.load(name, revision=revision, cache_dir=cache_dir, local_files_only=local_files_only)
        )
        if revision is None:
            tokenizer._name = pretrained.published_name(name)
        return tokenizer

    @classmethod
    def from_huggingface(cls, tokenizer: Any) -> Self:
        """Convert a `tokenizers.Tokenizer` or a `transformers.PreTrainedTokenizerFast`.

        Raises:
            TokenizerFileError: bytemill cannot give the same ids.
        """
        from bytemill.formats.huggingface import exchange

        return cls._from_loaded(exchange.from_object(tokenizer))

    @classmethod
    def from_tiktoken(cls, encoding: tiktoken.Encoding | EncodingView) -> Self:
        """Convert a tiktoken `Encoding`, or one of `bytemill.compat.tiktoken`.

        Unlike the encoding, the tokenizer recognizes special tokens by default.

        Raises:
            TokenizerError: Some ids could differ: the pattern does not provably match every character (tiktoken drops
                other text), a byte has no token, or a special token begins with another one that tiktoken prefers.
        """
        from bytemill.formats.tiktoken import spec_of

        tokenizer = cls.from_spec(spec_of(encoding))
        tokenizer._name = encoding.name
        return tokenizer

    @classmethod
    def _from_loaded(cls, loaded: Loaded) -> Self:
        tokenizer = cls.__new__(cls)
        tokenizer._initialize(loaded)
        return tokenizer

    def _initialize(self, loaded: Loaded) -> None:
        core = loaded.core
        self.core = core
        """The Rust encoder, or that of the library that runs the tokenizer."""
        self.special_tokens: dict[str, int] = core.special_tokens
        """Special tokens and their ids."""
        self.merge_counts: list[int] | None = loaded.merge_counts
        """The count of each merge's pair in the training corpus when it was merged, if known."""
        self.ties: Ties | None = loaded.ties
        """Tie-breaking rule of training, if known."""
        self.token_flags: dict[str, TokenFlags] = loaded.flags
        """Flags of the special tokens whose flags differ from the defaults, as in Hugging Face's files."""
        self.metadata: TokenizerMetadata | None = loaded.metadata
        """Metadata that does not affect ids: post-processor, chat template, tokenizer_config.json."""
        self.characters: CharacterModel | None = loaded.characters
        """Set if the smallest tokens are characters, as in SentencePiece; None for byte-level BPE."""
        self.joins_tokens: bool = loaded.joins_tokens
        """Whether decoding joins tokens as the file writes them, with spaces between: the file has no decoder."""
        self.training_report: TrainingReport | None = None
        """Statistics of training, if `train` made this object."""
        self._name: str | None = None

    # Encode

    def encode(
        self,
        text: str,
        *,
        allowed_special: AllowedSpecial | None = None,
        disallowed_special: DisallowedSpecial | None = None,
        num_threads: int | None = None,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> list[int]:
        """Return the ids of `text`.

        Args:
            text: The text. Long ones are encoded on several threads.
            allowed_special: Special tokens to recognize.
            disallowed_special: As in tiktoken.
            num_threads: Number of threads.
            dropout: Probability with which each merge is left out whenever it could happen (BPE-dropout, Provilkov et
                al. 2020), for other divisions of the same text in training. 0 leaves out none.
            seed: What the choice depends on, besides the text. From 0 to 2**64 - 1.

        Raises:
            SpecialTokenError: The text contains a special token that is refused.
            TokenizerError: `dropout` is set, and the tokenizer is not byte-level BPE with merges.
            ValueError: `dropout` is not from 0 to 1.
        """
        recognized = self._recognized([text], allowed_special, disallowed_special)
        if dropout == 0:
            return self.core.encode(text, recognized, num_threads)
        if not 0 < dropout <= 1:
            raise ValueError(f"dropout is {dropout}: use a number from 0 to 1")
        return self.own_core("dropout").encode_with_dropout(text, recognized, dropout, seed)

    def encode_ordinary(self, text: str, *, num_threads: int | None = None) -> list[int]:
        """Return the ids of `text` with special tokens treated as text."""
        return self.core.encode(text, "none", num_threads)

    def encode_batch(
        self,
        texts: Iterable[str],
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial | None = None,
        disallowed_special: DisallowedSpecial | None = None,
    ) -> list[list[int]]:
        """Return the ids of each text. The whole iterable is read before encoding starts.

        Raises:
            TypeError: An item is not a `str`; the message has its index.
        """
        if disallowed_special is not None:
            texts = list(texts)
        recognized = self._recognized(texts, allowed_special, disallowed_special)
        return self.core.encode_batch(texts, recognized, num_threads)

    def encode_ordinary_batch(
        self, texts: Iterable[str], *, num_threads: int | None = None
    ) -> list[list[int]]:
        """Return the ids of each text with special tokens treated as text."""
        return self.core.encode_batch(texts, "none", num_threads)

    def encode_to_numpy(
        self,
        text: str,
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial | None = None,
        disallowed_special: DisallowedSpecial | None = None,
    ) -> TokenArray:
        """Return the ids of `text` as a 1-D array: uint16 if every id of the vocabulary fits, else uint32."""
        recognized = self._recognized([text], allowed_special, disallowed_special)
        return self.core.encode_to_numpy(text, recognized, num_threads)

    def encode_batch_to_numpy(
        self,
        texts: Iterable[str],
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial | None = None,
        disallowed_special: DisallowedSpecial | None = None,
    ) -> tuple[TokenArray, NDArray[np.int64]]:
        """Return the ids of n texts in one array, and n + 1 offsets (int64), as in Arrow's lists.

        The ids of text k are `ids[offsets[k] : offsets[k + 1]]`; `np.split(ids, offsets[1:-1])` returns one array per
        text. The whole iterable is read before encoding starts.

        Raises:
            TypeError: An item is not a `str`; the message has its index.

        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> ids, offsets = tok.encode_batch_to_numpy(["the", "", "a th"])
        >>> ids.tolist(), offsets.tolist()
        ([256, 101, 97, 32, 256], [0, 2, 2, 5])
        """
        if disallowed_special is not None:
            texts = list(texts)
        recognized = self._recognized(texts, allowed_special, disallowed_special)
        return self.core.encode_batch_to_numpy(texts, recognized, num_threads)

    def encode_files(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial = "all",
    ) -> list[TokenArray]:
        """Return the ids of each file: one array per path, in the order of `paths`.

        Each file is one UTF-8 text with the ids of `encode_to_numpy(path.read_bytes().decode())`. Line ends and a
        byte-order mark are kept. Files are read in chunks, so no file is in memory as a whole.

        Args:
            paths: Files to encode.
            num_threads: Threads for all files together.
            allowed_special: Special tokens to recognize.

        Raises:
            OSError: A file cannot be read. A missing file, a folder or a pipe raises before encoding starts.
            UnicodeDecodeError: A file is not UTF-8; `start` is the offset in the file.
            SpecialTokenError: A file contains a special token and `allowed_special` is `"none_raise"`.

        >>> import tempfile
        >>> from pathlib import Path
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = [Path(folder, "a.txt"), Path(folder, "b.txt")]
        ...     n_bytes = [path.write_bytes(text) for path, text in zip(paths, [b"the", b""])]
        ...     [ids.tolist() for ids in tok.encode_files(paths)]
        [[256, 101], []]
        """
        return self.core.encode_files(paths, allowed_special, num_threads)

    def encode_iterable(
        self, iterable: Iterable[str], *, allowed_special: AllowedSpecial = "all"
    ) -> Iterator[int]:
        """Yield the ids of `"".join(iterable)` lazily, in constant memory.

        Chunks are read a few kilobytes ahead. Memory grows only while the text cannot be split: inside one long
        pre-token, and with a regular expression as pattern up to the next special token. A surrogate pair split between
        two chunks becomes two U+FFFD.

        Raises:
            TypeError: A chunk is not a `str`; the message has its index.
        """
        return self.core.encode_iterable(iterable, allowed_special)

    def count(self, text: str, *, allowed_special: AllowedSpecial = "all") -> int:
        """Return the number of ids of `text`."""
        return self.core.count(text, allowed_special)

    def is_canonical(self, ids: TokenIds, *, allowed_special: AllowedSpecial = "all") -> bool:
        """Return whether `ids` are those that `encode` gives for their text. Raises as `canonicalize` does."""
        return not self.canonicalize(ids, allowed_special=allowed_special).changes

    def canonicalize(self, ids: TokenIds, *, allowed_special: AllowedSpecial = "all") -> CanonicalIds:
        """Return the ids of the text of `ids`, and where they differ.

        A model may sample ids that no text is encoded to. If the bytes of `ids` are not UTF-8, as when they end inside
        a character, special ids stay as they are, and the bytes between them are encoded as text.

        Raises:
            UnknownTokenError: An id belongs to no token.
            SpecialTokenError: The text contains a special token, and `allowed_special` is "none_raise".

        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> tok.canonicalize([97, 116, 104])
        CanonicalIds(ids=[97, 256], changes=[IdChange(start=1, stop=3, ids=[256])])
        """
        return exact_ids.canonicalize(self, ids, allowed_special)

    def append(
        self, ids: Sequence[int], text: str, *, allowed_special: AllowedSpecial = "all"
    ) -> AppendedIds:
        """Return how many of `ids` stay if `text` follows their text, and the ids behind them.

        The ids of the whole, `ids[:n_kept] + new`, are those of `encode(decode(ids) + text)`. Only the end of `ids` is
        looked at, back to the last place where no text can change what stands before it: after some letter, unless the
        pattern is a regular expression of one's own; then after a special token. If there is no such place, all is
        encoded again.

        Args:
            ids: Canonical ids (see `is_canonical`), such as `encode` returns. A list is fastest.
            text: The text to append.
            allowed_special: Special tokens to recognize, as when `ids` were encoded.

        Raises:
            TokenizerError: The ids end inside a character, or are seen not to be canonical.
            UnknownTokenError: An id belongs to no token.
            SpecialTokenError: The text contains a special token, and `allowed_special` is "none_raise".

        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> tok.append([97, 116], "he")
        AppendedIds(n_kept=1, ids=[256, 101])
        """
        return exact_ids.append(self, ids, text, allowed_special)

    def growing_text(self, text: str = "", *, allowed_special: AllowedSpecial = "all") -> GrowingText:
        """Return a text to append to, which has the ids of the whole at every moment.

        Unlike `append`, it remembers the text, so it is exact also where decoding does not return the text that was
        encoded: with normalizers, for example.

        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> growing = tok.growing_text("at")
        >>> growing.append("he"), growing.ids
        (AppendedIds(n_kept=1, ids=[256, 101]), [97, 256, 101])
        """
        growing = exact_ids.GrowingText(self, allowed_special)
        growing.append(text)
        return growing

    def prefix_ids(self, prefix: str | bytes) -> list[int]:
        """Return the ids of the ordinary tokens that begin with `prefix`, in the order of their bytes.

        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> tok.prefix_ids("t")
        [116, 256]
        """
        data = prefix.encode() if isinstance(prefix, str) else prefix
        if isinstance(self.core, Encoder):
            return [i for _, i in self.core.tokens_beginning_with(data)]
        special = set(self.special_tokens.values())
        found = sorted((token, i) for i, token in self._vocab.items() if token.startswith(data))
        return [i for _, i in found if i not in special]

    def own_core(self, what: str) -> Encoder:
        """Return the core's encoder. Raises TokenizerError if a library runs the tokenizer."""
        if not isinstance(self.core, Encoder):
            raise self.core.needs_core(what)
        return self.core

    def _recognized(
        self, texts: Iterable[str], allowed: AllowedSpecial | None, disallowed: DisallowedSpecial | None
    ) -> AllowedSpecial:
        if disallowed is None:
            return "all" if allowed is None else allowed
        return recognized_tokens(texts, self.special_tokens, allowed, disallowed)

    # Decode

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
        if self.joins_tokens:
            return " ".join(map(self._piece, ids))
        text = self.core.decode(ids, errors)
        if self.characters is None:
            return text
        return without_leading_spaces(
            text,
            ids,
            self.characters.decode_strip,
            self.core.decode_bytes,
            errors=errors,
            space_byte=self._space_byte,
        )

    def decode_bytes(self, ids: TokenIds) -> bytes:
        """Return the bytes of `ids`, without loss. Raises as `decode` does.

        Unlike in `decode`, the space that SentencePiece puts before a text is part of the result.
        """
        return self.core.decode_bytes(ids)

    def decode_tokens_bytes(self, ids: TokenIds) -> list[bytes]:
        """Return the bytes of each id, which joined are `decode_bytes`. Raises as `decode` does."""
        return [self.core.decode_bytes([i]) for i in ids]

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
        if self.characters is None and not self.joins_tokens:
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

    def stream_decoder(self) -> StreamDecoder:
        """Return a decoder for ids that arrive one at a time. It never returns part of a character.

        >>> decoder = Tokenizer({i: bytes([i]) for i in range(256)}, []).stream_decoder()
        >>> [decoder.feed(byte) for byte in "é!".encode()]
        ['', 'é', '!']
        """
        if self.joins_tokens:
            return StreamDecoder(lambda token_id: f" {self._piece(token_id)}".encode(), "one")
        if not isinstance(self.core, Encoder):
            return TextStreamDecoder(self.decode)
        return StreamDecoder(
            lambda token_id: self.core.decode_bytes([token_id]), self.decode_strip, self._space_byte
        )

    def _without_special(self, ids: TokenIds) -> list[int]:
        """The ids without those that Hugging Face's files mark as special."""
        skipped = {
            i
            for token, i in self.special_tokens.items()
            if token not in self.token_flags or self.token_flags[token].special
        }
        return [i for i in ids if i not in skipped]

    # Offsets and explanations

    def encode_with_offsets(
        self, text: str, *, allowed_special: AllowedSpecial = "all", num_threads: int | None = None
    ) -> EncodedText:
        """Return the ids of `text` with the byte and character offsets of each token.

        Byte offsets refer to the UTF-8 of the text; each token starts where the previous one ends. Character offsets
        refer to `text`; a token that starts or ends inside a character covers the whole character, so tokens that share
        a character overlap. A lone surrogate counts as one character and three bytes (U+FFFD), a surrogate pair as two
        characters and four bytes. White space absorbed by a special token belongs to that token. Where a normalizer
        changes the text, offsets are those of Hugging Face's library: see `EncodedText`.

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

    def decode_with_offsets(self, ids: TokenIds) -> tuple[str, list[int]]:
        """Return the text of `ids` and the character offset at which each token starts.

        A token that starts inside a character has that character's offset.

        Raises:
            UnicodeDecodeError: The bytes are not valid UTF-8.
            UnknownTokenError: An id belongs to no token.

        >>> Tokenizer({i: bytes([i]) for i in range(256)}, []).decode_with_offsets(list("né!".encode()))
        ('né!', [0, 1, 1, 2])
        """
        return text_and_starts(self.decode_tokens_bytes(ids))

    def explain(self, text: str, *, allowed_special: AllowedSpecial = "all") -> Explanations:
        """Return the special tokens and pre-tokens of `text`, each with its merges in order.

        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> for part in tok.explain("the the"):
        ...     print(part)
        'the' -> 'th' 'e' (256 101): t+h
        ' the' -> ' ' 'th' 'e' (32 256 101): t+h
        """
        return explain(self.core, text, allowed_special)

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

    # Vocabulary

    def __len__(self) -> int:
        """Return the number of tokens, special tokens included."""
        return self._n_tokens

    def __bool__(self) -> bool:
        return True

    @property
    def engine(self) -> str:
        """What encodes and decodes: `"core"`, bytemill's own, or `"tokenizers"` or `"sentencepiece"`.

        A library runs what the core does not support exactly, such as Unigram and WordPiece models.
        """
        return "core" if isinstance(self.core, Encoder) else self.core.model.library

    @property
    def decode_strip(self) -> Literal["none", "one", "token", "each", "every"]:
        """Spaces that decoding removes from the start of a text (see `CharacterModel.decode_strip`)."""
        if not isinstance(self.core, Encoder):
            return self.core.decode_strip
        return "none" if self.characters is None else self.characters.decode_strip

    @property
    def _space_byte(self) -> int | None:
        """The id of the byte of a space (`byte_fallback`), if there is one."""
        return None if self.characters is None else (self.characters.byte_ids or {}).get(0x20)

    @property
    def engine_reason(self) -> str | None:
        """Why a library runs the tokenizer; None if the core does."""
        return None if isinstance(self.core, Encoder) else self.core.model.reason

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

    def decode_single_token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token.

        Raises:
            UnknownTokenError: No token has this id.
        """
        return self.core.token_bytes(token)

    def token_byte_values(self) -> list[bytes]:
        """Return the bytes of all ordinary tokens in byte order."""
        return self.core.sorted_tokens()

    def _id_of(self, token: bytes) -> int | None:
        ordinary = self.core.bytes_to_id(token)
        if ordinary is not None:
            return ordinary
        try:
            return self.special_tokens.get(token.decode())
        except UnicodeDecodeError:
            return None

    # Byte-level text has one character per byte, as in Hugging Face's vocabularies ("Ġ" is the space). Tokens of
    # characters, as in SentencePiece, are text with "▁" for spaces, and "<0x0A>" for the token of a byte.

    def token_to_id(self, token: str | bytes) -> int | None:
        """Return the id of a token, special or ordinary, or None if there is no such token.

        Args:
            token: The token's bytes, or a str of byte-level text (`"Ġthe"`, `"Ã©"`). A str that contains another
                character, such as a space, is taken as text.

        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b" t"}, [(b" ", b"t")])
        >>> tok.token_to_id("Ġt"), tok.token_to_id(" t"), tok.token_to_id(b" t"), tok.token_to_id("Ġx")
        (256, 256, 256, None)
        """
        if isinstance(token, bytes):
            return self._id_of(token)
        if token in self.special_tokens:
            return self.special_tokens[token]
        if not isinstance(self.core, Encoder):
            return self.core.id_of_piece(token)
        if self.characters is not None:
            return self._ids_of_texts.get(token)
        try:
            return self.core.bytes_to_id(text_to_bytes(token))
        except ValueError:
            return self.core.bytes_to_id(token.encode())

    def id_to_token(self, token_id: int) -> str | None:
        """Return a token as byte-level text, or None if no token has this id.

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

    def _piece(self, token_id: int) -> str:
        """A token as its file writes it. Raises UnknownTokenError."""
        piece = self.id_to_token(token_id)
        if piece is None:
            raise UnknownTokenError(token_id)
        return piece

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        """Return all tokens as byte-level text with their ids, in id order.

        Args:
            with_added_tokens: Include the special tokens.

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

    def _text_of(self, token_id: int, token: bytes) -> str:
        """An ordinary token as its file writes it."""
        if not isinstance(self.core, Encoder):
            return self.core.piece(token_id) or ""
        if self.characters is None:
            return bytes_to_text(token)
        if self.characters.byte_ids is not None and self.characters.byte_ids.get(token[0]) == token_id:
            return f"<0x{token[0]:02X}>"
        text = token.decode()
        return text.replace(" ", "\u2581") if self.characters.writes_spaces_as_meta else text

    @cached_property
    def _ids_of_texts(self) -> dict[str, int]:
        return self.get_vocab()

    # Special tokens

    @property
    def special_tokens_set(self) -> set[str]:
        """The special tokens."""
        return set(self.special_tokens)

    @property
    def eot_token(self) -> int:
        """The id of `<|endoftext|>`. Raises KeyError if it is not a special token."""
        return self.special_tokens["<|endoftext|>"]

    def is_special_token(self, token: int) -> bool:
        """Return whether `token` is the id of a special token."""
        return token in self._special_by_id

    @cached_property
    def _special_by_id(self) -> dict[int, str]:
        # The first of several texts with one id, which decoding gives too.
        return {i: token for token, i in reversed(self.special_tokens.items())}

    @cached_property
    def special_tokens_map(self) -> dict[str, Any]:
        """Special tokens by role: `bos_token`, `eos_token`, `pad_token` and others that the model's files name."""
        # Imported late: encoding does not need it.
        from bytemill.formats.huggingface.sidecars import named_tokens, text_of

        kept = self.metadata and self.metadata.special_tokens_map
        return {role: text_of(token) for role, token in named_tokens(self._config, kept).items()}

    @property
    def bos_token(self) -> str | None:
        """The token that begins a text, if the model's files name one."""
        return self.special_tokens_map.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        """The token that ends a text, if the model's files name one."""
        return self.special_tokens_map.get("eos_token")

    @property
    def pad_token(self) -> str | None:
        """The token that fills batches. May be set to a special token."""
        return self.special_tokens_map.get("pad_token")

    @pad_token.setter
    def pad_token(self, token: str) -> None:
        if token not in self.special_tokens:
            raise TokenizerError(f"{token!r} is not a special token of this tokenizer")
        self.special_tokens_map["pad_token"] = token

    @property
    def chat_template(self) -> str | dict[str, str] | None:
        """The chat template of the model's files, or several by name. May be set."""
        kept: Any = (self.metadata and self.metadata.chat_template) or self._config.get("chat_template")
        if isinstance(kept, list):  # as in tokenizer_config.json
            return {each["name"]: each["template"] for each in cast("list[dict[str, str]]", kept)}
        return kept

    @chat_template.setter
    def chat_template(self, template: str) -> None:
        self.metadata = replace(self.metadata or TokenizerMetadata(), chat_template=template)

    @property
    def bos_token_id(self) -> int | None:
        """Id of `bos_token`."""
        return self._id_of_role("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        """Id of `eos_token`."""
        return self._id_of_role("eos_token")

    @property
    def pad_token_id(self) -> int | None:
        """Id of `pad_token`."""
        return self._id_of_role("pad_token")

    def _id_of_role(self, role: str) -> int | None:
        token = self.special_tokens_map.get(role)
        return None if token is None else self.special_tokens.get(token)

    # Inputs of models

    def __call__(
        self,
        text: str | Sequence[str],
        text_pair: str | Sequence[str] | None = None,
        *,
        add_special_tokens: bool = True,
        padding: Padding = False,
        truncation: Truncation = None,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: Side | None = None,
        return_tensors: Literal["np", "pt"] | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
    ) -> BatchEncoding:
        """Encode a text or a batch into the inputs of a model, as tokenizers of transformers do.

        Special tokens in the texts are recognized. The post-processor of the tokenizer.json adds those around texts.

        Args:
            text: A text, or a sequence of texts.
            text_pair: The second texts of pairs.
            add_special_tokens: Add the tokens that the post-processor puts around texts.
            padding: True or "longest" pads to the longest of the batch, "max_length" to `max_length`.
            truncation: True or "longest_first" cuts to `max_length`, from pairs the longer text first; "only_first" and
                "only_second" cut one text of a pair. None cuts only if `max_length` is set and nothing is padded.
            max_length: Number of ids; by default `model_max_length` of tokenizer_config.json.
            pad_to_multiple_of: Round padded lengths up.
            padding_side: By default that of tokenizer_config.json, or "right".
            return_tensors: "np" or "pt" for arrays or tensors (int64) of shape (batch, length); None for lists.
            return_token_type_ids: Return `token_type_ids`; by default if the model has them.
            return_attention_mask: Return `attention_mask`, 0 for padding; by default if the model has it.
            return_special_tokens_mask: Return `special_tokens_mask`, 1 for added tokens.
            return_offsets_mapping: Return `offset_mapping`, the character offsets (start, end) of each id.
            return_length: Return `length`, the number of ids.

        Raises:
            TokenizerError: There is no padding token, lengths differ where tensors are wanted, or a text is too short
                to be cut.
            TypeError: `text` is neither a str nor a sequence of str.

        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<pad>"])
        >>> tok.pad_token = "<pad>"
        >>> tok(["ab", "c"], padding=True)
        {'input_ids': [[97, 98], [99, 256]], 'attention_mask': [[1, 1], [1, 0]]}
        """
        from bytemill.tokenizer import model_inputs as inputs

        texts, pairs, is_batch = inputs.texts_and_pairs(text, text_pair)
        firsts = self._encoded(texts, with_offsets=return_offsets_mapping)
        seconds = (
            [None] * len(firsts)
            if pairs is None
            else self._encoded(pairs, with_offsets=return_offsets_mapping, type_id=1)
        )
        config, processor = self._config, self._post_processor
        strategy = inputs.truncation_strategy(truncation, max_length, padding)
        limit = inputs.length_limit(max_length, config)
        is_truncated = strategy != "do_not_truncate"
        if is_truncated and limit is not None:
            n_added = processor.n_added(is_pair=pairs is not None) if add_special_tokens else 0
            side = inputs.side_of(config, "truncation_side")
            for first, second in zip(firsts, seconds, strict=True):
                inputs.truncate(first, second, max(limit - n_added, 0), strategy, side)
        rows = [
            processor.process(first, second, add_special_tokens=add_special_tokens)
            for first, second in zip(firsts, seconds, strict=True)
        ]
        length = inputs.padded_length(rows, padding, limit, pad_to_multiple_of, is_truncated=is_truncated)
        masks = inputs.pad(
            rows, length, self.pad_token_id, padding_side or inputs.side_of(config, "padding_side")
        )
        names = config.get("model_input_names", ["input_ids", "attention_mask"])
        found: dict[str, list[Any]] = {"input_ids": [row.ids for row in rows]}
        if "token_type_ids" in names if return_token_type_ids is None else return_token_type_ids:
            found["token_type_ids"] = [row.type_ids for row in rows]
        if "attention_mask" in names if return_attention_mask is None else return_attention_mask:
            found["attention_mask"] = masks
        if return_special_tokens_mask:
            found["special_tokens_mask"] = [row.special_mask for row in rows]
        if return_offsets_mapping:
            found["offset_mapping"] = [row.offsets for row in rows]
        if return_length:
            found["length"] = [len(row.ids) for row in rows]
        if return_tensors is not None:
            return inputs.tensors(found, return_tensors)
        return inputs.BatchEncoding(found) if is_batch else inputs.of_one_text(found)

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        tools: Sequence[Any] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        padding: Padding = False,
        truncation: Truncation = False,
        max_length: int | None = None,
        return_tensors: Literal["np", "pt"] | None = None,
        return_dict: bool = True,
        return_assistant_tokens_mask: bool = False,
        tokenizer_kwargs: Mapping[str, Any] | None = None,
        prefix_ids: Sequence[int] | None = None,
        **variables: Any,
    ) -> Any:
        """Return a conversation as the model was trained on it: its inputs, or its text.

        Args:
            conversation: Messages with `role` and `content`, or a batch of conversations.
            tools: JSON schemas of tools, or functions with type hints and a docstring (these need transformers).
            documents: Objects with `title` and `text` for models that retrieve.
            chat_template: A template, or the name of one of several; by default that of the model's folder.
            add_generation_prompt: End with the beginning of the assistant's answer.
            continue_final_message: End inside the last message, for the model to continue it.
            tokenize: False returns the text.
            padding: As in a call, like the next three.
            truncation: False does not cut.
            max_length: Number of ids.
            return_tensors: "np", "pt" or None.
            return_dict: False returns the ids without the other inputs.
            return_assistant_tokens_mask: Return `assistant_masks`, 1 for the ids of text inside `{% generation %}`.
            tokenizer_kwargs: Further arguments of the call that encodes the text.
            prefix_ids: Ids of the conversation's beginning, as a model saw and sampled them. They stay as they are, and
                only the text behind theirs is encoded. The result also has `prefix_changes`, where encoding all of the
                text would give other ids (see `IdChange`). For one conversation, without padding or truncation.
            **variables: Further variables of the template.

        Raises:
            TokenizerError: There is no template, it rejects the conversation, or the text does not begin with that of
                `prefix_ids`.
            TypeError: A keyword is neither a parameter nor a variable that the template uses.

        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)}, [])
        >>> template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\\n{% endfor %}"
        >>> messages = [{"role": "user", "content": "Hello!"}]
        >>> tok.apply_chat_template(messages, chat_template=template, tokenize=False)
        'user: Hello!\\n'
        """
        from bytemill.tokenizer import chat

        template = chat.template_of(chat_template, self.chat_template, has_tools=tools is not None)
        chat.check_variables(template, variables, type(self).apply_chat_template)
        if return_assistant_tokens_mask:
            chat.check_mask(template, is_dict=return_dict and tokenize, continues=continue_final_message)
        is_batch = bool(conversation) and not isinstance(conversation[0], Mapping)
        conversations = cast(
            "Sequence[Sequence[Mapping[str, Any]]]", conversation if is_batch else [conversation]
        )
        rendered = [
            chat.render_chat(
                template,
                messages,
                tools=tools,
                documents=documents,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                variables=self.special_tokens_map | variables,
            )
            for messages in conversations
        ]
        texts = [each.text for each in rendered]
        if not tokenize:
            return texts if is_batch else texts[0]
        if prefix_ids is not None:
            if is_batch or padding or truncation or return_assistant_tokens_mask or tokenizer_kwargs:
                raise TypeError(
                    "prefix_ids is for one conversation, without padding, truncation, masks and kwargs"
                )
            inputs = exact_ids.behind_prefix(self, prefix_ids, texts[0], return_tensors)
            return inputs if return_dict else inputs["input_ids"]
        options = dict(tokenizer_kwargs or {})
        returns_offsets = options.pop("return_offsets_mapping", False)
        inputs = self(
            texts if is_batch else texts[0],
            add_special_tokens=False,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            return_tensors=return_tensors,
            return_offsets_mapping=returns_offsets or return_assistant_tokens_mask,
            **options,
        )
        if return_assistant_tokens_mask:
            offsets = inputs["offset_mapping"] if returns_offsets else inputs.pop("offset_mapping")
            inputs["assistant_masks"] = chat.assistant_masks(
                offsets, [each.generated for each in rendered], return_tensors, is_batch=is_batch
            )
        return inputs if return_dict else inputs["input_ids"]

    @property
    def _config(self) -> dict[str, Any]:
        if self.metadata is None:
            return {}
        # As in transformers, the sides and the padding token of a tokenizer.json are defaults; its length is not.
        truncation, padding = self.metadata.truncation or {}, self.metadata.padding or {}
        named = {
            "truncation_side": truncation.get("direction"),
            "padding_side": padding.get("direction"),
            "pad_token": padding.get("pad_token"),
        }
        defaults = {
            name: str(value).lower() if name.endswith("side") else value
            for name, value in named.items()
            if value
        }
        return defaults | (self.metadata.config or {})

    @cached_property
    def _post_processor(self) -> PostProcessor:
        from bytemill.tokenizer.model_inputs import PostProcessor

        return PostProcessor(self.metadata and self.metadata.post_processor, self.id_to_token)

    def _encoded(self, texts: list[str], *, with_offsets: bool, type_id: int = 0) -> list[Encoded]:
        from bytemill.tokenizer.model_inputs import Encoded

        if not with_offsets:
            return [Encoded.of_text(ids, None, type_id) for ids in self.encode_batch(texts)]
        results = [self.encode_with_offsets(text) for text in texts]
        return [
            Encoded.of_text(
                each.ids.tolist(), [(start, end) for start, end in each.char_offsets.tolist()], type_id
            )
            for each in results
        ]

    # Identity

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) of everything that affects ids, and of nothing else.

        Tokenizers with the same fingerprint give the same ids for every text. The fingerprint does not depend on the
        file format, on how a pattern is written, on unused merges, or on tokens that no text produces.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(self.core.canonical_form())
        if (rules := self.text_rules) is not None:
            digest.update(rules.encode())
        return digest.hexdigest()

    @property
    def text_rules(self) -> str | None:
        """Describe the normalizer and the matching rules of special tokens, for comparison; None without any."""
        normalizer = self.core.normalizer
        is_verbatim = self.characters is not None and self.characters.verbatim_symbols
        rules = special_rules(self.special_tokens, self.token_flags, normalizer, verbatim=is_verbatim)
        if not (rules or normalizer):
            return None
        # The form of the first released version, in which NFC was the only normalizer.
        described = "NFC" if normalizer == (("NFC",),) else normalizer or None
        return repr((described, sorted(rules.items())))

    @property
    def name(self) -> str:
        """The published name or the name of the tiktoken encoding, or a name derived from the fingerprint."""
        return self._name or f"bytemill-{self.fingerprint[:12]}"

    def __repr__(self) -> str:
        sizes = f"{len(self)} tokens, {len(self.special_tokens)} of them special"
        return f"<Tokenizer: {sizes}, {self.fingerprint[:12]}>"

    def _repr_html_(self) -> str:
        pattern = None if self.pattern is None else Pattern(self.pattern)
        special = list(self.special_tokens)
        more = f" … {len(special) - 8} more" if len(special) > 8 else ""
        return table_html(
            "Tokenizer",
            [
                ("tokens", f"{len(self):,}"),
                ("merges", f"{len(self.merges):,}"),
                ("pattern", "none" if pattern is None else pattern.name or f"{pattern.expression:.80}"),
                ("special tokens", " ".join(token[:40] for token in special[:8]) + more or "none"),
                ("fingerprint", self.fingerprint[:12]),
            ],
        )

    def __reduce__(self) -> tuple[Any, ...]:
        made = type(self).from_spec, (self.to_spec(),)
        return made if self._name is None else (*made, {"_name": self._name})

    # Save, convert, derive

    def save(self, path: str | os.PathLike[str], *, format: str = "huggingface") -> None:  # noqa: A002
        """Save the tokenizer; by default as a `tokenizer.json` that gives the same ids in Hugging Face `tokenizers`.

        Each file is written atomically. `bytemill tokenizer convert` also verifies the output.

        Args:
            path: A file, or a folder (an existing one, or a path that ends with a slash), also the URL of one in an
                object store. A folder also gets a
                `tokenizer_config.json`, so that `AutoTokenizer.from_pretrained` opens it, and the other metadata files.
            format: `"huggingface"`, `"tiktoken"` (a rank file and its settings in a `.json` beside it), `"gpt2"`
                (`vocab.json` and `merges.txt`), `"minbpe"` (a `.model`), `"vocab"` (a listing for people) or `"gguf"`.

        Raises:
            OutputError: A file cannot be written.
            StorageError: The object store cannot be written.
            TokenizerError: The format cannot represent this tokenizer.
        """
        from bytemill.formats.registry import render, write_files

        spec = self.to_spec()
        is_folder = str(path).endswith(("/", os.sep)) or Path(path).is_dir()
        with local_output(path) as local:
            if format == "huggingface" and is_folder:
                from bytemill.formats.huggingface.exchange import write_folder

                write_folder(spec, local)
                return
            write_files(render(spec, local, format), local)

    def to_huggingface(self) -> Any:
        """Return a `tokenizers.Tokenizer` that gives the same ids with `encode(text, add_special_tokens=False)`.

        Raises:
            TokenizerError: It could not give the same ids.
            MissingExtraError: `tokenizers` is not installed.
        """
        from bytemill.formats.huggingface import exchange

        return exchange.to_tokenizers(self.to_spec())

    def to_transformers(self, **arguments: Any) -> Any:
        """Return a `transformers.PreTrainedTokenizerFast` that gives the same ids with `add_special_tokens=False`.

        Raises as `to_huggingface` does.

        Args:
            **arguments: Arguments of its constructor, such as `pad_token="<pad>"`, `model_max_length=1024` or
                `chat_template=...`. They override the tokenizer's metadata, in whose absence `<|endoftext|>`, if it is
                a special token, is the `eos_token`. `transformers` adds tokens that do not exist yet.
        """
        from bytemill.formats.huggingface import exchange

        return exchange.to_transformers(self.to_spec(), arguments)

    def to_tiktoken(self, name: str | None = None) -> tiktoken.Encoding:
        """Return a tiktoken `Encoding` that gives the same ids.

        Args:
            name: Name of the encoding; by default `self.name`.

        Raises:
            TokenizerError: There is none: the ids do not follow the order of the merges, a custom pattern can match the
                empty string, or a special token begins with another one that tiktoken prefers.
            MissingExtraError: `tiktoken` is not installed.
        """
        from bytemill.formats.tiktoken import encoding_of

        return encoding_of(self.to_spec(), name or self.name)

    def to_spec(self) -> TokenizerSpec:
        """Return the tokenizer as plain data."""
        core = self.core
        if not isinstance(core, Encoder):
            special, flags = self.special_tokens, self.token_flags
            return TokenizerSpec(None, special, flags=flags, metadata=self.metadata, library=core.model)
        spec = TokenizerSpec(
            pattern=self.pattern,
            special_tokens=self.special_tokens,
            normalizer=self.core.normalizer,
            characters=self.characters,
            shape=PretokenShape() if core.shape is None else PretokenShape._make(core.shape),
            joins_tokens=self.joins_tokens,
            flags=self.token_flags,
            metadata=self.metadata,
        )
        if core.ranked:
            return replace(spec, ranks={token: i for i, token in core.vocab().items()})
        return replace(
            spec,
            vocab=self._ordinary(),
            merges=core.merges(),
            ignore_merges=core.ignore_merges,
            ties=self.ties,
            merge_counts=self.merge_counts,
        )

    def _ordinary(self) -> dict[int, bytes]:
        """Return the vocabulary without tokens that are only special."""
        vocab = self.core.vocab()
        made = {left + right for left, right in self.core.merges()}
        if self.characters is not None:
            for token_id in (self.characters.byte_ids or {}).values():
                vocab.pop(token_id, None)
        for i in self.special_tokens.values():
            if i in vocab and len(vocab[i]) > 1 and vocab[i] not in made:
                del vocab[i]
        return vocab

    def with_special_tokens(self, special_tokens: SpecialTokens) -> Self:
        """Return a tokenizer that has further special tokens.

        Everything else is the same, also the ids of texts without the new tokens. A model needs an embedding for each
        new id.

        Args:
            special_tokens: The tokens. Those in the vocabulary keep their ids; the others get their explicit ids or the
                next ids after the highest one, as in transformers' `add_special_tokens`.

        Raises:
            TokenizerError: An explicit id belongs to another token, or the token has another id.

        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
        >>> tok.with_special_tokens(["<|im_start|>"]).encode("a<|im_start|>")
        [97, 257]
        """
        tokens = self.core.vocab() | {i: token.encode() for token, i in self.special_tokens.items()}
        ids = {token: i for i, token in tokens.items()}
        added = _with_ids(tokens, special_tokens)
        for token, i in added.items():
            if ids.get(token.encode(), i) != i:
                raise TokenizerError(f"{token!r} has the id {ids[token.encode()]}, not {i}")
            if tokens.get(i, token.encode()) != token.encode():
                raise TokenizerError(
                    f"the id {i} of {token!r} belongs to the token {tokens[i]!r}",
                    hint=f"use ids from {self.n_vocab} up, or leave out the id",
                )
        if not isinstance(self.core, Encoder):
            core = self.core.with_special_tokens(added)
            return self._from_loaded(Loaded(core, flags=core.flags, metadata=self.metadata))
        spec = self.to_spec()
        return self.from_spec(replace(spec, special_tokens={**spec.special_tokens, **added}))

    def truncate(self, vocab_size: int) -> Self:
        """Return the tokenizer that training with a smaller `vocab_size` gives on the same corpus.

        It has the first merges and all special tokens. Special tokens after the last remaining ordinary token are
        renumbered to follow it in their order.

        Args:
            vocab_size: Number of tokens, including the 256 bytes and the special tokens.

        Raises:
            TokenizerError: `vocab_size` is too large or too small, ids do not follow the order of merges, or ranks
                have no equivalent list of merges.

        >>> import bytemill
        >>> tok = bytemill.train_from_iterator(["low low low low low lower lower"], 259, ["<e>"])
        >>> tok.truncate(258).merges, tok.truncate(258).special_tokens
        ([(b'o', b'w')], {'<e>': 257})
        """
        from bytemill.tokenizer.truncation import truncate

        self.own_core("truncating a vocabulary")
        return self.from_spec(truncate(self.to_spec(), vocab_size))


def open_tokenizer(
    path_or_name: str | os.PathLike[str],
    *,
    pattern: str | Pattern | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> Tokenizer:
    """Load a file or folder, or the tokenizer of that name.

    Args:
        path_or_name: A path, the URL of a file or folder in an object store, a published name such as `gpt2`, a model
            of OpenAI such as `gpt-4`, or a repository on the hub (`OWNER/NAME`). An existing path takes precedence.
        pattern: As in `Tokenizer.load`.
        special_tokens: As in `Tokenizer.load`.

    Raises:
        TokenizerError: A named tokenizer has a pattern and special tokens already.
        TokenizerFileError: As `Tokenizer.load` and `Tokenizer.from_pretrained` do.
    """
    from bytemill.tokenizer import pretrained

    if not is_url(path_or_name) and not Path(path_or_name).exists():
        if pretrained.is_name(path_or_name):
            if pattern is not ... or special_tokens is not None:
                # Imported late, with all readers.
                from bytemill.formats.registry import OWN_PARTS_HINT

                raise TokenizerError(
                    f"{path_or_name} has a pattern and special tokens of its own", hint=OWN_PARTS_HINT
                )
            return Tokenizer.from_pretrained(Path(path_or_name).as_posix())
        _suggest_published(str(path_or_name), pretrained.PUBLISHED)
    return Tokenizer.load(path_or_name, pattern=pattern, special_tokens=special_tokens)


def _suggest_published(name: str, published: Iterable[str]) -> None:
    """Raise `TokenizerFileError` if `name` looks like a mistyped published name."""
    import difflib

    if close := difflib.get_close_matches(name, published, n=1):
        raise TokenizerFileError(
            f"{name}: no such file, and not a published tokenizer",
            hint=f"use {close[0]}, or the path of a tokenizer file",
        )


def _with_ids(
    vocab: Mapping[int, bytes], special_tokens: Iterable[str] | Mapping[str, int] | None
) -> dict[str, int]:
    """Return the special tokens with ids: those of the vocabulary, else the next ids after the highest one."""
    if special_tokens is None:
        return {}
    if isinstance(special_tokens, str):
        raise TokenizerError(
            "special_tokens is a str, not a list", hint=f"special_tokens=[{special_tokens!r}]"
        )
    texts: list[str] = list(special_tokens)
    for token in texts:
        if not isinstance(token, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"special tokens must be str, not {type(token).__name__}")
        if any("\ud800" <= character <= "\udfff" for character in token):
            raise TokenizerError(
                f"special token {token!a} contains a lone surrogate, which UTF-8 cannot encode"
            )
    if isinstance(special_tokens, Mapping):
        return dict(cast("Mapping[str, int]", special_tokens))
    wanted = {token.encode() for token in texts}
    known = {token: i for i, token in vocab.items() if token in wanted}
    with_ids: dict[str, int] = {}
    next_id = max(vocab, default=-1) + 1
    for token in texts:
        if token in with_ids:
            raise TokenizerError(f"special token {token!r} appears twice")
        if token.encode() in known:
            with_ids[token] = known[token.encode()]
        else:
            with_ids[token] = next_id
            next_id += 1
    return with_ids
