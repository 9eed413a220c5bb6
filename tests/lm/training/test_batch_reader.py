"""Batches read ahead: the same as without, in any step, and no thread left behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch

from bytemill.errors import ShardError
from bytemill.lm.batches import ShardBatches
from bytemill.lm.training.config import TrainingConfig
from bytemill.lm.training.data import BatchReader, pass_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from tests.lm.conftest import Corpus

TRAINING = TrainingConfig(steps=6, batch_size=2, accumulation=3, batch_ramp_steps=3, batch_ramp_start=2)


def taken(corpus: Corpus, *, prefetch: bool, first_step: int = 0, n_processes: int = 1) -> Iterator[Tensor]:
    """Yield inputs and targets of every pass, as a run that resumed before `first_step` takes them."""
    batches = ShardBatches([corpus.folder / "train"], 16, n_processes=n_processes)
    reader = BatchReader(batches, TRAINING, n_processes, torch.device("cpu"), prefetch=prefetch)
    try:
        for step in range(TRAINING.steps):
            for n_sequences in pass_sizes(TRAINING, n_processes, step):
                if step < first_step:
                    batches.advance(n_sequences)
                    continue
                before = batches.position
                yield from reader.take(n_sequences, step)
                assert batches.position == before + n_processes * n_sequences
    finally:
        reader.close()


@pytest.mark.parametrize("n_processes", [1, 2])
@pytest.mark.parametrize("first_step", [0, 1, 4])
def test_reading_ahead_gives_the_same_batches(corpus: Corpus, first_step: int, n_processes: int):
    ahead, plain = (
        list(taken(corpus, prefetch=prefetch, first_step=first_step, n_processes=n_processes))
        for prefetch in (True, False)
    )
    assert len(ahead) == len(plain) > 0
    assert all(map(torch.equal, ahead, plain))


def test_an_error_of_the_thread_reaches_the_step_that_needs_the_batch(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
):
    batches = ShardBatches([corpus.folder / "train"], 16)
    reader = BatchReader(batches, TRAINING, 1, torch.device("cpu"), prefetch=True)
    read = batches.read

    def damaged(position: int, batch_size: int) -> Tensor:
        if position >= 2:
            raise ShardError("damaged")
        return read(position, batch_size)

    monkeypatch.setattr(batches, "read", damaged)
    reader.take(2, 0)
    with pytest.raises(ShardError, match="damaged"):
        reader.take(2, 1)
    assert batches.position == 2
    reader.close()


def test_no_thread_is_left_behind(corpus: Corpus):
    batches = taken(corpus, prefetch=True)
    next(batches)
    assert any(thread.name.startswith("batches") for thread in threading.enumerate())
    batches.close()  # type: ignore[attr-defined]
    assert not any(thread.name.startswith("batches") for thread in threading.enumerate())
