r"""Exact duplicates of lines or paragraphs across documents.

The corpus is read twice. The first pass counts the documents of each unit by hashes, the second compares the bytes of
those whose hash several documents have, so that a collision of hashes removes nothing. Both passes write to partitions
on the disk, which are worked on one after the other.

>>> pages = ["Home | About\nFirst text.", "Home | About\nSecond text."]
>>> with find_repeated_units(pages) as repeated:
...     without_units(pages[1], repeated.removed(1))
'Second text.'
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from bytemill._core import text_units
from bytemill.curation.documents import Batch, Documents, packed, whole_documents
from bytemill.curation.spill import SpilledArray, SpillFolder
from bytemill.errors import CurationError

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

N_PARTITIONS = 256
"""Partitions by the highest 8 bits of the hashes."""


@dataclass(frozen=True, kw_only=True)
class LineSettings:
    """Which units are duplicates.

    Raises:
        CurationError: If a setting is out of range.
    """

    unit: Literal["line", "paragraph"] = "line"
    """Lines, or runs of lines that are not blank. White space around a unit does not count."""
    min_documents: int = 2
    """Number of documents with a unit from which on it is a duplicate. Repetitions inside a document do not count."""
    min_bytes: int = 1
    """Shorter units are never duplicates."""
    keep_first: bool = True
    """Whether the first document keeps the unit."""

    def __post_init__(self) -> None:
        if self.unit not in {"line", "paragraph"}:
            raise CurationError(f"the unit is {self.unit!r}", hint="choose 'line' or 'paragraph'")
        if self.min_documents < 2:
            raise CurationError(f"min_documents is {self.min_documents}; it must be at least 2", hint="try 2")
        if self.min_bytes < 1:
            raise CurationError(f"min_bytes is {self.min_bytes}; it must be at least 1", hint="try 1")


@dataclass(frozen=True)
class _Units:
    """The units of a batch that are long enough."""

    hashes: NDArray[np.uint64]
    starts: NDArray[np.uint64]
    stops: NDArray[np.uint64]
    documents: NDArray[np.uint64]
    """Number of the document of each."""
    numbers: NDArray[np.uint64]
    """Number of each in its document, units that are too short included."""

    @classmethod
    def of(cls, batch: Batch, first: int, settings: LineSettings) -> _Units:
        hashes, starts, stops, ends = text_units(batch.data, batch.ends, settings.unit == "paragraph")
        counts = np.diff(ends, prepend=np.uint64(0)).astype(np.int64)
        documents = np.repeat(np.arange(first, first + len(ends), dtype=np.uint64), counts)
        begins = np.repeat(ends - counts.astype(np.uint64), counts)
        numbers = np.arange(len(hashes), dtype=np.uint64) - begins
        long = stops - starts >= np.uint64(settings.min_bytes)
        return cls(hashes[long], starts[long], stops[long], documents[long], numbers[long])

    def partitions(self, chosen: NDArray[np.bool_] | None = None) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Yield the indices of the chosen units by partition, ascending."""
        indices = np.arange(len(self.hashes)) if chosen is None else np.flatnonzero(chosen)
        partitions = (self.hashes[indices] >> np.uint64(56)).astype(np.int64)
        order = np.argsort(partitions, kind="stable")
        bounds = np.searchsorted(partitions[order], np.arange(N_PARTITIONS + 1))
        for partition in range(N_PARTITIONS):
            if bounds[partition] < bounds[partition + 1]:
                yield partition, indices[order[bounds[partition] : bounds[partition + 1]]]


@dataclass
class RepeatedUnits:
    """Units to remove from each document. A context manager, which removes its temporary files at the end."""

    settings: LineSettings
    n_documents: int
    n_units: int
    """Units of all documents, without those that are too short."""
    n_removed_bytes: int
    """Bytes of the units to remove."""
    _keys: NDArray[np.uint64]
    """Document and number of each unit to remove, ascending: the document in the upper half."""
    _spill: SpillFolder = field(repr=False)

    @property
    def n_removed(self) -> int:
        """Number of units to remove."""
        return len(self._keys)

    def removed(self, document: int) -> list[int]:
        """Return the numbers of the units to remove from a document, ascending; see `without_units`."""
        bounds = np.array([document, document + 1], np.uint64) << np.uint64(32)
        start, stop = np.searchsorted(self._keys, bounds)
        return (self._keys[start:stop] & np.uint64(0xFFFF_FFFF)).tolist()

    def close(self) -> None:
        """Remove the temporary files."""
        self._keys = np.empty(0, np.uint64)
        self._spill.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def find_repeated_units(
    documents: Documents,
    settings: LineSettings | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
) -> RepeatedUnits:
    """Find lines or paragraphs that several documents share.

    Args:
        documents: A corpus or texts, read twice.
        settings: Which units are duplicates; None for the defaults.
        folder: Where temporary files are; None for the system's temporary folder. They take 16 bytes a unit.

    Returns:
        The units to remove. They depend on the documents, their order and the settings alone.

    Raises:
        CurationError: If the documents cannot be read twice.
        CorpusError: If the corpus cannot be read.
    """
    if not getattr(documents, "can_resume", True) or hasattr(documents, "__next__"):
        raise CurationError(
            "repeated lines need documents that can be read twice",
            hint="pass files or a list, not an iterator",
        )
    settings = settings or LineSettings()
    with contextlib.ExitStack() as stack:
        spill = stack.enter_context(SpillFolder(folder, "lines"))
        n_documents, n_units, repeated = _repeated_hashes(documents, settings, spill)
        keys, n_removed_bytes = _removed_keys(documents, settings, spill, repeated)
        stack.pop_all()
    return RepeatedUnits(settings, n_documents, n_units, n_removed_bytes, keys, spill)


