"""Batches read ahead, and a batch that grows."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import ShardError
from bytemill.lm.batches import ShardBatches
from bytemill.lm.training.config import Resolved, TrainingConfig
from bytemill.lm.training.data import BatchReader, n_pass_sizes, n_sequences, pass_sizes, sequences_at
from bytemill.lm.training.trainer import train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


@given(st.integers(1, 6), st.integers(1, 20), st.integers(1, 40), st.integers(0, 60))
def test_a_ramp_grows_in_multiples_to_the_full_step(start: int, k: int, n_ramp: int, n_steps: int) -> None:
    config = TrainingConfig(batch_size=start * k, batch_ramp_start=start, batch_ramp_steps=n_ramp)
    sizes = [sequences_at(step, config) for step in range(n_ramp + 3)]
    assert sizes[0] == start
    assert sizes[n_ramp:] == [start * k] * 3
    assert sizes == sorted(sizes)
    assert all(size % start == 0 for size in sizes)
    # Halfway through the ramp, half of the growth is done.
    assert sizes[n_ramp // 2] == pytest.approx(start + start * (k - 1) / 2, abs=start * (1 + k / n_ramp))
    assert n_sequences(n_steps, config) == sum(sequences_at(step, config) for step in range(n_steps))


@given(
    st.integers(1, 6), st.integers(1, 40), st.integers(1, 5), st.integers(1, 3), st.integers(0, 60), st.data()
)
def test_the_passes_of_a_step_are_all_its_sequences_in_few_sizes(
    start: int, k: int, accumulation: int, n_processes: int, n_ramp: int, data: st.DataObject
) -> None:
    full = start * k * n_processes
    accumulation = data.draw(st.sampled_from([n for n in range(1, accumulation + 1) if full % n == 0]))
    config = TrainingConfig(
        batch_size=full // accumulation,
        accumulation=accumulation,
        batch_ramp_start=start * n_processes if n_ramp else 0,
        batch_ramp_steps=n_ramp,
    )
    sizes: set[int] = set()
    for step in range(n_ramp + 2):
        passes = pass_sizes(config, n_processes, step)
        assert sum(passes) * n_processes == sequences_at(step, config)
        assert max(passes) <= config.batch_size
        assert passes == sorted(passes, reverse=True)
        sizes |= set(passes)
    assert len(sizes) <= n_pass_sizes(config, n_processes) <= 2 + math.log2(config.batch_size)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_every_size_of_a_ramp_is_compiled(
    settings: Callable[..., Resolved], monkeypatch: pytest.MonkeyPatch
) -> None:
    n_compiled, shapes = 0, list[int]()

    def count(graph: Any, _inputs: Any) -> Any:
        nonlocal n_compiled
        n_compiled += 1

        def call(*arguments: Any) -> Any:
            (x,) = (each for each in arguments if each.ndim == 3 and each.shape[1:] == (16, 16))
            shapes.append(len(x))
            return graph(*arguments)

        return call

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda block, **options: compile_(block, backend=count, **options))
    torch._dynamo.reset()
    resolved = settings(
        training__compile=True,
        training__batch_size=300,
        training__batch_ramp_start=1,
        training__batch_ramp_steps=12,
        training__steps=14,
        model__num_layers=1,
        run__validate_every=0,
    )
    train(resolved)
    passes = [size for step in range(14) for size in pass_sizes(resolved.config.training, 1, step)]
    assert shapes == passes
    assert n_compiled == len(set(passes)) > 8
