"""Statistics of studies equal scipy's and published examples."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from bytemill.experiment.accuracy_table import accuracy_rows, corrected
from bytemill.experiment.statistics import (
    accuracy,
    accuracy_difference,
    choose_rate,
    detectable_difference,
    holm,
    learning,
    mean,
    paired_difference,
    spearman,
)

values = st.lists(st.floats(-10, 10).map(lambda x: round(x, 3)), min_size=2, max_size=12)


@pytest.mark.parametrize(
    ("n", "detectable", "half_width", "p"),
    [
        (2, 9.957892521561456, 4.0822270835085, 0.4478743962041041),
        (3, 3.0965101474461214, 1.267604984480728, 0.6615897848095127),
        (5, 1.6624761500272067, 0.9068478713304755, 0.8506917353765685),
        (10, 0.9947137350096735, 0.5631405264655274, 0.879332585432542),
        (40, 0.45436015568030136, 0.28927306723432694, 0.8795816822771609),
    ],
)
def test_students_distribution_gives_the_numbers_of_bisection(
    n: int, detectable: float, half_width: float, p: float
):
    """The expected numbers are those of a continued fraction, inverted by bisection."""
    first, second = [math.sin(3 * i) for i in range(n)], [0.7 * math.cos(5 * i) for i in range(n)]
    result = paired_difference(first, second)
    assert detectable_difference(1.0, n) == pytest.approx(detectable, rel=1e-12)
    assert (result.half_width, result.p) == pytest.approx((half_width, p), rel=1e-12)


@given(values)
def test_the_interval_of_a_mean_is_scipys(own: list[float]):
    result = mean(own)
    assert result.half_width is not None
    error = scipy.stats.sem(own)
    low, high = (
        scipy.stats.t.interval(0.95, len(own) - 1, loc=np.mean(own), scale=error) if error else (own[0],) * 2
    )
    assert result.value - result.half_width == pytest.approx(low, abs=1e-9)
    assert result.value + result.half_width == pytest.approx(high, abs=1e-9)


@given(st.lists(st.tuples(st.integers(-99, 99), st.integers(-99, 99)), min_size=2, max_size=12))
def test_the_paired_difference_is_the_paired_t_test(pairs: list[tuple[int, int]]):
    first, second = ([pair[side] / 7 for pair in pairs] for side in (0, 1))
    result = paired_difference(first, second)
    assert result.value == pytest.approx(np.mean(np.subtract(first, second)))
    if len({a - b for a, b in pairs}) > 1:
        expected = scipy.stats.ttest_rel(first, second)
        assert result.p == pytest.approx(expected.pvalue, rel=1e-7, abs=1e-12)
        low, high = expected.confidence_interval()
        assert result.half_width == pytest.approx((high - low) / 2)


def test_one_seed_has_no_interval():
    assert mean([1.5]).half_width is None
    difference = paired_difference([1.5], [1.0])
    assert (difference.value, difference.p, difference.detectable) == (0.5, None, None)
    assert detectable_difference(1.0, 1) is None


def test_holms_correction_is_that_of_his_procedure():
    assert holm([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=6))
def test_spearmans_rank_correlation_is_scipys(pairs: list[tuple[int, int]]):
    x, y = [a for a, _ in pairs], [b for _, b in pairs]
    result = spearman(x, y)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert result is None
        return
    assert result is not None
    expected: Any = scipy.stats.spearmanr(x, y)
    assert result[0] == pytest.approx(expected.statistic)


def test_the_permutation_test_counts_orders():
    assert spearman([1, 2, 3, 4], [1, 2, 3, 4]) == (1.0, pytest.approx(2 / 24))
    x, y = (
        [math.sin(3 * i) // 0.2 for i in range(30)],
        [math.cos(5 * i) * 0.7 // 0.1 + i / 3 for i in range(30)],
    )
    for n, expected in {
        5: (-0.10259783520851541, 0.9),
        8: (-0.01197626261913259, 0.9888888888888889),
        9: (0.00836827408755723, 0.9929007099290071),
        30: (-0.02666724936066483, 0.8906109389061094),
    }.items():
        assert spearman(x[:n], y[:n]) == pytest.approx(expected, rel=1e-12)
    many = spearman(list(range(30)), list(range(30)))
    assert many is not None
    assert many[1] < 0.001
    assert spearman([1, 2], [1, 2]) is None


def test_rates_without_all_seeds_are_left_out():
    assert choose_rate({}) is None
    assert choose_rate({0.1: {0: 1.0}}, n_seeds=2) is None
    assert choose_rate({0.1: {0: 1.0, 1: 1.0}, 0.2: {0: 0.5, 2: 0.5}}) is None
    choice = choose_rate({0.1: {0: 1.0, 1: 1.0}, 0.2: {0: 0.5}, 0.4: {0: 1.5, 1: 1.5}}, n_seeds=2)
    assert choice is not None
    assert (choice.rate, choice.n, list(choice.neighbours)) == (0.1, 2, [0.4])
    alone = choose_rate({0.1: {0: 1.0, 1: 1.0}})
    assert alone is not None
    assert (alone.is_at_edge, alone.neighbours) == (False, {})


def test_the_gain_over_the_unigram_distribution_is_that_of_all_documents():
    bits, unigram = np.array([10.0, 30.0, 20.0]), np.array([20.0, 40.0, 40.0])
    own = learning(bits, unigram, 30)
    assert (own.loss, own.unigram, own.gain) == (2.0, pytest.approx(100 / 30), pytest.approx(0.4))
    assert own.interval is not None
    assert 0.25 <= own.interval[0] < 0.4 < own.interval[1] <= 0.5
    assert own.is_clear
    assert learning(bits[:1], unigram[:1], 3).interval is None
    assert not learning(unigram * 0.91, unigram, 30).is_clear
    assert not learning(np.zeros(1), np.zeros(1), 1).is_clear


@given(st.lists(st.booleans(), min_size=2, max_size=40))
def test_intervals_of_accuracies_are_wilsons(right: list[bool]):
    found, n = accuracy(right), len(right)
    p, z = sum(right) / n, scipy.stats.norm.ppf(0.975)
    centre, width = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert found.interval == pytest.approx(
        [(centre + s * width) / (1 + z * z / n) for s in (-1, 1)], abs=1e-9
    )
    assert found.value == pytest.approx(p)
    assert found.standard_error == pytest.approx(math.sqrt(p * (1 - p) / (n - 1)))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_two_models_are_compared_by_mcnemars_exact_test(pairs: list[tuple[bool, bool]]):
    found = accuracy_difference([a for a, _ in pairs], [b for _, b in pairs])
    b, c = (sum(pair == wanted for pair in pairs) for wanted in ((True, False), (False, True)))
    tail = sum(math.comb(b + c, k) for k in range(min(b, c) + 1)) / 2 ** (b + c)
    assert found.p == pytest.approx(min(1, 2 * tail))
    assert (found.n_first, found.n_second, found.value) == (b, c, pytest.approx((b - c) / len(pairs)))
    assert (found.interval is None) == (b + c == 0 or len(pairs) == 1)


def test_scores_between_right_and_wrong_have_intervals_too():
    own = accuracy([0.25, 0.5, 1.0, 0.0])
    assert own.interval is not None
    assert own.interval[0] < own.value == 0.4375 < own.interval[1]
    compared = accuracy_difference([0.25, 0.5, 1.0], [0.0, 0.5, 0.5])
    test: Any = scipy.stats.ttest_1samp([0.25, 0, 0.5], 0)
    assert compared.p == pytest.approx(test.pvalue)
    assert accuracy([1]).standard_error is None


def test_accuracies_are_also_shown_on_clean_items_and_by_group():
    (row,) = accuracy_rows(
        {"sum": [1, 0, 1]},
        groups=["a", "a", "b"],
        overlapping=[True, False, False],
        others={"sum": [0, 0, 1]},
    )
    assert (row.all.value, row.clean and row.clean.value) == (pytest.approx(2 / 3), 0.5)
    assert {name: own.n for name, own in row.by_group.items()} == {"a": 2, "b": 1}
    assert row.against is not None
    assert row.against.n_first == 1
    assert row.corrected_p is None
    other = replace(row, against=replace(row.against, p=0.02))
    (first,), (second, untested) = corrected(
        [[other], [replace(other, against=replace(row.against, p=0.03)), row]]
    )
    assert (row.against.p, untested.corrected_p) == (1.0, 1.0)
    assert (first.corrected_p, second.corrected_p) == (pytest.approx(0.06), pytest.approx(0.06))
    (alone,) = accuracy_rows({"sum": [1]}, groups=[""], overlapping=[True])
    assert (alone.clean, alone.by_group, alone.against) == (None, {}, None)
