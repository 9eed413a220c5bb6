"""What a curation will take, by a sample of the corpus."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.corpus.ranges import divide
from bytemill.curation.inputs import UnitReader, check_inputs
from bytemill.curation.near import NearSettings, detection_curve
from bytemill.curation.parts import batched
from bytemill.curation.recipe import measure_pages, open_corpus_step
from bytemill.curation.run import default_unit_bytes
from bytemill.training.memory_budget import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Generator

    from bytemill.corpus import Corpus
    from bytemill.curation.recipe import Recipe
    from bytemill.curation.steps import Page
    from bytemill.data.executors.executor import Executor

_SAMPLE_BYTES = 16 << 20
_SAMPLE_SECONDS = 10.0
_CURVE = (0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class CurationEstimate:
    """The plan of a curation, and what it will take."""

    executor: str
    steps: list[str]
    n_sources: int
    total_bytes: int
    unit_sizes: list[int]
    """Bytes of the inputs in each unit."""
    sample_bytes: int
    """Bytes of the inputs that were measured."""
    n_documents: int
    """Documents in them."""
    n_kept: int
    """Of these, the documents that stay before near duplicates are removed."""
    rate: float
    """Bytes of the inputs per second and process."""
    seconds: float
    memory_bytes: int
    notes: list[str]


def estimate_curation(
    executor: Executor, recipe: Recipe, corpus: Corpus, *, unit_bytes: int | None = None
) -> CurationEstimate:
    """Estimate `curate` with the same arguments; nothing is written. Steps for the corpus take no decisions.

    Raises:
        CorpusError: The corpus cannot be read or divided.
        CurationError: A step fails.
    """
    check_inputs(corpus, recipe.steps[0].use)
    total = corpus.total_bytes or 0
    ranges = divide(corpus, unit_bytes or default_unit_bytes(total))
    reader = UnitReader(corpus, ranges[len(ranges) // 2], 0)
    started, n_documents, n_kept = time.perf_counter(), 0, 0
    with closing(_pages(reader)) as pages:
        for batch in batched(pages):
            for segment, steps in enumerate(recipe.segments):
                measure_pages(batch, steps, measures_all=recipe.measures_all)
                alive = [page for page in batch if page.removed_by is None]
                if segment < len(recipe.corpus_steps):
                    open_corpus_step(recipe.corpus_steps[segment]).sketch(alive)
            n_documents += len(batch)
            n_kept += sum(page.removed_by is None for page in batch)
            if reader.n_bytes_read >= _SAMPLE_BYTES or time.perf_counter() - started > _SAMPLE_SECONDS:
                break
    seconds = max(time.perf_counter() - started, 1e-6)
    n_read = max(1, min(reader.n_bytes_read, total))
    rate = n_read / seconds
    return CurationEstimate(
        executor.description,
        [spec.name for spec in recipe.steps],
        len(corpus.source_names),
        total,
        [each.n_bytes for each in ranges],
        n_read,
        n_documents,
        n_kept,
        rate,
        total / rate / min(executor.num_workers, len(ranges)),
        resident_bytes(),
        [_curve(spec.settings) for spec in recipe.corpus_steps if isinstance(spec.settings, NearSettings)],
    )


def _pages(reader: UnitReader) -> Generator[Page]:
    yield from reader.pages()


def _curve(settings: NearSettings) -> str:
    found = ", ".join(
        f"{similarity:g}: {found:.1%}"
        for similarity, found in detection_curve(settings.bands, settings.rows, _CURVE)
    )
    return f"near duplicates found by {settings.bands} bands of {settings.rows} rows, by similarity: {found}"
