"""Encode a corpus to shards in an object store.

Each shard is written to a work folder on this machine, uploaded while the next ones are written, and removed here. The
work folder keeps the journal, so the same call on the same machine resumes.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from bytemill.shards.encode_parts import encode_parts, say_starting_over
from bytemill.shards.journal import JOURNAL_NAME, read_journal
from bytemill.shards.lock import lock_folder, start_over
from bytemill.shards.manifest import new_tag
from bytemill.shards.store_manifests import publish
from bytemill.shards.uploads import Uploads, work_folder
from bytemill.system.atomic_files import write_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.shards.journal import Checkpoint
    from bytemill.shards.manifest import Manifest
    from bytemill.shards.pipeline import EncodeProgress
    from bytemill.shards.settings import EncodingJob
    from bytemill.storage import StoreFolder

_TAG_NAME = "tag.txt"


def encode_to_store(
    job: EncodingJob,
    store: StoreFolder,
    *,
    checkpoint_bytes: int,
    progress: Callable[[EncodeProgress], None] | None,
    note: Callable[[str], None] | None,
    overwrite: bool,
) -> list[Manifest]:
    """Encode a corpus to shards in a store that does not have them, and return the manifests of the parts.

    Raises:
        ShardError: Another process is encoding to this URL on this machine, or has written other shards to it.
        OutputError: The work folder cannot be written.
        StorageError: The store cannot be written.
    """
    folder = work_folder(store.url)
    stores = job.stores(store)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, overwrite=overwrite, journal=folder / JOURNAL_NAME) as resumes:
        for part in job.folders(folder):
            part.mkdir(exist_ok=True)
        tag, checkpoint = _attempt(folder, job, note, resumes=resumes)
        with Uploads(job.folders(folder), stores, can_resume=job.source.can_resume) as uploads:
            if checkpoint is not None:
                uploads.resume(checkpoint)
            manifests = encode_parts(
                job,
                folder,
                checkpoint,
                checkpoint_bytes=checkpoint_bytes,
                progress=uploads.reporting(progress),
                tag=tag,
                finished=uploads.add_shard,
                saved=uploads.keep_for,
            )
            for index, manifest in enumerate(manifests):
                if manifest.documents is not None:
                    uploads.add(index, manifest.documents)
            uploads.finish()
        published = [
            publish(part, manifest, job.request, overwrite=overwrite)
            for part, manifest in zip(stores, manifests, strict=True)
        ]
        _clear(folder, job)
    with contextlib.suppress(OSError):  # the file of the lock may stay
        folder.rmdir()
    return published


def _attempt(
    folder: Path, job: EncodingJob, note: Callable[[str], None] | None, *, resumes: bool
) -> tuple[str, Checkpoint | None]:
    """Return the tag of the encoding, and where it resumes."""
    path = folder / _TAG_NAME
    if resumes and path.exists() and re.fullmatch("[0-9a-f]{12}", tag := path.read_text()):
        checkpoint = read_journal(folder, job.identity)
        problem = checkpoint and job.resume_problem(folder, checkpoint, tag=tag, is_uploaded=True)
        if not problem:
            return tag, checkpoint
        say_starting_over(note, folder, problem)
        for part in dict.fromkeys([folder, *job.folders(folder)]):
            start_over(part)
    tag = new_tag()
    write_text(path, tag)
    return tag, None


def _clear(folder: Path, job: EncodingJob) -> None:
    """Remove what is left in the work folder."""
    for name in (JOURNAL_NAME, _TAG_NAME):
        (folder / name).unlink(missing_ok=True)
    for part in job.folders(folder):
        for path in part.iterdir():
            if path.is_file() and path.name.startswith((".shard_", "shard_", ".documents", "documents")):
                path.unlink(missing_ok=True)
        if part != folder:
            part.rmdir()
