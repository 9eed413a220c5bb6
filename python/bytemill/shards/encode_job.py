"""The checked options of an encoding, and what they make: the encoder, the writers and the manifests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

from bytemill._core import __version__
from bytemill.corpus.options import check_separator
from bytemill.errors import ShardError, SpecialTokenError
from bytemill.formats import library
from bytemill.shards.complete import Request, reproducible
from bytemill.shards.journal import as_json
from bytemill.shards.lock import is_replaced_name
from bytemill.shards.manifest import (
    PARTS,
    SEED,
    SHARD_TOKENS,
    VALIDATION_FRACTION,
    Manifest,
    ShardSettings,
    SourceInfo,
)
from bytemill.shards.shard_writer import ShardWriter, resume_problem
from bytemill.shards.source_stamps import stamps_of, without_names
from bytemill.storage.input_check import check_folder_is_no_input
from bytemill.system.units import plural

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bytemill.corpus import CorpusCounts, DocumentSource
    from bytemill.formats.library import AnyDocumentEncoder
    from bytemill.formats.spec import AnyEncoder
    from bytemill.shards.journal import Checkpoint, PartCounts, WriterState
    from bytemill.shards.layouts import Layout
    from bytemill.shards.manifest import FileInfo, ShardInfo, SourceStamp
    from bytemill.storage import StoreFolder
    from bytemill.system.records import Strict

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


WrittenShards: TypeAlias = "tuple[tuple[ShardInfo, ...], FileInfo | None, int]"
"""The shards of a part, its document index, and its number of tokens."""


@dataclass(frozen=True)
class EncodingJob:
    """An encoding with checked options."""

    tokenizer: ShardTokenizer
    layout: Layout
    source: DocumentSource
    settings: ShardSettings
    encoder: AnyDocumentEncoder

    @classmethod
    def checked(
        cls,
        tokenizer: ShardTokenizer,
        layout: Layout,
        source: DocumentSource,
        settings: ShardSettings,
        num_threads: int | None,
    ) -> EncodingJob:
        """Check the options before a folder is touched."""
        if settings.validation_fraction and getattr(source, "is_one_document", False):
            raise _empty_part("validation", 1)
        layout.header(layout.dtype(tokenizer.core.dtype), settings.shard_tokens)
        encoder = document_encoder(tokenizer, layout, settings, num_threads)
        return cls(tokenizer, layout, source, settings, encoder)

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

    def other_stores(self, store: StoreFolder) -> list[StoreFolder]:
        """Return the folders in a store that would be read with or instead of the result: of the other division."""
        return [store] if self.parts else [store / name for name in PARTS]

    def stores(self, store: StoreFolder) -> list[StoreFolder]:
        """Return the folders of the parts in a store, or that of the whole."""
        return [store / name for name in self.parts] if self.parts else [store]

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
    separator = _id(tokenizer, settings.document_separator, "the document separator")
    first = _id(tokenizer, settings.prepended, "the prepended token")
    in_front = separator if layout.separator_in_front else None
    prefix = () if starts_inside else (in_front, first)
    is_split = settings.validation_fraction and not starts_inside
    return library.document_encoder(
        tokenizer.core,
        settings.allowed_special,
        num_threads,
        prefix=list(dict.fromkeys(token for token in prefix if token is not None)),
        suffix=separator if settings.append_separator and in_front is None and not ends_inside else None,
        stripped=None if ends_inside else in_front,
        split=(settings.split_seed, int(settings.validation_fraction * 2**64)) if is_split else None,
    )


def shard_settings(**values: Any) -> ShardSettings:
    """Return the settings; raise ShardError if one is out of range."""
    settings = ShardSettings(**values)
    _check_number("shard_tokens", settings.shard_tokens, int, SHARD_TOKENS)
    _check_number("validation_fraction", settings.validation_fraction, float, VALIDATION_FRACTION)
    _check_number("split_seed", settings.split_seed, int, SEED)
    if settings.shuffle_seed is not None:
        _check_number("shuffle_seed", settings.shuffle_seed, int, SEED)
    if settings.errors not in get_args(Errors):
        raise ShardError(f"errors is {settings.errors!r}", hint=f"use one of {', '.join(get_args(Errors))}")
    return settings


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


def separator_token(
    tokenizer: ShardTokenizer, source: DocumentSource, documents: str | None, prepended: str | None
) -> str | None:
    """Return the special token between documents: the named one, else the usual one of the tokenizer, if it has one.

    None if the usual one is prepended to documents already, as with GPT-2's.

    Args:
        tokenizer: The tokenizer.
        source: The corpus, which may name what ends documents in text files.
        documents: As for `encode_corpus`.
        prepended: The special token at the start of documents.

    Raises:
        SpecialTokenError: The named one is not a special token.
    """
    if documents in (None, "file", "line"):
        documents = getattr(getattr(source, "options", None), "separator", None)
    if documents is None:
        usual = next((token for token in _END_TOKENS if token in tokenizer.special_tokens), None)
        return None if usual == prepended else usual
    check_separator(documents, tokenizer.special_tokens)
    return documents


def prepended_token(tokenizer: ShardTokenizer, prepend: str | bool) -> str | None:
    """Return the special token at the start of documents: the named one, or with True the usual one."""
    if isinstance(prepend, str):
        return prepend
    if not prepend:
        return None
    found = next((token for token in _BEGIN_TOKENS if token in tokenizer.special_tokens), None)
    if found is None:
        known = ", ".join(tokenizer.special_tokens) or "none"
        raise SpecialTokenError(
            "the tokenizer has no special token for the start of documents",
            hint=f"name one (--bos); its special tokens: {known}",
        )
    return found


def _id(tokenizer: ShardTokenizer, token: str | None, what: str) -> int | None:
    if token is None:
        return None
    if token not in tokenizer.special_tokens:
        known = ", ".join(tokenizer.special_tokens) or "none"
        raise SpecialTokenError(
            f"{what} {token!r} is not a special token of the tokenizer", hint=f"its special tokens: {known}"
        )
    return tokenizer.special_tokens[token]
