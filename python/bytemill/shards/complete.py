"""Whether a folder of shards is the very result that is asked for."""

import dataclasses
from pathlib import Path

from bytemill.corpus import Source
from bytemill.errors import ShardError
from bytemill.shards.claim import OVERWRITE_HINT
from bytemill.shards.manifest import MANIFEST_NAME, Manifest, ShardSettings, read_manifest
from bytemill.shards.verify import size_problems


def complete_manifest(
    folder: Path, fingerprint: str, sources: list[Source] | None, settings: ShardSettings
) -> Manifest | None:
    """The manifest of `folder` if it holds the result of these inputs already, None if it holds no manifest.

    `sources` is None for an iterable of texts. Raises `ShardError` where the folder holds another result,
    where shards are missing or not of their size, and where the manifest is damaged.
    """
    path = folder / MANIFEST_NAME
    if not path.exists():
        return None
    manifest = read_manifest(folder)
    if difference := _difference(manifest, path.stat().st_mtime, fingerprint, sources, settings):
        raise ShardError(f"{folder} holds other shards already: {difference}", hint=OVERWRITE_HINT)
    if problems := size_problems(folder, manifest):
        hint = "overwrite=True (--overwrite) makes them anew"
        raise ShardError(f"the shards in {folder} are damaged: {problems[0]}", hint=hint)
    return manifest


def _difference(
    manifest: Manifest,
    written_at: float,
    fingerprint: str,
    sources: list[Source] | None,
    settings: ShardSettings,
) -> str | None:
    """What keeps the shards on disk from being the result that is asked for, None if nothing does."""
    if manifest.fingerprint != fingerprint:
        return f"they were made with the tokenizer {manifest.fingerprint}, this one is {fingerprint}"
    for field in dataclasses.fields(ShardSettings):
        before, now = getattr(manifest.settings, field.name), getattr(settings, field.name)
        if before != now:
            return f"{field.name} was {before!r}, now it is {now!r}"
    if sources is None:
        return "whether an iterable gives the same texts again cannot be known"
    if len(manifest.sources) != len(sources):
        return f"n_sources was {len(manifest.sources)}, now it is {len(sources)}"
    for read, source in zip(manifest.sources, sources, strict=True):
        if read.name != source.name:
            return f"they were made from {read.name}, not from {source.name}"
        if source.path is None or source.n_bytes is None:
            return f"whether {source.name} gives the same text again cannot be known"
        if read.n_bytes != source.n_bytes or source.path.stat().st_mtime > written_at:
            return f"{source.name} has changed since"
    return None
