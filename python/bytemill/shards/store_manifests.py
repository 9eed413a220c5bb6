"""Shards in an object store: their manifests, and what no manifest names.

The files of shards have the tag of their encoding in their names, so that no two encodings write the same object. The
manifest is written last, and only if there is none: of several encodings the first wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.errors import ShardError, StorageError
from bytemill.shards.complete import difference_from
from bytemill.shards.lock import OVERWRITE_HINT
from bytemill.shards.manifest import (
    MANIFEST_NAME,
    Manifest,
    decode_manifest,
    files_of,
    is_shard_name,
    is_sidecar_name,
    manifest_document,
)
from bytemill.system.atomic_files import indented_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.shards.complete import Request
    from bytemill.storage import StoreFolder
    from bytemill.storage.store import Version
    from bytemill.storage.unfinished_uploads import UnfinishedUpload

_AGAIN_HINT = "write them again with --overwrite (overwrite=True)"


@dataclass(frozen=True)
class StoredManifest:
    """A manifest in a store."""

    manifest: Manifest
    version: Version
    written_at: float
    """Time, in seconds since 1970."""


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
    # Stores round the time down to a second.
    return StoredManifest(manifest, found.version, found.modified.timestamp() + 1)


def complete_in_store(parts: Sequence[StoreFolder], request: Request) -> list[Manifest] | None:
    """Return the manifests of complete shards that match a request, as `complete_manifests` does for folders.

    Raises:
        ShardError: The shards do not match the request, or one is missing or has the wrong size.
    """
    found = [stored_manifest(part) for part in parts]
    for part, stored in zip(parts, found, strict=True):
        if stored is None:
            continue
        if difference := difference_from(stored.manifest, stored.written_at, request):
            raise ShardError(f"{part} already contains other shards: {difference}", hint=OVERWRITE_HINT)
        if problems := stored_size_problems(part, stored.manifest):
            raise ShardError(f"the shards in {part} are damaged: {problems[0]}", hint=_AGAIN_HINT)
    manifests = [stored.manifest for stored in found if stored is not None]
    return manifests if len(manifests) == len(parts) else None


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
        difference = difference_from(before.manifest, before.written_at, request)
    if before is None or difference:
        folder.delete(info.file for info in files_of(manifest))
        raise ShardError(f"another process has written shards to {folder}: {difference}", hint=OVERWRITE_HINT)
    remove_unnamed(folder, before.manifest)
    return before.manifest


def remove_unnamed(folder: StoreFolder, manifest: Manifest) -> None:
    """Remove what encodings that did not end have left: files that the manifest does not name, and parts of uploads."""
    folder.delete(unnamed_files(folder, manifest))
    folder.abort_uploads(unfinished_uploads(folder))


def unfinished_uploads(folder: StoreFolder) -> list[UnfinishedUpload]:
    """Return the uploads of files of shards that have begun and not ended, where the store tells."""
    return [
        each for each in folder.unfinished_uploads() if is_shard_name(each.name) or is_sidecar_name(each.name)
    ]


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
