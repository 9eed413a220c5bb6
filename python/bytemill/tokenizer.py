"""The tokenizer: text to ids and back."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from bytemill.errors import TokenizerError
from bytemill.explanation import Explanation, TokenInfo, explain
from bytemill.formats.loaded import Loaded, build
from bytemill.formats.spec import Ties, TokenizerSpec
from bytemill.stream_decoder import StreamDecoder

if TYPE_CHECKING:
    import os
    from types import EllipsisType

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.corpus import CorpusInputs
    from bytemill.shards import Manifest
    from bytemill.training import TrainingReport

    TokenArray: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32]
    TokenIds: TypeAlias = Sequence[int] | NDArray[Any]

AllowedSpecial: TypeAlias = Literal["all", "none", "none_raise"] | Collection[str]


class Tokenizer:
    """A byte-level BPE tokenizer. Immutable; several threads may use one at once.

    In every method, `allowed_special` says what happens to special tokens in a text: `"all"` recognises them (where
    two overlap, the leftmost wins, and of those that start together the longest), `"none"` treats them as plain text,
    `"none_raise"` raises `SpecialTokenError`, and a set recognises its members alone. A text that comes from outside
    is encoded with `encode_ordinary`, which never sees special tokens.

    A `str` with lone surrogates is encoded as if they were U+FFFD; surrogate pairs are joined.

    >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"th", 257: b"the"}
    >>> tok = Tokenizer(vocab, [(b"t", b"h"), (b"th", b"e")], ["<|endoftext|>"])
    >>> tok.encode("the cat<|endoftext|>")
    [257, 32, 99, 97, 116, 258]
    >>> tok.decode([257, 258])
    'the<|endoftext|>'
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Sequence[tuple[bytes, bytes]],
        special_tokens: Iterable[str] | Mapping[str, int] | None = None,
        *,
        pattern: str | None = "gpt2",
    ) -> None:
        """A tokenizer from its parts.

        `vocab` holds the tokens by id and `merges` the pairs in order of rank. A special token that is in the
        vocabulary keeps its id; the others are appended after the highest id. `pattern` is a name (`gpt2`, `cl100k`,
        `o200k`, `llama3`), any regular expression, or None for no pre-tokenization.

        Raises `TokenizerError` where the parts contradict each other, naming the first contradiction.
        """
        special = _with_ids(vocab, special_tokens)
        spec = TokenizerSpec(pattern=pattern, special_tokens=special, vocab=dict(vocab), merges=list(merges))
        self._set(build(spec))

    def _set(self, loaded: Loaded) -> None:
        core = loaded.core
        self.core = core
        """The Rust part."""
        self.special_tokens: dict[str, int] = core.special_tokens
        """Special tokens and their ids."""
        self.ties: Ties | None = loaded.ties
        """How training broke ties, where that is known."""
        self.merge_counts: list[int] | None = loaded.merge_counts
        """How often each merge's pair stood in the training corpus when it was merged, where that is known."""
        self.training_report: TrainingReport | None = None
        """What `train` found out; None for a tokenizer that was not trained in this process."""

    @classmethod
    def from_spec(cls, spec: TokenizerSpec) -> Self:
        """A tokenizer from the contents of a file. Raises `TokenizerError` as the constructor does."""
        return cls._from_loaded(build(spec))

    @classmethod
    def _from_loaded(cls, loaded: Loaded) -> Self:
        tokenizer = cls.__new__(cls)
        tokenizer._set(loaded)
        return tokenizer

    def to_spec(self) -> TokenizerSpec:
        """The tokenizer as data."""
        core = self.core
        if core.ranked:
            ranks = {token: i for i, token in core.vocab().items()}
            return TokenizerSpec(pattern=self.pattern, special_tokens=self.special_tokens, ranks=ranks)
        return TokenizerSpec(
            pattern=self.pattern,
            special_tokens=self.special_tokens,
            vocab=self._ordinary(),
            merges=core.merges(),
            whole_pretoken_lookup=core.whole_pretoken_lookup,
            ties=self.ties,
            merge_counts=self.merge_counts,
        )

    def _ordinary(self) -> dict[int, bytes]:
        """The vocabulary without the tokens that are special and nothing else."""
        vocab = self.core.vocab()
        made = {left + right for left, right in self.core.merges()}
        for i in self.special_tokens.values():
            if i in vocab and len(vocab[i]) > 1 and vocab[i] not in made:
                del vocab[i]
        return vocab

    @classmethod
    def from_files(
        cls,
        vocab_filepath: str | os.PathLike[str],
        merges_filepath: str | os.PathLike[str],
        special_tokens: Iterable[str] | None = None,
    ) -> Self:
        """A tokenizer from GPT-2's two files, `vocab.json` and `merges.txt`, with GPT-2's pattern.

        Raises `TokenizerFileError` for damaged files and `TokenizerError` for files that contradict each other.
        """
        from bytemill.formats import gpt2

        spec = gpt2.read(vocab_filepath, merges_filepath, special_tokens)
        return cls.from_spec(spec)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        pattern: str | EllipsisType | None = ...,
        special_tokens: Mapping[str, int] | None = None,
    ) -> Self:
        """A tokenizer from a file of any format that bytemill reads, recognised by its content.

        `pattern` and `special_tokens` are for `.tiktoken` rank files, which hold neither and of which only the known
        ones go without.

        Raises `TokenizerFileError` for a file that is damaged, unknown, or asks for what bytemill does not do exactly.
        """
        from bytemill.formats import loading

        return cls._from_loaded(loading.load(path, pattern, special_tokens))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a `tokenizer.json` that Hugging Face `tokenizers` opens and that gives the same ids there.

        The file appears under its name once it is whole. Raises `OutputError` where it cannot be written.
        """
        from bytemill.atomic import write_text
        from bytemill.formats import huggingface

        write_text(Path(path), huggingface.write(self.to_spec()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_spec, (self.to_spec(),)

    def __repr__(self) -> str:
        sizes = f"{self.n_vocab} tokens, {len(self.special_tokens)} of them special"
        return f"<Tokenizer: {sizes}, {self.fingerprint[:12]}>"

    # Facts

    @property
    def n_vocab(self) -> int:
        """The highest id + 1."""
        return self.core.n_vocab

    @property
    def pattern(self) -> str | None:
        """The regular expression of the pre-tokenizer; None where there is none."""
        return self.core.pattern

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

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) of all that decides ids: pattern, tokens with ids, merges, special tokens.

        Two tokenizers with one fingerprint give the same ids for every text, whatever files they come from.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        core = self.core
        digest = hashlib.sha256()
        parts: Sequence[Iterable[bytes]] = [
            [b"bytemill 1", repr(self.pattern).encode()],
            [f"{core.ranked} {core.whole_pretoken_lookup}".encode()],
            (f"{i} {token.hex()}".encode() for i, token in sorted(self._ordinary().items())),
            (f"{left.hex()} {right.hex()}".encode() for left, right in self.core.merges()),
            (f"{i} {token!r}".encode() for token, i in sorted(self.special_tokens.items())),
        ]
        for part in parts:
            digest.update(b"\n".join(part) + b"\n\n")
        return digest.hexdigest()

    def token_to_id(self, token: str | bytes) -> int | None:
        """The id of a token, special or not; None where there is no such token."""
        if isinstance(token, str):
            special = self.special_tokens.get(token)
            return self.core.bytes_to_id(token.encode()) if special is None else special
        ordinary = self.core.bytes_to_id(token)
        if ordinary is not None:
            return ordinary
        try:
            return self.special_tokens.get(token.decode())
        except UnicodeDecodeError:
            return None

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        """The id of a token, special or not. Raises KeyError where there is no such token."""
        found = self.token_to_id(text_or_bytes)
        if found is None:
            raise KeyError(text_or_bytes)
        return found

    def decode_single_token_bytes(self, token: int) -> bytes:
        """The bytes of one token. Raises KeyError for an id that no token has."""
        return self.core.token_bytes(token)

    def is_special_token(self, token: int) -> bool:
        """True for the id of a special token."""
        return token in self.special_tokens.values()

    def token(self, token_id: int) -> TokenInfo:
        """What is known of a token: its bytes, the pair it is merged from, rank, count in training.

        Raises KeyError for an id that no token has.

        >>> import bytemill
        >>> tok = bytemill.train(iter(["low low lower lowest"]), vocab_size=258)
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

        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> for part in tok.explain("the the"):
        ...     print(part)
        'the' -> 'th' 'e' (256 101): t+h
        ' the' -> ' ' 'th' 'e' (32 256 101): t+h
        """
        return explain(self, text, allowed_special)

    # Text to ids

    def encode(
        self, text: str, *, allowed_special: AllowedSpecial = "all", num_threads: int | None = None
    ) -> list[int]:
        """The ids of `text`.

        A long text is encoded on `num_threads` threads (default: as many as the machine runs at once), cut only
        where no token can change.
        """
        return self.core.encode(text, allowed_special, num_threads)

    def encode_ordinary(self, text: str, *, num_threads: int | None = None) -> list[int]:
        """As `encode`, with special tokens as plain text."""
        return self.core.encode(text, "none", num_threads)

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial = "all",
    ) -> list[list[int]]:
        """The ids of each text, on `num_threads` threads (default: as many as the machine runs at once)."""
        return self.core.encode_batch(texts, allowed_special, num_threads)

    def encode_ordinary_batch(
        self, texts: Sequence[str], *, num_threads: int | None = None
    ) -> list[list[int]]:
        """As `encode_batch`, with special tokens as plain text."""
        return self.core.encode_batch(texts, "none", num_threads)

    def encode_to_numpy(
        self,
        text: str,
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial = "all",
    ) -> TokenArray:
        """The ids of `text` as a 1-D array: uint16 where every id of the vocabulary fits, else uint32.

        A long text is encoded on `num_threads` threads (default: as many as the machine runs at once), cut only
        where no token can change.
        """
        return self.core.encode_to_numpy(text, allowed_special, num_threads)

    def encode_iterable(
        self, iterable: Iterable[str], *, allowed_special: AllowedSpecial = "all"
    ) -> Iterator[int]:
        """The ids of the joined pieces of `iterable`, one by one, in memory that does not grow with them.

        They are those of `encode("".join(iterable))`, wherever the pieces are cut. Pieces are taken as ids are asked
        for, some kilobytes ahead. (Where nothing may be cut, memory grows up to the next place where it may: inside
        one endless word, and with a pattern of one's own up to the next special token. A surrogate pair that is cut
        in two becomes two U+FFFD.)
        """
        return self.core.encode_iterable(iterable, allowed_special)

    def encode_file(
        self,
        inputs: CorpusInputs,
        out_folder: str | os.PathLike[str],
        **options: Any,
    ) -> Manifest:
        """Encodes files to a folder of token shards; see `bytemill.shards.encode_to_shards` for the options."""
        from bytemill.shards import encode_to_shards

        return encode_to_shards(self, inputs, out_folder, **options)

    def count(self, text: str, *, allowed_special: AllowedSpecial = "all") -> int:
        """How many ids `text` has."""
        return self.core.count(text, allowed_special)

    # Ids to text

    def decode(self, ids: TokenIds, *, errors: str = "replace") -> str:
        """The text of `ids`; what is not UTF-8 becomes U+FFFD unless `errors` says otherwise.

        Raises KeyError for an id that no token has.
        """
        return self.core.decode(ids, errors)

    def decode_bytes(self, ids: TokenIds) -> bytes:
        """The bytes of `ids`, lossless. Raises KeyError for an id that no token has."""
        return self.core.decode_bytes(ids)

    def decode_tokens_bytes(self, ids: TokenIds) -> list[bytes]:
        """The bytes of each id. Raises KeyError for an id that no token has."""
        return [self.core.token_bytes(i) for i in ids]

    def decode_batch(self, batch: Sequence[TokenIds], *, errors: str = "replace") -> list[str]:
        """The text of each sequence of ids."""
        return self.core.decode_batch(batch, errors)

    def stream_decoder(self) -> StreamDecoder:
        """A decoder for ids that come one by one: it never gives half a character.

        >>> decoder = Tokenizer({i: bytes([i]) for i in range(256)}, []).stream_decoder()
        >>> [decoder.feed(byte) for byte in "é!".encode()]
        ['', 'é', '!']
        """
        return StreamDecoder(self)


def _with_ids(
    vocab: Mapping[int, bytes], special_tokens: Iterable[str] | Mapping[str, int] | None
) -> dict[str, int]:
    """Ids for special tokens: their own where they are in the vocabulary, else the next ones after all others."""
    if special_tokens is None:
        return {}
    if isinstance(special_tokens, str):
        raise TokenizerError(
            "special_tokens is a str; give a list of them", hint=f"special_tokens=[{special_tokens!r}]"
        )
    given: list[str] = list(special_tokens)
    for token in given:
        if not isinstance(token, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"special tokens are str, not {type(token).__name__}")
        if any("\ud800" <= character <= "\udfff" for character in token):
            raise TokenizerError(f"special token {token!a} holds a lone surrogate, which no text can hold")
    if isinstance(special_tokens, Mapping):
        return dict(cast("Mapping[str, int]", special_tokens))
    wanted = {token.encode() for token in given}
    known = {token: i for i, token in vocab.items() if token in wanted}
    with_ids: dict[str, int] = {}
    next_id = max(vocab, default=-1) + 1
    for token in given:
        if token in with_ids:
            raise TokenizerError(f"special token {token!r} is there twice")
        if token.encode() in known:
            with_ids[token] = known[token.encode()]
        else:
            with_ids[token] = next_id
            next_id += 1
    return with_ids
