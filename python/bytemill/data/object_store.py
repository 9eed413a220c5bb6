"""Shards in an object store: uploads, manifests, and what no manifest names.

The files of shards have the tag of their encoding in their names, so that no two encodings write the same object. The
manifest is written last, and only if there is none: of several encodings the first wins.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bytemill.data.manifest import (
    MANIFEST_NAME,
    Manifest,
    decode_manifest,
    files_of,
    is_shard_name,
    is_sidecar_name,
    manifest_document,
)
from bytemill.data.request import difference_from
from bytemill.data.unfinished import OVERWRITE_HINT, PLAN_NAME, UNITS_NAME, held
from bytemill.errors import ShardError, StorageError
from bytemill.storage.store import RequestPool
from bytemill.system.atomic_files import indented_json
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from concurrent.futures import Future
    from datetime import datetime
    from pathlib import Path
    from typing import Self

    from bytemill.data.manifest import FileInfo, ShardInfo
    from bytemill.data.request import Request
    from bytemill.data.unfinished import Checkpoint
    from bytemill.storage import StoreFolder
    from bytemill.storage.store import Version


_UPLOADS_AT_ONCE = 2
_MAX_WAITING = 4
"""Files that may wait for their upload before the writer waits: they take space on this machine."""

_Event = TypeVar("_Event")


def work_folder(url: str) -> Path:
    """Return the folder of this machine in which shards for a store are written."""
    return cache_folder("encoding") / hashlib.sha256(url.encode()).hexdigest()[:24]


def remove_work_folder(url: str) -> bool:
    """Remove the work folder of an encoding that is finished; return whether there was one that nobody uses."""
    folder = work_folder(url)
    if not folder.is_dir():
        return False
    with contextlib.suppress(ShardError), held(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return True
    return False


class Uploads:
    """Uploads finished files in the background and removes them from this machine.

    A checkpoint may have part of a shard that is finished by now, so a file is kept until a checkpoint has all of it.

    Args:
        folders: Folders of the parts of the corpus on this machine.
        stores: Their folders in the store.
        can_resume: There are checkpoints; otherwise a file is removed at once.

    Raises:
        StorageError: A file could not be uploaded. Raised by every method.
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

    def reporting(self, progress: Callable[[_Event], None] | None) -> Callable[[_Event], None]:
        """Return a callback that reports progress and waits while too many files wait."""

        def report(event: _Event) -> None:
            if progress is not None:
                progress(event)
            self.wait_for_space()

        return report

    def wait_for_space(self) -> None:
        """Wait while too many files wait for their upload."""
        while self._waiting and (self._waiting[0].done() or len(self._waiting) > _MAX_WAITING):
            self._waiting.popleft().result()

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


def _files(checkpoint: Checkpoint) -> list[tuple[int, FileInfo | ShardInfo]]:
    """Return the files of finished shards, with the number of their part."""
    return [
        (index, info)
        for index, state in enumerate(checkpoint.writers)
        for shard in state.shards
        for info in (*shard.sidecars, shard)
    ]


_AGAIN_HINT = "write them again with --overwrite (overwrite=True)"


@dataclass(frozen=True)
class StoredManifest:
    """A manifest in a store."""

    manifest: Manifest
    version: Version
    written_at: datetime
    """Rounded down to a second by most stores."""


def stored_manifest(folder: StoreFolder) -> StoredManifest | None:
    """Read the manifest of a folder, or return None if there is none.

    Raises:
        ShardError: The manifest is damaged.
        StorageError: The store cannot be read.
    """
    found = folder.get(MANIFEST_NAME)
    if found is None:
        return None
    manifest = decode_manifest(found.data, f"{folder}/{MANIFEST_NAME}")
    return StoredManifest(manifest, found.version, found.modified)


def stored_size_problems(folder: StoreFolder, manifest: Manifest) -> list[str]:
    """Return the files of a manifest that are missing or have the wrong size."""
    sizes = folder.list()
    problems: list[str] = []
    for info in files_of(manifest):
        n_bytes = sizes.get(info.file)
        if n_bytes is None:
            problems.append(f"{info.file} is missing")
        elif n_bytes != info.n_bytes:
            problems.append(f"{info.file} has {n_bytes:,} bytes, the manifest says {info.n_bytes:,}")
    return problems


