"""The law with vocabularies: exact on exact runs, and its best vocabulary is the best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from bytemill.errors import ScalingError
from bytemill.lm.planning import flops_per_token, parameters_by_part
from bytemill.scaling.sweep import Sweep, load_sweep
from bytemill.scaling.vocabulary import (
    VocabularyLaw,
    VocabularyRuns,
    best_vocabulary,
    fit_vocabulary,
)

from .conftest import write_sweep

if TYPE_CHECKING:
    from pathlib import Path

LAW = VocabularyLaw(0.9, 40.0, 25.0, 900.0, 0.45, 0.5, 0.42, 0.15, 1024.0)
DENSITY = {512: 2.1, 1024: 2.6, 2048: 3.1, 4096: 3.5}


def runs_of(sweep: Sweep, noise: float = 0.0) -> VocabularyRuns:
    """Runs of the law with all vocabularies, depths and three budgets, two seeds each."""
    rows: list[tuple[float, float, float, float]] = []
    for size, density in DENSITY.items():
        for depth in (1, 1.5, 2, 3, 4):
            shape = sweep.shape(depth, size)
            parts = parameters_by_part(shape)
            own = float(parts["token embeddings"] + parts["output layer"])
            for budget in (1e11, 3e11, 1e12):
                n_bytes = budget / flops_per_token(shape) * density
                rows += 2 * [(sum(parts.values()) - own, own, float(size), n_bytes)]
    n, m, v, h = np.array(rows).T
    scatter = np.exp(np.random.default_rng(0).normal(0, noise, len(n)))
    return VocabularyRuns(n, m, v, h, LAW.loss(n, m, v, h) * scatter, np.arange(len(n)) // 2)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return load_sweep(write_sweep(tmp_path, ("width_per_layer = 16", "width_per_layer = 32")))


def test_exact_runs_give_their_law(sweep: Sweep) -> None:
    found = fit_vocabulary(runs_of(sweep))
    assert np.abs(found.residuals).max() < 1e-6
    for flops in (3e11, 1e13):
        best, expected = (
            best_vocabulary(fit, sweep, DENSITY, flops)
            for fit in (found, fit_vocabulary(runs_of(sweep)).__class__(LAW, 0, (), found.residuals))
        )
        assert best.size.value == pytest.approx(expected.size.value, rel=0.06)
        assert best.loss.value == pytest.approx(expected.loss.value, rel=1e-4)


def test_the_best_vocabulary_beats_half_and_double(sweep: Sweep) -> None:
    fit = fit_vocabulary(runs_of(sweep, noise=0.002), n_bootstrap=40)
    best = best_vocabulary(fit, sweep, DENSITY, 3e11)
    assert best.size.low <= best.size.value <= best.size.high
    for lost in (best.lost_by_half, best.lost_by_double):
        assert lost is None or lost.value >= 0
    low = min(own.value for _, own in best.curve)
    assert best.loss.value == pytest.approx(low)
    assert "the best vocabulary has" in best.sentence


def test_runs_that_tell_no_vocabulary_are_errors(sweep: Sweep) -> None:
    runs = runs_of(sweep)

    def some(chosen: np.ndarray) -> VocabularyRuns:
        return VocabularyRuns(*(getattr(runs, name)[chosen] for name in VocabularyRuns.__dataclass_fields__))

    with pytest.raises(ScalingError, match="8 runs do not tell"):
        fit_vocabulary(some(np.arange(8)))
    with pytest.raises(ScalingError, match="2 vocabularies, and a law needs 3"):
        fit_vocabulary(some(np.flatnonzero(runs.sizes < 2000)))
    with pytest.raises(ScalingError, match="1 sizes of models"):
        fit_vocabulary(some(np.flatnonzero(runs.parameters == runs.parameters[0])))
