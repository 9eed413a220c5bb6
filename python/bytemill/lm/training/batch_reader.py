"""Reads the batches of a run, on CUDA devices ahead of the step that needs them."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from bytemill.lm.batches import inputs_and_targets
from bytemill.lm.training.batch_division import pass_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    import torch
    from torch import Tensor

    from bytemill.lm.batches import ShardBatches
    from bytemill.lm.training.config import TrainingConfig

_N_AHEAD = 2


class BatchReader:
    """The batches of the steps to come.

    With prefetching, a thread reads the next two batches, and pins their memory for the copy to a CUDA device. The
    position of `batches` is always that of the batches taken, so that a resumed run continues with the next one.

    Args:
        batches: The order of the windows.
        training: Settings of the batch.
        n_processes: Number of processes.
        device: Device of the batches.
        prefetch: Read ahead.
    """

    def __init__(
        self,
        batches: ShardBatches,
        training: TrainingConfig,
        n_processes: int,
        device: torch.device,
        *,
        prefetch: bool,
    ) -> None:
        self._batches = batches
        self._training = training
        self._n_processes = n_processes
        self._device = device
        self._thread = ThreadPoolExecutor(1, "batches") if prefetch else None
        self._sizes: Iterator[int] = iter(())
        self._next_position = 0
        self._ahead: deque[tuple[int, int, Future[Tensor]]] = deque()
        """Position and size of each batch that is read or being read."""
        self._seconds = 0.0

    def take(self, n_sequences: int, step: int) -> tuple[Tensor, Tensor]:
        """Return the next batch and its targets, int64 of shape (n_sequences, context_length) on the device.

        Args:
            n_sequences: Windows of this process in the pass.
            step: Number of the step, from 0.

        Raises:
            ShardError: A shard cannot be read.
        """
        started = time.perf_counter()
        position = self._batches.position
        windows = (
            self._batches.read(position, n_sequences)
            if self._thread is None
            else self._prefetched(self._thread, position, n_sequences, step)
        )
        self._batches.advance(n_sequences)
        self._seconds += time.perf_counter() - started
        return inputs_and_targets(windows, self._device)

    def take_seconds(self) -> float:
        """Return the seconds that steps have waited for batches since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def close(self) -> None:
        """Stop the thread."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._ahead.clear()

    def _prefetched(self, thread: ThreadPoolExecutor, position: int, n_sequences: int, step: int) -> Tensor:
        if not self._ahead or self._ahead[0][:2] != (position, n_sequences):  # the first batch
            self._ahead.clear()
            self._sizes, self._next_position = self._sizes_from(step), position
        self._read_ahead(thread, 1)
        *_, batch = self._ahead.popleft()
        self._read_ahead(thread, _N_AHEAD)
        return batch.result()

    def _read_ahead(self, thread: ThreadPoolExecutor, n_batches: int) -> None:
        while len(self._ahead) < n_batches and (size := next(self._sizes, None)) is not None:
            self._ahead.append(
                (self._next_position, size, thread.submit(self._read, self._next_position, size))
            )
            self._next_position += self._n_processes * size

    def _sizes_from(self, step: int) -> Iterator[int]:
        """Yield the size of each batch from the first one of `step` on."""
        for number in range(step, self._training.steps):
            yield from pass_sizes(self._training, self._n_processes, number)

    def _read(self, position: int, n_sequences: int) -> Tensor:
        windows = self._batches.read(position, n_sequences)
        return windows.pin_memory() if self._device.type == "cuda" else windows
