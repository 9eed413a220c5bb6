"""Confidence intervals of shares, and by bootstrap over documents (Efron & Tibshirani 1993).

A figure is computed again for samples of the documents, drawn with replacement; the interval holds the middle 95 % of
the results. It shows how much the figure depends on which documents were measured. It does not show what another kind
of text would give.

All figures and tokenizers share one table of how often each document is drawn, so that they are computed by one product
and compared sample by sample. scipy.stats.bootstrap would draw other samples for each.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Interval = tuple[float, float] | None

_N_SAMPLES = 1000
_LEVEL = 0.95
MAX_UNITS = 2000
_BLOCK = 250


def sampled_sums(columns: NDArray[Any], seed: int = 0) -> NDArray[np.float64]:
    """Return the sums of each column over documents drawn with replacement.

    More than 2,000 documents are first put into 2,000 random groups of equal size, which are drawn as a whole.

    Args:
        columns: Numbers of shape (n_documents, n_columns).
        seed: Seed of the samples; equal seeds draw the same documents, so that figures of one text can be compared.

    Returns:
        (1,000 samples, n_columns).
    """
    n = len(columns)
    if n > MAX_UNITS:
        order = np.random.default_rng(seed).permutation(n)
        starts = np.arange(MAX_UNITS) * n // MAX_UNITS
        columns = np.add.reduceat(columns[order].astype(np.float64), starts, axis=0)
        n = MAX_UNITS
    columns = columns.astype(np.float64)
    times = _times_drawn(n, seed)
    blocks = [times[at : at + _BLOCK].astype(np.float64) @ columns for at in range(0, _N_SAMPLES, _BLOCK)]
    return np.concatenate(blocks)


@lru_cache(maxsize=4)
def _times_drawn(n: int, seed: int) -> NDArray[np.uint16]:
    """Return how often each of `n` documents is in each sample; kept for other figures and tokenizers."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=_N_SAMPLES).astype(np.uint16)


def interval(samples: NDArray[np.floating]) -> Interval:
    """Return the percentile interval of a figure's values in the samples; None if one is not finite."""
    if not len(samples) or not np.isfinite(samples).all():
        return None
    tail = (1 - _LEVEL) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return float(low), float(high)


def ratio_interval(numerators: NDArray[Any], denominators: NDArray[Any], seed: int = 0) -> Interval:
    """Return the interval of Σ numerators / Σ denominators over documents; None for a single document.

    >>> ratio_interval(np.array([5.0]), np.array([2.0])) is None
    True
    """
    if len(numerators) < 2:
        return None
    sums = sampled_sums(np.stack([numerators, denominators], axis=1), seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        return interval(sums[:, 0] / sums[:, 1])


def quantile(values: NDArray[np.integer], share: float) -> tuple[float, Interval]:
    """Return a quantile of the documents' values and its interval, which is None for a single document.

    The ends of the interval are order statistics: the number of values below the true quantile is binomial, and its
    normal approximation gives their ranks (David & Nagaraja 2003, section 7.1). Samples would give nearly the same.

    Args:
        values: A number for each document.
        share: The quantile, from 0 to 1.
    """
    ordered, n = np.sort(values), len(values)
    spread = NormalDist().inv_cdf(0.5 + _LEVEL / 2) * (n * share * (1 - share)) ** 0.5
    low, high = math.floor(n * share - spread) - 1, math.ceil(n * share + spread)
    ends = float(ordered[max(0, low)]), float(ordered[min(n - 1, high)])
    return float(np.quantile(ordered, share)), ends if n > 1 else None


def share_interval(n_hits: int, n: int) -> tuple[float, float]:
    """Return Wilson's score interval of a share (Wilson 1927): `n_hits` of `n`, at least one.

    It never leaves [0, 1], and is not empty where there are no hits or only hits.

    >>> [round(end, 4) for end in share_interval(3, 10)]
    [0.1078, 0.6032]
    """
    z = NormalDist().inv_cdf(0.5 + _LEVEL / 2)
    share, scale = n_hits / n, 1 + z * z / n
    middle = (share + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
