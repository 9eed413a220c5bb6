"""Count the units of a text group for several tokenizers, in one pass and in bounded memory."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill._core import DocumentEncoder, TextMarks
from bytemill.analysis.comparison.bootstrap import MAX_UNITS
from bytemill.comparison.units import read_units

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from bytemill.comparison.differences import DifferenceCounter
    from bytemill.comparison.token_table import TokenTable
    from bytemill.corpus import Corpus
    from bytemill.tokenizer.tokenizer import Tokenizer

    Columns = dict[str, NDArray[np.int64]]


_SAMPLE_CHARACTERS = 400


@dataclass
class GroupCounts:
    """Counts of a text group."""

    sha256: str = ""
    """Of the text."""
    n_bytes: int = 0
    n_units: int = 0
    beginning: str = ""
    """The first characters of the text."""
    text: Columns = field(default_factory=dict[str, Any])
    """Counts of the text alone, by unit, or by group of units if there are many: see `UnitSums`."""
    tokens: dict[str, Columns] = field(default_factory=dict[str, Any])
    """Counts by unit or group of units, of each tokenizer."""
    lengths: dict[str, NDArray[np.int64]] = field(default_factory=dict[str, Any])
    """Number of units with 0, 1, 2, … tokens, of each tokenizer."""
    kept: list[tuple[bytes, NDArray[np.int64]]] = field(default_factory=list[Any])
    """The first blocks of text, with the ends of their units."""
    kept_sources: list[str] = field(default_factory=list[str])
    """Names of their sources."""
    histograms: dict[str, NDArray[np.int64]] = field(default_factory=dict[str, Any])
    """Uses of each id, of each tokenizer."""


class UnitSums:
    """Sums of counts by unit, in bounded memory: beyond 2,000 units, unit i belongs to group i modulo 2,000.

    The bootstrap draws groups then. Units of a group are far from each other, so that groups resemble each other as
    little as single units do.
    """

    def __init__(self) -> None:
        self._sums: Columns = {}
        self._n_units = 0

    def add(self, columns: Columns) -> None:
        """Add the counts of the next units."""
        n = len(next(iter(columns.values())))
        groups = np.arange(self._n_units, self._n_units + n) % MAX_UNITS
        for name, values in columns.items():
            sums = self._sums.setdefault(name, np.zeros(MAX_UNITS, np.int64))
            np.add.at(sums, groups, values)
        self._n_units += n

    @property
    def columns(self) -> Columns:
        """The sums by group."""
        return {name: sums[: min(self._n_units, MAX_UNITS)] for name, sums in self._sums.items()}


def count_group(
    corpus: Corpus,
    tokenizers: Mapping[str, Tokenizer],
    tables: Mapping[str, TokenTable],
    *,
    kept_bytes: int = 0,
    differences: DifferenceCounter | None = None,
    num_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> GroupCounts:
    """Count a text group.

    Args:
        corpus: The text.
        tokenizers: The tokenizers by name. Special tokens in the text are text to them.
        tables: Their tokens.
        kept_bytes: Keep this much of the text.
        differences: Counts every block too.
        num_threads: Threads of the encoders; by default one per core.
        progress: Called with the number of bytes done. An exception that it raises ends the pass.

    Raises:
        CorpusError: The text cannot be read.
    """
    digest = hashlib.sha256()
    counts = GroupCounts(histograms={name: np.zeros(t.n_vocab, np.int64) for name, t in tokenizers.items()})
    text_sums = UnitSums()
    token_sums = {name: UnitSums() for name in tokenizers}
    counts.lengths = {name: np.zeros(0, np.int64) for name in tokenizers}
    encoders = {name: unit_encoder(tokenizer, num_threads) for name, tokenizer in tokenizers.items()}
    jobs: dict[str, Future[Columns]] = {}
    differing: Future[None] = Future()
    differing.set_result(None)
    with ThreadPoolExecutor(max(2, num_threads or 2), "measure") as threads:
        for data, ends, source in read_units(corpus):
            digest.update(data)
            if not counts.n_bytes:
                counts.beginning = data[: 4 * _SAMPLE_CHARACTERS].decode("utf-8", "ignore")[
                    :_SAMPLE_CHARACTERS
                ]
            marks_of = threads.submit(TextMarks, data, ends)
            encoded = {name: encode_units(encoder, data, ends) for name, encoder in encoders.items()}
            marks = marks_of.result()
            # The block before was counted meanwhile; histograms take one block at a time.
            _collect(jobs, token_sums, counts)
            for name, table in tables.items():
                arguments = (*encoded[name], table.bytes, table.offsets, counts.histograms[name])
                jobs[name] = threads.submit(marks.count, *arguments)
            sizes = np.diff(ends, prepend=0)
            text_sums.add({**marks.numbers(), "n_bytes": sizes, "n_documents": np.ones_like(sizes)})
            if differences is not None:
                differing.result()
                differing = threads.submit(differences.add, data, ends, encoded)
            counts.n_units += len(ends)
            if counts.n_bytes < kept_bytes:
                counts.kept.append((data, ends))
                counts.kept_sources.append(source)
            counts.n_bytes += len(data)
            if progress:
                progress(counts.n_bytes)
        _collect(jobs, token_sums, counts)
        differing.result()
    counts.sha256 = digest.hexdigest()
    counts.text = text_sums.columns
    counts.tokens = {name: sums.columns for name, sums in token_sums.items()}
    return counts


def unit_encoder(tokenizer: Tokenizer, num_threads: int | None) -> DocumentEncoder:
    """Return an encoder of units, for which special tokens are text."""
    return DocumentEncoder(tokenizer.core, "none", num_threads, prefix=[])


def encode_units(
    encoder: DocumentEncoder, data: bytes, ends: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the ids of units that are not empty, and the offset at which those of each end."""
    (chunks, id_ends, _, _), *_ = encoder.encode([(data, ends, False)])
    ids: Any = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    return ids, id_ends.astype(np.int64)


def _collect(jobs: dict[str, Future[Columns]], sums: dict[str, UnitSums], counts: GroupCounts) -> None:
    for name, job in jobs.items():
        columns = job.result()
        sums[name].add(columns)
        lengths = np.bincount(columns["n_tokens"], minlength=len(counts.lengths[name]))
        lengths[: len(counts.lengths[name])] += counts.lengths[name]
        counts.lengths[name] = lengths
