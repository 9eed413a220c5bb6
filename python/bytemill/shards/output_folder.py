"""Where shards are written that are not encoded: a folder of this machine, or one in an object store."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import ShardError
from bytemill.shards.lock import OVERWRITE_HINT, lock_folder, lock_folders, remove_partial_files
from bytemill.shards.manifest import PARTS, Manifest, new_tag, write_manifest
from bytemill.shards.store_manifests import other_shards_replaced, publish, stored_manifest
from bytemill.shards.uploads import Uploads, work_folder
from bytemill.storage import StoreFolder, url_of

if TYPE_CHECKING:
    import os
    from collections.abc import Generator

    from bytemill.shards.manifest import ShardInfo


@dataclass
class OutputFolder:
    """A folder of this machine to which shards are written, and the store to which they go from there."""

    folder: Path
    tag: str = ""
    """Tag in the names of the files (`shard_name`)."""
    store: StoreFolder | None = None
    uploads: Uploads | None = None
    overwrite: bool = False

    def finished(self, shard: ShardInfo) -> None:
        """Upload a finished shard in the background."""
        if self.uploads is not None:
            self.uploads.add_shard(0, shard)
            self.uploads.wait_for_space()

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest, when all files are where they belong.

        Raises:
            OutputError: The folder cannot be written.
            ShardError: Another process has written shards to the store in the meantime.
            StorageError: The store cannot be written.
        """
        if self.store is None or self.uploads is None:
            write_manifest(self.folder, manifest)
            remove_partial_files(self.folder)
            return
        if manifest.documents is not None:
            self.uploads.add(0, manifest.documents)
        self.uploads.finish()
        publish(self.store, manifest, overwrite=self.overwrite)


@contextlib.contextmanager
def output_folder(path: str | os.PathLike[str], *, overwrite: bool) -> Generator[OutputFolder]:
    """Lock and prepare a folder, or its work folder on this machine for a URL. Nothing resumes.

    Args:
        path: The folder, or its URL.
        overwrite: Replace existing shards.

    Raises:
        OutputError: The folder cannot be written.
        ShardError: It contains other shards, or another process writes to it.
        StorageError: The store cannot be read or written.
    """
    url = url_of(path)
    if url is None:
        with lock_folders(Path(path), overwrite=overwrite):
            yield OutputFolder(Path(path))
        return
    store = StoreFolder(url)
    store.require_writable()
    if not overwrite and stored_manifest(store) is not None:
        raise ShardError(f"{url} already contains shards", hint=OVERWRITE_HINT)
    folder = work_folder(url)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        other_shards_replaced([store / name for name in PARTS], overwrite=overwrite),
        lock_folder(folder, overwrite=True),
        Uploads([folder], [store], can_resume=False) as uploads,
    ):
        yield OutputFolder(folder, new_tag(), store, uploads, overwrite)
    with contextlib.suppress(OSError):  # the file of the lock may stay
        folder.rmdir()
