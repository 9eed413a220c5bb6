"""A bound on the memory of the process, and how training divides it."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bytemill.errors import TokenizerError
from bytemill.system import memory

if TYPE_CHECKING:
    from collections.abc import Generator

_STATM = Path("/proc/self/statm")

_MARGIN_BYTES = 12_000_000
"""For what nobody counts: small objects, the allocator's gaps, stacks of threads."""
_MARGIN_SHARE = 0.08
_LEAST_TABLE_BYTES = 8_000_000
"""With less for a table, counting would write to disk more than it counts."""
_READ_BYTES = 600_000
"""What a chunk takes beyond its size: a block that is being read, and text that waits for a place to be cut at."""
_CHUNK_BYTES = 2 << 20
_BATCH_BYTES = 48_000_000
"""Batches of documents that are read ahead, and what they are made of."""


_M_MMAP_THRESHOLD = -3
_MOST_KEPT_BYTES = 32 << 20


@dataclass(frozen=True)
class CountingPlan:
    """What counting may use."""

    num_threads: int
    chunk_bytes: int
    table_bytes: int
    """For the tables of all threads."""


def parse_max_memory(value: int | str) -> int:
    """Bytes of a budget: a number, or text such as "300MB" or "2GB" (powers of ten) or "1GiB".

    Raises `TokenizerError` for what is none, and TypeError for what is neither an int nor a str.

    >>> parse_max_memory("300MB")
    300000000
    """
    from bytemill.corpus.options import parse_bytes

    if isinstance(value, bool) or not isinstance(cast("object", value), (int, str)):
        raise TypeError(f"max_memory must be an int or a str, not {type(value).__name__} ({value!r:.40})")
    try:
        n_bytes = parse_bytes(value) if isinstance(value, str) else value
    except ValueError as error:
        raise TokenizerError(
            f"max_memory is {value!r}", hint="write it like 300MB, 2GB or 1GiB, or give bytes"
        ) from error
    if n_bytes < 1:
        raise TokenizerError(f"max_memory is {value!r}", hint="write it like 300MB, 2GB or 1GiB")
    return n_bytes


@dataclass(frozen=True)
class MemoryBudget:
    """Most resident memory that the process may have."""

    max_bytes: int

    def counting(self, num_threads: int | None, chunk_bytes: int | None, *, in_batches: bool) -> CountingPlan:
        """How many threads count, and with how much each. Raises `TokenizerError` where it is too little for one."""
        wanted = num_threads or os.cpu_count() or 1
        before = resident_bytes()
        free = self.max_bytes - before - self._margin - (_BATCH_BYTES if in_batches else 0)
        for n_threads in range(wanted, 0, -1):
            # While a thread counts a chunk, the next waits, and one is filled.
            n_chunks = 2 * n_threads + 2
            chunk = chunk_bytes or max(1 << 16, min(_CHUNK_BYTES, free // (8 * n_chunks)))
            table_bytes = free - n_chunks * (chunk + _READ_BYTES)
            if table_bytes >= n_threads * _LEAST_TABLE_BYTES:
                return CountingPlan(n_threads, chunk, table_bytes)
        least = _LEAST_TABLE_BYTES + 4 * ((chunk_bytes or 1 << 16) + _READ_BYTES)
        raise self._too_little("counting", self.max_bytes - free + least, before)

    def learning(self, counts_bytes: int) -> int:
        """What learning may use, the counts that are in memory among it."""
        free = self.max_bytes - (resident_bytes() - counts_bytes) - self._margin
        return max(free, 0)

    def too_little_to_learn(self, least_bytes: int) -> TokenizerError:
        """The error for learning that needs `least_bytes`, when what the process holds by then is known."""
        before = resident_bytes()
        return self._too_little("learning the merges", before + least_bytes + self._margin, before)

    @property
    def _margin(self) -> int:
        return _MARGIN_BYTES + int(_MARGIN_SHARE * self.max_bytes)

    def _too_little(self, what: str, least: int, before: int) -> TokenizerError:
        # The margin grows with the budget.
        least = int(least / (1 - _MARGIN_SHARE)) // 1_000_000 + 1
        return TokenizerError(
            f"max_memory is {self.max_bytes / 1e6:,.0f} MB, too little for {what}: "
            f"{before / 1e6:,.0f} MB are the process as it stands",
            hint=f"give at least {least}MB (--max-memory {least}MB)",
        )


def resident_bytes() -> int:
    """The resident memory of the process; where the system does not say, its peak."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return memory.peak_bytes()


@contextlib.contextmanager
def frugal_allocation() -> Generator[None]:
    """While the block runs, memory of a megabyte or more goes back to the system as soon as it is freed.

    By default glibc keeps up to 32 MiB of each such piece, once it has seen one freed; and what grows is copied within
    its heap, which then holds both. That was 10 to 30 MB of a budget of 300.
    """
    _mallopt(1 << 20)
    try:
        yield
    finally:
        release_freed_memory()
        _mallopt(_MOST_KEPT_BYTES)


def _mallopt(n_bytes: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, n_bytes)


def release_freed_memory() -> None:
    """Hands memory that was freed back to the system, where its allocator keeps it otherwise (glibc's does)."""
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
