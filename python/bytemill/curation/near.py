"""Near duplicates: documents whose sets of word 5-grams have a Jaccard similarity from a threshold on.

Sketches (MinHash) of the documents are divided into bands of some rows. Two documents that agree in a band are a
candidate pair, and the exact similarity of their sets decides. Confirmed pairs are joined to clusters, of which the
first document in corpus order stays.

>>> fox = "the quick brown fox jumps over the lazy dog and runs into the dark green forest"
>>> texts = [fox, "something else entirely that has no duplicate", fox.upper() + "!"]
>>> find_near_duplicates(texts, max_removed=1.0).first.tolist()
[0, 1, 0]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bytemill._core import find_clusters, sketch_ids, sketch_texts
from bytemill.curation.documents import Batch, Documents, packed, whole_documents
from bytemill.curation.spill import SpillFolder
from bytemill.errors import CurationError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from bytemill.tokenizer.tokenizer import Tokenizer

SKETCH_SIZE = 128
"""Numbers in a sketch."""
_LONGEST_GRAM = 64
_FOUND_AT_THRESHOLD = 0.95
"""Share of the pairs at the threshold that the suggested bands find at least."""
_LEAST_FOUND = 0.5


def detection_probability(similarity: float, bands: int, rows: int) -> float:
    """Return the probability that two documents agree in all rows of at least one band.

    Each row agrees with a probability of `similarity`, so it is 1 - (1 - similarity^rows)^bands.

    >>> round(detection_probability(0.8, bands=18, rows=7), 4)
    0.9855
    """
    return 1 - (1 - similarity**rows) ** bands


def detection_curve(
    bands: int, rows: int, similarities: Sequence[float] = tuple(k / 20 for k in range(1, 21))
) -> list[tuple[float, float]]:
    """Return the probability that a pair is found, by its Jaccard similarity.

    Args:
        bands: Number of bands.
        rows: Numbers of the sketch in each.
        similarities: Where the curve is evaluated.

    Returns:
        Pairs of a similarity and a probability.

    Raises:
        CurationError: If the bands do not fit into a sketch.

    >>> for similarity, probability in detection_curve(18, 7, [0.4, 0.6, 0.8, 0.9]):
    ...     print(f"{similarity:.1f}  {probability:.4f}")
    0.4  0.0291
    0.6  0.4001
    0.8  0.9855
    0.9  1.0000
    """
    _check_bands(bands, rows)
    return [(similarity, detection_probability(similarity, bands, rows)) for similarity in similarities]


def suggested_bands(threshold: float) -> tuple[int, int]:
    """Return the bands and rows with the fewest candidates that find 95 % of the pairs at the threshold.

    >>> suggested_bands(0.8), suggested_bands(0.5)
    ((18, 7), (42, 3))
    """
    for rows in range(SKETCH_SIZE, 1, -1):
        bands = SKETCH_SIZE // rows
        if detection_probability(threshold, bands, rows) >= _FOUND_AT_THRESHOLD:
            return bands, rows
    return SKETCH_SIZE, 1


@dataclass(frozen=True, kw_only=True)
class NearSettings:
    """What counts as a near duplicate, and how pairs are found.

    Raises:
        CurationError: If a setting is out of range, or if the bands find less than half of the pairs at the threshold.
    """

    threshold: float = 0.8
    """Lowest Jaccard similarity of near duplicates."""
    n: int = 5
    """Words (or tokens) of an n-gram."""
    bands: int = 0
    """Number of bands; 0 for `suggested_bands`."""
    rows: int = 0
    """Numbers of the sketch in each band; 0 for `suggested_bands`."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise CurationError(
                f"the threshold is {self.threshold}; it must be above 0 and at most 1", hint="try 0.8"
            )
        if not 1 <= self.n <= _LONGEST_GRAM:
            raise CurationError(f"n is {self.n}; it must be 1 to {_LONGEST_GRAM}", hint="try 5")
        bands, rows = suggested_bands(self.threshold)
        if self.bands or self.rows:
            _check_bands(self.bands, self.rows)
            found = detection_probability(self.threshold, self.bands, self.rows)
            if found < _LEAST_FOUND:
                better = detection_probability(self.threshold, bands, rows)
                raise CurationError(
                    f"{self.bands} bands of {self.rows} rows find {found:.1%} of the pairs at the threshold "
                    f"{self.threshold:g}",
                    hint=f"{bands} bands of {rows} rows find {better:.1%}",
                )
            return
        object.__setattr__(self, "bands", bands)
        object.__setattr__(self, "rows", rows)


