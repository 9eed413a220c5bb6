"""Checkpoints of counting."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bytemill._core import PretokenCounter
    from bytemill.corpus.documents import Position
    from bytemill.training.work_folder import Journal, WorkFolder


class Checkpoints:
    """Checkpoints of one counting, written at intervals.

    Args:
        work: Folder of the journal and its runs.
        settings: Settings of the counting; a checkpoint of other settings is discarded.
        interval_seconds: Time between two checkpoints.
    """

    def __init__(self, work: WorkFolder, settings: dict[str, Any], interval_seconds: float) -> None:
        self._work = work
        self._settings = settings
        self._interval_seconds = interval_seconds
        self._last = time.monotonic()

    def latest(self) -> Journal | None:
        """Return the last checkpoint of an interrupted counting, or None."""
        return self._work.journal(self._settings)

    def seconds_left(self) -> float:
        """Return the seconds until the next checkpoint is due."""
        return max(0.0, self._last + self._interval_seconds - time.monotonic())

    def write(self, position: Position, counter: PretokenCounter) -> None:
        """Write a checkpoint. Raises `OutputError`."""
        self._work.keep(self._settings, position, counter.checkpoint())
        self._last = time.monotonic()

    def discard(self, why: str) -> None:
        """Remove an unusable checkpoint."""
        self._work.drop_journal(why)
