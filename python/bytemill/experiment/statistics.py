"""Statistics of studies and benchmarks.

Intervals over seeds, accuracies, paired differences, correction for many, power, rank correlation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.analysis.intervals import ratio_interval, share_interval
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_scipy: Any = import_library("scipy", "bytemill.experiment")

LEVEL = 0.95
POWER = 0.8
LEARNED_SHARE = 0.1
"""Share of the unigram distribution's loss by which a model must be below it to count as trained."""
_N_PERMUTATIONS = 10_000
_EXACT = 8
"""Up to this many pairs, all orders are tried."""


@dataclass(frozen=True)
class Mean:
    """A mean over seeds."""

    value: float
    n: int
    deviation: float | None
    """Standard deviation; None for one seed."""
    half_width: float | None
    """Of the 95 % interval, from Student's t distribution; None for one seed."""


@dataclass(frozen=True)
class Difference(Mean):
    """A mean difference, paired by seed."""

    p: float | None
    """Of the two-sided paired t test; None for one seed."""

    @property
    def detectable(self) -> float | None:
        """The smallest difference that as many seeds show in 80 % of studies."""
        return None if self.deviation is None else detectable_difference(self.deviation, self.n)


@dataclass(frozen=True)
class Accuracy:
    """The mean score of items, which are right (1) or wrong (0), or have a score between."""

    value: float
    n: int
    standard_error: float | None
    """Standard deviation of the scores / √n; None for one item."""
    interval: tuple[float, float] | None
    """95 % interval: Wilson's for scores of 0 and 1, otherwise by bootstrap over items; None for one item of these."""


@dataclass(frozen=True)
class AccuracyDifference:
    """The difference of two models' accuracies on the same items."""

    value: float
    n: int
    n_first: int
    """Items on which the first model scores higher."""
    n_second: int
    """Items on which the second model scores higher."""
    interval: tuple[float, float] | None
    """95 % interval by bootstrap over items; None if the models score all items alike."""
    p: float | None
    """Two-sided, of McNemar's exact test for scores of 0 and 1, otherwise of the paired t test; None for one item of
    these."""


@dataclass(frozen=True)
class Learning:
    """How far a model is below the unigram distribution of its training tokens, on the tokens that it is scored on."""

    loss: float
    """Bits per token of the model."""
    unigram: float
    """Bits per token of the unigram distribution."""
    gain: float
    """1 − loss / unigram; at most 0 for a model that has learned nothing."""
    interval: tuple[float, float] | None
    """95 % interval of the gain over documents drawn with replacement; None for a single document."""

    @property
    def is_clear(self) -> bool:
        """Whether the model has clearly left the unigram distribution."""
        return (self.gain if self.interval is None else self.interval[0]) >= LEARNED_SHARE


@dataclass(frozen=True)
class RateChoice:
    """The learning rate of an arm, and how sure its choice is."""

    rate: float
    n: int
    """Seeds of each trial."""
    is_at_edge: bool
    """Whether it is the smallest or the largest rate: another one may be better."""
    neighbours: dict[float, Difference]
    """The next lower and higher rate: bits per byte of that rate − those of the chosen one."""

    @property
    def rivals(self) -> list[float]:
        """Neighbouring rates that are not told apart from the chosen one: their interval reaches 0, or is unknown."""
        return [
            rate
            for rate, own in self.neighbours.items()
            if own.half_width is None or own.value - own.half_width <= 0
        ]


def mean(values: Sequence[float]) -> Mean:
    """Return the mean with its 95 % interval.

    >>> round(mean([1.0, 2.0, 3.0]).half_width, 6)
    2.484138
    """
    n = len(values)
    average = sum(values) / n
    if n < 2:
        return Mean(average, n, None, None)
    deviation = math.sqrt(sum((value - average) ** 2 for value in values) / (n - 1))
    return Mean(average, n, deviation, _t_quantile(0.5 + LEVEL / 2, n - 1) * deviation / math.sqrt(n))


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the mean of first − second, with the values of each seed paired."""
    own = mean([a - b for a, b in zip(first, second, strict=True)])
    p = None
    if own.deviation:
        t = abs(own.value) / (own.deviation / math.sqrt(own.n))
        p = 2 * float(_scipy.special.stdtr(own.n - 1, -t))
    elif own.deviation is not None:
        p = 1.0 if own.value == 0 else 0.0
    return Difference(own.value, own.n, own.deviation, own.half_width, p)


def accuracy(scores: Sequence[float]) -> Accuracy:
    """Return the mean score of items with its standard error and interval.

    Args:
        scores: Score of each item, from 0 to 1; at least one.

    >>> own = accuracy([1] * 3 + [0] * 7)
    >>> own.value, [round(end, 4) for end in own.interval], round(own.standard_error, 4)
    (0.3, [0.1078, 0.6032], 0.1528)
    """
    values = np.asarray(scores, dtype=np.float64)
    n, value = len(values), float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else None
    if not _is_binary(values):
        return Accuracy(value, n, error, ratio_interval(values, np.ones(n)))
    return Accuracy(value, n, error, share_interval(int(values.sum()), n))


def accuracy_difference(first: Sequence[float], second: Sequence[float]) -> AccuracyDifference:
    """Compare the scores of two models on the same items: first − second.

    McNemar's exact test asks whether the items on which one model alone is right divide like tosses of a coin.

    Args:
        first: Score of each item, from 0 to 1; at least one.
        second: Scores of the other model, in the same order.

    >>> own = accuracy_difference([1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 1, 0])
    >>> round(own.value, 4), own.n_first, own.n_second, own.p
    (0.6667, 4, 0, 0.125)
    """
    a, b = (np.asarray(scores, dtype=np.float64) for scores in (first, second))
    n, (n_first, n_second) = len(a), (int((a > b).sum()), int((a < b).sum()))
    n_apart = n_first + n_second
    if _is_binary(a) and _is_binary(b):
        p = float(_scipy.stats.binomtest(n_first, n_apart).pvalue) if n_apart else 1.0
    else:
        p = paired_difference(a.tolist(), b.tolist()).p
    return AccuracyDifference(
        float((a - b).mean()),
        n,
        n_first,
        n_second,
        ratio_interval(a - b, np.ones(n)) if n_apart else None,
        p,
    )


def _is_binary(values: NDArray[np.float64]) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


def detectable_difference(deviation: float, n: int) -> float | None:
    """Return the smallest difference that `n` pairs show with a power of 80 %; None for one pair.

    (t₀.₉₇₅ + t₀.₈) · σ / √n, with the quantiles of Student's t distribution with n − 1 degrees of freedom.
    """
    if n < 2:
        return None
    quantiles = _t_quantile(0.5 + LEVEL / 2, n - 1) + _t_quantile(POWER, n - 1)
    return quantiles * deviation / math.sqrt(n)


def _t_quantile(share: float, n_free: int) -> float:
    """Return the t below which a share of Student's distribution lies."""
    return float(_scipy.special.stdtrit(n_free, share))


