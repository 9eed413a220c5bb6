"""Encode a corpus to shards in an object store.

Each shard is written to a work folder on this machine, uploaded while the next ones are written, and removed here. The
work folder keeps the journal, so the same call on the same machine resumes.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections import deque
from typing import TYPE_CHECKING

from bytemill.shards.encode_parts import encode_parts
from bytemill.shards.journal import JOURNAL_NAME, read_journal
from bytemill.shards.lock import lock_folder
from bytemill.shards.manifest import new_tag
from bytemill.shards.store_manifests import publish
from bytemill.storage.requests import RequestPool
from bytemill.system.atomic_files import write_text
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path
    from typing import Self

    from bytemill.shards.encode_job import EncodingJob
    from bytemill.shards.journal import Checkpoint
    from bytemill.shards.manifest import FileInfo, Manifest, ShardInfo
    from bytemill.shards.pipeline import EncodeProgress
    from bytemill.storage import StoreFolder

_UPLOADS_AT_ONCE = 2
_MAX_WAITING = 4
"""Files that may wait for their upload before the encoder waits: they take space on this machine."""
_TAG_NAME = "tag.txt"


def work_folder(url: str) -> Path:
    """Return the folder of this machine in which shards for a store are written."""
    return cache_folder("encoding") / hashlib.sha256(url.encode()).hexdigest()[:24]


def encode_to_store(
    job: EncodingJob,
    store: StoreFolder,
    *,
    checkpoint_bytes: int,
    progress: Callable[[EncodeProgress], None] | None,
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
        tag, checkpoint = _attempt(folder, job, resumes=resumes)
        with _Uploads(job.folders(folder), stores, can_resume=job.source.can_resume) as uploads:
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


def _attempt(folder: Path, job: EncodingJob, *, resumes: bool) -> tuple[str, Checkpoint | None]:
    """Return the tag of the encoding, and where it resumes."""
    path = folder / _TAG_NAME
    if resumes and path.exists() and re.fullmatch("[0-9a-f]{12}", tag := path.read_text()):
        return tag, read_journal(folder, job.identity)
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


def _files(checkpoint: Checkpoint) -> list[tuple[int, FileInfo | ShardInfo]]:
    """Return the files of finished shards, with the number of their part."""
    return [
        (index, info)
        for index, state in enumerate(checkpoint.writers)
        for shard in state.shards
        for info in (*shard.sidecars, shard)
    ]


class _Uploads:
    """Uploads finished files in the background and removes them from this machine.

    A checkpoint may have part of a shard that is finished by now, so a file is kept until a checkpoint has all of it.
    """

    def __init__(self, folders: list[Path], stores: list[StoreFolder], *, can_resume: bool) -> None:
        self._can_resume = can_resume
        self._lock = threading.Lock()
        self._uploaded: set[Path] = set()
        self._done: set[Path] = set()
        """Files that a checkpoint has, but which are not uploaded yet."""
        self._folders = folders
        self._stores = stores
        self._pool: RequestPool[tuple[int, str], None] = RequestPool(self._upload, _UPLOADS_AT_ONCE)
        self._waiting: deque[Future[None]] = deque()

    def add_shard(self, index: int, shard: ShardInfo) -> None:
        """Upload the files of a shard of part `index`."""
        for info in (*shard.sidecars, shard):
            self.add(index, info)

    def add(self, index: int, info: FileInfo | ShardInfo) -> None:
        """Upload a file of part `index`."""
        self._waiting.append(self._pool.submit((index, info.file)))

    def resume(self, checkpoint: Checkpoint) -> None:
        """Upload the shards of a checkpoint that are still on this machine."""
        self.keep_for(checkpoint)
        for index, info in _files(checkpoint):
            if (self._folders[index] / info.file).exists():
                self.add(index, info)

    def keep_for(self, checkpoint: Checkpoint) -> None:
        """Keep what a run that resumes at a checkpoint needs, and not more."""
        paths = {self._folders[index] / info.file for index, info in _files(checkpoint)}
        with self._lock:
            uploaded = paths & self._uploaded
            self._uploaded -= uploaded
            self._done = paths - uploaded
        for path in uploaded:
            path.unlink(missing_ok=True)

    def reporting(
        self, progress: Callable[[EncodeProgress], None] | None
    ) -> Callable[[EncodeProgress], None]:
        """Return a callback that reports progress and waits while too many files wait."""

        def report(event: EncodeProgress) -> None:
            if progress is not None:
                progress(event)
            while self._waiting and (self._waiting[0].done() or len(self._waiting) > _MAX_WAITING):
                self._waiting.popleft().result()

        return report

    def finish(self) -> None:
        """Wait until all files are uploaded."""
        while self._waiting:
            self._waiting.popleft().result()

    def _upload(self, item: tuple[int, str]) -> None:
        index, name = item
        path = self._folders[index] / name
        self._stores[index].upload(name, path)
        with self._lock:
            is_done = path in self._done or not self._can_resume
            if not is_done:
                self._uploaded.add(path)
        if is_done:
            path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.close()
