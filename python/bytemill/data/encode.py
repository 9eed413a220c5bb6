"""Encode a corpus to a folder of token shards, in constant memory and resumable."""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.corpus import Corpus
from bytemill.data.conversations import ConversationError, is_pair
from bytemill.data.manifest import MANIFEST_NAME, PAIR, ConversationSettings
from bytemill.data.pipeline import EncodeProgress, encode_parts
from bytemill.data.settings import AllowedSpecial, EncodeSettings, EncodingJob, Errors, ShardTokenizer
from bytemill.data.target import ShardTarget, target_of
from bytemill.data.unfinished import OVERWRITE_HINT
from bytemill.errors import CorpusError, ShardError, TokenizerError
from bytemill.storage import exists, shown

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence

    from bytemill.corpus import CorpusInputs, DocumentSource
    from bytemill.data.manifest import Manifest, ShardInfo
    from bytemill.tokenizer import Tokenizer


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
        MissingExtraError: If a URL or the tokenizer needs a library that is not installed.
        MemoryError: If a document, its ids or a buffer do not fit into memory.
        TypeError: If `inputs` are neither names nor a corpus.
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
    target = target_of(out_folder, job.parts)
    if not overwrite and (complete := finished_shards(job, target, note, progress, recheck=recheck)):
        if progress is not None:
            progress(_already_complete(complete))
        return complete[0]
    with target.opened(overwrite=overwrite, checkpoints=job.source.can_resume) as out:
        manifests = encode_parts(
            job,
            out.folder,
            out.checkpoint(job, note),
            checkpoint_bytes=checkpoint_bytes,
            progress=progress if out.uploads is None else out.uploads.reporting(progress),
            tag=out.tag,
            finished=out.uploads and out.uploads.add_shard,
            saved=out.uploads and out.uploads.keep_for,
        )
        return out.publish(manifests, job.request)[0]


def encode_conversations(
    tokenizer: Tokenizer,
    inputs: CorpusInputs,
    out_folder: str | os.PathLike[str],
    *,
    max_tokens: int | None = None,
    layout: str = EncodeSettings.layout,
    shard_tokens: int = EncodeSettings.shard_tokens,
    validation_fraction: float = EncodeSettings.validation_fraction,
    split_seed: int = EncodeSettings.split_seed,
    shuffle_seed: int | None = EncodeSettings.shuffle_seed,
    progress: Callable[[EncodeProgress], None] | None = None,
    note: Callable[[str], None] | None = None,
    overwrite: bool = False,
    recheck: bool = False,
) -> list[Manifest]:
    """Encode conversations to shards with masks of what the assistant says.

    Every document is a conversation: its ids are those of `Tokenizer.apply_chat_template`, and its mask is that of
    `render_conversation`. `documents.npy` has their ends.

    Args:
        tokenizer: A tokenizer with a chat template.
        inputs: Names of files of JSON lines. A row has `messages`, `conversations` (with `from` and `value`), or
            `prompt` with `completion` or `response`; and optionally `tools` and `system`. Rows with `chosen` and
            `rejected` make two sets of shards in the folders of these names, in the same order. Messages of a prompt
            are no targets.
        out_folder: See `encode_corpus`.
        max_tokens: Most ids of a conversation. Whole turns at its end are left out, and the conversation if the first
            turn does not fit.
        layout: See `encode_corpus`, as for the others.
        shard_tokens: Ids per shard.
        validation_fraction: Fraction of the conversations in the folder `validation`.
        split_seed: Seed of the hash that chooses them.
        shuffle_seed: Seed of a random order.
        progress: See `encode_corpus`.
        note: See `encode_corpus`.
        overwrite: Replace existing shards.
        recheck: Compare all text with existing shards.

    Returns:
        The manifest of the shards, or those of `chosen` and `rejected`; of a split corpus those of `train`.

    Raises:
        TokenizerError: There is no chat template, or a row has no conversation that it accepts.
        BytemillError: As for `encode_corpus`.
    """
    settings = EncodeSettings(
        layout=layout,
        shard_tokens=shard_tokens,
        validation_fraction=validation_fraction,
        split_seed=split_seed,
        shuffle_seed=shuffle_seed,
        conversations=ConversationSettings(max_tokens=max_tokens),
    )
    source = Corpus(inputs, format="text", documents="line")
    with located_rows(source):
        return [
            encode_with(
                tokenizer,
                source,
                folder,
                each,
                progress=progress,
                note=note,
                overwrite=overwrite,
                recheck=recheck,
            )
            for folder, each in conversation_sets(source, Path(out_folder), settings)
        ]


