"""Checks a folder of shards against its manifest."""

import hashlib
import os
from pathlib import Path

import numpy as np

from bytemill.shards.manifest import Manifest, read_manifest, shard_files


def verify(folder: str | os.PathLike[str]) -> list[str]:
    """What is wrong with the shards in `folder`, one sentence each; empty where all is well.

    Reads every shard whole to compare its sha256, in constant memory. Raises `ShardError` where the manifest
    itself cannot be read.
    """
    place = Path(folder)
    manifest = read_manifest(place)
    problems = size_problems(place, manifest)
    for shard in manifest.shards:
        path = place / shard.file
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            continue  # named among the sizes
        except OSError as error:
            problems.append(f"{shard.file} cannot be read: {error.strerror or error}")
            continue
        if digest != shard.sha256:
            problems.append(f"{shard.file} has sha256 {digest}, the manifest says {shard.sha256}")
        if problem := layout_problem(path, shard.n_tokens, manifest.dtype):
            problems.append(problem)
    listed = {shard.file for shard in manifest.shards}
    problems.extend(f"{name} is not in the manifest" for name in shard_files(place) if name not in listed)
    return problems


def size_problems(folder: Path, manifest: Manifest) -> list[str]:
    """Shards that are missing or not of the size that the manifest says; the files are not opened."""
    problems: list[str] = []
    for shard in manifest.shards:
        try:
            n_bytes = (folder / shard.file).stat().st_size
        except OSError:
            problems.append(f"{shard.file} is missing")
            continue
        if n_bytes != shard.n_bytes:
            problems.append(f"{shard.file} has {n_bytes:,} bytes, the manifest says {shard.n_bytes:,}")
    return problems


def layout_problem(path: Path, n_tokens: int, dtype: str) -> str | None:
    """What keeps `path` from being a `.npy` array of `n_tokens` ids of this dtype, None if it is one."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        return f"{path.name} is no readable .npy file: {error}"
    if array.dtype != np.dtype(dtype):
        return f"{path.name} holds {array.dtype}, the manifest says {dtype}"
    if array.shape != (n_tokens,):
        return f"{path.name} has shape {array.shape}, the manifest says {n_tokens:,} tokens"
    return None