def _check_bands(bands: int, rows: int) -> None:
    if bands < 1 or rows < 1 or bands * rows > SKETCH_SIZE:
        raise CurationError(
            f"{bands} bands of {rows} rows do not divide a sketch of {SKETCH_SIZE} numbers",
            hint=f"choose both from 1 on, with a product of at most {SKETCH_SIZE}",
        )


class Sketches(NamedTuple):
    """Sketches and shingle sets of consecutive documents. They depend on the documents alone."""

    sketches: NDArray[np.uint32]
    """128 numbers for each document, shape (128 * n_documents,)."""
    shingles: NDArray[np.uint64]
    """Hashes of the n-grams of each document, ascending and without repetitions."""
    ends: NDArray[np.uint64]
    """Where the set of each document ends in `shingles`, shape (n_documents,)."""


def sketch_batch(
    batch: Batch, n: int = 5, *, tokenizer: Tokenizer | None = None, num_threads: int | None = None
) -> Sketches:
    """Return the sketches of documents, which any process may compute.

    Args:
        batch: Whole documents.
        n: Words of an n-gram.
        tokenizer: Take the n-grams of its token ids, not of normalized words.
        num_threads: Number of threads; None for all cores.
    """
    if tokenizer is None:
        return Sketches(*sketch_texts(batch.data, batch.ends, n, num_threads))
    ids, offsets = tokenizer.encode_batch_to_numpy(
        list(batch.texts()), num_threads=num_threads, allowed_special=()
    )
    return Sketches(*sketch_ids(ids, offsets[1:], n, num_threads))


@dataclass(frozen=True)
class NearDuplicates:
    """Clusters of near duplicates."""

    first: NDArray[np.uint32]
    """For each document the number of the first document of its cluster, shape (n_documents,). Others are removed."""
    similarity: NDArray[np.float64]
    """Jaccard similarity to that first document (1 for itself). Below the threshold if other documents link the two."""
    pairs: tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float64]]
    """Confirmed pairs that join the clusters: two documents, and their similarity."""
    sources: NDArray[np.int32]
    """Number of the input of each document."""
    n_candidates: int
    """Candidate pairs whose sketches were compared."""
    n_compared: int
    """Candidate pairs whose shingle sets were compared."""

    @property
    def is_removed(self) -> NDArray[np.bool_]:
        """Whether each document has an earlier one in its cluster, shape (n_documents,)."""
        return self.first != np.arange(len(self.first), dtype=np.uint32)

    @property
    def n_removed(self) -> int:
        """Number of documents that are removed."""
        return int(np.count_nonzero(self.is_removed))

    def removed_by_source(self) -> list[tuple[int, int, int]]:
        """Return for each input its number, the documents that are removed, and all of them."""
        numbers, index = np.unique(self.sources, return_inverse=True)
        n_removed = np.bincount(index[self.is_removed], minlength=len(numbers))
        n_all = np.bincount(index, minlength=len(numbers))
        return list(zip(numbers.tolist(), n_removed.tolist(), n_all.tolist(), strict=True))

    def check_removed(self, max_removed: float = 0.5, names: Sequence[str] = ()) -> None:
        """Check that no input loses too many documents.

        Args:
            max_removed: Greatest share of the documents of an input that may be removed.
            names: Names of the inputs, by number.

        Raises:
            CurationError: If an input would lose more.
        """
        for source, n_removed, n_all in self.removed_by_source():
            if n_removed > max_removed * n_all:
                name = names[source] if source < len(names) else f"input {source}"
                raise CurationError(
                    f"{name}: {n_removed:,} of {n_all:,} documents would be removed as near duplicates",
                    hint=f"look at some of the pairs; raise the threshold, or allow it with a share above "
                    f"{max_removed:g} (max_removed)",
                )


