"""Progress of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from bytemill.corpus import Corpus

Phase: TypeAlias = Literal["count", "merge"]

ReportCounted: TypeAlias = Callable[[int, int | None], None]
"""Takes the amount read and the total (None if unknown): bytes of files, or characters of texts."""


@dataclass(frozen=True)
class TrainingProgress:
    """A progress report of training."""

    phase: Phase
    done: int
    """Bytes read ("count"; characters when counting texts) or merges learned ("merge")."""
    total: int | None
    """Final value of `done`, None if unknown, as for standard input. Merging may end earlier."""


ProgressCallback: TypeAlias = Callable[[TrainingProgress], None]


def count_reporter(progress: ProgressCallback | None) -> ReportCounted | None:
    """Return the callback of counting."""
    if progress is None:
        return None
    return lambda done, total: progress(TrainingProgress("count", done, total))


def merge_reporter(progress: ProgressCallback | None, n_merges: int) -> Callable[[int], None] | None:
    """Return the callback of learning merges."""
    if progress is None:
        return None
    return lambda done: progress(TrainingProgress("merge", done, n_merges))


class FileProgress:
    """Converts bytes read of one file to bytes read of all files, which never decrease.

    Args:
        report: The callback, or None.
        corpus: The corpus.
        first: Number of the file to start with.
    """

    def __init__(self, report: ReportCounted | None, corpus: Corpus, first: int) -> None:
        self._report = report
        self._total = corpus.total_bytes
        self._finished_bytes = self._done = sum(source.n_bytes or 0 for source in corpus.sources[:first])
        self.raised: Exception | None = None
        """The exception raised by the callback, to tell it from those of reading."""

    def in_file(self, n_bytes: int) -> None:
        """Report bytes read of the current file."""
        self._done = max(self._done, self._finished_bytes + n_bytes)
        if self._report is None:
            return
        try:
            self._report(self._done, self._total)
        except Exception as error:
            self.raised = error
            raise

    def finish_file(self, n_bytes: int) -> None:
        """Report that the current file, of `n_bytes`, is finished."""
        self.in_file(n_bytes)
        self._finished_bytes = self._done