@contextlib.contextmanager
def other_shards_replaced(folders: Sequence[StoreFolder], *, overwrite: bool) -> Generator[None]:
    """Remove the shards of folders after the block, which writes others that would be read with or instead of them.

    Args:
        folders: The folders.
        overwrite: Remove shards. Otherwise they are an error before the block.

    Raises:
        ShardError: There are shards, and `overwrite` is False.
        StorageError: The store cannot be read or written.
    """
    found = [folder for folder in folders if stored_manifest(folder) is not None]
    if found and not overwrite:
        raise ShardError(f"{found[0]} already contains shards", hint=OVERWRITE_HINT)
    yield
    for folder in found:
        folder.delete([MANIFEST_NAME])
        folder.delete(unnamed_files(folder, None))


def publish(
    folder: StoreFolder, manifest: Manifest, request: Request | None = None, *, overwrite: bool
) -> Manifest:
    """Write the manifest of a folder whose files are there, and remove the files that it does not name.

    If another encoding of the same corpus was first, its manifest counts.

    Args:
        folder: The folder.
        manifest: The manifest.
        request: The requested shards; by default no others will do.
        overwrite: Replace the manifest of other shards.

    Returns:
        The manifest in the folder.

    Raises:
        ShardError: Another encoding has written other shards in the meantime.
        StorageError: A file of the manifest is missing, or the store cannot be written.
    """
    before = stored_manifest(folder)
    if before is None or overwrite:
        version = before.version if before else None
        problems = stored_size_problems(folder, manifest)
        if not problems and folder.replace(
            MANIFEST_NAME, indented_json(manifest_document(manifest)), version
        ):
            remove_unnamed(folder, manifest)
            if overwrite and (problems := stored_size_problems(folder, manifest)):
                # Who replaced shards at the same time has removed these as files that no manifest names.
                raise StorageError(f"the shards in {folder} are damaged: {problems[0]}", hint=_AGAIN_HINT)
            return manifest
        stored = stored_manifest(folder)
        # Who publishes a manifest removes the files of others.
        if problems and (stored.version if stored else None) == version:
            raise StorageError(f"{folder}: {problems[0]}", hint=_AGAIN_HINT)
        before = stored
    difference = "they are gone" if before is None else "they were not there before"
    if before is not None and request is not None:
        difference = difference_from(before.manifest, request)
    if before is None or difference:
        folder.delete(info.file for info in files_of(manifest))
        raise ShardError(f"another process has written shards to {folder}: {difference}", hint=OVERWRITE_HINT)
    remove_unnamed(folder, before.manifest)
    return before.manifest


def remove_unnamed(folder: StoreFolder, manifest: Manifest) -> None:
    """Remove the files of encodings that did not end, which the manifest does not name."""
    folder.delete(unnamed_files(folder, manifest))


def unnamed_files(folder: StoreFolder, manifest: Manifest | None) -> dict[str, int]:
    """Return the names and sizes of files of shards that the manifest does not name: of encodings that did not end."""
    if not folder.is_writable:
        return {}
    named = {info.file for info in files_of(manifest)} if manifest else set[str]()
    return {
        name: n_bytes
        for name, n_bytes in folder.list().items()
        if name not in named and (is_shard_name(name) or is_sidecar_name(name))
    }


def leftovers(folder: StoreFolder, parts: Sequence[StoreFolder]) -> list[str]:
    """Return the objects that a finished encoding has left: results of units, their plan, and files of shards.

    Objects that are younger than the manifests may belong to an encoding that replaces these shards.

    Args:
        folder: The output folder.
        parts: The folders of the parts of the corpus, or the output folder itself.

    Raises:
        ShardError: A manifest is damaged.
        StorageError: The store cannot be read.
    """
    found = [stored_manifest(part) for part in parts]
    if not folder.is_writable or not all(found):
        return []
    written_at = max(stored.written_at for stored in found if stored is not None)
    prefixes = [part.url.removeprefix(folder.url).lstrip("/") for part in parts]
    named = {
        f"{prefix}/{info.file}".lstrip("/")
        for prefix, stored in zip(prefixes, found, strict=True)
        if stored is not None
        for info in files_of(stored.manifest)
    }

    def is_ours(name: str) -> bool:
        parent, _, base = name.rpartition("/")
        is_file = parent in prefixes and (is_shard_name(base) or is_sidecar_name(base)) and name not in named
        return name == PLAN_NAME or name.startswith(f"{UNITS_NAME}/") or is_file

    return [name for name, time in folder.times().items() if time <= written_at and is_ours(name)]
