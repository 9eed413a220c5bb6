"""Statistics of a tokenizer's training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class PhaseReport:
    """Time and memory of one phase of training."""

    name: Literal["read", "count", "merge", "build"]
    seconds: float
    """Wall-clock time. Reading overlaps with counting, whose time includes it."""
    peak_memory_bytes: int
    """Peak resident memory of the process during the phase."""


@dataclass(frozen=True)
class TrainingReport:
    """Statistics of one call of `train`."""

    n_bytes: int
    n_pretokens: int
    n_unique_pretokens: int
    n_special_tokens: int
    """Occurrences of special tokens in the corpus."""
    n_replaced: int
    """Malformed UTF-8 sequences replaced by U+FFFD."""
    n_merges: int
    n_merges_wanted: int
    phases: list[PhaseReport]
    longest_tokens: list[bytes]
    """Ordinary tokens with the most bytes, longest first."""
    num_threads: int | None
    """The requested number; None for all available cores."""
    n_documents: int = 0
    """Documents read; 0 if they were not counted, as for an iterable of texts."""
    n_broken: int = 0
    """Invalid documents that were skipped."""
    n_skipped_bytes: int = 0
    """Bytes of malformed UTF-8 sequences that were skipped."""
    min_pretoken_count: int = 1
    n_dropped_pretokens: int = 0
    """Distinct pre-tokens that occur less than `min_pretoken_count` times and were dropped."""
    n_dropped_occurrences: int = 0
    """Their total occurrences."""
    max_memory: int | None = None
    """Memory limit of the process in bytes, if any."""
    spilled_bytes: int = 0
    """Temporary bytes written to disk: full tables, checkpoints, and merged tables."""
    spilled_runs: int = 0
    """Tables written to disk."""
    spill_seconds: float = 0.0
    """Total time of the threads that wrote and merged these; most of it overlaps with counting."""
    counts_file: str | None = None
    """The counts file that was read or written."""
    from_counts: bool = False
    """Whether counts were loaded instead of reading the corpus."""
    notes: list[str] = field(default_factory=list[str])
    """Remarks about how the corpus was counted, one sentence each."""

    @property
    def stopped_early(self) -> bool:
        """Whether training ran out of pairs before the vocabulary was full."""
        return self.n_merges < self.n_merges_wanted

    @property
    def seconds(self) -> float:
        """Total wall-clock time."""
        return sum(phase.seconds for phase in self.phases if phase.name != "read")

    @property
    def peak_memory_bytes(self) -> int:
        """Peak resident memory of the process during training."""
        return max(phase.peak_memory_bytes for phase in self.phases)
