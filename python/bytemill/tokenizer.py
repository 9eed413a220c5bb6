"""The tokenizer: text to ids and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from bytemill.codec import Codec
from bytemill.errors import TokenizerError
from bytemill.formats.loaded import Loaded, build
from bytemill.formats.spec import Ties, TokenizerSpec

if TYPE_CHECKING:
    import os
    from types import EllipsisType

    import tiktoken

    from bytemill.compat.tiktoken import Encoding
    from bytemill.corpus import CorpusInputs
    from bytemill.shards import Manifest
    from bytemill.training import TrainingReport


class Tokenizer(Codec):
    """A byte-level BPE tokenizer. Immutable; several threads may use one at once.

    `Codec` has the methods that take text and ids.

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
        self.special_tokens = core.special_tokens
        self.merge_counts = loaded.merge_counts
        self.ties: Ties | None = loaded.ties
        """How training broke ties, where that is known."""
        self.training_report: TrainingReport | None = None
        """What `train` found out; None for a tokenizer that was not trained in this process."""
        self._name: str | None = None

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

    # tiktoken

    @property
    def name(self) -> str:
        """The name of the encoding it was made from (`from_tiktoken`), else one that its fingerprint gives it."""
        return self._name or f"bytemill-{self.fingerprint[:12]}"

    @classmethod
    def from_tiktoken(cls, encoding: tiktoken.Encoding | Encoding) -> Self:
        """The tokenizer that gives the ids of a tiktoken `Encoding`, or of one of `bytemill.compat.tiktoken`.

        Where that refuses special tokens by default, this recognises them.

        Raises `TokenizerError` where not all ids would be the same: tiktoken passes over text that the pattern does not
        match, so the pattern must be seen to match every character; bytes without a token; special tokens of which one
        begins another if tiktoken takes the shorter.
        """
        from bytemill.tiktoken_exchange import spec_of

        tokenizer = cls.from_spec(spec_of(encoding))
        tokenizer._name = encoding.name
        return tokenizer

    def to_tiktoken(self, name: str | None = None) -> tiktoken.Encoding:
        """The tiktoken `Encoding` that gives the same ids; it needs the package `tiktoken`.

        Raises `TokenizerError` where none does: where ids do not follow the order of the merges, where the pattern is
        one of your own that may match nothing, or where of two special tokens tiktoken would take the shorter.
        """
        from bytemill.tiktoken_exchange import encoding_of

        return encoding_of(self, name or self.name)

    def encode_file(
        self,
        inputs: CorpusInputs,
        out_folder: str | os.PathLike[str],
        **options: Any,
    ) -> Manifest:
        """Encodes files to a folder of token shards; see `bytemill.shards.encode_to_shards` for the options."""
        from bytemill.shards import encode_to_shards

        return encode_to_shards(self, inputs, out_folder, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        made = type(self).from_spec, (self.to_spec(),)
        return made if self._name is None else (*made, {"_name": self._name})

    def __repr__(self) -> str:
        sizes = f"{self.n_vocab} tokens, {len(self.special_tokens)} of them special"
        return f"<Tokenizer: {sizes}, {self.fingerprint[:12]}>"

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
