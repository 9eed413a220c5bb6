"""Files of shards that go to an object store while the next ones are written."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from bytemill.errors import ShardError
from bytemill.shards.lock import held
from bytemill.storage.store import RequestPool
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path
    from typing import Self

    from bytemill.shards.journal import Checkpoint
    from bytemill.shards.manifest import FileInfo, ShardInfo
    from bytemill.storage import StoreFolder

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
