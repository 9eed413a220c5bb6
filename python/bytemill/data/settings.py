"""The settings of an encoding, and the job that they make with a tokenizer and a corpus."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, get_args

from bytemill._core import __version__
from bytemill.corpus import Corpus, DocumentSource
from bytemill.corpus.options import check_separator
from bytemill.data.conversations import ConversationEncoder, template_hash
from bytemill.data.dropout import DropoutEncoder
from bytemill.data.layouts import layout_named
from bytemill.data.manifest import (
    DROPOUT,
    PARTS,
    SEED,
    SHARD_TOKENS,
    VALIDATION_FRACTION,
    ConversationSettings,
    DropoutSettings,
    Manifest,
    ShardSettings,
    SourceInfo,
)
from bytemill.data.request import Request, reproducible, stamps_of, without_names
from bytemill.data.shard_writer import ShardWriter, resume_problem
from bytemill.data.unfinished import as_json, is_replaced_name
from bytemill.errors import ShardError, SpecialTokenError
from bytemill.formats import library
from bytemill.storage.input_check import check_folder_is_no_input
from bytemill.system.units import plural

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from bytemill.corpus import CorpusCounts, CorpusInputs
    from bytemill.data.layouts import Layout
    from bytemill.data.manifest import FileInfo, ShardInfo, SourceStamp
    from bytemill.data.unfinished import Checkpoint, PartCounts, WriterState
    from bytemill.formats.encoder import AnyEncoder
    from bytemill.formats.library import AnyDocumentEncoder
    from bytemill.system.records import Strict
    from bytemill.tokenizer import Tokenizer


AllowedSpecial: TypeAlias = "Literal['all', 'none', 'none_raise'] | Collection[str]"
Errors: TypeAlias = Literal["strict", "replace", "skip"]
Part: TypeAlias = Literal["train", "validation"]

_BEGIN_TOKENS = ("<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>", "[BOS]", "<|endoftext|>")
"""Usual names of the special token at the start of documents. GPT-2 uses the one that ends them."""
_END_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]")
"""Usual names of the special token at the end of documents."""


class ShardTokenizer(Protocol):
    """A tokenizer that can encode a corpus."""

    @property
    def core(self) -> AnyEncoder: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def special_tokens(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, kw_only=True)
class EncodeSettings:
    """What determines the files of an encoding, besides the tokenizer and the corpus.

    Raises:
        ShardError: A setting is out of range.
    """

    layout: str = "npy"
    """Layout of the files (`bytemill.data.layouts`)."""
    shard_tokens: int = 100_000_000
    """Ids per shard, except the last one."""
    document_index: bool = False
    """Write `documents.npy`, the ends of documents."""
    allowed_special: AllowedSpecial = "all"
    """Special tokens recognised in the text: "all", "none", "none_raise" or a collection."""
    errors: Errors = "strict"
    """Handling of malformed UTF-8: "strict", "replace" or "skip". A `Corpus` has its own option."""
    documents: str | None = None
    """What a document is in text files: "file" (the default), "line", or the special token that ends documents (see
    `Corpus`, which has its own option). A special token is also the one between documents."""
    separators: bool = True
    """Append the special token between documents to every document that does not end with it. In some layouts it is at
    the start of documents. By default that token is the usual one of the tokenizer, such as `<|endoftext|>`. Nothing is
    appended if it has none, or if that one is prepended."""
    prepend: str | bool = False
    """Special token at the start of every document; True for the usual one of the tokenizer."""
    validation_fraction: float = 0.0
    """Fraction of the documents, chosen by a hash of their first MiB, that is written to the folder `validation` of the
    output; the others are written to `train`. Equal documents stay together."""
    split_seed: int = 0
    """Seed of that hash."""
    shuffle_seed: int | None = None
    """Write the documents in random order, across all sources. The order depends only on this seed and on the number of
    documents before each one. Until the end the output folder also holds a copy of the text, and an interrupted run
    reads the corpus again before it resumes."""
    conversations: ConversationSettings | None = None
    """Set if every document is a row of JSON with a conversation. Nothing is prepended or appended then, and
    `documents.npy` is always written."""
    dropout: DropoutSettings | None = None
    """BPE-dropout (Provilkov et al. 2020). A document is in memory as a whole then, and one thread encodes."""

    def __post_init__(self) -> None:
        layout_named(self.layout)
        if self.errors not in get_args(Errors):
            raise ShardError(f"errors is {self.errors!r}", hint='choose "strict", "replace" or "skip"')
        _check_number("shard_tokens", self.shard_tokens, int, SHARD_TOKENS)
        _check_number("validation_fraction", float(self.validation_fraction), float, VALIDATION_FRACTION)
        _check_number("split_seed", self.split_seed, int, SEED)
        if self.shuffle_seed is not None:
            _check_number("shuffle_seed", self.shuffle_seed, int, SEED)
        if self.dropout is not None:
            _check_number("dropout", self.dropout.probability, float, DROPOUT)
            if self.validation_fraction or self.conversations is not None:
                raise ShardError(
                    "dropout is for text to train on, not for a validation part or conversations",
                    hint="encode the text for validation by itself, without dropout",
                )

    def corpus(self, inputs: CorpusInputs | DocumentSource) -> DocumentSource:
        """Return the corpus of inputs. Raises `ShardError` if it is one that has its own options."""
        if not (hasattr(inputs, "read") and hasattr(inputs, "source_names")):
            return Corpus(
                cast("CorpusInputs", inputs), errors=self.errors, documents=self.documents or "file"
            )
        for name, is_set in (
            ("errors", self.errors != "strict"),
            ("documents", self.documents in ("file", "line")),
        ):
            if is_set:
                raise ShardError(f"{name} is an option of the Corpus", hint="set it there")
        return cast("DocumentSource", inputs)

    def resolved(self, tokenizer: ShardTokenizer, source: DocumentSource) -> ShardSettings:
        """Return the settings for a tokenizer and a corpus, as a manifest has them. Raises `SpecialTokenError`."""
        chats = self.conversations
        if chats is not None:
            chats = replace(chats, template=template_hash(cast("Tokenizer", tokenizer)))
        prepended = None if chats else self._prepended(tokenizer)
        separator = self._separator(tokenizer, source, prepended) if self.separators and not chats else None
        allowed = self.allowed_special
        return ShardSettings(
            shard_tokens=self.shard_tokens,
            allowed_special=allowed if isinstance(allowed, str) else tuple(sorted(allowed)),
            errors=getattr(getattr(source, "options", None), "errors", self.errors),
            document_separator=separator,
            append_separator=separator is not None,
            prepended=prepended,
            document_index=self.document_index or chats is not None,
            validation_fraction=float(self.validation_fraction),
            split_seed=self.split_seed,
            shuffle_seed=self.shuffle_seed,
            conversations=chats,
            dropout=self.dropout,
        )

    def _prepended(self, tokenizer: ShardTokenizer) -> str | None:
        if isinstance(self.prepend, str):
            return self.prepend
        if not self.prepend:
            return None
        found = next((token for token in _BEGIN_TOKENS if token in tokenizer.special_tokens), None)
        if found is None:
            known = ", ".join(tokenizer.special_tokens) or "none"
            raise SpecialTokenError(
                "the tokenizer has no special token for the start of documents",
                hint=f"name one (--bos); its special tokens: {known}",
            )
        return found

    def _separator(
        self, tokenizer: ShardTokenizer, source: DocumentSource, prepended: str | None
    ) -> str | None:
        """Return the named separator, else that of the corpus, else the usual one of the tokenizer."""
        named = self.documents
        if named in (None, "file", "line"):
            named = getattr(getattr(source, "options", None), "separator", None)
        if named is None:
            usual = next((token for token in _END_TOKENS if token in tokenizer.special_tokens), None)
            return None if usual == prepended else usual  # GPT-2's begins documents too
        check_separator(named, tokenizer.special_tokens)
        return named

    def document_notes(self, source: DocumentSource, manifests: Sequence[Manifest]) -> list[str]:
        """Return notes about the documents of a result that may not be those that were meant.

        Args:
            source: The corpus.
            manifests: The manifests of all parts.
        """
        notes: list[str] = []
        resolved = manifests[0].settings
        if resolved.conversations is not None:
            return notes
        if self.separators and resolved.document_separator is None and resolved.prepended is None:
            notes.append(
                "the tokenizer has no usual special token for the end of documents, so none separates them "
                "(--documents TOKEN names one)"
            )
        separator = getattr(getattr(source, "options", None), "separator", None)
        n_documents = sum(manifest.n_documents for manifest in manifests)
        if separator is not None and n_documents <= len(source.source_names):
            notes.append(f"{separator} divides none of the inputs: each of them is one document")
        return notes


WrittenShards: TypeAlias = "tuple[tuple[ShardInfo, ...], FileInfo | None, int]"
"""The shards of a part, its document index, and its number of tokens."""


@dataclass(frozen=True)
class EncodingJob:
    """An encoding with checked settings."""

    tokenizer: ShardTokenizer
    layout: Layout
    source: DocumentSource
    settings: ShardSettings
    encoder: AnyDocumentEncoder

    @classmethod
    def of(
        cls,
        tokenizer: ShardTokenizer,
        inputs: CorpusInputs | DocumentSource,
        settings: EncodeSettings,
        num_threads: int | None,
    ) -> EncodingJob:
        """Open the corpus and check what the settings say of it and of the tokenizer, before a folder is touched."""
        source, layout = settings.corpus(inputs), layout_named(settings.layout)
        resolved = settings.resolved(tokenizer, source)
        if resolved.validation_fraction and getattr(source, "is_one_document", False):
            raise _empty_part("validation", 1)
        layout.header(layout.dtype(tokenizer.core.dtype), resolved.shard_tokens)
        encoder = document_encoder(tokenizer, layout, resolved, num_threads)
        return cls(tokenizer, layout, source, resolved, encoder)

    def check_parts(self, counts: Sequence[PartCounts]) -> None:
        """Raise `ShardError` if the corpus is split and one of its parts is empty."""
        for name, part in zip(self.parts, counts, strict=False):
            if not part.n_documents:
                raise _empty_part(name, sum(each.n_documents for each in counts))

    def check_output(self, out_folder: str | os.PathLike[str]) -> None:
        """Raise `OutputError` if writing the folder, or its URL, would replace what is read."""
        check_folder_is_no_input(
            out_folder,
            files=getattr(self.source, "input_files", ()),
            folders=getattr(self.source, "input_folders", ()),
            replaced=is_replaced_name,
        )

    @property
    def parts(self) -> list[Part]:
        """The parts of a split corpus; empty if it is not split."""
        return [*PARTS] if self.settings.validation_fraction else []

    def folders(self, folder: Path) -> list[Path]:
        """Return the folders of the parts in the output folder, or that folder."""
        return [folder / name for name in self.parts] if self.parts else [folder]

    @cached_property
    def stamps(self) -> list[SourceStamp | None]:
        """Stamps of the sources, as they were when the encoding began."""
        return stamps_of(self.source)

    @property
    def request(self) -> Request:
        """What finished shards are compared with."""
        return Request(self.tokenizer.fingerprint, self.layout.name, self.settings, self.source, self.stamps)

    @property
    def identity(self) -> dict[str, Any]:
        """What must be equal for another run to resume."""
        return as_json(
            {
                "bytemill_version": __version__,
                "tokenizer": self.tokenizer.fingerprint,
                "layout": self.layout.name,
                **self.settings.to_dict(),
                "corpus": without_names(self.source.description, self.stamps),
                "stamps": [stamp and stamp.to_dict() for stamp in self.stamps],
            }
        )

    def writer(
        self,
        folder: Path,
        state: WriterState | None,
        tag: str = "",
        finished: Callable[[ShardInfo], None] | None = None,
    ) -> ShardWriter:
        """Return a writer of shards; see `ShardWriter`."""
        return ShardWriter(
            folder,
            self.layout,
            self.layout.dtype(self.tokenizer.core.dtype),
            self.settings.shard_tokens,
            self.tokenizer.fingerprint,
            document_index=self.settings.document_index,
            has_masks=self.settings.conversations is not None,
            state=state,
            tag=tag,
            finished=finished,
        )

    def resume_problem(
        self, folder: Path, checkpoint: Checkpoint, *, tag: str = "", is_uploaded: bool = False
    ) -> str | None:
        """Return how the files in the output folder contradict a checkpoint, or None; see `resume_problem`."""
        dtype = self.layout.dtype(self.tokenizer.core.dtype)
        problems = (
            resume_problem(
                part, self.layout, dtype, self.settings.shard_tokens, state, tag=tag, is_uploaded=is_uploaded
            )
            for part, state in zip(self.folders(folder), checkpoint.writers, strict=True)
        )
        return next(filter(None, problems), None)

    def manifest(
        self, index: int, counted: PartCounts, counts: CorpusCounts, written: WrittenShards
    ) -> Manifest:
        """Return the manifest of a part.

        Args:
            index: Number of the part.
            counted: Counts of the part.
            counts: Counts of the whole corpus.
            written: Its shards.
        """
        shards, documents, n_tokens = written
        n_bytes = [*counted.source_bytes, *[0] * len(self.source.source_names)]
        return Manifest(
            bytemill_version=__version__,
            fingerprint=self.tokenizer.fingerprint,
            n_vocab=self.tokenizer.core.n_vocab,
            dtype=self.layout.dtype(self.tokenizer.core.dtype),
            n_tokens=n_tokens,
            n_bytes=sum(counted.source_bytes),
            n_documents=counted.n_documents,
            n_replaced=counts.n_replaced,
            shards=shards,
            sources=tuple(
                SourceInfo(name=name, n_bytes=n, stamp=stamp)
                for name, stamp, n in zip(self.source.source_names, self.stamps, n_bytes, strict=False)
            ),
            settings=self.settings,
            layout=self.layout.name,
            documents=documents,
            separator_id=self.tokenizer.special_tokens.get(self.settings.document_separator or ""),
            n_empty_documents=counted.n_empty,
            n_skipped_bytes=counts.n_skipped_bytes,
            n_broken_documents=counts.n_broken,
            n_byte_order_marks=counts.n_byte_order_marks,
            part=self.parts[index] if self.parts else None,
            corpus=reproducible(self.source.description),
        )


def document_encoder(
    tokenizer: ShardTokenizer,
    layout: Layout,
    settings: ShardSettings,
    num_threads: int | None,
    *,
    starts_inside: bool = False,
    ends_inside: bool = False,
) -> AnyDocumentEncoder:
    """Return a new encoder of documents.

    Args:
        tokenizer: The tokenizer.
        layout: Layout of the files.
        settings: The settings.
        num_threads: Number of threads.
        starts_inside: Encode the rest of a document whose beginning is encoded elsewhere.
        ends_inside: Encode the beginning of a document whose rest is encoded elsewhere.

    Raises:
        SpecialTokenError: A special token is unknown.
    """
    is_split = settings.validation_fraction and not starts_inside
    split = (settings.split_seed, int(settings.validation_fraction * 2**64)) if is_split else None
    if settings.conversations is not None:
        rows: Any = ConversationEncoder(cast("Tokenizer", tokenizer), settings.conversations)
        return library.LibraryDocumentEncoder(rows, "all", split=split)
    separator = _id(tokenizer, settings.document_separator, "the document separator")
    first = _id(tokenizer, settings.prepended, "the prepended token")
    in_front = separator if layout.separator_in_front else None
    prefix = () if starts_inside else (in_front, first)
    framing: dict[str, Any] = {
        "prefix": list(dict.fromkeys(token for token in prefix if token is not None)),
        "suffix": separator if settings.append_separator and in_front is None and not ends_inside else None,
        "stripped": None if ends_inside else in_front,
        "split": split,
    }
    if settings.dropout is not None:
        chance: Any = DropoutEncoder(tokenizer.core, settings.dropout)
        return library.LibraryDocumentEncoder(chance, settings.allowed_special, **framing)
    return library.document_encoder(tokenizer.core, settings.allowed_special, num_threads, **framing)


def _check_number(name: str, value: object, kind: type[int] | type[float], limits: Strict) -> None:
    """Raise `ShardError` unless `value` is a number within the limits."""
    if not limits.allows(value, kind):
        what = "a whole number" if kind is int else "a number"
        raise ShardError(
            f"{name} is {value!r}; it must be {what} of at least {limits.ge} and below {limits.lt}"
        )


def _empty_part(name: Part, n_documents: int) -> ShardError:
    return ShardError(
        f"the part {name} would be empty: the corpus has {plural(n_documents, 'document')}, and a document is not "
        "divided",
        hint='divide the text with --documents line (documents="line") or --documents TOKEN; or change '
        "--validation-fraction (validation_fraction=); or encode a text of its own for each part",
    )


def _id(tokenizer: ShardTokenizer, token: str | None, what: str) -> int | None:
    if token is None:
        return None
    if token not in tokenizer.special_tokens:
        known = ", ".join(tokenizer.special_tokens) or "none"
        raise SpecialTokenError(
            f"{what} {token!r} is not a special token of the tokenizer", hint=f"its special tokens: {known}"
        )
    return tokenizer.special_tokens[token]
