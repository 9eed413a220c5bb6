"""Tell whether text files are still those that were encoded, without reading all of them.

A file counts as unchanged if its size, the time of its last change, and the hash of its head, middle and tail are those
that the manifest records. Its name and its inode do not count: a corpus that is moved to another folder or disk with
its times (`mv`, `cp -p`, `rsync -t`) needs no new encoding. A file with another time is taken for another one, although
its samples agree: an edit between the samples must not pass.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

from bytemill.shards.manifest import SourceStamp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bytemill.corpus import DocumentSource

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
