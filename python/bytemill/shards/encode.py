"""Encode a corpus to a folder of token shards, in constant memory and resumable."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, get_args

from bytemill._core import DocumentEncoder, __version__
from bytemill.corpus import Corpus, DocumentSource
from bytemill.corpus.sources import empty_corpus
from bytemill.errors import ShardError, SpecialTokenError
from bytemill.shards.complete import Request, complete_manifests, reproducible
from bytemill.shards.journal import JOURNAL_NAME, as_json, read_journal
from bytemill.shards.layouts import layout_named
from bytemill.shards.lock import lock_folder, remove_partial_files
from bytemill.shards.manifest import (
    SHARD_TOKENS,
    SPLIT_SEED,
    VALIDATION_FRACTION,
    Manifest,
    ShardSettings,
    SourceInfo,
    write_manifest,
)
from bytemill.shards.pipeline import EncodeProgress, Encoding
from bytemill.shards.shard_writer import ShardWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping

    from bytemill._core import Encoder
    from bytemill.corpus import CorpusInputs
    from bytemill.shards.journal import WriterState
    from bytemill.shards.layouts import Layout
    from bytemill.system.records import Strict

AllowedSpecial: TypeAlias = "Literal['all', 'none', 'none_raise'] | Collection[str]"
Errors: TypeAlias = Literal["strict", "replace", "skip"]
Part: TypeAlias = Literal["train", "validation"]

CHECKPOINT_BYTES = 128 << 20
"""Bytes of text between checkpoints: about a second of work for one core, and 60 MB to sync."""
_BEGIN_TOKENS = ("<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>", "[BOS]", "<|endoftext|>")
"""Usual names of the special token at the start of documents. GPT-2 uses the one that ends them."""


class ShardTokenizer(Protocol):
    """A tokenizer that can encode a corpus."""

    @property
    def core(self) -> Encoder: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def special_tokens(self) -> Mapping[str, int]: ...


def encode_corpus(
    tokenizer: ShardTokenizer,
    inputs: CorpusInputs | DocumentSource,
    out_folder: str | os.PathLike[str],
    *,
    layout: str = "npy",
    shard_tokens: int = 100_000_000,
    document_index: bool = False,
    allowed_special: AllowedSpecial = "all",
    errors: Errors = "strict",
    document_separator: str | None = None,
    append_separator: bool = False,
    prepend: str | bool = False,
    validation_fraction: float = 0.0,
    split_seed: int = 0,
    num_threads: int | None = None,
    progress: Callable[[EncodeProgress], None] | None = None,
    overwrite: bool = False,
    checkpoint_bytes: int = CHECKPOINT_BYTES,
) -> Manifest:
    """Encode a corpus to a folder of shards.

    The files depend only on the tokenizer, the corpus and the options, not on the number of threads or on
    interruptions. After Ctrl-C, a crash or a full disk, the same call resumes from the last checkpoint. A corpus that
    cannot be read twice (standard input, an iterator) starts over. Memory does not grow with the corpus.

    A folder that already contains the complete result is left unchanged. Each document is encoded by itself; a
    document without text has no tokens and no separator.

    Args:
        tokenizer: The tokenizer.
        inputs: A `Corpus`, or names of files, folders and globs, or "-" for standard input (see `Corpus`).
        out_folder: The output folder.
        layout: Layout of the files (`bytemill.shards.layouts`).
        shard_tokens: Ids per shard, except the last one.
        document_index: Write `documents.npy`, the ends of documents.
        allowed_special: Special tokens recognised in the text: "all", "none", "none_raise" or a collection.
        errors: Handling of malformed UTF-8: "strict", "replace" or "skip". A `Corpus` has its own option.
        document_separator: Special token between documents. It ends documents in text files, unless `inputs` is a
            `Corpus`.
        append_separator: Append `document_separator` to every document that does not end with it. In some layouts it
            is at the start of documents.
        prepend: Special token at the start of every document; True for the usual one of the tokenizer.
        validation_fraction: Fraction of the documents, chosen by a hash of their first MiB, that is written to the
            folder `validation` in `out_folder`; the others are written to `train`. Equal documents stay together.
        split_seed: Seed of that hash.
        num_threads: Threads of the encoder; by default one per core.
        progress: Called in this thread after every few megabytes. An exception that it raises stops the encoding.
        overwrite: Replace existing shards.
        checkpoint_bytes: Bytes of text between checkpoints; there is one every ten seconds too.

    Returns:
        The manifest of the shards, or of `train`.

    Raises:
        CorpusError: If the corpus cannot be read, is not UTF-8 (with `errors="strict"`) or is empty.
        SpecialTokenError: If a special token is unknown or not allowed.
        ShardError: If the folder contains other shards, or an option is out of range.
        OutputError: If the shards cannot be written.
    """
    source = _source(inputs, errors, document_separator)
    job = _Job.checked(
        tokenizer,
        layout_named(layout),
        source,
        _settings(
            shard_tokens=shard_tokens,
            allowed_special=allowed_special
            if isinstance(allowed_special, str)
            else tuple(sorted(allowed_special)),
            errors=_errors_of(source, errors),
            document_separator=document_separator,
            append_separator=append_separator,
            prepended=_prepended(tokenizer, prepend),
            document_index=document_index,
            validation_fraction=float(validation_fraction),
            split_seed=split_seed,
        ),
        num_threads,
    )
    folder = Path(out_folder)
    parts = [folder / name for name in job.parts] if job.parts else [folder]
    request = Request(tokenizer.fingerprint, layout, job.settings, source)
    if not overwrite and (complete := complete_manifests(folder, parts, request)):
        if progress:
            progress(_already_complete(complete))
        return complete[0]
    with contextlib.ExitStack() as stack:
        journal = folder / JOURNAL_NAME
        resumes = [
            stack.enter_context(lock_folder(path, overwrite=overwrite, journal=journal))
            for path in dict.fromkeys([folder, *parts])
        ]
        checkpoint = read_journal(folder, job.identity) if all(resumes) else None
        encoding = Encoding(
            folder, source, job.identity, checkpoint, checkpoint_bytes=checkpoint_bytes, progress=progress
        )
        states = checkpoint.writers if checkpoint else [None] * len(parts)
        writers = [
            stack.enter_context(contextlib.closing(job.writer(part, state)))
            for part, state in zip(parts, states, strict=True)
        ]
        encoding.run(job.encoder, writers)
        if not encoding.counts.n_bytes:
            raise empty_corpus(source.source_names)
        manifests = [job.manifest(encoding, index, writer) for index, writer in enumerate(writers)]
        for part, manifest in zip(parts, manifests, strict=True):
            write_manifest(part, manifest)
        encoding.report_end(writers)
        for part in parts:
            remove_partial_files(part)
        journal.unlink(missing_ok=True)
    return manifests[0]


@dataclass(frozen=True)
class _Job:
    """An encoding with checked options."""

    tokenizer: ShardTokenizer
    layout: Layout
    source: DocumentSource
    settings: ShardSettings
    encoder: DocumentEncoder

    @classmethod
    def checked(
        cls,
        tokenizer: ShardTokenizer,
        layout: Layout,
        source: DocumentSource,
        settings: ShardSettings,
        num_threads: int | None,
    ) -> _Job:
        """Check the options before a folder is touched."""
        if settings.append_separator and settings.document_separator is None:
            raise SpecialTokenError(
                "there is no document separator to append", hint='name one, for example "<|endoftext|>"'
            )
        separator = _id(tokenizer, settings.document_separator, "the document separator")
        first = _id(tokenizer, settings.prepended, "the prepended token")
        layout.header(layout.dtype(tokenizer.core.dtype), settings.shard_tokens)
        in_front = separator if layout.separator_in_front else None
        encoder = DocumentEncoder(
            tokenizer.core,
            settings.allowed_special,
            num_threads,
            prefix=list(dict.fromkeys(token for token in (in_front, first) if token is not None)),
            suffix=separator if settings.append_separator and in_front is None else None,
            stripped=in_front,
            split=(settings.split_seed, int(settings.validation_fraction * 2**64))
            if settings.validation_fraction
            else None,
        )
        return cls(tokenizer, layout, source, settings, encoder)

    @property
    def parts(self) -> list[Part]:
        """The parts of a split corpus; empty if it is not split."""
        return ["train", "validation"] if self.settings.validation_fraction else []

    @property
    def identity(self) -> dict[str, Any]:
        """What must be equal for another run to resume."""
        return as_json(
            {
                "bytemill_version": __version__,
                "tokenizer": self.tokenizer.fingerprint,
                "layout": self.layout.name,
                **self.settings.to_dict(),
                "corpus": self.source.description,
            }
        )

    def writer(self, folder: Path, state: WriterState | None) -> ShardWriter:
        return ShardWriter(
            folder,
            self.layout,
            self.layout.dtype(self.tokenizer.core.dtype),
            self.settings.shard_tokens,
            self.tokenizer.fingerprint,
            document_index=self.settings.document_index,
            state=state,
        )

    def manifest(self, encoding: Encoding, index: int, writer: ShardWriter) -> Manifest:
        shards, documents = writer.finish()
        counted, counts = encoding.parts[index], encoding.counts
        n_bytes = [*counted.source_bytes, *[0] * len(self.source.source_names)]
        return Manifest(
            bytemill_version=__version__,
            fingerprint=self.tokenizer.fingerprint,
            n_vocab=self.tokenizer.core.n_vocab,
            dtype=self.layout.dtype(self.tokenizer.core.dtype),
            n_tokens=writer.n_tokens,
            n_bytes=sum(counted.source_bytes),
            n_documents=counted.n_documents,
            n_replaced=counts.n_replaced,
            shards=shards,
            sources=tuple(
                SourceInfo(name=name, n_bytes=n)
                for name, n in zip(self.source.source_names, n_bytes, strict=False)
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


def _source(
    inputs: CorpusInputs | DocumentSource, errors: Errors, document_separator: str | None
) -> DocumentSource:
    if errors not in ("strict", "replace", "skip"):
        raise ShardError(f"errors is {errors!r}", hint='choose "strict", "replace" or "skip"')
    if hasattr(inputs, "read") and hasattr(inputs, "source_names"):
        if errors != "strict":
            raise ShardError("errors is an option of the Corpus", hint="set it there")
        return cast("DocumentSource", inputs)
    return Corpus(cast("CorpusInputs", inputs), errors=errors, documents=document_separator or "file")


def _settings(**values: Any) -> ShardSettings:
    settings = ShardSettings(**values)
    _check_number("shard_tokens", settings.shard_tokens, int, SHARD_TOKENS)
    _check_number("validation_fraction", settings.validation_fraction, float, VALIDATION_FRACTION)
    _check_number("split_seed", settings.split_seed, int, SPLIT_SEED)
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


def _errors_of(source: DocumentSource, errors: Errors) -> Errors:
    options = getattr(source, "options", None)
    return getattr(options, "errors", errors)


def _prepended(tokenizer: ShardTokenizer, prepend: str | bool) -> str | None:
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


def _already_complete(manifests: list[Manifest]) -> EncodeProgress:
    n_bytes = sum(manifest.n_bytes for manifest in manifests)
    return EncodeProgress(
        source=manifests[0].sources[-1].name,
        n_bytes=n_bytes,
        total_bytes=n_bytes,
        n_tokens=sum(manifest.n_tokens for manifest in manifests),
        n_shards=sum(len(manifest.shards) for manifest in manifests),
        already_complete=True,
    )
