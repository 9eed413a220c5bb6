"""Whether a folder of shards is the very result that is asked for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bytemill.errors import ShardError
from bytemill.shards.claim import OVERWRITE_HINT, tidy_up
from bytemill.shards.journal import JOURNAL_NAME, as_json, first_difference
from bytemill.shards.manifest import MANIFEST_NAME, Manifest, ShardSettings, read_manifest
from bytemill.shards.verify import size_problems

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.corpus import DocumentSource


def complete_manifests(
    folder: Path,
    parts: list[Path],
    fingerprint: str,
    layout: str,
    settings: ShardSettings,
    source: DocumentSource,
) -> list[Manifest] | None:
    """The manifests of all `parts` of `folder` if they hold this result already, None where a manifest is missing.

    Raises `ShardError` where they hold another result, where shards are missing or not of their size, and where a
    manifest is damaged.
    """
    if not all((part / MANIFEST_NAME).exists() for part in parts):
        return None
    manifests = [read_manifest(part) for part in parts]
    for part, manifest in zip(parts, manifests, strict=True):
        if difference := _difference(part, manifest, fingerprint, layout, settings, source):
            raise ShardError(f"{part} holds other shards already: {difference}", hint=OVERWRITE_HINT)
        if problems := size_problems(part, manifest):
            hint = "overwrite=True (--overwrite) makes them anew"
            raise ShardError(f"the shards in {part} are damaged: {problems[0]}", hint=hint)
    for place in dict.fromkeys([*parts, folder]):
        tidy_up(place, folder / JOURNAL_NAME)
    return manifests


def _difference(
    part: Path,
    manifest: Manifest,
    fingerprint: str,
    layout: str,
    settings: ShardSettings,
    source: DocumentSource,
) -> str | None:
    """What keeps the shards on disk from being the result that is asked for, None if nothing does."""
    if manifest.fingerprint != fingerprint:
        return f"they were made with the tokenizer {manifest.fingerprint}, this one is {fingerprint}"
    if difference := first_difference(manifest.layout, layout, "layout"):
        return difference
    before, now = dataclasses.asdict(manifest.settings), dataclasses.asdict(settings)
    if difference := first_difference(as_json(before), as_json(now)):
        return difference
    if not source.can_resume:
        return f"whether {source.source_names[0]} gives the same text again cannot be known"
    if difference := first_difference(manifest.corpus, as_json(source.description), "corpus"):
        return difference
    return _changed_since(source, (part / MANIFEST_NAME).stat().st_mtime)


def _changed_since(source: DocumentSource, written_at: float) -> str | None:
    files: list[Any] = getattr(source, "sources", [])
    for file in files:
        path: Path | None = getattr(file, "path", None)
        try:
            if path is not None and path.stat().st_mtime > written_at:
                return f"{file.name} has changed since"
        except OSError:
            continue  # whoever reads it says so
    return None