@dataclass
class NearIndex:
    """Sketches and shingle sets of documents, on the disk until `find` compares them.

    A context manager, which removes them at the end.

    Args:
        settings: What counts as a near duplicate.
        tokenizer: Take the n-grams of its token ids, not of normalized words.
        folder: Where the temporary files are; None for the system's temporary folder. They take 524 bytes a document
            and 8 a different n-gram.
        num_threads: Number of threads; None for all cores. It does not change the result.
    """

    settings: NearSettings = field(default_factory=NearSettings)
    tokenizer: Tokenizer | None = None
    folder: str | os.PathLike[str] | None = None
    num_threads: int | None = None

    def __post_init__(self) -> None:
        self._spill = SpillFolder(self.folder, "near")
        self._sketches = self._spill.array("sketches", np.uint32)
        self._shingles = self._spill.array("shingles", np.uint64)
        self._ends = self._spill.array("ends", np.uint64)
        self._sources = self._spill.array("sources", np.int32)

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, texts: Iterable[str], *, source: int = 0) -> None:
        """Add texts of one input."""
        batch = packed(texts)
        self.add_batch(Batch(batch.data, batch.ends, source))

    def add_batch(self, batch: Batch) -> None:
        """Add packed documents."""
        sketches = sketch_batch(
            batch, self.settings.n, tokenizer=self.tokenizer, num_threads=self.num_threads
        )
        self.add_sketches(sketches, source=batch.source)

    def add_sketches(self, sketches: Sketches, *, source: int = 0) -> None:
        """Add documents that `sketch_batch` has sketched with the same n, here or elsewhere."""
        n_before = np.uint64(len(self._shingles))
        self._sketches.append(sketches.sketches)
        self._shingles.append(sketches.shingles)
        self._ends.append(sketches.ends + n_before)
        self._sources.append(np.full(len(sketches.ends), source, np.int32))

    def find(self, progress: Callable[[int], None] | None = None) -> NearDuplicates:
        """Find the near duplicates among the documents added so far.

        Args:
            progress: Called with the number of bands that are done, out of `settings.bands`.
        """
        first, similarity, pairs, n_candidates, n_compared = find_clusters(
            self._sketches.mapped(),
            self._shingles.mapped(),
            self._ends.mapped(),
            self.settings.bands,
            self.settings.rows,
            self.settings.threshold,
            self.num_threads,
            progress,
        )
        sources = self._sources.mapped().copy()
        return NearDuplicates(first, similarity, pairs, sources, n_candidates, n_compared)

    def close(self) -> None:
        """Remove the temporary files."""
        self._spill.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def find_near_duplicates(
    documents: Documents,
    settings: NearSettings | None = None,
    *,
    max_removed: float = 0.5,
    tokenizer: Tokenizer | None = None,
    folder: str | os.PathLike[str] | None = None,
    num_threads: int | None = None,
) -> NearDuplicates:
    """Find near duplicates in a corpus.

    Args:
        documents: A corpus or texts.
        settings: What counts as a near duplicate; None for the defaults.
        max_removed: Greatest share of the documents of an input that may be removed.
        tokenizer: Take the n-grams of its token ids, not of normalized words.
        folder: Where temporary files are; None for the system's temporary folder.
        num_threads: Number of threads; None for all cores. It does not change the result.

    Returns:
        The clusters. They depend on the documents, their order and the settings alone.

    Raises:
        CurationError: If more than `max_removed` of the documents of one input would be removed.
        CorpusError: If the corpus cannot be read.
    """
    with NearIndex(settings or NearSettings(), tokenizer, folder, num_threads) as index:
        for batch in whole_documents(documents):
            index.add_batch(batch)
        found = index.find()
    names = getattr(documents, "source_names", ())
    found.check_removed(max_removed, names)
    return found
