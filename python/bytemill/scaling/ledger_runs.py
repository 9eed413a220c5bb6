"""The runs of a ledger as a table for fits, with N counted by one of three conventions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from bytemill.errors import ScalingError
from bytemill.scaling.fits import FLOPS_PER_TOKEN, Runs
from bytemill.scaling.run_files import RunTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bytemill.scaling.ledger import Ledger
    from bytemill.scaling.points import Outcome, Point

Convention: TypeAlias = Literal["flops", "non-vocabulary", "all"]
"""What N counts: a sixth of the FLOPs per token, parameters without embedding and output layer, or all parameters."""
N_SHIFTS = 200
CONVENTIONS: dict[Convention, str] = {
    "flops": "is a sixth of the FLOPs per token, with attention and output layer",
    "non-vocabulary": "counts parameters without embedding and output layer",
    "all": "counts all parameters",
}


def n_parameters(ledger: Ledger, point: Point, convention: Convention) -> float:
    """Return N of a run. By the convention "flops", 6 N D is exactly its FLOPs."""
    if convention == "flops":
        return ledger.points.flops_per_token(point.chain) / FLOPS_PER_TOKEN
    parts = ledger.points.parameters(point.chain)
    return float(parts["rest"] if convention == "non-vocabulary" else sum(parts.values()))


def nominal_budget(ledger: Ledger, point: Point) -> float:
    """Return the budget of the sweep that a run spends as far as whole steps allow; its own FLOPs if there is none."""
    flops = ledger.points.flops(point)
    per_step = flops / point.n_steps
    near = [
        budget
        for budget in ledger.sweep.budgets
        if flops <= budget * (1 + 1e-9) and budget < flops + per_step
    ]
    return min(near, default=flops)


def usable(outcomes: Sequence[Outcome]) -> tuple[list[Outcome], list[tuple[str, str]]]:
    """Return the runs for fits, and those that are left out with the reason.

    Runs that diverged and runs that have learned nothing are left out. Of the learning rates that were tried with a
    depth at one length, only the best is kept: the law is about well-trained models.
    """
    kept: list[Outcome] = []
    left_out: list[tuple[str, str]] = []
    for outcome in outcomes:
        if outcome.problem:
            left_out.append((outcome.point.name, outcome.problem))
        else:
            kept.append(outcome)
    means: dict[tuple[int, float, int], dict[float, list[float]]] = {}
    for outcome in kept:
        chain = outcome.point.chain
        rates = means.setdefault((chain.vocab_size, chain.depth, outcome.point.n_steps), {})
        rates.setdefault(chain.learning_rate, []).append(outcome.bits_per_byte or 0.0)
    best = {key: min(rates, key=lambda rate: float(np.mean(rates[rate]))) for key, rates in means.items()}
    is_best = [
        own.point.chain.learning_rate
        == best[own.point.chain.vocab_size, own.point.chain.depth, own.point.n_steps]
        for own in kept
    ]
    return [own for own, is_kept in zip(kept, is_best, strict=True) if is_kept], left_out


def ledger_table(ledger: Ledger, vocab_size: int | None = None, convention: Convention = "flops") -> RunTable:
    """Return the runs of one vocabulary, with losses in bits per byte.

    Args:
        ledger: The ledger.
        vocab_size: Size of the vocabulary; by default the first of the sweep.
        convention: What N counts.

    Raises:
        ScalingError: There are no such runs.
    """
    size = ledger.sweep.vocabularies.sizes[0] if vocab_size is None else vocab_size
    own = [outcome for outcome in ledger.outcomes if outcome.point.chain.vocab_size == size]
    kept, left_out = usable(own)
    if not kept:
        raise ScalingError(
            f"the ledger in {ledger.path} has no runs with the vocabulary of {size:,}",
            hint="run the sweep: bytemill scaling run SWEEP.toml",
        )
    points = [outcome.point for outcome in kept]
    names = {name: number for number, name in enumerate(sorted({(p.chain.depth, p.n_steps) for p in points}))}
    runs = Runs(
        np.array([n_parameters(ledger, point, convention) for point in points]),
        np.array([float(outcome.n_tokens) for outcome in kept]),
        np.array([outcome.bits_per_byte or 0.0 for outcome in kept]),
        np.array([names[point.chain.depth, point.n_steps] for point in points]),
    )
    flops = np.array([nominal_budget(ledger, point) for point in points])
    return RunTable(
        runs,
        flops,
        FLOPS_PER_TOKEN,
        {"loss": "bits_per_byte"},
        tuple(left_out),
        CONVENTIONS[convention],
        rate_shifts(own, [point.chain.depth for point in points]),
    )


def rate_shifts(
    outcomes: Sequence[Outcome], depths: Sequence[float], seed: int = 0
) -> NDArray[np.float64] | None:
    """Return what log L might be lower by, had the learning rates been chosen without noise.

    A rate is chosen by the trials of a depth, whose losses vary with the seed. For each draw, the seeds of every rate
    are drawn with replacement, and the lowest point of the parabola through the mean losses (or the lowest of these,
    where the parabola has none between the rates) is compared with the loss of the chosen rate.

    Args:
        outcomes: Runs of one vocabulary, with the trials.
        depths: Depth of each run of the fit.
        seed: Seed of the draws.

    Returns:
        (n_draws, len(depths)), at least 0; None if no depth was tried with several rates.
    """
    trials: dict[float, dict[int, dict[float, list[float]]]] = {}
    for own in outcomes:
        if not own.problem and own.bits_per_byte is not None:
            chain = own.point.chain
            by_length = trials.setdefault(chain.depth, {}).setdefault(own.point.n_steps, {})
            by_length.setdefault(chain.learning_rate, []).append(own.bits_per_byte)
    random = np.random.default_rng(seed)
    shifts: dict[float, NDArray[np.float64]] = {}
    for depth, lengths in sorted(trials.items()):
        rates = max(lengths.values(), key=len)
        if len(rates) > 1:
            shifts[depth] = _shifts_of(rates, random)
    if not shifts:
        return None
    none = np.zeros(N_SHIFTS)
    return np.stack([shifts.get(depth, none) for depth in depths], axis=1)


def _shifts_of(rates: dict[float, list[float]], random: np.random.Generator) -> NDArray[np.float64]:
    logs = np.log(sorted(rates))
    bits = [np.array(rates[rate]) for rate in sorted(rates)]
    chosen = int(np.argmin([own.mean() for own in bits]))
    drawn = np.stack(
        [random.choice(own, (N_SHIFTS, len(own))).mean(1) for own in bits], axis=1
    )  # (draws, rates)
    lowest: NDArray[np.float64] = drawn.min(1)
    if len(logs) > 2:
        middle = logs.mean()
        bend, slope, height = cast("Any", np.polyfit)(logs - middle, drawn.T, 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            at = -slope / (2 * bend)
            vertex = height - slope**2 / (4 * bend)
        inside: Any = (bend > 0) & (at > logs[0] - middle) & (at < logs[-1] - middle)
        lowest = np.asarray(np.where(inside, np.minimum(vertex, lowest), lowest), np.float64)
    return np.log(drawn[:, chosen] / lowest)