def unigram_bits(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return −log₂ q of each id, for the unigram distribution of training tokens with Witten–Bell smoothing.

    q(t) = (n_t + T / V) / (N + T), where t occurs n_t times among N tokens, which are T different ones of V ids. The
    share T / (N + T), an estimate of the probability of a new one, is divided among all ids (Witten & Bell 1991).

    Args:
        counts: Uses n_t of each of the V ids.

    >>> unigram_bits(np.array([6, 0])).round(4).tolist()
    [0.1069, 3.8074]
    """
    n_used = np.count_nonzero(counts)
    return -np.log2((counts + n_used / len(counts)) / (counts.sum() + n_used))


def learning(bits: NDArray[np.float64], unigram: NDArray[np.float64], n_tokens: int) -> Learning:
    """Compare a model with the unigram distribution of its training tokens: gain = 1 − Σ bits / Σ unigram bits.

    Args:
        bits: Bits of each document under the model.
        unigram: Bits of each document under the unigram distribution.
        n_tokens: Tokens of all documents.
    """
    ratios, total = ratio_interval(bits, unigram), float(unigram.sum())
    return Learning(
        float(bits.sum()) / n_tokens,
        total / n_tokens,
        1 - float(bits.sum()) / total if total else 0.0,
        None if ratios is None else (1 - ratios[1], 1 - ratios[0]),
    )


def choose_rate(bits: Mapping[float, Mapping[int, float]], n_seeds: int = 1) -> RateChoice | None:
    """Return the learning rate with the lowest mean, and the paired differences of its neighbours.

    Args:
        bits: Bits per byte of the trials by learning rate and seed. A rate that lacks a seed is left out: its trial has
            failed.
        n_seeds: Seeds that there must be at least.

    Returns:
        None if no rate has all seeds.

    >>> choice = choose_rate({0.1: {0: 1.0, 1: 1.1}, 0.2: {0: 1.2, 1: 1.3}})
    >>> choice.rate, choice.is_at_edge, choice.rivals
    (0.1, True, [])
    """
    seeds = sorted({seed for own in bits.values() for seed in own})
    complete = {rate: bits[rate] for rate in sorted(bits) if len(bits[rate]) == len(seeds) >= n_seeds}
    if not complete:
        return None
    rates = list(complete)
    best = min(rates, key=lambda rate: sum(complete[rate].values()))
    at = rates.index(best)
    values = {rate: [own[seed] for seed in seeds] for rate, own in complete.items()}
    nearest = (*rates[max(0, at - 1) : at], *rates[at + 1 : at + 2])
    neighbours = {rate: paired_difference(values[rate], values[best]) for rate in nearest}
    return RateChoice(best, len(seeds), len(rates) > 1 and at in (0, len(rates) - 1), neighbours)


def holm(ps: Sequence[float]) -> list[float]:
    """Return the p-values corrected for their number (Holm 1979).

    >>> [round(p, 9) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(ps)), key=lambda index: ps[index])
    corrected = [0.0] * len(ps)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[index] = largest
    return corrected


def spearman(x: Sequence[float], y: Sequence[float], seed: int = 0) -> tuple[float, float] | None:
    """Return Spearman's ρ and its p-value by permutation; None for fewer than three pairs, or if all x or y are equal.

    Up to 8 pairs, all orders are compared; beyond, 10,000 random ones. Equal values share the mean of their ranks.
    """
    if len(x) < 3:
        return None
    a, b = (_scipy.stats.rankdata(values) for values in (x, y))
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    if scale == 0:
        return None
    n = len(a)
    if n <= _EXACT:
        orders = np.array(list(permutations(range(n))))
    else:
        generator = np.random.default_rng(seed)
        orders = np.array([np.arange(n), *(generator.permutation(n) for _ in range(_N_PERMUTATIONS))])
    rho = float(a @ b) / scale
    as_far = np.abs(a[orders] @ b) / scale >= abs(rho) - 1e-12
    return rho, float(as_far.mean())
