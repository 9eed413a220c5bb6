"""Verification of a shard folder against its manifest."""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bytemill.errors import ShardError
from bytemill.shards.layouts import layout_named
from bytemill.shards.manifest import FileInfo, Manifest, ShardInfo, files_of, read_manifest, shard_files
from bytemill.storage import StoreFolder, url_of


def verify(folder: str | os.PathLike[str]) -> list[str]:
    """Verify every file of a shard folder against the manifest, in constant memory.

    Args:
        folder: Folder of shards, also the URL of one in an object store.

    Returns:
        One sentence per problem; empty if the shards are intact.

    Raises:
        ShardError: If the manifest cannot be read.
        StorageError: If the object store cannot be read.
    """
    if (url := url_of(folder)) is not None:
        return _stored_problems(StoreFolder(url), read_manifest(url))
    root = Path(folder)
    manifest = read_manifest(root)
    problems = size_problems(root, manifest)
    layout = layout_named(manifest.layout)
    for shard in manifest.shards:
        broken = [problem for info in (shard, *shard.sidecars) if (problem := _content_problem(root, info))]
        problems.extend(broken)
        path = root / shard.file
        if not path.exists():
            continue  # reported by size_problems
        try:
            open_shard(root, shard, manifest)
            layout.document_ends(path, manifest.dtype, shard.n_tokens)
        except ShardError as error:
            problems.append(str(error))
    if manifest.documents is not None:
        found = (_content_problem(root, manifest.documents), documents_problem(root, manifest))
        problems.extend(problem for problem in found if problem)
    listed = {info.file for info in files_of(manifest)}
    problems.extend(f"{name} is not in the manifest" for name in shard_files(root) if name not in listed)
    return problems


def _stored_problems(folder: StoreFolder, manifest: Manifest) -> list[str]:
    problems: list[str] = []
    for info in files_of(manifest):
        if folder.size(info.file) is None:
            problems.append(f"{info.file} is missing")
        elif (found := folder.sha256(info.file)) != info.sha256:
            problems.append(f"{info.file} has sha256 {found}, the manifest says {info.sha256}")
    return problems


def require_intact(folder: str | os.PathLike[str], manifest: Manifest) -> None:
    """Check that every file of a shard folder matches its recorded sha256.

    Args:
        folder: Folder of shards.
        manifest: Manifest of that folder.

    Raises:
        ShardError: If a file is missing or its content differs; names the first such file.
    """
    root = Path(folder)
    problems = size_problems(root, manifest)
    if not problems:
        checked = (_content_problem(root, info) for info in files_of(manifest))
        problems = [problem for problem in checked if problem][:1]
    if problems:
        raise ShardError(
            f"the shards in {folder} are damaged: {problems[0]}",
            hint="restore the file from a copy, or skip the check with --no-verify (verify=False)",
        )


def size_problems(folder: Path, manifest: Manifest) -> list[str]:
    """Return files that are missing or have the wrong size, without opening them."""
    problems = (_size_problem(folder, info) for info in files_of(manifest))
    return [problem for problem in problems if problem]


def file_problem(folder: Path, info: ShardInfo | FileInfo) -> str | None:
    """Return how a file contradicts what is recorded of it, or None. Reads the whole file."""
    return _size_problem(folder, info) or _content_problem(folder, info)


def _size_problem(folder: Path, info: ShardInfo | FileInfo) -> str | None:
    try:
        n_bytes = (folder / info.file).stat().st_size
    except OSError:
        return f"{info.file} is missing"
    if n_bytes != info.n_bytes:
        return f"{info.file} has {n_bytes:,} bytes, the manifest says {info.n_bytes:,}"
    return None


def open_shard(folder: Path, shard: ShardInfo, manifest: Manifest) -> NDArray[Any]:
    """Map the ids of a shard. Raises `ShardError` if the file contradicts the manifest."""
    try:
        return layout_named(manifest.layout).open(folder / shard.file, manifest.dtype, shard.n_tokens)
    except ShardError as error:
        raise ShardError(
            f"{error} (the manifest says {shard.n_tokens:,} tokens of {manifest.dtype})"
        ) from error


def documents_problem(folder: Path, manifest: Manifest) -> str | None:
    """Return how the document index contradicts the manifest, or None."""
    info = manifest.documents
    if info is None or not (folder / info.file).exists():
        return None
    npy = layout_named("npy")
    try:
        summary = npy.inspect(folder / info.file, "uint64")
        ends = npy.open(folder / info.file, "uint64", summary.n_tokens)
    except ShardError as error:
        return str(error)
    last = int(ends[-1]) if len(ends) else 0
    if last != manifest.n_tokens:
        return f"{info.file} ends at token {last:,}, the manifest says {manifest.n_tokens:,} tokens"
    for start in range(0, len(ends), _BLOCK_ITEMS):
        block = ends[start : start + _BLOCK_ITEMS + 1]
        if np.any(block[1:] < block[:-1]):
            return f"the ends of documents in {info.file} do not ascend"
    return None


_BLOCK_ITEMS = 1 << 20


def _content_problem(folder: Path, info: ShardInfo | FileInfo) -> str | None:
    """Return how a file contradicts its sha256, or None; `size_problems` reports missing files."""
    try:
        with (folder / info.file).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{info.file} cannot be read: {error.strerror or error}"
    if digest != info.sha256:
        return f"{info.file} has sha256 {digest}, the manifest says {info.sha256}"
    return None
