"""The tokenizer class."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Self, cast

from bytemill.errors import TokenizerError
from bytemill.formats.loaded import Loaded, build
from bytemill.formats.patterns import Pattern, resolve_pattern
from bytemill.formats.spec import (
    CharacterModel,
    SpecialTokens,
    Ties,
    TokenFlags,
    TokenizerMetadata,
    TokenizerSpec,
    special_rules,
)
from bytemill.storage import local_output
from bytemill.tokenizer.decoding import DecodingMethods
from bytemill.tokenizer.encoding import EncodingMethods
from bytemill.tokenizer.model_inputs import ModelInputMethods
from bytemill.tokenizer.notebook import table_html
from bytemill.tokenizer.vocabulary import VocabularyMethods

if TYPE_CHECKING:
    import tiktoken

    from bytemill.formats.tiktoken.objects import EncodingView
    from bytemill.tokenizer.training_report import TrainingReport


class Tokenizer(EncodingMethods, DecodingMethods, VocabularyMethods, ModelInputMethods):
    """A byte-level BPE tokenizer. Immutable and thread-safe.

    See `EncodingMethods` for the meaning of `allowed_special`, `disallowed_special` and `num_threads`.

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
        pattern: str | Pattern | None = "gpt2",
    ) -> None:
        """Create a tokenizer from its parts.

        Args:
            vocab: Tokens by id.
            merges: Pairs of tokens in rank order.
            special_tokens: Special tokens. Those in the vocabulary keep their ids; the others get their explicit ids or
                the next ids after the highest one.
            pattern: A known name (`gpt2`, `cl100k`, `o200k`, `llama3`, `qwen2`, `tekken`), a `Pattern`, or None for no
                pre-tokenization.

        Raises:
            TokenizerError: The parts contradict each other.
        """
        special = _with_ids(vocab, special_tokens)
        spec = TokenizerSpec(resolve_pattern(pattern), special, vocab=dict(vocab), merges=list(merges))
        self._initialize(build(spec))

    def _initialize(self, loaded: Loaded) -> None:
        core = loaded.core
        self.core = core
        self.special_tokens = core.special_tokens
        self.merge_counts = loaded.merge_counts
        self.ties: Ties | None = loaded.ties
        """Tie-breaking rule of training, if known."""
        self.token_flags: dict[str, TokenFlags] = loaded.flags
        """Flags of the special tokens whose flags differ from the defaults, as in Hugging Face's files."""
        self.metadata: TokenizerMetadata | None = loaded.metadata
        """Metadata that does not affect ids: post-processor, chat template, tokenizer_config.json."""
        self.characters: CharacterModel | None = loaded.characters
        """Set if the smallest tokens are characters, as in SentencePiece; None for byte-level BPE."""
        self.training_report: TrainingReport | None = None
        """Statistics of training, if `train` made this object."""
        self._name: str | None = None

    @classmethod
    def from_spec(cls, spec: TokenizerSpec) -> Self:
        """Create a tokenizer from a spec. Raises `TokenizerError` as the constructor does."""
        return cls._from_loaded(build(spec))

    @classmethod
    def _from_loaded(cls, loaded: Loaded) -> Self:
        tokenizer = cls.__new__(cls)
        tokenizer._initialize(loaded)
        return tokenizer

    def to_spec(self) -> TokenizerSpec:
        """Return the tokenizer as plain data."""
        core = self.core
        spec = TokenizerSpec(
            pattern=self.pattern,
            special_tokens=self.special_tokens,
            normalizer=self.core.normalizer,
            characters=self.characters,
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

        spec = gpt2.read(vocab_filepath, merges_filepath, special_tokens, pattern=resolve_pattern(pattern))
        return cls.from_spec(spec)

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
        from bytemill.formats import load as loading

        expression = pattern if isinstance(pattern, EllipsisType) else resolve_pattern(pattern)
        return cls._from_loaded(loading.load(path, expression, special_tokens))

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
        from bytemill.formats.save import publish, render

        spec = self.to_spec()
        is_folder = str(path).endswith(("/", os.sep)) or Path(path).is_dir()
        with local_output(path) as local:
            if format == "huggingface" and is_folder:
                from bytemill.formats.huggingface.folder import write_folder

                write_folder(spec, local)
                return
            publish(render(spec, local, format), local)

    def to_huggingface(self) -> Any:
        """Return a `tokenizers.Tokenizer` that gives the same ids with `encode(text, add_special_tokens=False)`.

        Raises:
            TokenizerError: It could not give the same ids.
            MissingExtraError: `tokenizers` is not installed.
        """
        from bytemill.formats.huggingface import objects as huggingface_objects

        return huggingface_objects.to_tokenizers(self.to_spec())

    def to_transformers(self, **arguments: Any) -> Any:
        """Return a `transformers.PreTrainedTokenizerFast` that gives the same ids with `add_special_tokens=False`.

        Raises as `to_huggingface` does.

        Args:
            **arguments: Arguments of its constructor, such as `pad_token="<pad>"`, `model_max_length=1024` or
                `chat_template=...`. They override the tokenizer's metadata, in whose absence `<|endoftext|>`, if it is
                a special token, is the `eos_token`. `transformers` adds tokens that do not exist yet.
        """
        from bytemill.formats.huggingface import objects as huggingface_objects

        return huggingface_objects.to_transformers(self.to_spec(), arguments)

    @classmethod
    def from_huggingface(cls, tokenizer: Any) -> Self:
        """Convert a `tokenizers.Tokenizer` or a `transformers.PreTrainedTokenizerFast`.

        Raises:
            TokenizerFileError: bytemill cannot give the same ids.
        """
        from bytemill.formats.huggingface import objects as huggingface_objects

        return cls._from_loaded(huggingface_objects.from_object(tokenizer))

    @property
    def name(self) -> str:
        """The published name or the name of the tiktoken encoding, or a name derived from the fingerprint."""
        return self._name or f"bytemill-{self.fingerprint[:12]}"

    @classmethod
    def from_tiktoken(cls, encoding: tiktoken.Encoding | EncodingView) -> Self:
        """Convert a tiktoken `Encoding`, or one of `bytemill.compat.tiktoken`.

        Unlike the encoding, the tokenizer recognizes special tokens by default.

        Raises:
            TokenizerError: Some ids could differ: the pattern does not provably match every character (tiktoken drops
                other text), a byte has no token, or a special token begins with another one that tiktoken prefers.
        """
        from bytemill.formats.tiktoken.objects import spec_of

        tokenizer = cls.from_spec(spec_of(encoding))
        tokenizer._name = encoding.name
        return tokenizer

    def to_tiktoken(self, name: str | None = None) -> tiktoken.Encoding:
        """Return a tiktoken `Encoding` that gives the same ids.

        Args:
            name: Name of the encoding; by default `self.name`.

        Raises:
            TokenizerError: There is none: the ids do not follow the order of the merges, a custom pattern can match the
                empty string, or a special token begins with another one that tiktoken prefers.
            MissingExtraError: `tiktoken` is not installed.
        """
        from bytemill.formats.tiktoken.objects import encoding_of

        return encoding_of(self.to_spec(), name or self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        made = type(self).from_spec, (self.to_spec(),)
        return made if self._name is None else (*made, {"_name": self._name})

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
        normalizer = self.core.normalizer
        is_verbatim = self.characters is not None and self.characters.verbatim_symbols
        rules = special_rules(self.special_tokens, self.token_flags, normalizer, verbatim=is_verbatim)
        if rules or normalizer:
            # The form of the first released version, in which NFC was the only normalizer.
            described = "NFC" if normalizer == (("NFC",),) else normalizer or None
            digest.update(repr((described, sorted(rules.items()))).encode())
        return digest.hexdigest()

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

        return self.from_spec(truncate(self.to_spec(), vocab_size))


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
