"""From a corpus to a folder of token shards, in constant memory, and from where an interrupted run was."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

from bytemill._core import DocumentEncoder, __version__
from bytemill.corpus import Corpus, DocumentSource
from bytemill.corpus.sources import empty_corpus
from bytemill.errors import ShardError, SpecialTokenError
from bytemill.shards.complete import Wanted, complete_manifests, reproducible
from bytemill.shards.journal import JOURNAL_NAME, as_json, read_journal
from bytemill.shards.layouts import layout_named
from bytemill.shards.lock import claim_folder, remove_growing
from bytemill.shards.manifest import Manifest, ShardSettings, SourceInfo, write_manifest
from bytemill.shards.pipeline import EncodeProgress, Encoding
from bytemill.shards.shard_writer import ShardWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping

    from bytemill._core import Encoder
    from bytemill.corpus import CorpusInputs
    from bytemill.shards.layouts import Layout

AllowedSpecial: TypeAlias = "Literal['all', 'none', 'none_raise'] | Collection[str]"
Errors: TypeAlias = Literal["strict", "replace", "skip"]
Part: TypeAlias = Literal["train", "validation"]

CHECKPOINT_BYTES = 128 << 20
"""Text after which files are synced and the journal is written: a second's work for a core, and 60 MB to sync."""
_BEGIN_TOKENS = ("<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>", "[BOS]", "<|endoftext|>")
"""What tokenizers call the token that documents begin with; GPT-2's begin with the one that ends them."""


class ShardTokenizer(Protocol):
    """What a tokenizer must offer to write shards."""

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
    """Encode a corpus to `out_folder` as shards of `shard_tokens` ids each, the last one excepted; their manifest.

    `inputs` are a `Corpus`, or files, globs and "-", or an iterable of texts, of which a `Corpus` is made. No token
    reaches across the end of a document. `document_separator` names the special token that stands between documents:
    it ends documents where `inputs` are files and no `Corpus` says otherwise, and with `append_separator` is appended
    to every document that does not end with it. `prepend` names one that every document begins with (True: the one
    that the tokenizer has for that). In a `layout` whose readers expect separators in front of documents they are
    moved there. A document without text has no tokens, thus no separator either.

    With `document_index` the file `documents.npy` tells where documents end. With a `validation_fraction` above 0
    documents are divided by a hash of their text (of its first MiB), which `split_seed` varies, among the folders
    `train` and `validation` in `out_folder`; equal documents fall on the same side. The manifest is that of `train`.

    What is written depends on nothing but tokenizer, corpus and options: every file is the same for any number of
    threads, and after an interruption. Every `checkpoint_bytes` of text (or ten seconds) `progress.json` notes how far
    the work has come, and after Ctrl-C, a crash or a full disk the same call goes on from there, unless the corpus is
    one that cannot be read again (standard input, an iterable): then it starts afresh. Memory does not grow with the
    corpus. `progress` is called after each block of a few megabytes, in this thread; an exception that it raises stops
    the work.

    A folder that holds the complete result of the same call is left as it is, and its manifest returned; one that
    holds anything else, or the beginning of it, is refused unless `overwrite`.

    Raises `CorpusError` for a corpus that cannot be read, is not UTF-8 (with `errors="strict"`) or is empty,
    `SpecialTokenError` for an unknown special token, `ShardError` for a folder that must not be replaced, and
    `OutputError` where the shards cannot be written.
    """
    source = _source(inputs, errors, document_separator)
    job = _Job.checked(
        tokenizer,
        layout_named(layout),
        source,
        ShardSettings(
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
    wanted = Wanted(tokenizer.fingerprint, layout, job.settings, source)
    if not overwrite and (complete := complete_manifests(folder, parts, wanted)):
        if progress:
            progress(_already_complete(complete))
        return complete[0]
    with contextlib.ExitStack() as stack:
        journal = folder / JOURNAL_NAME
        goes_on = [
            stack.enter_context(claim_folder(place, overwrite=overwrite, journal=journal))
            for place in dict.fromkeys([folder, *parts])
        ]
        checkpoint = read_journal(folder, job.identity) if all(goes_on) else None
        encoding = Encoding(
            folder, source, job.identity, checkpoint, checkpoint_bytes=checkpoint_bytes, progress=progress
        )
        states = checkpoint.shards if checkpoint else [None] * len(parts)
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
            remove_growing(part)
        journal.unlink(missing_ok=True)
    return manifests[0]


@dataclass(frozen=True)
class _Job:
    """What is to be done, checked."""

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
        """Refuses what is wrong with the options before a folder is touched."""
        if settings.shard_tokens < 1:
            raise ShardError(f"shard_tokens is {settings.shard_tokens}; a shard holds at least one token")
        if not 0 <= settings.validation_fraction < 1:
            raise ShardError(
                f"validation_fraction is {settings.validation_fraction}",
                hint="give a fraction of the documents, such as 0.01",
            )
        if not 0 <= settings.split_seed < 1 << 64:
            raise ShardError(f"split_seed is {settings.split_seed}; it has 64 bits")
        if settings.append_separator and settings.document_separator is None:
            raise SpecialTokenError(
                "there is no document separator to append", hint='name one, for example "<|endoftext|>"'
            )
        separator = _id(tokenizer, settings.document_separator, "the document separator")
        first = _id(tokenizer, settings.prepended, "the token to begin documents with,")
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
        """The parts of a split corpus, none where it is not split."""
        return ["train", "validation"] if self.settings.validation_fraction else []

    @property
    def identity(self) -> dict[str, Any]:
        """What has to be the same for the work to go on."""
        return as_json(
            {
                "bytemill_version": __version__,
                "tokenizer": self.tokenizer.fingerprint,
                "layout": self.layout.name,
                **dataclasses.asdict(self.settings),
                "corpus": self.source.description,
            }
        )

    def writer(self, folder: Path, state: dict[str, Any] | None) -> ShardWriter:
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
            sources=tuple(map(SourceInfo, self.source.source_names, n_bytes)),
            settings=self.settings,
            layout=self.layout.name,
            documents=documents,
            separator_id=self.tokenizer.special_tokens.get(self.settings.document_separator or ""),
            n_empty_documents=counted.n_empty,
            n_skipped_bytes=counts.n_skipped_bytes,
            n_broken_documents=counts.n_broken,
            part=self.parts[index] if self.parts else None,
            corpus=reproducible(self.source.description),
        )


def _source(
    inputs: CorpusInputs | DocumentSource, errors: Errors, document_separator: str | None
) -> DocumentSource:
    if errors not in ("strict", "replace", "skip"):
        raise ShardError(f"errors is {errors!r}", hint='give "strict", "replace" or "skip"')
    if hasattr(inputs, "read") and hasattr(inputs, "source_names"):
        if errors != "strict":
            raise ShardError("a corpus that is made already knows its errors", hint="leave out errors")
        return cast("DocumentSource", inputs)
    return Corpus(cast("CorpusInputs", inputs), errors=errors, documents=document_separator or "file")


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
            "this tokenizer has no special token that is known to begin documents",
            hint=f"name one (--bos); its special tokens: {known}",
        )
    return found


def _id(tokenizer: ShardTokenizer, token: str | None, what: str) -> int | None:
    if token is None:
        return None
    if token not in tokenizer.special_tokens:
        known = ", ".join(tokenizer.special_tokens) or "none"
        raise SpecialTokenError(
            f"{what} {token!r} is no special token of this tokenizer", hint=f"its special tokens: {known}"
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
