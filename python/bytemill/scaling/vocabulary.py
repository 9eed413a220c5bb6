"""The loss by the size of the vocabulary, and the best vocabulary for a budget (after Tao et al. 2024).

The law, in bits per byte, is

    L(N, V, H) = E + A / N^α + G / M^γ + B (V / V₀)^δ / H^β,

with N parameters outside of the vocabulary, M parameters of embedding and output layer, V ids and H bytes of text. A
larger vocabulary has more parameters (M) and reads more bytes with the same FLOPs (H), but costs FLOPs in the output
layer, and its rarer tokens may need more text (δ above 0). V₀ is the geometric mean of the vocabularies.

The fit is that of `fits`: variable projection for E, A, G and B, then Huber's loss of log L, and a Bayesian bootstrap.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import ModelConfigError, ScalingError
from bytemill.lm.planning import flops_per_token, parameters_by_part
from bytemill.scaling.fits import HUBER_DELTA, LEVEL, Interval, huber_loss
from bytemill.scaling.ledger_runs import usable
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bytemill.scaling.ledger import Ledger
    from bytemill.scaling.sweep import Sweep

_optimize: Any = import_library("scipy.optimize", "bytemill.scaling")

_LOW = np.array([0.02, 0.02, 0.02, -1.0])
_HIGH = np.array([2.0, 2.0, 2.0, 1.0])
"""Range of α, γ, β, δ."""
_LEAST_VOCABULARIES = 3
_LEAST_RUNS = 12
_N_SIZES = 65
"""Sizes of the vocabulary between the smallest and the largest one of the runs that are compared."""


@dataclass(frozen=True)
class VocabularyRuns:
    """Runs with several vocabularies.

    Args:
        parameters: (n,), N of each run, without embedding and output layer.
        vocabulary: (n,), parameters M of embedding and output layer.
        sizes: (n,), ids V.
        n_bytes: (n,), bytes H of text.
        losses: (n,), bits per byte.
        groups: (n,), equal for runs that differ by their seed alone.
    """

    parameters: NDArray[np.float64]
    vocabulary: NDArray[np.float64]
    sizes: NDArray[np.float64]
    n_bytes: NDArray[np.float64]
    losses: NDArray[np.float64]
    groups: NDArray[np.int64]


@dataclass(frozen=True)
class VocabularyLaw:
    """L(N, V, H)."""

    e: float
    a: float
    g: float
    b: float
    alpha: float
    gamma: float
    beta: float
    delta: float
    middle: float
    """V₀."""

    def loss(self, parameters: Any, vocabulary: Any, sizes: Any, n_bytes: Any) -> Any:
        """Return L, also of arrays."""
        return (
            self.e
            + self.a * parameters**-self.alpha
            + self.g * vocabulary**-self.gamma
            + self.b * (sizes / self.middle) ** self.delta * n_bytes**-self.beta
        )


@dataclass(frozen=True)
class VocabularyFit:
    """A fitted law, and those of its bootstrap samples."""

    law: VocabularyLaw
    n_runs: int
    samples: tuple[VocabularyLaw, ...]
    residuals: NDArray[np.float64]
    """(n_runs,), log L − log of the law."""


def vocabulary_runs(ledger: Ledger) -> VocabularyRuns:
    """Return the usable runs of a ledger, with all vocabularies."""
    kept, _ = usable(ledger.outcomes)
    keys = [(own.point.chain.vocab_size, own.point.chain.depth, own.point.n_steps) for own in kept]
    names = {key: number for number, key in enumerate(sorted(set(keys)))}
    return VocabularyRuns(
        np.array([float(own.parameters["rest"]) for own in kept]),
        np.array([float(own.parameters["embedding"] + own.parameters["output layer"]) for own in kept]),
        np.array([float(own.point.chain.vocab_size) for own in kept]),
        np.array([float(own.n_bytes) for own in kept]),
        np.array([own.bits_per_byte or 0.0 for own in kept]),
        np.array([names[key] for key in keys], dtype=np.int64),
    )


def fit_vocabulary(runs: VocabularyRuns, *, n_bootstrap: int = 0, seed: int = 0) -> VocabularyFit:
    """Fit L(N, V, H) to runs.

    Args:
        runs: At least 12 runs with three vocabularies, two sizes of models and two amounts of text.
        n_bootstrap: Number of bootstrap samples, with a weight for each group of runs.
        seed: Seed of the bootstrap.

    Raises:
        ScalingError: There are too few runs, or all are alike in one of these.
    """
    if len(runs.losses) < _LEAST_RUNS:
        raise ScalingError(
            f"{len(runs.losses)} runs do not tell the eight numbers of a law with vocabularies",
            hint=f"add runs: at least {_LEAST_RUNS}",
        )
    for what, values, least in (
        ("vocabularies", runs.sizes, _LEAST_VOCABULARIES),
        ("sizes of models", runs.parameters, 2),
        ("amounts of text", runs.n_bytes, 2),
    ):
        if (n := len(np.unique(values))) < least:
            raise ScalingError(
                f"the runs have {n} {what}, and a law needs {least}", hint=f"add runs with other {what}"
            )
    problem = _Problem(runs)
    found = problem.solve(problem.start())
    random = np.random.default_rng(seed)
    samples: list[VocabularyLaw] = []
    groups = np.unique(runs.groups, return_inverse=True)[1]
    for _ in range(n_bootstrap):
        weights = random.exponential(size=int(groups.max()) + 1)[groups]
        samples.append(problem.law(problem.solve(found, weights / weights.mean())))
    return VocabularyFit(problem.law(found), len(runs.losses), tuple(samples), problem.residuals(found))


class _Problem:
    """The least squares of some runs. Unknowns: logs of E, A', G', B' at the geometric means, then α, γ, β, δ."""

    def __init__(self, runs: VocabularyRuns) -> None:
        logs = np.log(np.stack([runs.parameters, runs.vocabulary, runs.n_bytes, runs.sizes]))
        self.means = logs.mean(1)
        self.x, self.m, self.h, self.v = logs - self.means[:, None]
        self.losses = runs.losses

    def _exponents(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the exponent of e in each term, up to its factor, for α, γ, β, δ."""
        alpha, gamma, beta, delta = at
        return np.stack([0 * self.x, -alpha * self.x, -gamma * self.m, delta * self.v - beta * self.h])

    def start(self) -> NDArray[np.float64]:
        """Return unknowns by variable projection: the best exponents of a grid, refined."""

        def projected(at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            columns = np.exp(self._exponents(at)).T
            linear, residual = _optimize.nnls(columns / self.losses[:, None], np.ones_like(self.losses))
            return float(residual), linear

        grid = [np.array(own) for own in itertools.product(*3 * [[0.15, 0.4, 1.0]], [-0.3, 0.0, 0.3])]

        def residual(at: NDArray[np.float64]) -> float:
            return projected(at)[0]

        first = min(grid, key=residual)
        found = _optimize.minimize(
            residual,
            first,
            method="Nelder-Mead",
            bounds=list(zip(_LOW, _HIGH, strict=True)),
            options={"xatol": 1e-3, "fatol": 1e-10, "maxfev": 600},
        )
        linear = np.maximum(projected(found.x)[1], 1e-6 * self.losses.min())
        return np.concatenate([np.log(linear), found.x])

    def solve(
        self, start: NDArray[np.float64], weights: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Minimize Huber's loss of log L from a start, with a weight for each run."""

        def weighted(squares: NDArray[np.float64]) -> NDArray[np.float64]:
            own = huber_loss(squares)
            return own if weights is None else own * weights

        def scaled(at: NDArray[np.float64]) -> NDArray[np.float64]:
            return -self.residuals(at) / HUBER_DELTA

        low, high = np.concatenate([np.full(4, -30.0), _LOW]), np.concatenate([np.full(4, 30.0), _HIGH])
        with np.errstate(all="ignore"):  # in SciPy, where a term of the law vanishes
            found = _optimize.least_squares(
                scaled,
                np.clip(start, low + 1e-9, high - 1e-9),
                self._jacobian,
                bounds=(low, high),
                loss=weighted,
                x_scale="jac",
                ftol=1e-10,
                xtol=1e-10,
                gtol=1e-10,
                max_nfev=400,
            )
        return found.x

    def _terms(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(np.minimum(at[:4, None] + self._exponents(at[4:]), 700))

    def residuals(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return log L − log of the law."""
        return np.log(self.losses) - np.log(self._terms(at).sum(0))

    def _jacobian(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        terms = self._terms(at)
        e, a, g, b = terms / terms.sum(0)
        return np.stack([e, a, g, b, -a * self.x, -g * self.m, -b * self.h, b * self.v], axis=1) / HUBER_DELTA

    def law(self, at: NDArray[np.float64]) -> VocabularyLaw:
        """Return the law of some unknowns."""
        alpha, gamma, beta, delta = (float(value) for value in at[4:])
        n, m, h, v = self.means
        factors = np.exp(at[:4] + np.array([0, alpha * n, gamma * m, beta * h]))
        e, a, g, b = (float(value) for value in factors)
        return VocabularyLaw(e, a, g, b, alpha, gamma, beta, delta, float(np.exp(v)))


@dataclass(frozen=True)
class BestVocabulary:
    """The best vocabulary for a budget, and what others lose."""

    flops: float
    size: Interval
    """Ids of the best vocabulary, among those between the smallest and the largest one of the runs."""
    is_at_edge: str
    """"smallest" or "largest" if the best is the end of the vocabularies that were tried; otherwise empty."""
    depth: float
    """Depth of the best model with it."""
    loss: Interval
    lost_by_half: Interval | None
    """Share of the loss that is added by a vocabulary half as large; None if that is outside of those tried."""
    lost_by_double: Interval | None
    """The same for a vocabulary twice as large."""
    curve: list[tuple[float, Interval]]
    """Loss of the best model by size of the vocabulary."""

    @property
    def sentence(self) -> str:
        """The result in words."""
        size = self.size
        edge = f", the {self.is_at_edge} that was tried" if self.is_at_edge else ""
        parts = [
            f"a vocabulary {word} as large loses {own.value:.2%} ({own.low:.2%} to {own.high:.2%})"
            for word, own in (("half", self.lost_by_half), ("twice", self.lost_by_double))
            if own is not None
        ]
        more = f": {' and '.join(parts)}" if parts else ""
        return (
            f"{self.flops:.3g} FLOPs: the best vocabulary has {size.value:,.0f} ids ({size.low:,.0f} to "
            f"{size.high:,.0f}){edge}{more}"
        )


def best_vocabulary(
    fit: VocabularyFit, sweep: Sweep, bytes_per_token: Mapping[int, float], flops: float
) -> BestVocabulary:
    """Return the best vocabulary for a budget.

    Args:
        fit: The law.
        sweep: The sweep, whose depth dial gives the models.
        bytes_per_token: Of each vocabulary; sizes between them are interpolated in logarithms.
        flops: The budget, in FLOPs with attention and output layer.
    """
    tried = sorted(bytes_per_token)
    sizes = np.unique(np.concatenate([np.geomspace(tried[0], tried[-1], _N_SIZES), tried]))
    depths = _depths(sweep)
    density = np.exp(np.interp(np.log(sizes), np.log(tried), np.log([bytes_per_token[own] for own in tried])))
    numbers = np.array([_model(sweep, depth) for depth in depths])  # (depths, 4)
    rest, per_id, fixed_flops, flops_per_id = (column[None] for column in numbers.T)
    per_token = fixed_flops + flops_per_id * sizes[:, None]
    arguments = (
        rest,
        per_id * sizes[:, None],
        sizes[:, None],
        flops / per_token * density[:, None],
    )
    laws = (fit.law, *fit.samples)
    losses = np.stack([law.loss(*arguments) for law in laws])  # (laws, sizes, depths)
    by_size = losses.min(2)
    best = by_size.argmin(1)
    chosen = int(best[0])

    def interval(values: NDArray[np.float64]) -> Interval:
        if len(values) == 1:
            return Interval(float(values[0]), float("nan"), float("nan"))
        low, high = np.quantile(values[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Interval(float(values[0]), float(low), float(high))

    def lost(factor: float) -> Interval | None:
        other = sizes[chosen] * factor
        if not tried[0] * 0.999 <= other <= tried[-1] * 1.001:
            return None
        index = int(np.abs(np.log(sizes / other)).argmin())
        return interval(by_size[:, index] / by_size[:, chosen] - 1)

    edge = "smallest" if chosen == 0 else "largest" if chosen == len(sizes) - 1 else ""
    return BestVocabulary(
        flops,
        interval(sizes[best]),
        edge,
        depths[int(losses[0, chosen].argmin())],
        interval(by_size[np.arange(len(laws)), best]),
        lost(0.5),
        lost(2.0),
        [(float(size), interval(by_size[:, number])) for number, size in enumerate(sizes)],
    )


def _depths(sweep: Sweep) -> list[float]:
    """Return positions of the dial between the smallest and twice the largest depth, one for each model."""
    found: dict[tuple[int, int], float] = {}
    for depth in np.arange(min(sweep.depths), 2 * max(sweep.depths) + 1e-9, 0.125).tolist():
        try:
            shape = sweep.shape(depth, 512)
        except ModelConfigError:
            continue
        found.setdefault((shape.d_model, shape.num_layers), depth)
    return list(found.values())


def _model(sweep: Sweep, depth: float) -> tuple[float, float, float, float]:
    """Return parameters outside of the vocabulary and per id, and FLOPs per token without and per id."""
    small, large = sweep.shape(depth, 512), sweep.shape(depth, 1024)
    parts, flops = parameters_by_part(small), (flops_per_token(small), flops_per_token(large))
    vocabulary = parts["token embeddings"] + parts["output layer"]
    per_id = (flops[1] - flops[0]) / 512
    return float(sum(parts.values()) - vocabulary), vocabulary / 512, flops[0] - per_id * 512, per_id
