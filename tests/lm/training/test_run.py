"""The state of a run: spikes, speed, and the average of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bytemill.lm import ModelConfig, TransformerLM
from bytemill.lm.training import run
from bytemill.lm.training.config import OptimizerConfig
from bytemill.lm.training.run import Speed, SpikeDetector, WeightAverage
from tests.lm.conftest import sizes

if TYPE_CHECKING:
    import pytest


OPTIONS = OptimizerConfig(spike_norm=5.0, spike_loss=2.0)


def test_a_spike_exceeds_the_median_of_the_steps_before_it() -> None:
    detector = SpikeDetector()
    assert [detector.add(3.0, 1.0, OPTIONS) for _ in range(20)] == [None] * 20
    assert detector.add(6.0, 5.0, OPTIONS) is None
    high_loss = {"loss": 6.1, "median_loss": 3.0, "grad_norm": 1.0, "median_grad_norm": 1.0}
    assert detector.add(6.1, 1.0, OPTIONS) == high_loss
    assert detector.add(3.0, 5.1, OPTIONS) is not None
    assert detector.add(3.0, 1.0, OPTIONS) is None


def test_the_first_steps_are_no_spikes() -> None:
    detector = SpikeDetector()
    detector.add(1.0, 1.0, OPTIONS)
    assert detector.add(100.0, 100.0, OPTIONS) is None


def test_factors_of_zero_report_nothing() -> None:
    detector = SpikeDetector([1.0] * 50, [1.0] * 50)
    assert detector.add(100.0, 100.0, OptimizerConfig(spike_norm=0.0, spike_loss=0.0)) is None


def test_a_lasting_change_is_no_spike_after_half_a_window() -> None:
    detector = SpikeDetector([1.0] * 100, [1.0] * 100)
    spikes = [detector.add(1.0, 9.0, OPTIONS) is not None for _ in range(60)]
    assert spikes == [True] * 50 + [False] * 10
    assert len(detector.losses) == len(detector.norms) == 100


def test_a_fall_below_half_of_the_fastest_rate_is_said_once_until_it_has_recovered(
    monkeypatch: pytest.MonkeyPatch,
):
    now = [0.0]
    monkeypatch.setattr(run.time, "perf_counter", lambda: now[0])
    speed = Speed(torch.device("cpu"), 1.0, None, n_tokens=0)

    def note_at(rate: float, n_tokens: int = 2000) -> str | None:
        speed.start()
        now[0] += n_tokens / rate
        speed.stop(n_tokens)
        speed.take(0.0, 10_000)
        return speed.slowdown()

    notes = [note_at(rate) for rate in (900, 1000, 510, 490, 300, 700, 480, 760, 100)]
    assert [i for i, note in enumerate(notes) if note] == [3, 8]
    assert notes[3] == "the device has slowed down: 490 tokens/s, 49% of the fastest so far"
    note_at(1000)
    assert note_at(100, n_tokens=50) is None  # half a second says little
    monkeypatch.setattr(run, "are_cores_shared", lambda: True)
    note_at(1000)
    assert note_at(250) == "other programs use the cores: 250 tokens/s, 25% of the fastest so far"


TINY = ModelConfig(**sizes(20, 8, 8, 1, 2, 16), tied_embeddings=True)


def copies(model: TransformerLM) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_an_average_is_its_formula() -> None:
    model = TransformerLM(TINY, seed=1)
    average = WeightAverage(model, decay=0.3)
    expected = copies(model)
    for t in range(1, 6):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        average.update()
        decay = min(0.3, (1 + t) / (10 + t))
        expected = [
            decay * mean + (1 - decay) * weights
            for mean, weights in zip(expected, copies(model), strict=True)
        ]
    for ours, theirs in zip(average.tensors, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_average_is_in_the_model_inside_the_block_alone() -> None:
    model = TransformerLM(TINY, seed=1)
    average = WeightAverage(model, decay=0.5)
    first = copies(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    last = copies(model)
    with average.in_model():
        assert all(torch.equal(a, b) for a, b in zip(first, copies(model), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(last, copies(model), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first, average.tensors, strict=True))