def conversation_sets(
    source: Corpus, out_folder: Path, settings: EncodeSettings
) -> list[tuple[Path, EncodeSettings]]:
    """Return the folder and the settings of each set of conversations: of the two answers if the first row has them.

    Raises:
        ConversationError: The first row is no JSON object.
        CorpusError: The corpus can be read only once.
    """
    if not source.can_resume:
        raise CorpusError(
            f"{source.source_names[0]} can be read only once", hint="save the conversations to a file"
        )
    row = b""
    with closing(source.read()) as batches:
        for batch in batches:
            row += bytes(batch.data[: batch.ends[0]])
            if not (batch.is_open and len(batch.ends) == 1):
                break
    with located_rows(source):
        has_pairs = is_pair(row.decode())
    if settings.conversations is None or not has_pairs:
        return [(out_folder, settings)]
    if exists(out_folder / MANIFEST_NAME):
        raise ShardError(f"{shown(out_folder)} already contains other shards", hint="choose another folder")
    return [
        (out_folder / side, replace(settings, conversations=replace(settings.conversations, side=side)))
        for side in PAIR
    ]


@contextmanager
def located_rows(source: Corpus) -> Generator[None]:
    """Add the file and the line to a `ConversationError` of the block."""
    try:
        yield
    except ConversationError as error:
        if not error.row:  # it is located already
            raise
        raise ConversationError(
            TokenizerError(f"{_place(source, error.row)}: {error}", hint=error.hint), ""
        ) from error


def _place(source: Corpus, row: str) -> str:
    for name in source.input_files:
        with (
            suppress(OSError, UnicodeDecodeError),
            Path(name).open(encoding="utf-8-sig", newline="\n") as lines,
        ):
            for number, line in enumerate(lines, 1):
                if line.rstrip("\r\n") == row:
                    return f"{name}:{number}"
    return f"{source.source_names[0]}, row {row:.80}"


def finished_shards(
    job: EncodingJob,
    target: ShardTarget,
    note: Callable[[str], None] | None,
    progress: Callable[[EncodeProgress], None] | None = None,
    *,
    recheck: bool,
) -> list[Manifest] | None:
    """Return the manifests of the result if it is there already; raises as `encode_corpus` if other shards are.

    Args:
        job: The encoding.
        target: Where the result goes.
        note: Called with a sentence about what a killed run left, which is removed.
        progress: As for `encode_corpus`, of a recheck.
        recheck: Compare all text with the shards.
    """
    complete = target.complete(job.request, recheck=recheck)
    if complete is None:
        return None
    if recheck:
        target.restamp(complete, compare_text(job, complete, progress))
    target.remove_leftovers(note)
    return complete


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


def compare_text(
    job: EncodingJob,
    manifests: Sequence[Manifest],
    progress: Callable[[EncodeProgress], None] | None = None,
) -> list[Manifest]:
    """Encode a corpus again and compare every shard with the manifests. A new shard is removed when it is compared.

    Args:
        job: The encoding.
        manifests: Manifest of each part of the corpus.
        progress: As for `encode_corpus`.

    Returns:
        The manifests with the stamps that the sources have now.

    Raises:
        ShardError: The text is another one; names the first shard that differs.
        CorpusError: The corpus cannot be read.
        OutputError: The temporary folder cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="bytemill-") as name:
        folder = Path(name)
        n_compared = [0] * len(manifests)

        def compare(index: int, shard: ShardInfo) -> None:
            expected = manifests[index].shards[n_compared[index] :][:1]
            if [_hashes(shard)] != [_hashes(each) for each in expected]:
                raise _differs(shard.file)
            n_compared[index] += 1
            for info in (shard, *shard.sidecars):
                (job.folders(folder)[index] / info.file).unlink()

        for part in job.folders(folder):
            part.mkdir(exist_ok=True)
        found = encode_parts(
            job, folder, None, checkpoint_bytes=sys.maxsize, progress=progress, finished=compare
        )
    for before, now in zip(manifests, found, strict=True):
        if len(before.shards) != len(now.shards):
            raise _differs(before.shards[len(now.shards)].file)
        if before.documents and now.documents and before.documents.sha256 != now.documents.sha256:
            raise _differs(before.documents.file)
    return [_restamped(before, now) for before, now in zip(manifests, found, strict=True)]


def _restamped(before: Manifest, now: Manifest) -> Manifest:
    stamps = [source.stamp for source in now.sources]
    sources = (replace(source, stamp=stamp) for source, stamp in zip(before.sources, stamps, strict=True))
    return replace(before, sources=tuple(sources))


def _hashes(shard: ShardInfo) -> list[str]:
    return [info.sha256 for info in (shard, *shard.sidecars)]


def _differs(file: str) -> ShardError:
    return ShardError(
        f"the text is not that of the shards: {file} would have other content", hint=OVERWRITE_HINT
    )
