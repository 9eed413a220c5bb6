"""Memory budget of the process, and its division during training."""

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
"""Reserve for untracked memory: small objects, allocator fragmentation, thread stacks."""
_MARGIN_SHARE = 0.08
_LEAST_TABLE_BYTES = 8_000_000
"""Smallest useful table; a smaller one spends more time writing to disk than counting."""
_READ_BYTES = 600_000
"""Overhead of a chunk: the block being read, and text before the next cut."""
_CHUNK_BYTES = 2 << 20
_BATCH_BYTES = 48_000_000
"""Batches of documents that are read ahead, and their sources."""

_M_MMAP_THRESHOLD = -3
_MAX_MMAP_THRESHOLD = 32 << 20


@dataclass(frozen=True)
class CountingPlan:
    """Memory limits of counting."""

    num_threads: int
    chunk_bytes: int
    table_bytes: int
    """Bytes of the tables of all threads."""


def parse_max_memory(value: int | str) -> int:
    """Parse a memory budget: bytes, or text such as "300MB", "2GB" (powers of ten) or "1GiB".

    Raises:
        TokenizerError: The value is not an amount of memory.
        TypeError: The value is neither an int nor a str.

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
            f"max_memory is {value!r}", hint="write it like 300MB, 2GB or 1GiB, or in bytes"
        ) from error
    if n_bytes < 1:
        raise TokenizerError(f"max_memory is {value!r}", hint="write it like 300MB, 2GB or 1GiB")
    return n_bytes


@dataclass(frozen=True)
class MemoryBudget:
    """Bound on the resident memory of the process."""

    max_bytes: int

    def counting(self, num_threads: int | None, chunk_bytes: int | None, *, in_batches: bool) -> CountingPlan:
        """Divide the free memory among counting threads.

        Args:
            num_threads: Upper bound on the number of threads; by default, the number of cores.
            chunk_bytes: Size of a chunk; by default, chosen to fit.
            in_batches: Reserve memory for batches of documents.

        Raises:
            TokenizerError: The budget is too small for one thread.
        """
        wanted = num_threads or os.cpu_count() or 1
        before = resident_bytes()
        free = self.max_bytes - before - self._margin - (_BATCH_BYTES if in_batches else 0)
        for n_threads in range(wanted, 0, -1):
            # Each thread counts one chunk while the next is ready; one more is being filled.
            n_chunks = 2 * n_threads + 2
            chunk = chunk_bytes or max(1 << 16, min(_CHUNK_BYTES, free // (8 * n_chunks)))
            table_bytes = free - n_chunks * (chunk + _READ_BYTES)
            if table_bytes >= n_threads * _LEAST_TABLE_BYTES:
                return CountingPlan(n_threads, chunk, table_bytes)
        least = _LEAST_TABLE_BYTES + 4 * ((chunk_bytes or 1 << 16) + _READ_BYTES)
        raise self._too_little("counting", self.max_bytes - free + least, before)

    def learning(self, counts_bytes: int) -> int:
        """Return the bytes that learning may use, including counts that are in memory."""
        free = self.max_bytes - (resident_bytes() - counts_bytes) - self._margin
        return max(free, 0)

    def too_little_to_learn(self, least_bytes: int) -> TokenizerError:
        """Make the error for learning that needs `least_bytes` on top of the current memory of the process."""
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
            f"the process itself takes {before / 1e6:,.0f} MB",
            hint=f"use at least {least}MB (--max-memory {least}MB)",
        )


def resident_bytes() -> int:
    """Return the resident memory of the process in bytes; its peak on systems that do not report it."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return memory.peak_bytes()


@contextlib.contextmanager
def frugal_allocation() -> Generator[None]:
    """Return allocations of a megabyte or more to the system as soon as they are freed, while the block runs.

    By default glibc raises this threshold up to 32 MiB with every large free, and buffers that grow are copied within
    its heap, which then holds both copies: 10 to 30 MB of a budget of 300 MB.
    """
    _mallopt(1 << 20)
    try:
        yield
    finally:
        release_freed_memory()
        _mallopt(_MAX_MMAP_THRESHOLD)


def _mallopt(n_bytes: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, n_bytes)


def release_freed_memory() -> None:
    """Return freed memory that glibc's allocator keeps to the system."""
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
