"""Learning of merges from counts, within a memory budget, and the report of a training."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from bytemill.errors import TokenizerError
from bytemill.system import memory
from bytemill.tokenizer.training_report import PhaseReport, TrainingReport
from bytemill.training.memory_budget import release_freed_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from bytemill._core import PretokenCounts
    from bytemill.training.counts import CountedCorpus
    from bytemill.training.options import TrainingOptions


@dataclass(frozen=True)
class LearnedMerges:
    """Merges, and what was counted and dropped to learn them."""

    merges: list[tuple[bytes, bytes]]
    merge_counts: list[int]
    """Occurrences of each pair when it was merged."""
    n_unique_pretokens: int
    n_dropped_pretokens: int
    """Unique pre-tokens rarer than `min_pretoken_count`."""
    n_dropped_occurrences: int


def learn_merges(
    counts: PretokenCounts,
    options: TrainingOptions,
    report: Callable[[int], None] | None,
    *,
    keep_counts: bool,
) -> LearnedMerges:
    """Drop rare pre-tokens and learn the merges.

    Args:
        counts: The counts; consumed unless `keep_counts`.
        options: The options of training.
        report: Progress callback with the number of merges.
        keep_counts: Leave `counts` as they are.

    Raises:
        TokenizerError: The memory budget is too small.
    """
    if keep_counts and (options.budget or options.min_pretoken_count > 1):
        counts = counts.copy()
    n_unique = counts.n_unique
    n_dropped, n_dropped_occurrences = counts.drop_below(options.min_pretoken_count)
    arguments = (options.n_merges, options.ties, options.min_frequency, options.num_threads, report)
    first = options.base or options.first
    base = None if first is None else first.own_core("learning more merges")
    forbids = None if options.token_rules is None else options.token_rules.forbids
    if options.budget is None:
        merges, merge_counts = counts.learn_merges(
            *arguments, consume=not keep_counts, base=base, forbids=forbids
        )
    else:
        release_freed_memory()
        max_bytes = options.budget.learning(counts.memory_bytes)
        try:
            merges, merge_counts = counts.learn_merges(
                *arguments, max_bytes=max_bytes, consume=True, base=base, forbids=forbids
            )
        except TokenizerError as error:
            if least := re.search(r"takes (\d+) bytes of memory at least", str(error)):
                raise options.budget.too_little_to_learn(int(least[1])) from error
            raise
    if report:
        report(len(merges))
    if options.first is not None:
        earlier = options.first.merges
        merges, merge_counts = [*earlier, *merges], [*[0] * len(earlier), *merge_counts]
    return LearnedMerges(merges, merge_counts, n_unique, n_dropped, n_dropped_occurrences)


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
        n_merges_wanted=options.n_merges + (0 if options.first is None else len(options.first.merges)),
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