def _repeated_hashes(
    documents: Documents, settings: LineSettings, spill: SpillFolder
) -> tuple[int, int, NDArray[np.uint64]]:
    """First pass: the numbers of documents and units, and the hashes of enough documents, ascending."""
    parts = [spill.array(f"hashes-{part}", np.uint64) for part in range(N_PARTITIONS)]
    n_documents = n_units = 0
    for batch in whole_documents(documents):
        units = _Units.of(batch, n_documents, settings)
        n_documents += len(batch.ends)
        n_units += len(units.hashes)
        for part, indices in units.partitions():
            parts[part].append(np.column_stack((units.hashes[indices], units.documents[indices])).ravel())
    repeated = spill.array("repeated", np.uint64)
    for part in parts:
        hashes, owners = part.mapped().reshape(-1, 2).T
        order = np.lexsort((owners, hashes))
        hashes, owners = hashes[order], owners[order]
        is_first = np.ones(len(hashes), np.bool_)
        is_first[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])
        different, counts = np.unique(hashes[is_first], return_counts=True)
        repeated.append(different[counts >= settings.min_documents])
        part.remove()
    return n_documents, n_units, repeated.mapped()


@dataclass(frozen=True)
class _Part:
    """A partition of the second pass."""

    records: SpilledArray[np.uint64]
    """Document, number and size of each unit."""
    data: SpilledArray[np.uint8]
    """The bytes of all units."""


def _removed_keys(
    documents: Documents, settings: LineSettings, spill: SpillFolder, repeated: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], int]:
    """Second pass: the units to remove as `RepeatedUnits` keeps them, and their bytes."""
    parts = [
        _Part(spill.array(f"records-{part}", np.uint64), spill.array(f"bytes-{part}", np.uint8))
        for part in range(N_PARTITIONS)
    ]
    n_documents = 0
    for batch in whole_documents(documents):
        units = _Units.of(batch, n_documents, settings)
        n_documents += len(batch.ends)
        found = np.searchsorted(repeated, units.hashes)
        is_repeated = np.zeros(len(found), np.bool_)
        inside = found < len(repeated)
        is_repeated[inside] = repeated[found[inside]] == units.hashes[inside]
        for part, indices in units.partitions(is_repeated):
            starts, stops = units.starts[indices], units.stops[indices]
            spans = zip(starts.tolist(), stops.tolist(), strict=True)
            data = b"".join([batch.data[start:stop] for start, stop in spans])
            parts[part].data.append(np.frombuffer(data, np.uint8))
            records = np.column_stack((units.documents[indices], units.numbers[indices], stops - starts))
            parts[part].records.append(records.ravel())
    keys = spill.array("removed", np.uint64)
    n_removed_bytes = 0
    for part in parts:
        removed, n_bytes = _removed_of_part(part, settings)
        keys.append(np.array(removed, np.uint64))
        n_removed_bytes += n_bytes
        part.records.remove()
        part.data.remove()
    sorted_keys = keys.mapped()
    sorted_keys.sort()
    return sorted_keys, n_removed_bytes


def _removed_of_part(part: _Part, settings: LineSettings) -> tuple[list[int], int]:
    records, data = part.records.mapped().reshape(-1, 3), part.data.mapped()
    ends = np.cumsum(records[:, 2], dtype=np.int64).tolist()
    units = [data[end - size : end].tobytes() for end, size in zip(ends, records[:, 2].tolist(), strict=True)]
    # For each unit its first document, its last one so far, and their number. Records are in corpus order.
    seen: dict[bytes, tuple[int, int, int]] = {}
    owners = records[:, 0].tolist()
    for unit, document in zip(units, owners, strict=True):
        first, last, n_documents = seen.get(unit, (document, -1, 0))
        seen[unit] = first, document, n_documents + (document != last)
    removed: list[int] = []
    n_bytes = 0
    for unit, document, number in zip(units, owners, records[:, 1].tolist(), strict=True):
        first, _, n_documents = seen[unit]
        if n_documents >= settings.min_documents and not (settings.keep_first and document == first):
            removed.append(document << 32 | number)
            n_bytes += len(unit)
    return removed, n_bytes


def without_units(text: str, numbers: Collection[int], unit: Literal["line", "paragraph"] = "line") -> str:
    r"""Return a text without some of its lines or paragraphs.

    A line is removed with its line feed, a paragraph with the blank lines after it.

    Args:
        text: A document.
        numbers: Numbers of its units, counted from 0 without blank lines.
        unit: What the numbers count.

    >>> without_units("a\n\nb\nc", [1])
    'a\n\nc'
    >>> without_units("a\n\nb\nc\n\n\nd", [1], "paragraph")
    'a\n\nd'
    """
    if not numbers:
        return text
    batch = packed([text])
    data = bytes(batch.data)
    _, starts, stops, _ = text_units(data, batch.ends, unit == "paragraph")
    kept: list[bytes] = []
    end = 0
    for number in sorted(set(numbers)):
        start, stop = int(starts[number]), int(stops[number])
        kept.append(data[end : data.rfind(b"\n", 0, start) + 1])
        if unit == "line":
            end = data.find(b"\n", stop) + 1 or len(data)
        else:
            end = data.rfind(b"\n", 0, int(starts[number + 1])) + 1 if number + 1 < len(starts) else len(data)
    kept.append(data[end:])
    return b"".join(kept).decode()
