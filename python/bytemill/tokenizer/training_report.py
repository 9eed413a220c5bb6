"""Training report: what training a tokenizer read, merged, wrote and took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class PhaseReport:
    """What one phase of training took."""

    name: Literal["read", "count", "merge", "build"]
    seconds: float
    """Wall-clock seconds. Reading goes on beside counting, whose time includes it."""
    peak_memory_bytes: int
    """Most resident memory of the process during the phase."""


@dataclass(frozen=True)
class TrainingReport:
    """What `train` did."""

    n_bytes: int
    n_pretokens: int
    n_unique_pretokens: int
    n_special_tokens: int
    """How often special tokens stood in the corpus."""
    n_replaced: int
    """Malformed sequences read as U+FFFD."""
    n_merges: int
    n_merges_wanted: int
    phases: list[PhaseReport]
    longest_tokens: list[bytes]
    """Ordinary tokens with the most bytes, the longest first."""
    num_threads: int | None
    """As asked for; None: as many as the machine runs at once."""
    n_documents: int = 0
    """Documents read; 0 where nobody counted them, as those of an iterable of texts."""
    n_broken: int = 0
    """Broken documents that were left out."""
    n_skipped_bytes: int = 0
    """Bytes of malformed sequences that were left out."""
    min_pretoken_count: int = 1
    n_dropped_pretokens: int = 0
    """Different pre-tokens that occur less than `min_pretoken_count` times and were left out."""
    n_dropped_occurrences: int = 0
    """How often these occur."""
    max_memory: int | None = None
    """Bytes that the process was bound to."""
    spilled_bytes: int = 0
    """Bytes written to disk on the way: full tables, checkpoints, and what they were merged to."""
    spilled_runs: int = 0
    """Tables written to disk."""
    spill_seconds: float = 0.0
    """Time of the threads that wrote and merged these, added up; most of it beside the others' counting."""
    counts_file: str | None = None
    """The file of counts that was read or written."""
    from_counts: bool = False
    """True where the corpus was not read: its counts were there."""
    notes: list[str] = field(default_factory=list[str])
    """What there is to say about how the corpus was counted, a sentence each."""

    @property
    def stopped_early(self) -> bool:
        """True where no pair was left to merge before the vocabulary was full."""
        return self.n_merges < self.n_merges_wanted

    @property
    def seconds(self) -> float:
        """Wall-clock seconds in all."""
        return sum(phase.seconds for phase in self.phases if phase.name != "read")

    @property
    def peak_memory_bytes(self) -> int:
        """Most resident memory of the process during training."""
        return max(phase.peak_memory_bytes for phase in self.phases)
