"""Spikes: steps far above the running median."""

from bytemill.lm.training.config import OptimizerConfig
from bytemill.lm.training.run import SpikeDetector

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
