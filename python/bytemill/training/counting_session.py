"""A counting in progress: the core's counter, its memory plan, source weights and checkpoints."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bytemill._core import UNICODE_VERSION, PretokenCounter
from bytemill.corpus.documents import CorpusCounts, Position
from bytemill.errors import TokenizerError
from bytemill.profiling import phase
from bytemill.training.counts import CountedCorpus, CountsInfo, canonical_pattern
from bytemill.training.mixture import common_scale, exact_weight, finish_weighted
from bytemill.training.options import CHECKPOINT_SECONDS, SPECIAL_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.corpus import Corpus
    from bytemill.training.memory_budget import CountingPlan, MemoryBudget
    from bytemill.training.work_folder import WorkFolder

_TABLE_BYTES_PER_BYTE = 40
"""Upper bound on table bytes per byte of text: all pre-tokens have two bytes and are different, and the table has just
grown."""


@dataclass(frozen=True)
class CountingSettings:
    """What to count and within which limits; see `bytemill.train`."""

    special_tokens: Sequence[str] = SPECIAL_TOKENS
    pattern: str | None = "gpt2"
    num_threads: int | None = None
    chunk_bytes: int | None = None
    budget: MemoryBudget | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS


class CountingSession:
    """A counting in progress.

    Resumes from a checkpoint in the work folder if there is one for the same corpus and settings.

    Args:
        corpus: The corpus, or None for texts.
        settings: What to count and within which limits.
        work: Folder for runs and checkpoints.
    """

    def __init__(self, corpus: Corpus | None, settings: CountingSettings, work: WorkFolder) -> None:
        self._corpus = corpus
        self._settings = settings
        self._work = work
        self._special = sorted(settings.special_tokens)
        self._identity = None if corpus is None else corpus_identity(corpus)
        weights = [1.0] if corpus is None else corpus_weights(corpus)
        self._multiples, self._denominator = common_scale(weights)
        self._unit = str(min(map(exact_weight, weights)))
        self._plan: CountingPlan | None = None
        if settings.budget is not None:
            in_batches = corpus is None or not corpus.is_plain
            self._plan = settings.budget.counting(
                settings.num_threads, settings.chunk_bytes, in_batches=in_batches
            )
        self._counter: PretokenCounter | None = self._new_counter()
        self.position = Position()
        """Everything before this position is counted."""
        self._last_checkpoint = time.monotonic()
        self._has_checkpoints = self._identity is not None and work.can_resume
        if self._has_checkpoints:
            self._resume()
        if self._plan is not None and self._may_spill(self._plan):
            self._open_folder()

    @property
    def counter(self) -> PretokenCounter:
        """The core's counter."""
        if self._counter is None:
            raise ValueError("this counting session is closed")
        return self._counter

    def set_source(self, number: int) -> None:
        """Count what follows with the weight of a source."""
        self.counter.set_weight(self._multiples[number])

    def seconds_left(self) -> float | None:
        """Return the seconds until the next checkpoint; None if there are no checkpoints."""
        if not self._has_checkpoints:
            return None
        return max(0.0, self._last_checkpoint + self._settings.checkpoint_seconds - time.monotonic())

    def reach(self, position: Position) -> None:
        """Record that everything before `position` is counted, and write a checkpoint if it is due."""
        self.position = position
        if self.seconds_left() != 0:
            return
        with phase("spill"):
            self._open_folder()
            self._work.keep(self._fingerprint(), position, self.counter.checkpoint())
            self._last_checkpoint = time.monotonic()

    def finish(self) -> CountedCorpus:
        """Return the counts."""
        with phase("merge runs"):
            counts = finish_weighted(self.counter, self._denominator, may_stay=self._plan is not None)
        reading = self.position.counts
        if not reading.n_bytes:  # the core has read the text itself
            reading = CorpusCounts(
                reading.n_documents,
                counts.n_bytes,
                counts.n_replaced,
                n_byte_order_marks=reading.n_byte_order_marks,
            )
        info = CountsInfo(
            pattern=canonical_pattern(self._settings.pattern),
            special_tokens=dict(zip(self._special, counts.special_counts, strict=True)),
            n_bytes=counts.n_bytes,
            n_pretokens=counts.n_pretokens,
            reading=reading,
            corpus=self._identity,
            unit=self._unit,
        )
        return CountedCorpus(counts, info, notes=list(self._work.notes))

    def close(self) -> None:
        """End the counter's threads, which the traceback of an exception would keep alive."""
        self._counter = None

    def _new_counter(self) -> PretokenCounter:
        settings, plan = self._settings, self._plan
        num_threads = settings.num_threads if plan is None else plan.num_threads
        chunk_bytes = settings.chunk_bytes if plan is None else plan.chunk_bytes
        table_bytes = None if plan is None else plan.table_bytes
        return PretokenCounter(settings.pattern, self._special, num_threads, chunk_bytes, table_bytes)

    def _fingerprint(self) -> dict[str, Any]:
        """Return what must be equal to resume from a checkpoint."""
        return {
            "inputs": self._identity,
            "pattern": canonical_pattern(self._settings.pattern),
            "special_tokens": self._special,
            "unicode_version": UNICODE_VERSION,
        }

    def _resume(self) -> None:
        journal = self._work.journal(self._fingerprint())
        if journal is None:
            return
        try:
            self.counter.resume(journal.state, str(self._work.open()))
        except (TokenizerError, OSError) as error:
            self._work.drop_journal(str(error))
            self._counter = self._new_counter()
            return
        self.position = journal.position

    def _may_spill(self, plan: CountingPlan) -> bool:
        # The decompressed size of compressed text is unknown.
        if self._corpus is None or not self._corpus.is_plain or (n_bytes := self._corpus.total_bytes) is None:
            return True
        return n_bytes * _TABLE_BYTES_PER_BYTE > plan.table_bytes

    def _open_folder(self) -> None:
        self.counter.set_folder(str(self._work.open()))


def corpus_identity(corpus: Corpus) -> dict[str, Any] | None:
    """Return what determines the counts of a corpus besides pattern and special tokens.

    None if the corpus cannot be read a second time.
    """
    if not corpus.can_resume:
        return None
    return {**corpus.description, "weights": corpus_weights(corpus)}


def corpus_weights(corpus: Corpus) -> list[float]:
    """Return how much each source counts; repeated documents are weighted already."""
    return [1.0] * len(corpus.source_names) if corpus.repeat_by_weight else list(corpus.weights)
