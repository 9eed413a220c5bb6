"""Check whether a finished shard folder already matches the requested settings."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from bytemill.errors import ShardError
from bytemill.shards.journal import JOURNAL_NAME, as_json, first_difference
from bytemill.shards.lock import OVERWRITE_HINT, tidy_up
from bytemill.shards.manifest import MANIFEST_NAME, Manifest, ShardSettings, read_manifest
from bytemill.shards.verify import size_problems

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.corpus import DocumentSource


@dataclass(frozen=True)
class Wanted:
    """What shards are to hold."""

    fingerprint: str
    layout: str
    settings: ShardSettings
    source: DocumentSource


def complete_manifests(folder: Path, parts: list[Path], wanted: Wanted) -> list[Manifest] | None:
    """The manifests of all `parts` of `folder` if they hold this result already, None where a manifest is missing.

    Raises `ShardError` where they hold another result, where shards are missing or not of their size, and where a
    manifest is damaged.
    """
    if not all((part / MANIFEST_NAME).exists() for part in parts):
        return None
    manifests = [read_manifest(part) for part in parts]
    for part, manifest in zip(parts, manifests, strict=True):
        if difference := _difference(part, manifest, wanted):
            raise ShardError(f"{part} holds other shards already: {difference}", hint=OVERWRITE_HINT)
        if problems := size_problems(part, manifest):
            hint = "overwrite=True (--overwrite) makes them anew"
            raise ShardError(f"the shards in {part} are damaged: {problems[0]}", hint=hint)
    for place in dict.fromkeys([*parts, folder]):
        tidy_up(place, folder / JOURNAL_NAME)
    return manifests


def reproducible(description: dict[str, Any]) -> dict[str, Any]:
    """What a corpus says of itself, without the times at which its files were changed.

    >>> reproducible({"sources": [["a.txt", 30, 1700000000000000000]], "options": {"seed": 0}})
    {'sources': [['a.txt', 30]], 'options': {'seed': 0}}
    """
    plain = as_json(description)
    sources = plain.get("sources")
    if isinstance(sources, list):
        plain["sources"] = [_without_time(entry) for entry in cast("list[Any]", sources)]
    return plain


def _without_time(source: Any) -> Any:
    """Name, size and, where it is no time but a name, what changes with the content."""
    if not isinstance(source, list):
        return source
    entry = cast("list[Any]", source)
    return [*entry[:2], *(version for version in entry[2:3] if isinstance(version, str))]


def _difference(part: Path, manifest: Manifest, wanted: Wanted) -> str | None:
    """What keeps the shards on disk from being the result that is asked for, None if nothing does."""
    source = wanted.source
    if manifest.fingerprint != wanted.fingerprint:
        return f"they were made with the tokenizer {manifest.fingerprint}, this one is {wanted.fingerprint}"
    if difference := first_difference(manifest.layout, wanted.layout, "layout"):
        return difference
    before, now = dataclasses.asdict(manifest.settings), dataclasses.asdict(wanted.settings)
    if difference := first_difference(as_json(before), as_json(now)):
        return difference
    if not source.can_resume:
        return f"whether {source.source_names[0]} gives the same text again cannot be known"
    if difference := first_difference(manifest.corpus, reproducible(source.description), "corpus"):
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
