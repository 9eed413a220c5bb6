"""Check whether a finished shard folder already matches the requested settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from bytemill.errors import ShardError
from bytemill.shards.journal import as_json, first_difference
from bytemill.shards.lock import OVERWRITE_HINT, held, remove_leftovers
from bytemill.shards.manifest import (
    MANIFEST_NAME,
    Manifest,
    ShardSettings,
    SourceStamp,
    read_manifest,
    write_manifest,
)
from bytemill.shards.source_stamps import changed_source, without_names
from bytemill.shards.verification import size_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from bytemill.corpus import DocumentSource

_RECHECK_HINT = "compare all text with --recheck (recheck=True)"


@dataclass(frozen=True)
class Request:
    """The requested shards."""

    fingerprint: str
    layout: str
    settings: ShardSettings
    source: DocumentSource
    stamps: Sequence[SourceStamp | None]
    """Of the sources (`stamps_of`)."""


def complete_manifests(
    parts: list[Path], request: Request, *, recheck: bool = False
) -> list[Manifest] | None:
    """Return the manifests of complete shards that match a request.

    Args:
        parts: Folders of the parts of the corpus, or the output folder itself.
        request: The requested shards.
        recheck: Accept sources with other times, whose text the caller compares.

    Returns:
        The manifest of each part, or None if one is missing.

    Raises:
        ShardError: If the shards do not match the request, a shard is missing or has the wrong size, or a manifest is
            damaged.
    """
    if not all((part / MANIFEST_NAME).exists() for part in parts):
        return None
    manifests = [read_manifest(part) for part in parts]
    for part, manifest in zip(parts, manifests, strict=True):
        require_same(str(part), manifest, request, recheck=recheck)
        if problems := size_problems(part, manifest):
            hint = "write them again with --overwrite (overwrite=True)"
            raise ShardError(f"the shards in {part} are damaged: {problems[0]}", hint=hint)
    return manifests


def restamp(parts: Iterable[Path], before: Iterable[Manifest], after: Iterable[Manifest]) -> None:
    """Replace the manifests of parts by those of the same shards with other stamps. Raises as `remove_leftovers`."""
    for part, old, new in zip(parts, before, after, strict=True):
        if old.to_dict() != new.to_dict():
            with held(part):
                if read_manifest(part) == old:
                    write_manifest(part, new)


def remove_all_leftovers(
    folder: Path, parts: Sequence[Path], note: Callable[[str], None] | None = None
) -> None:
    """Remove what a killed run left in the folders of finished shards (`remove_leftovers`), and say so.

    Args:
        folder: The output folder.
        parts: Folders of the parts of the corpus, or the output folder itself.
        note: Called with a sentence.

    Raises:
        ShardError: Another process writes to a folder.
        OutputError: A file cannot be removed.
    """
    removed = [path for each in dict.fromkeys([*parts, folder]) for path in remove_leftovers(each, parts)]
    if removed and note is not None:
        note(f"removed what an encoding left that was killed at its end: {', '.join(map(str, removed))}")


def reproducible(description: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a corpus without the modification times and hashes of its files.

    >>> reproducible({"sources": [["a.txt", 30, 1700000000000000000]], "options": {"seed": 0}})
    {'sources': [['a.txt', 30]], 'options': {'seed': 0}}
    """
    plain = as_json({name: value for name, value in description.items() if name != "sha256"})
    sources = plain.get("sources")
    if isinstance(sources, list):
        plain["sources"] = [_without_time(entry) for entry in cast("list[Any]", sources)]
    return plain


def _without_time(source: Any) -> Any:
    """Keep the name, the size and a version that is not a time, such as an ETag."""
    if not isinstance(source, list):
        return source
    entry = cast("list[Any]", source)
    return [*entry[:2], *(version for version in entry[2:3] if isinstance(version, str))]


def require_same(place: str, manifest: Manifest, request: Request, *, recheck: bool = False) -> None:
    """Check that shards are the requested ones.

    Args:
        place: Where they are, for the message.
        manifest: Their manifest.
        request: The requested shards.
        recheck: Accept sources with other times, whose text the caller compares.

    Raises:
        ShardError: They differ.
    """
    if difference := _other_settings(manifest, request):
        raise ShardError(f"{place} already contains other shards: {difference}", hint=OVERWRITE_HINT)
    changed = _changed_source(manifest, request)
    if changed and not (changed[1] and recheck):
        hint = f"{_RECHECK_HINT}; {OVERWRITE_HINT}" if changed[1] else OVERWRITE_HINT
        raise ShardError(f"{place} already contains other shards: {changed[0]}", hint=hint)


def difference_from(manifest: Manifest, request: Request) -> str | None:
    """Describe how shards differ from requested ones, or return None."""
    changed = _changed_source(manifest, request)
    return _other_settings(manifest, request) or (changed and changed[0])


def _other_settings(manifest: Manifest, request: Request) -> str | None:
    """Describe how shards differ from requested ones in anything but the text of files, or return None."""
    source = request.source
    if manifest.fingerprint != request.fingerprint:
        return (
            f"they were encoded with tokenizer {manifest.fingerprint}, but this one is {request.fingerprint}"
        )
    if difference := first_difference(manifest.layout, request.layout, "layout"):
        return difference
    before, now = manifest.settings.to_dict(), request.settings.to_dict()
    if difference := first_difference(as_json(before), as_json(now)):
        return difference
    if not source.can_resume:
        return f"{source.source_names[0]} can be read only once, so its text cannot be compared"
    corpus = without_names(manifest.corpus, _stamps(manifest))
    return first_difference(corpus, without_names(reproducible(source.description), request.stamps), "corpus")


def _changed_source(manifest: Manifest, request: Request) -> tuple[str, bool] | None:
    return changed_source(request.source.source_names, _stamps(manifest), request.stamps)


def _stamps(manifest: Manifest) -> list[SourceStamp | None]:
    return [source.stamp for source in manifest.sources]
