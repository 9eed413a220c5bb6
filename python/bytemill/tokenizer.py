"""The tokenizer: text to ids and back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from bytemill.codec import Codec
from bytemill.errors import TokenizerError
from bytemill.formats.loaded import Loaded, build
from bytemill.formats.spec import Companions, Ties, TokenFlags, TokenizerSpec, special_rules

if TYPE_CHECKING:
    from types import EllipsisType

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
        self.token_flags: dict[str, TokenFlags] = loaded.flags
        """The flags of special tokens that have others than usual, as Hugging Face's files have them."""
        self.companions: Companions | None = loaded.companions
        """What came with the tokenizer and decides no ids: post-processor, chat template, tokenizer_config.json."""
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
            return TokenizerSpec(
                pattern=self.pattern,
                special_tokens=self.special_tokens,
                ranks=ranks,
                normalizer=self.normalizer,
                flags=self.token_flags,
                companions=self.companions,
            )
        return TokenizerSpec(
            pattern=self.pattern,
            special_tokens=self.special_tokens,
            vocab=self._ordinary(),
            merges=core.merges(),
            whole_pretoken_lookup=core.whole_pretoken_lookup,
            ties=self.ties,
            merge_counts=self.merge_counts,
            normalizer=self.normalizer,
            flags=self.token_flags,
            companions=self.companions,
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

        Into a folder (one that exists, or a path that ends with a slash) goes also a `tokenizer_config.json`, so that
        `AutoTokenizer.from_pretrained` opens it, and what else came with the tokenizer, such as its chat template.

        A file appears under its name once it is whole. Raises `OutputError` where it cannot be written.
        """
        from bytemill.atomic import write_text
        from bytemill.formats import huggingface
        from bytemill.formats.huggingface_folder import write_folder

        place, spec = Path(path), self.to_spec()
        if str(path).endswith(("/", os.sep)) or place.is_dir():
            write_folder(spec, place)
        else:
            write_text(place, huggingface.write(spec))

    # Hugging Face

    def to_huggingface(self) -> Any:
        """A `tokenizers.Tokenizer` that gives the same ids with `encode(text, add_special_tokens=False)`.

        Raises `TokenizerError` where it could not, and `BytemillError` where `tokenizers` is not installed.
        """
        from bytemill.formats import huggingface_objects

        return huggingface_objects.to_tokenizers(self.to_spec())

    def to_transformers(self, **arguments: Any) -> Any:
        """A `transformers.PreTrainedTokenizerFast` that gives the same ids with `add_special_tokens=False`.

        `arguments` are its own (`pad_token="<pad>"`, `model_max_length=1024`, `chat_template=...`) and go before what
        came with the tokenizer. Where nothing did, `<|endoftext|>` is the token that ends a text, if it is there. A
        token that is named and is not there yet is added by `transformers`.

        Raises as `to_huggingface` does.
        """
        from bytemill.formats import huggingface_objects

        return huggingface_objects.to_transformers(self.to_spec(), arguments)

    @classmethod
    def from_huggingface(cls, tokenizer: Any) -> Self:
        """The tokenizer in a `tokenizers.Tokenizer` or a `transformers.PreTrainedTokenizerFast`.

        Raises `TokenizerFileError` where bytemill cannot give the same ids, naming the reason.
        """
        from bytemill.formats import huggingface_objects

        return cls._from_loaded(huggingface_objects.from_object(tokenizer))

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
        return type(self).from_spec, (self.to_spec(),)

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
        rules = special_rules(self.special_tokens, self.token_flags, self.normalizer)
        if rules or self.normalizer:
            digest.update(repr((self.normalizer, sorted(rules.items()))).encode())
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
