"""Encode a corpus to a folder of token shards, in constant memory and resumable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from bytemill.shards import store_manifests
from bytemill.shards.complete import complete_manifests, remove_all_leftovers, restamp
from bytemill.shards.encode_parts import encode_parts, say_starting_over
from bytemill.shards.encode_to_store import encode_to_store
from bytemill.shards.journal import JOURNAL_NAME, read_journal
from bytemill.shards.lock import lock_folders, remove_partial_files, start_over
from bytemill.shards.manifest import (
    Manifest,
    write_manifest,
)
from bytemill.shards.pipeline import EncodeProgress
from bytemill.shards.recheck import compare_text
from bytemill.shards.settings import AllowedSpecial, EncodeSettings, EncodingJob, Errors, ShardTokenizer
from bytemill.storage import StoreFolder, url_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from bytemill.corpus import CorpusInputs, DocumentSource

CHECKPOINT_BYTES = 128 << 20
"""Bytes of text between checkpoints: about a second of work for one core, and 60 MB to sync."""


def encode_corpus(
    tokenizer: ShardTokenizer,
    inputs: CorpusInputs | DocumentSource,
    out_folder: str | os.PathLike[str],
    *,
    layout: str = EncodeSettings.layout,
    shard_tokens: int = EncodeSettings.shard_tokens,
    document_index: bool = EncodeSettings.document_index,
    allowed_special: AllowedSpecial = EncodeSettings.allowed_special,
    errors: Errors = EncodeSettings.errors,
    documents: str | None = EncodeSettings.documents,
    separators: bool = EncodeSettings.separators,
    prepend: str | bool = EncodeSettings.prepend,
    validation_fraction: float = EncodeSettings.validation_fraction,
    split_seed: int = EncodeSettings.split_seed,
    shuffle_seed: int | None = EncodeSettings.shuffle_seed,
    num_threads: int | None = None,
    progress: Callable[[EncodeProgress], None] | None = None,
    note: Callable[[str], None] | None = None,
    overwrite: bool = False,
    recheck: bool = False,
    checkpoint_bytes: int = CHECKPOINT_BYTES,
) -> Manifest:
    """Encode a corpus to a folder of shards, on this machine or in an object store.

    The files depend only on the tokenizer, the corpus and the options, not on the number of threads or on
    interruptions. After Ctrl-C, a crash or a full disk, the same call resumes from the last checkpoint. It starts over
    if a file has been damaged since, or if the corpus cannot be read twice (standard input, an iterator). Memory does
    not grow with the corpus.

    A folder that already contains the complete result is left unchanged. Each document is encoded by itself; a
    document without text has no tokens and no separator.

    Args:
        tokenizer: The tokenizer.
        inputs: A `Corpus`, or names of files, folders and globs, or "-" for standard input (see `Corpus`).
        out_folder: The output folder, or the URL of one, such as `s3://bucket/shards`. There the names of files have a
            tag, so that no other encoding writes the same ones, and the manifest is written last.
        layout: See `EncodeSettings`, as for the next ten.
        shard_tokens: Ids per shard.
        document_index: Write `documents.npy`.
        allowed_special: Special tokens recognised in the text.
        errors: Handling of malformed UTF-8.
        documents: What a document is in text files.
        separators: Append the special token between documents.
        prepend: Special token at the start of every document.
        validation_fraction: Fraction of the documents in the folder `validation`.
        split_seed: Seed of the hash that chooses them.
        shuffle_seed: Seed of a random order of the documents.
        num_threads: Threads of the encoder; by default one per core.
        progress: Called in this thread after every few megabytes. An exception that it raises stops the encoding.
        note: Called with a sentence if something is done that was not asked for, such as starting over.
        overwrite: Replace existing shards.
        recheck: If the folder contains the result already, compare all text with it: the corpus is encoded again, and
            every shard is compared and dropped. By default size, time and samples of each file are compared.
        checkpoint_bytes: Bytes of text between checkpoints; there is one every ten seconds too.

    Returns:
        The manifest of the shards, or of `train`.

    Raises:
        CorpusError: If the corpus cannot be read, is not UTF-8 (with `errors="strict"`) or is empty.
        SpecialTokenError: If a special token is unknown or not allowed.
        ShardError: If the folder contains other shards, or an option is out of range.
        OutputError: If the shards cannot be written, or the folder is, contains or lies in an input.
        StorageError: If an object store cannot be read or written. The same call resumes on the same machine.
    """
    settings = EncodeSettings(
        layout=layout,
        shard_tokens=shard_tokens,
        document_index=document_index,
        allowed_special=allowed_special,
        errors=errors,
        documents=documents,
        separators=separators,
        prepend=prepend,
        validation_fraction=validation_fraction,
        split_seed=split_seed,
        shuffle_seed=shuffle_seed,
    )
    return encode_with(
        tokenizer,
        inputs,
        out_folder,
        settings,
        num_threads=num_threads,
        progress=progress,
        note=note,
        overwrite=overwrite,
        recheck=recheck,
        checkpoint_bytes=checkpoint_bytes,
    )


def encode_with(
    tokenizer: ShardTokenizer,
    inputs: CorpusInputs | DocumentSource,
    out_folder: str | os.PathLike[str],
    settings: EncodeSettings,
    *,
    num_threads: int | None = None,
    progress: Callable[[EncodeProgress], None] | None = None,
    note: Callable[[str], None] | None = None,
    overwrite: bool = False,
    recheck: bool = False,
    checkpoint_bytes: int = CHECKPOINT_BYTES,
) -> Manifest:
    """Encode a corpus with these settings; see `encode_corpus`."""
    job = EncodingJob.of(tokenizer, inputs, settings, num_threads)
    job.check_output(out_folder)
    options: _RunOptions = {
        "checkpoint_bytes": checkpoint_bytes,
        "progress": progress,
        "note": note,
        "overwrite": overwrite,
    }
    if (url := url_of(out_folder)) is not None:
        return _encode_to_store(job, StoreFolder(url), recheck=recheck, **options)
    return _encode_to_folder(job, Path(out_folder), recheck=recheck, **options)


def _encode_to_store(
    job: EncodingJob, store: StoreFolder, *, recheck: bool, **options: Unpack[_RunOptions]
) -> Manifest:
    store.require_writable()
    stores = job.stores(store)
    complete = (
        None
        if options["overwrite"]
        else store_manifests.complete_in_store(stores, job.request, recheck=recheck)
    )
    if complete is None:
        with store_manifests.other_shards_replaced(job.other_stores(store), overwrite=options["overwrite"]):
            return encode_to_store(job, store, **options)[0]
    if recheck:
        store_manifests.restamp(stores, complete, compare_text(job, complete, options["progress"]))
    store_manifests.remove_leftovers(store, stores, options["note"])
    if options["progress"]:
        options["progress"](_already_complete(complete))
    return complete[0]


def _encode_to_folder(
    job: EncodingJob, folder: Path, *, recheck: bool, **options: Unpack[_RunOptions]
) -> Manifest:
    overwrite, progress = options["overwrite"], options["progress"]
    parts = job.folders(folder)
    if not overwrite and (complete := complete_manifests(parts, job.request, recheck=recheck)):
        if recheck:
            restamp(parts, complete, compare_text(job, complete, progress))
        remove_all_leftovers(folder, parts, options["note"])
        if progress:
            progress(_already_complete(complete))
        return complete[0]
    journal = folder / JOURNAL_NAME
    with lock_folders(folder, job.parts, overwrite=overwrite, journal=journal) as resumes:
        checkpoint = read_journal(folder, job.identity) if resumes else None
        if checkpoint is not None and (problem := job.resume_problem(folder, checkpoint)):
            say_starting_over(options["note"], folder, problem)
            for path in dict.fromkeys([folder, *parts]):
                start_over(path)
            checkpoint = None
        manifests = encode_parts(
            job, folder, checkpoint, checkpoint_bytes=options["checkpoint_bytes"], progress=progress
        )
        for part, manifest in zip(parts, manifests, strict=True):
            write_manifest(part, manifest)
        for part in parts:
            remove_partial_files(part)
        journal.unlink(missing_ok=True)
    return manifests[0]


class _RunOptions(TypedDict):
    """The other options of `encode_corpus`."""

    checkpoint_bytes: int
    progress: Callable[[EncodeProgress], None] | None
    note: Callable[[str], None] | None
    overwrite: bool


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
