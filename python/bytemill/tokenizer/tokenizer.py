"""The tokenizer: text to ids and back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Self, cast

from bytemill.errors import TokenizerError
from bytemill.formats.loaded import Loaded, build
from bytemill.formats.patterns import Pattern, resolve_pattern
from bytemill.formats.spec import (
    Companions,
    GivenSpecialTokens,
    Ties,
    TokenFlags,
    TokenizerSpec,
    special_rules,
)
from bytemill.tokenizer.decoding import DecodingMethods
from bytemill.tokenizer.encoding import EncodingMethods
from bytemill.tokenizer.notebook import table_html
from bytemill.tokenizer.vocabulary import VocabularyMethods

if TYPE_CHECKING:
    import tiktoken

    from bytemill.formats.save import WrittenFormat
    from bytemill.formats.tiktoken.objects import EncodingView
    from bytemill.tokenizer.training_report import TrainingReport


class Tokenizer(EncodingMethods, DecodingMethods, VocabularyMethods):
    """A byte-level BPE tokenizer. Immutable; several threads may use one at once.

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
        """A tokenizer from its parts.

        `vocab` holds the tokens by id and `merges` the pairs in order of rank. A special token that is in the
        vocabulary keeps its id; the others are appended after the highest id. `pattern` is a name (`gpt2`, `cl100k`,
        `o200k`, `llama3`), any regular expression, or None for no pre-tokenization.

        Raises `TokenizerError` where the parts contradict each other, naming the first contradiction.
        """
        special = _with_ids(vocab, special_tokens)
        expression = resolve_pattern(pattern)
        spec = TokenizerSpec(
            pattern=expression, special_tokens=special, vocab=dict(vocab), merges=list(merges)
        )
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
        *,
        pattern: str | Pattern | None = "gpt2",
    ) -> Self:
        """A tokenizer from GPT-2's two files, `vocab.json` and `merges.txt`, with GPT-2's pattern.

        Raises `TokenizerFileError` for damaged files and `TokenizerError` for files that contradict each other.
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
        special_tokens: GivenSpecialTokens | None = None,
    ) -> Self:
        """A tokenizer from a file of any format that bytemill reads, recognised by its content.

        `path` is a file or a folder; of GPT-2's two files either will do where the other lies beside it. `pattern` and
        `special_tokens` are for formats that hold neither: `.tiktoken` rank files, of which only the published ones and
        those with a `.tiktoken.json` beside them go without, and GPT-2's files, which otherwise mean GPT-2's pattern.

        Raises `TokenizerFileError` for a file that is damaged, unknown, or asks for what bytemill does not do exactly.
        """
        from bytemill.formats import load as loading

        expression = pattern if isinstance(pattern, EllipsisType) else resolve_pattern(pattern)
        return cls._from_loaded(loading.load(path, expression, special_tokens))

    # Published tokenizers

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike[str],
        *,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool = False,
    ) -> Self:
        """A published tokenizer by its name, or one from Hugging Face's hub.

        `name` is the path of a file or folder, one of `gpt2`, `r50k_base`, `p50k_base`, `p50k_edit`, `cl100k_base`,
        `o200k_base` and `llama3`, or a repository of the hub (`revision` says which version). Files on this machine
        come first: in `cache_dir` (by default `$BYTEMILL_CACHE/tokenizers` or `bytemill/tokenizers` in the user's
        cache), in tiktoken's cache, in Hugging Face's. What is not there is fetched through `tiktoken` or
        `huggingface_hub`, where they are installed and `local_files_only` is not set. Files of the seven names must
        have the published checksums.

        Raises `TokenizerFileError` where it is not found, saying where to put which file.
        """
        from bytemill.tokenizer import pretrained

        tokenizer = cls._from_loaded(
            pretrained.load(name, revision=revision, cache_dir=cache_dir, local_files_only=local_files_only)
        )
        if pretrained.is_published(name):
            tokenizer._name = str(name)
        return tokenizer

    def save(self, path: str | os.PathLike[str], *, format: WrittenFormat = "huggingface") -> None:  # noqa: A002
        """Writes a `tokenizer.json` that Hugging Face `tokenizers` opens and that gives the same ids there.

        Into a folder (one that exists, or a path that ends with a slash) goes also a `tokenizer_config.json`, so that
        `AutoTokenizer.from_pretrained` opens it, and what else came with the tokenizer, such as its chat template.

        Other formats are `"tiktoken"` (a rank file, with a `.json` beside it for what it leaves out), `"gpt2"`
        (`vocab.json` and `merges.txt` in a folder), `"minbpe"` (a `.model`), `"vocab"` (a listing for people) and
        `"gguf"`. `bytemill.formats.conversion` has what `bytemill tokenizer convert` does, proof included.

        Each file appears under its name once it is whole. Raises `OutputError` where it cannot be written, and
        `TokenizerError` where the format cannot say what this tokenizer is.
        """
        from bytemill.formats.save import publish, rendered

        spec = self.to_spec()
        is_folder = str(path).endswith(("/", os.sep)) or Path(path).is_dir()
        if format == "huggingface" and is_folder:
            from bytemill.formats.huggingface.folder import write_folder

            write_folder(spec, Path(path))
            return
        publish(rendered(spec, Path(path), format), Path(path))

    # Hugging Face

    def to_huggingface(self) -> Any:
        """A `tokenizers.Tokenizer` that gives the same ids with `encode(text, add_special_tokens=False)`.

        Raises `TokenizerError` where it could not, and `BytemillError` where `tokenizers` is not installed.
        """
        from bytemill.formats.huggingface import objects as huggingface_objects

        return huggingface_objects.to_tokenizers(self.to_spec())

    def to_transformers(self, **arguments: Any) -> Any:
        """A `transformers.PreTrainedTokenizerFast` that gives the same ids with `add_special_tokens=False`.

        `arguments` are its own (`pad_token="<pad>"`, `model_max_length=1024`, `chat_template=...`) and go before what
        came with the tokenizer. Where nothing did, `<|endoftext|>` is the token that ends a text, if it is there. A
        token that is named and is not there yet is added by `transformers`.

        Raises as `to_huggingface` does.
        """
        from bytemill.formats.huggingface import objects as huggingface_objects

        return huggingface_objects.to_transformers(self.to_spec(), arguments)

    @classmethod
    def from_huggingface(cls, tokenizer: Any) -> Self:
        """The tokenizer in a `tokenizers.Tokenizer` or a `transformers.PreTrainedTokenizerFast`.

        Raises `TokenizerFileError` where bytemill cannot give the same ids, naming the reason.
        """
        from bytemill.formats.huggingface import objects as huggingface_objects

        return cls._from_loaded(huggingface_objects.from_object(tokenizer))

    # tiktoken

    @property
    def name(self) -> str:
        """The name of the encoding it was made from (`from_tiktoken`), else one that its fingerprint gives it."""
        return self._name or f"bytemill-{self.fingerprint[:12]}"

    @classmethod
    def from_tiktoken(cls, encoding: tiktoken.Encoding | EncodingView) -> Self:
        """The tokenizer that gives the ids of a tiktoken `Encoding`, or of one of `bytemill.compat.tiktoken`.

        Where that refuses special tokens by default, this recognises them.

        Raises `TokenizerError` where not all ids would be the same: tiktoken passes over text that the pattern does not
        match, so the pattern must be seen to match every character; bytes without a token; special tokens of which one
        begins another if tiktoken takes the shorter.
        """
        from bytemill.formats.tiktoken.objects import spec_of

        tokenizer = cls.from_spec(spec_of(encoding))
        tokenizer._name = encoding.name
        return tokenizer

    def to_tiktoken(self, name: str | None = None) -> tiktoken.Encoding:
        """The tiktoken `Encoding` that gives the same ids; it needs the package `tiktoken`.

        Raises `TokenizerError` where none does: where ids do not follow the order of the merges, where the pattern is
        one of your own that may match nothing, or where of two special tokens tiktoken would take the shorter.
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
        """SHA-256 (hexadecimal) of all that decides ids, and of nothing else.

        Two tokenizers with one fingerprint give the same ids for every text. Those of one vocabulary have one whatever
        files they come from: it does not depend on how a pattern is written, on whether merges or ranks are given, on
        merges that no text needs, or on tokens that no text has.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(self.core.canonical_form())
        rules = special_rules(self.special_tokens, self.token_flags, self.normalizer)
        if rules or self.normalizer:
            digest.update(repr((self.normalizer, sorted(rules.items()))).encode())
        return digest.hexdigest()

    def truncate(self, vocab_size: int) -> Self:
        """The tokenizer of the first merges: what training with this `vocab_size` gives on the same corpus.

        Of the `vocab_size` tokens 256 are bytes, and all special tokens stay. Those whose ids come before that of the
        last ordinary token which is left keep them; the others follow it in their order. Where all merges fit, the
        tokenizer stays as it is.

        Raises `TokenizerError` where there are fewer tokens than that, where 256 bytes and the special tokens are more,
        where the ids do not follow the merges, and for ranks that no list of merges stands for.

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
