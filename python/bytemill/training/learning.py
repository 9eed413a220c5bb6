"""Learning of merges from counts, within a memory budget."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerError
from bytemill.training.memory_budget import release_freed_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill._core import PretokenCounts
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
    if options.budget is None:
        merges, merge_counts = counts.learn_merges(*arguments, consume=not keep_counts)
    else:
        release_freed_memory()
        max_bytes = options.budget.learning(counts.memory_bytes)
        try:
            merges, merge_counts = counts.learn_merges(*arguments, max_bytes=max_bytes, consume=True)
        except TokenizerError as error:
            if least := re.search(r"takes (\d+) bytes of memory at least", str(error)):
                raise options.budget.too_little_to_learn(int(least[1])) from error
            raise
    if report:
        report(len(merges))
    return LearnedMerges(merges, merge_counts, n_unique, n_dropped, n_dropped_occurrences)
