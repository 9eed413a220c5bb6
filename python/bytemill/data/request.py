"""Tell whether finished shards are the requested ones: their settings, and the files that were encoded.

A file counts as unchanged if its size, the time of its last change, and the hash of its head, middle and tail are those
that the manifest records. Its name and its inode do not count: a corpus that is moved to another folder or disk with
its times (`mv`, `cp -p`, `rsync -t`) needs no new encoding. A file with another time is taken for another one, although
its samples agree: an edit between the samples must not pass.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

from bytemill.data.manifest import (
    Manifest,
    ShardSettings,
    SourceStamp,
)
from bytemill.data.unfinished import OVERWRITE_HINT, as_json, first_difference
from bytemill.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Sequence
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


SAMPLE_BYTES = 16 << 10
_FILES_AT_ONCE = 8


def stamps_of(source: DocumentSource) -> list[SourceStamp | None]:
    """Return the stamp of every source of a corpus that is a regular file of this machine, else None."""
    files: Sequence[Any] = getattr(source, "sources", ())
    if not files:
        return [None] * len(source.source_names)
    paths: list[Path | None] = [file.path for file in files]
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        return list(pool.map(stamp_of, paths))


def stamp_of(path: Path | None) -> SourceStamp | None:
    """Return the stamp of a regular file, or None if it is none or cannot be read, which reading reports."""
    if path is None or not path.is_file():  # opening a pipe would wait for its writer
        return None
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            samples = hashlib.sha256()
            for start in _sample_starts(status.st_size):
                file.seek(start)
                samples.update(file.read(SAMPLE_BYTES))
    except OSError:
        return None
    return SourceStamp(n_bytes=status.st_size, mtime_ns=status.st_mtime_ns, sample=samples.hexdigest())


def _sample_starts(n_bytes: int) -> list[int]:
    """Return where the samples of a file start; those of a small one cover it.

    >>> _sample_starts(20_000), _sample_starts(1_000_000)
    ([0, 3616], [0, 491808, 983616])
    """
    last = max(0, n_bytes - SAMPLE_BYTES)
    return sorted({0, last // 2, last} if last > SAMPLE_BYTES else {0, last})


def without_names(description: dict[str, Any], stamps: Sequence[SourceStamp | None]) -> dict[str, Any]:
    """Return the description of a corpus with the sizes alone of files that have stamps.

    >>> stamp = SourceStamp(n_bytes=30, mtime_ns=17, sample="00ff")
    >>> without_names({"sources": [["a.txt", 30, 17], ["<stdin>", None, None]]}, [stamp, None])
    {'sources': [{'n_bytes': 30}, ['<stdin>', None, None]]}
    """
    sources = description.get("sources")
    if not isinstance(sources, list):
        return description
    entries = [
        entry if stamp is None else {"n_bytes": stamp.n_bytes}
        for entry, stamp in zip_longest(cast("list[Any]", sources), stamps[: len(cast("list[Any]", sources))])
    ]
    return {**description, "sources": entries}


def changed_source(
    names: Sequence[str], before: Sequence[SourceStamp | None], now: Sequence[SourceStamp | None]
) -> tuple[str, bool] | None:
    """Return how the first changed file differs, and whether its text may still be the same; None if all agree.

    Args:
        names: Names of the sources.
        before: Their recorded stamps.
        now: Their stamps.
    """
    found: tuple[str, bool] | None = None
    for name, old, new in zip(names, [*before, *[None] * len(names)], now, strict=False):
        if new is None:
            continue
        if old is not None and (old.n_bytes, old.sample) != (new.n_bytes, new.sample):
            return f"{name} has other text", False
        if old != new:
            found = found or (f"{name} has changed since, or was copied without its time", True)
    return found
