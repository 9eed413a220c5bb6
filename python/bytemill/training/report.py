"""The clock of the training phases, and the training report."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from bytemill.system import memory
from bytemill.tokenizer.training_report import PhaseReport, TrainingReport

if TYPE_CHECKING:
    from collections.abc import Generator

    from bytemill.training.counts import CountedCorpus
    from bytemill.training.learning import LearnedMerges
    from bytemill.training.options import TrainingOptions

_N_LONGEST = 20


@dataclass
class PhaseClock:
    """Measures time and peak memory of each phase."""

    phases: list[PhaseReport] = field(default_factory=list[PhaseReport])
    read_seconds: float = 0.0
    """Reading time inside the phase "count", as the core measures it."""

    @contextmanager
    def phase(self, name: Literal["count", "merge", "build"]) -> Generator[None]:
        """Measure the block."""
        memory.reset_peak()
        started = time.perf_counter()
        yield
        seconds, peak = time.perf_counter() - started, memory.peak_bytes()
        if name == "count":
            self.phases.append(PhaseReport("read", self.read_seconds, peak))
        self.phases.append(PhaseReport(name, seconds, peak))


def training_report(
    counted: CountedCorpus, learned: LearnedMerges, options: TrainingOptions, phases: list[PhaseReport]
) -> TrainingReport:
    """Make the report of a training."""
    info = counted.info
    spilled_bytes, spilled_runs, spill_seconds = counted.counts.spilled
    return TrainingReport(
        n_bytes=info.n_bytes,
        n_pretokens=info.n_pretokens,
        n_unique_pretokens=learned.n_unique_pretokens,
        n_special_tokens=info.n_special,
        n_replaced=info.reading.n_replaced,
        n_merges=len(learned.merges),
        n_merges_wanted=options.n_merges,
        phases=phases,
        longest_tokens=sorted((a + b for a, b in learned.merges), key=len, reverse=True)[:_N_LONGEST],
        num_threads=options.num_threads,
        n_documents=info.reading.n_documents,
        n_broken=info.reading.n_broken,
        n_skipped_bytes=info.reading.n_skipped_bytes,
        min_pretoken_count=options.min_pretoken_count,
        n_dropped_pretokens=learned.n_dropped_pretokens,
        n_dropped_occurrences=learned.n_dropped_occurrences,
        max_memory=options.budget.max_bytes if options.budget else None,
        spilled_bytes=spilled_bytes,
        spilled_runs=spilled_runs,
        spill_seconds=spill_seconds,
        counts_file=None if options.counts is None else str(options.counts),
        from_counts=counted.is_from_file,
        notes=[*counted.notes, *_byte_order_marks(info.reading.n_byte_order_marks)],
    )


def _byte_order_marks(n_marks: int) -> list[str]:
    if not n_marks:
        return []
    return [
        f"a UTF-8 byte-order mark was dropped from the start of {n_marks} {'file' if n_marks == 1 else 'files'}"
    ]
