"""Sequences per step: constant, or growing in a ramp."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bytemill.lm.training.batch_ramp import n_sequences, sequences_at
from bytemill.lm.training.config import TrainingConfig


@settings(max_examples=50, deadline=None)
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


def test_without_a_ramp_every_step_is_full() -> None:
    config = TrainingConfig(batch_size=8, accumulation=3)
    assert {sequences_at(step, config) for step in (0, 1, 1000)} == {24}
    assert n_sequences(10, config) == 240
