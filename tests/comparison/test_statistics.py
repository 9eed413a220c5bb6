"""Intervals against scipy, entropies and Gini coefficients against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from bytemill.analysis.intervals import quantile, ratio_interval, sampled_sums
from bytemill.comparison.costs import gini, lorenz_curve, premiums
from bytemill.comparison.figures import renyi_efficiency, used_share


@pytest.mark.parametrize("n", [30, 400])
def test_intervals_of_ratios_are_those_of_scipy(n: int):
    generator = np.random.default_rng(1)
    tokens = generator.integers(50, 150, n)
    n_bytes = tokens * 4 + generator.integers(-40, 40, n)
    ours = ratio_interval(n_bytes, tokens)
    theirs = scipy.stats.bootstrap(
        (n_bytes, tokens),
        lambda a, b, axis: a.sum(axis) / b.sum(axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=4000,
        rng=np.random.default_rng(2),
    ).confidence_interval
    assert ours is not None
    width = theirs.high - theirs.low
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.1 * width)


def test_many_documents_are_drawn_in_groups():
    generator = np.random.default_rng(1)
    columns = np.stack([generator.poisson(40, 30_000), generator.poisson(10, 30_000)], axis=1)
    sums = sampled_sums(columns)
    assert sums.shape == (1000, 2)
    assert sums.mean(0) == pytest.approx(columns.sum(0), rel=1e-3)
    ratio = columns[:, 0].sum() / columns[:, 1].sum()
    residuals = columns[:, 0] - ratio * columns[:, 1]
    expected = residuals.std() * math.sqrt(30_000) / columns[:, 1].sum()
    assert (sums[:, 0] / sums[:, 1]).std() == pytest.approx(expected, rel=0.15)


def test_quantiles_have_intervals_that_hold_them():
    values = np.random.default_rng(1).integers(0, 1000, 300)
    for share in (0.5, 0.95):
        value, ends = quantile(values, share)
        assert value == np.quantile(values, share)
        assert ends is not None
        assert ends[0] <= value <= ends[1]
    assert quantile(values[:1], 0.5) == (values[0], None)


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_intervals_of_quantiles_hold_the_true_quantile_as_often_as_they_say(share: float):
    generator = np.random.default_rng(3)
    true = share * 1_000_000
    held = 0
    for _ in range(2000):
        _, ends = quantile(generator.integers(0, 1_000_000, 300), share)
        assert ends is not None
        held += ends[0] <= true <= ends[1]
    assert 0.94 < held / 2000 < 0.985


@given(st.lists(st.integers(0, 9), min_size=2, max_size=20), st.sampled_from([1, 2, 2.5, 3]))
def test_efficiency_is_entropy_over_that_of_equal_use(uses: list[int], alpha: float):
    total = sum(uses)
    ours = renyi_efficiency(np.array(uses), alpha)
    if total == 0:
        assert ours is None
        return
    shares = [n / total for n in uses if n]
    if alpha == 1:
        entropy = float(scipy.stats.entropy(shares, base=2))
    else:
        entropy = math.log2(sum(p**alpha for p in shares)) / (1 - alpha)
    assert ours == pytest.approx(entropy / math.log2(len(uses)), abs=1e-12)
    assert used_share(np.array(uses)) == len(shares) / len(uses)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_gini_is_half_the_mean_difference_over_the_mean(values: list[int]):
    n, total = len(values), sum(values)
    expected = None if total == 0 else sum(abs(a - b) for a in values for b in values) / (2 * n * total)
    ours = gini(np.array(values))
    assert ours == (expected if expected is None else pytest.approx(expected, abs=1e-12))
    if total:
        xs, ys = zip(*lorenz_curve(np.array(values)), strict=True)
        assert ours == pytest.approx(1 - 2 * np.trapezoid(ys, xs), abs=1e-12)


def test_premiums_are_relative_to_the_reference():
    tokens = {"en": np.array([3, 5]), "de": np.array([5, 7])}
    assert premiums(tokens, "en") == {"en": 1.0, "de": 1.5}
