"""The best size of a model at each budget of FLOPs, and its power law (Hoffmann et al. 2022, approach 2).

At one budget, the loss by the logarithm of the size is about a parabola near its lowest point. The lowest points of
several budgets are joined by a line in logarithms, N ∝ C^a. Parabolas are biased where the runs do not lie around the
optimum, even without noise: compare with `fits.fit_loss`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from bytemill.errors import ScalingError
from bytemill.scaling.fits import LEVEL, Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bytemill.scaling.fits import Runs

_MIN_SIZES = 3
_FAR = float(np.log(100))
"""Optima further than this from all sizes, in logarithms, are none."""
Method: TypeAlias = Literal["parabola", "lowest"]
"""The lowest point of a parabola, or the lowest run."""


@dataclass(frozen=True)
class BudgetOptimum:
    """The best model of one budget."""

    flops: float
    parameters: float
    loss: float
    n_runs: int
    is_inside: bool
    """The optimum is between the smallest and the largest size of the runs."""


@dataclass(frozen=True)
class IsoFlopFit:
    """The best sizes of several budgets, and their power law N = scale · C^exponent."""

    budgets: list[BudgetOptimum]
    left_out: list[tuple[float, str]]
    """Budgets whose runs show no optimum, and why."""
    exponent: Interval
    log_scale: float
    samples: NDArray[np.float64]
    """(n_bootstrap, 2): log scale and exponent of each sample."""

    def best(self, flops: float) -> Interval:
        """Return the parameters of the best model for a budget."""
        drawn = np.exp(self.samples[:, 0] + self.samples[:, 1] * np.log(flops))
        value = float(np.exp(self.log_scale + self.exponent.value * np.log(flops)))
        return _with_interval(value, drawn)


def fit_isoflops(
    runs: Runs,
    budgets: Sequence[float],
    *,
    method: Method = "parabola",
    n_bootstrap: int = 200,
    seed: int = 0,
) -> IsoFlopFit:
    """Find the best size at each budget, and the power law through these.

    Args:
        runs: The runs.
        budgets: Budget of each run, in FLOPs; runs with equal numbers are compared with each other.
        method: Take the lowest point of a parabola, or the lowest run.
        n_bootstrap: Bootstrap samples of the runs of each budget.
        seed: Seed of the bootstrap.

    Raises:
        ScalingError: Fewer than two budgets show an optimum.
    """
    flops = np.array(budgets, dtype=np.float64)
    find: Callable[[NDArray[np.float64], NDArray[np.float64]], tuple[float, float]] = (
        _parabola if method == "parabola" else _lowest
    )
    log_n, losses = np.log(runs.parameters), runs.losses
    members = {float(budget): np.flatnonzero(flops == budget) for budget in np.unique(flops)}
    found: list[BudgetOptimum] = []
    left_out: list[tuple[float, str]] = []
    for budget, own in members.items():
        n_sizes = len(np.unique(log_n[own]))
        if n_sizes < _MIN_SIZES:
            left_out.append((budget, f"{n_sizes} sizes are fewer than {_MIN_SIZES}"))
            continue
        size, loss = find(log_n[own], losses[own])
        if not np.isfinite(size):
            left_out.append((budget, "the losses have no lowest point: add sizes on the other side"))
            continue
        smallest, largest = float(log_n[own].min()), float(log_n[own].max())
        if not smallest - _FAR < size < largest + _FAR:
            left_out.append((budget, "the lowest point is far from all sizes"))
            continue
        inside = smallest < size < largest
        found.append(BudgetOptimum(budget, float(np.exp(size)), float(loss), len(own), inside))
    if len(found) < 2:
        raise ScalingError(
            f"{len(found)} budgets show an optimum, and a law needs two",
            hint="; ".join(f"{budget:.3g} FLOPs: {why}" for budget, why in left_out[:3]) or "add budgets",
        )
    log_c = np.log([each.flops for each in found])
    line = _line(log_c, np.log([each.parameters for each in found]))
    random = np.random.default_rng(seed)
    samples: list[tuple[float, float]] = []
    while len(samples) < n_bootstrap:
        optima: list[float] = []
        for each in found:
            own = members[each.flops]
            drawn = random.choice(own, len(own))
            enough = len(np.unique(log_n[drawn])) >= _MIN_SIZES
            optima.append(find(log_n[drawn], losses[drawn])[0] if enough else np.nan)
        kept = np.isfinite(optima)
        if kept.sum() >= 2:
            samples.append(_line(log_c[kept], np.array(optima)[kept]))
    drawn_lines = np.array(samples).reshape(-1, 2)
    return IsoFlopFit(found, left_out, _with_interval(line[1], drawn_lines[:, 1]), line[0], drawn_lines)


def _parabola(log_n: NDArray[np.float64], losses: NDArray[np.float64]) -> tuple[float, float]:
    """Return the lowest point of the parabola of least squares; NaN if it opens downwards."""
    middle = log_n.mean()
    bend, slope, height = (float(each) for each in cast("Any", np.polyfit)(log_n - middle, losses, 2))
    if bend <= 0:
        return np.nan, np.nan
    return float(middle - slope / (2 * bend)), float(height - slope**2 / (4 * bend))


def _lowest(log_n: NDArray[np.float64], losses: NDArray[np.float64]) -> tuple[float, float]:
    best = int(losses.argmin())
    return float(log_n[best]), float(losses[best])


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Return intercept and slope of the line of least squares."""
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    return float(y.mean() - slope * x.mean()), slope


def _with_interval(value: float, drawn: NDArray[np.float64]) -> Interval:
    if not len(drawn):
        return Interval(value, float("nan"), float("nan"))
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, float(low), float(high))
