"""Fit scaling laws to runs: the loss by parameters and tokens, and the best size for a budget of FLOPs.

The law is L(N, D) = E + A / N^α + B / D^β (Hoffmann et al. 2022, approach 3), with N parameters and D tokens. A budget
C = k N D, where k is usually 6, is spent best at

    N = G (C / k)^a,  D = (C / k)^b / G,  a = β / (α + β),  b = α / (α + β),  G = (α A / (β B))^(1 / (α + β)).

The fit minimizes Huber's loss of log L, as in that paper. For given exponents E, A and B follow by linear least squares
(variable projection), so only two numbers are searched in the first stage; the second stage moves all five, on a scale
on which the optimizer's tolerances mean something: with the plain objective, of about 1e-6, L-BFGS stops at its start.

Intervals come from a Bayesian bootstrap (Rubin 1981): each sample is a fit with weights drawn from an exponential
distribution, one for all runs that differ by their seed alone. Drawing runs with replacement instead empties corners of
a small grid, which makes intervals too wide: they held in 98 % of simulated sweeps instead of 95 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import ScalingError
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_optimize: Any = import_library("scipy.optimize", "bytemill.scaling")

HUBER_DELTA = 1e-3
"""Residuals of log L beyond this count linearly."""
FLOPS_PER_TOKEN = 6.0
"""k in C = k N D."""
LEVEL = 0.95
_MIN_RUNS = 6
_EXPONENTS = (0.01, 2.0)
_LARGEST_LOG = 300.0
"""Sizes are at most e to this: laws with an exponent near 0 have no best size."""
_MOST_EVALUATIONS = 400
_DRAWS = 20
"""Draws of residuals with each law of the bootstrap."""


@dataclass(frozen=True)
class Runs:
    """Runs of models of different size on different numbers of tokens.

    Args:
        parameters: (n,), N of each run; by which convention is up to the caller.
        tokens: (n,), D of each run.
        losses: (n,), in nats per token or bits per byte.
        groups: (n,), equal for runs that differ by their seed alone; by default every run is its own group.

    Raises:
        ScalingError: A number is not positive and finite, or the arrays differ in length.
    """

    parameters: NDArray[np.float64]
    tokens: NDArray[np.float64]
    losses: NDArray[np.float64]
    groups: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        arrays = {"parameters": self.parameters, "tokens": self.tokens, "losses": self.losses}
        if len({len(array) for array in arrays.values()}) > 1:
            raise ScalingError("the columns of the runs differ in length")
        for name, array in arrays.items():
            wrong = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
            if len(wrong):
                raise ScalingError(
                    f"{name} of run {wrong[0] + 1} is {array[wrong[0]]}",
                    hint="leave out runs that diverged; all numbers must be above 0",
                )

    def __len__(self) -> int:
        return len(self.losses)

    def take(self, indices: NDArray[np.int64]) -> Runs:
        """Return some of the runs, by index; an index may occur more than once."""
        groups = None if self.groups is None else self.groups[indices]
        return Runs(self.parameters[indices], self.tokens[indices], self.losses[indices], groups)


@dataclass(frozen=True)
class LossLaw:
    """L(N, D) = E + A / N^α + B / D^β."""

    e: float
    a: float
    b: float
    alpha: float
    beta: float

    def loss(self, parameters: Any, tokens: Any) -> Any:
        """Return L(N, D), also of arrays."""
        return self.e + self.a * parameters**-self.alpha + self.b * tokens**-self.beta

    @property
    def size_exponent(self) -> float:
        """a in N ∝ C^a of the best models."""
        return self.beta / (self.alpha + self.beta)

    def best(self, flops: float, flops_per_token: float = FLOPS_PER_TOKEN) -> tuple[float, float]:
        """Return parameters and tokens of the best model for a budget C = flops_per_token · N · D."""
        product = flops / flops_per_token
        ratio = math.log(self.alpha * self.a) - math.log(self.beta * self.b)
        log_size = ratio / (self.alpha + self.beta) + self.size_exponent * math.log(product)
        parameters = math.exp(min(max(log_size, -_LARGEST_LOG), _LARGEST_LOG))
        return parameters, product / parameters


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Fit:
    """A fitted law, and those of its bootstrap samples."""

    law: LossLaw
    n_runs: int
    huber: float
    """Sum of Huber's loss of the residuals of log L."""
    at_bound: tuple[str, ...]
    """Exponents that reached the end of their range: the runs do not tell them."""
    samples: tuple[LossLaw, ...] = ()
    residuals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """(n_runs,), log L − log of the law."""

    def interval(self, quantity: Callable[[LossLaw], float]) -> Interval:
        """Return a quantity of the law, a function of it, with the interval of the bootstrap."""
        value = float(quantity(self.law))
        if not self.samples:
            return Interval(value, float("nan"), float("nan"))
        drawn = np.array([quantity(sample) for sample in self.samples])
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Interval(value, float(low), float(high))

    def outcome(self, parameters: float, tokens: float, n_seeds: int = 1, seed: int = 0) -> Interval:
        """Return the loss of runs that are not in the fit, with the interval in which their mean falls.

        Beside the uncertainty of the law, a run scatters around it as those of the fit do.

        Args:
            parameters: N.
            tokens: D.
            n_seeds: Number of runs, which differ by their seed alone.
            seed: Seed of the draws.
        """
        value = float(self.law.loss(parameters, tokens))
        if not self.samples:
            return Interval(value, float("nan"), float("nan"))
        random = np.random.default_rng(seed)
        scale = np.sqrt(len(self.residuals) / max(1, len(self.residuals) - 5))
        losses = np.array([law.loss(parameters, tokens) for law in self.samples])
        drawn = random.choice(self.residuals, (_DRAWS, len(losses), n_seeds)).mean(2) * scale
        low, high = np.quantile(losses * np.exp(drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Interval(value, float(low), float(high))


def fit_loss(
    runs: Runs,
    *,
    start: Sequence[float] | None = None,
    n_bootstrap: int = 0,
    seed: int = 0,
    log_shifts: NDArray[np.float64] | None = None,
) -> Fit:
    """Fit L(N, D) to runs.

    Args:
        runs: At least six runs, of several sizes and numbers of tokens.
        start: Exponents α and β to start from; by default the best of a grid.
        n_bootstrap: Number of bootstrap samples, with a weight for each group of runs.
        seed: Seed of the bootstrap.
        log_shifts: (n, n_runs), what log L might be lower by with better settings; each bootstrap sample takes a row.

    Raises:
        ScalingError: There are too few runs, all have one size or one number of tokens, or the fit does not converge.
    """
    if len(runs) < _MIN_RUNS:
        raise ScalingError(
            f"{len(runs)} runs do not tell five numbers", hint=f"add runs: at least {_MIN_RUNS}, better 20"
        )
    for name, values in (("size", runs.parameters), ("number of tokens", runs.tokens)):
        if len(np.unique(values)) < 2:
            raise ScalingError(
                f"all runs have one {name}", hint=f"add runs with another {name}, better with several"
            )
    problem = _Problem(runs)
    exponents = problem.best_of_grid() if start is None else np.clip(np.array(start, float), *_EXPONENTS)
    found = problem.solve(problem.start(exponents, refine=True))
    if not problem.is_converged:
        raise ScalingError(
            f"the fit to {len(runs)} runs does not converge",
            hint="add runs with other sizes and numbers of tokens, or leave out runs that are far from all others",
        )
    law, huber = problem.law(found), problem.huber(found)
    at_bound = tuple(
        name
        for name, value in (("alpha", law.alpha), ("beta", law.beta))
        if value <= _EXPONENTS[0] * 1.001 or value >= _EXPONENTS[1] * 0.999
    )
    random = np.random.default_rng(seed)
    groups = np.arange(len(runs)) if runs.groups is None else np.unique(runs.groups, return_inverse=True)[1]
    samples: list[LossLaw] = []
    for _ in range(n_bootstrap):
        weights = random.exponential(size=int(groups.max()) + 1)[groups]
        shifts = None if log_shifts is None else log_shifts[random.integers(len(log_shifts))]
        samples.append(problem.law(problem.solve(found, weights / weights.mean(), shifts)))
    return Fit(law, len(runs), huber, at_bound, tuple(samples), problem.residuals(found))


class _Problem:
    """The least squares of some runs. The unknowns are (log E, log A', log B', α, β), where A' and B' are the terms at
    the geometric means of N and D: these hardly depend on the exponents, so the problem is well conditioned."""

    def __init__(self, runs: Runs) -> None:
        self.log_n, self.log_d = np.log(runs.parameters), np.log(runs.tokens)
        self.mean_n, self.mean_d = self.log_n.mean(), self.log_d.mean()
        self.x, self.y = self.log_n - self.mean_n, self.log_d - self.mean_d
        self.losses, self.log_losses = runs.losses, np.log(runs.losses)
        self.is_converged = True
        """Whether the last `solve` met its tolerances."""

    def start(self, exponents: NDArray[np.float64], *, refine: bool) -> NDArray[np.float64]:
        """Return unknowns with the linear ones of least squares; with `refine`, at the best exponents nearby."""
        if refine:

            def residual(at: NDArray[np.float64]) -> float:
                return self._projected(at)[0]

            found = _optimize.minimize(
                residual,
                exponents,
                method="Nelder-Mead",
                bounds=[_EXPONENTS, _EXPONENTS],
                options={"xatol": 1e-3, "fatol": 1e-9, "maxfev": 150},
            )
            exponents = found.x
        linear = np.maximum(self._projected(exponents)[1], 1e-6 * self.losses.min())
        return np.concatenate([np.log(linear), exponents])

    def best_of_grid(self) -> NDArray[np.float64]:
        """Return the exponents of a coarse grid with the least squares."""
        values = np.geomspace(0.05, 1.5, 8).tolist()
        grid = [np.array([alpha, beta]) for alpha in values for beta in values]
        return grid[int(np.argmin([self._projected(at)[0] for at in grid]))]

    def _projected(self, exponents: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the squares of relative residuals for given exponents, with the best E, A', B' ≥ 0."""
        columns = np.stack(
            [np.ones_like(self.x), np.exp(-exponents[0] * self.x), np.exp(-exponents[1] * self.y)], axis=1
        )
        linear, residual = _optimize.nnls(columns / self.losses[:, None], np.ones_like(self.losses))
        return float(residual), linear

    def solve(
        self,
        start: NDArray[np.float64],
        weights: NDArray[np.float64] | None = None,
        shifts: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Minimize Huber's loss of log L + shifts from a start, with a weight for each run."""

        def residuals(at: NDArray[np.float64]) -> NDArray[np.float64]:
            own = self._residuals(at)
            return own if shifts is None else own - shifts / HUBER_DELTA

        def weighted(squares: NDArray[np.float64]) -> NDArray[np.float64]:
            own = huber_loss(squares)
            return own if weights is None else own * weights

        low, high = np.full(5, -np.inf), np.full(5, np.inf)
        low[3:], high[3:] = _EXPONENTS
        with np.errstate(all="ignore"):  # in SciPy, where a term of the law vanishes
            found = _optimize.least_squares(
                residuals,
                np.clip(start, low + 1e-9, high - 1e-9),
                self._jacobian,
                bounds=(low, high),
                loss=weighted,
                f_scale=1.0,
                x_scale="jac",
                ftol=1e-12,
                xtol=1e-12,
                gtol=1e-12,
                max_nfev=_MOST_EVALUATIONS,
            )
        self.is_converged = found.status > 0 and bool(np.isfinite(found.x).all())
        return found.x

    def _terms(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        e, a, b, alpha, beta = at
        logs = np.stack([np.full_like(self.x, e), a - alpha * self.x, b - beta * self.y])
        return np.exp(np.minimum(logs, 700))  # a step may go too far, and is then taken back

    def _residuals(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        return (np.log(self._terms(at).sum(0)) - self.log_losses) / HUBER_DELTA

    def _jacobian(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        terms = self._terms(at)
        e, a, b = terms / terms.sum(0)
        return np.stack([e, a, b, -a * self.x, -b * self.y], axis=1) / HUBER_DELTA

    def residuals(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return log L − log of the law."""
        return -self._residuals(at) * HUBER_DELTA

    def huber(self, at: NDArray[np.float64]) -> float:
        """Return the sum of Huber's loss of log L."""
        size = np.abs(self._residuals(at) * HUBER_DELTA)
        inside = np.minimum(size, HUBER_DELTA)
        return float((inside * (size - inside / 2)).sum())

    def law(self, at: NDArray[np.float64]) -> LossLaw:
        """Return the law of some unknowns."""
        e, a, b, alpha, beta = (float(value) for value in at)
        return LossLaw(
            float(np.exp(e)),
            float(np.exp(a + alpha * self.mean_n)),
            float(np.exp(b + beta * self.mean_d)),
            alpha,
            beta,
        )


def huber_loss(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Huber's loss of squared residuals, and its first two derivatives, as scipy wants them."""
    root, inside = np.sqrt(np.maximum(squares, 1.0)), squares <= 1
    return np.stack(
        [
            np.where(inside, squares, 2 * root - 1),
            np.where(inside, 1.0, 1 / root),
            np.where(inside, 0.0, -0.5 / root**3),
        ]
    )
