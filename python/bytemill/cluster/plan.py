"""The plan of a job: its units, written down before work begins."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.corpus import Corpus
from bytemill.corpus.ranges import divide
from bytemill.errors import ClusterError
from bytemill.shards.corpus_reader import ShardCorpus
from bytemill.shards.journal import RESTART_HINT, as_json, first_difference
from bytemill.shards.stage import digest
from bytemill.storage import StoreFolder, split_url, write_file
from bytemill.system.atomic_files import indented_json
from bytemill.system.records import read_json_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bytemill.corpus.documents import CorpusRange
    from bytemill.shards.settings import EncodingJob

MIN_UNIT_BYTES = 16 << 20
MAX_UNIT_BYTES = 1 << 30
_WANTED_UNITS = 256


@dataclass(frozen=True)
class Unit:
    """A range of the corpus that one task reads."""

    name: str
    """Digest of everything that determines the result."""
    corpus_range: CorpusRange
    sources: tuple[str, ...]
    """Names of its sources."""
    place: str = "byte"
    """What the start of the range counts: "byte", "row" or "token"."""

    def __str__(self) -> str:
        start, n_more = self.corpus_range.start, len(self.sources) - 1
        offset = f" from {self.place} {start:,}" if start else ""
        more = f" and {n_more} more files" if n_more else ""
        return self.sources[0] + offset + more


def divisible_corpus(job: EncodingJob) -> Corpus | ShardCorpus:
    """Return the corpus of an encoding; raise ClusterError if several processes cannot share it."""
    if not isinstance(job.source, Corpus | ShardCorpus):
        raise ClusterError(
            "only files and shards are encoded by several processes", hint="encode it without an executor"
        )
    if job.settings.shuffle_seed is not None:
        raise ClusterError(
            "documents are shuffled by one process",
            hint="leave out --executor (that process encodes on all cores), or leave out --shuffle",
        )
    return job.source


def units_of(corpus: Corpus | ShardCorpus, ranges: Iterable[CorpusRange], *determined_by: Any) -> list[Unit]:
    """Return a unit for each range.

    Args:
        corpus: The corpus.
        ranges: Its ranges.
        determined_by: What determines the results besides the range, as JSON values.
    """
    shared, names = digest(*determined_by), corpus.source_names
    return [
        Unit(digest(shared, each.to_dict()), each, tuple(names[each.first : each.last + 1]), place)
        for each in ranges
        for place in ["token" if isinstance(corpus, ShardCorpus) else "row" if each.by_rows else "byte"]
    ]


def ranges_of(
    corpus: Corpus | ShardCorpus, unit_bytes: int, safe_cut: Callable[[str], int | None]
) -> list[CorpusRange]:
    """Divide a corpus into ranges of about `unit_bytes` bytes, in order.

    Args:
        corpus: The corpus.
        unit_bytes: Bytes of the inputs in each.
        safe_cut: Returns where a text may be cut without changing the result, if there is such a place.

    Raises:
        CorpusError: The corpus cannot be divided.
        ShardError: The ends of documents in the shards are unknown.
    """
    return (
        corpus.divide(unit_bytes) if isinstance(corpus, ShardCorpus) else divide(corpus, unit_bytes, safe_cut)
    )


def default_unit_bytes(total_bytes: int) -> int:
    """Return the size of a unit for a corpus: enough units for many workers, and seconds of work in each.

    >>> default_unit_bytes(10**9) / 2**20, default_unit_bytes(10**12) / 2**20
    (16.0, 1024.0)
    """
    return max(MIN_UNIT_BYTES, min(MAX_UNIT_BYTES, total_bytes // _WANTED_UNITS))


def read_plan(path: Path | str, identity: dict[str, Any]) -> dict[str, Any] | None:
    """Read the plan of the run that is resumed; None if there is none.

    Args:
        path: The file, or its URL in an object store.
        identity: What must be equal to resume, as JSON values.

    Raises:
        ClusterError: The plan is damaged or of another job; names the first difference.
    """
    plan = _read_object(path)
    if plan is None:
        return None
    folder = path.parent if isinstance(path, Path) else split_url(path)[0]
    if difference := first_difference(plan.get("identity"), as_json(identity)):
        raise ClusterError(
            f"{folder} contains unfinished work with other settings: {difference}",
            hint=f"resume with the same settings, choose another folder, or {RESTART_HINT}",
        )
    return plan


def write_plan(path: Path | str, identity: dict[str, Any], units: Iterable[Unit], **more: Any) -> None:
    """Write a plan.

    Args:
        path: The file, or its URL in an object store.
        identity: What must be equal to resume.
        units: The units.
        more: Further fields.

    Raises:
        OutputError: The file cannot be written.
        StorageError: The store cannot be written.
    """
    listed = [{"name": unit.name, **unit.corpus_range.to_dict()} for unit in units]
    write_file(path, indented_json({"version": 1, "identity": identity, **more, "units": listed}))


def _read_object(path: Path | str) -> dict[str, Any] | None:
    try:
        if isinstance(path, Path):
            return read_json_object(path, ClusterError, RESTART_HINT)
        folder, name = split_url(path)
        found = StoreFolder(folder).get(name)
        return None if found is None else dict(json.loads(found.data))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        if isinstance(error, ClusterError):
            raise
        raise ClusterError(f"{path} is damaged: {error}", hint=RESTART_HINT) from error
