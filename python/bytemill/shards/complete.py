"""Check whether a finished shard folder already matches the requested settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from bytemill.errors import ShardError
from bytemill.shards.journal import JOURNAL_NAME, as_json, first_difference
from bytemill.shards.lock import OVERWRITE_HINT, remove_leftovers
from bytemill.shards.manifest import MANIFEST_NAME, Manifest, ShardSettings, read_manifest
from bytemill.shards.verify import size_problems

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.corpus import DocumentSource


@dataclass(frozen=True)
class Request:
    """The requested shards."""

    fingerprint: str
    layout: str
    settings: ShardSettings
    source: DocumentSource


def complete_manifests(folder: Path, parts: list[Path], request: Request) -> list[Manifest] | None:
    """Return the manifests of complete shards that match a request.

    Args:
        folder: The output folder.
        parts: Folders of the parts of the corpus, in `folder` or `folder` itself.
        request: The requested shards.

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
        if difference := difference_from(manifest, (part / MANIFEST_NAME).stat().st_mtime, request):
            raise ShardError(f"{part} already contains other shards: {difference}", hint=OVERWRITE_HINT)
        if problems := size_problems(part, manifest):
            hint = "write them again with --overwrite (overwrite=True)"
            raise ShardError(f"the shards in {part} are damaged: {problems[0]}", hint=hint)
    for path in dict.fromkeys([*parts, folder]):
        remove_leftovers(path, folder / JOURNAL_NAME)
    return manifests


def reproducible(description: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a corpus without the modification times of its files.

    >>> reproducible({"sources": [["a.txt", 30, 1700000000000000000]], "options": {"seed": 0}})
    {'sources': [['a.txt', 30]], 'options': {'seed': 0}}
    """
    plain = as_json(description)
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


def difference_from(manifest: Manifest, written_at: float, request: Request) -> str | None:
    """Describe how shards differ from requested ones, or return None.

    Args:
        manifest: Their manifest.
        written_at: When it was written, in seconds since 1970.
        request: The requested shards.
    """
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
    if difference := first_difference(manifest.corpus, reproducible(source.description), "corpus"):
        return difference
    return _changed_file(source, written_at)


def _changed_file(source: DocumentSource, written_at: float) -> str | None:
    files: list[Any] = getattr(source, "sources", [])
    for file in files:
        path: Path | None = getattr(file, "path", None)
        try:
            if path is not None and path.stat().st_mtime > written_at:
                return f"{file.name} has changed since"
        except OSError:
            continue  # reading it reports the error
    return None
