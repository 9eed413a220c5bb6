"""Test predictions: train at the predicted best model of a larger budget, and compare the outcome.

A prediction is written down before its runs are trained, and is not changed afterwards.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import ModelConfigError, ScalingError
from bytemill.scaling.fits import FLOPS_PER_TOKEN, Interval
from bytemill.scaling.grid import choose_rates, planned_grid
from bytemill.scaling.ledger_runs import ledger_table
from bytemill.scaling.prediction import fit_table
from bytemill.system.atomic_files import write_json
from bytemill.system.records import read_json_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.experiment.runner import Event, Execute
    from bytemill.scaling.ledger import Ledger
    from bytemill.scaling.points import Point

_DAMAGED = "remove it, and check again"
_DEPTH_STEP = 0.25


@dataclass(frozen=True)
class Check:
    """A prediction and its outcome."""

    flops: float
    depth: float
    """Position of the dial nearest to the predicted best N."""
    n_tokens: int
    learning_rate: float
    n_seeds: int
    predicted: Interval
    """Bits per byte, the mean over the seeds."""
    n_runs: int
    """Runs of the fit."""
    largest_flops: float
    """Largest budget of these."""
    outcomes: tuple[float, ...] = ()
    """Bits per byte by seed; empty before the runs are trained."""

    @property
    def outcome(self) -> float | None:
        """Mean of the outcomes."""
        return float(np.mean(self.outcomes)) if self.outcomes else None

    @property
    def sentence(self) -> str:
        """The result in words."""
        own = self.predicted
        start = (
            f"{self.flops:.3g} FLOPs, {self.flops / self.largest_flops:.2g} times the largest budget of the fit: "
            f"predicted {own.value:.4f} ({own.low:.4f} to {own.high:.4f})"
        )
        if self.outcome is None:
            return f"{start}, not trained yet"
        place = "inside" if own.low <= self.outcome <= own.high else "outside"
        error = own.value / self.outcome - 1
        return (
            f"{start}, outcome {self.outcome:.4f} bits per byte: {place} of the interval, off by {error:+.2%}"
        )


def read_checks(ledger: Ledger) -> list[Check]:
    """Return the predictions in the folder of a ledger, with the outcomes that the ledger knows."""
    path = ledger.path / "checks.json"
    try:
        stored = read_json_object(path, ScalingError, _DAMAGED)["checks"]
        checks = [_check(each) for each in stored]
    except FileNotFoundError:
        return []
    except (KeyError, TypeError) as error:
        raise ScalingError(f"{path} is damaged: {error}", hint=_DAMAGED) from error
    known = {outcome.point: outcome for outcome in ledger.outcomes}
    result: list[Check] = []
    for check in checks:
        outcomes = [known[point] for point in _points(ledger, check) if point in known]
        bits = tuple(own.bits_per_byte for own in outcomes if own.bits_per_byte is not None)
        result.append(replace(check, outcomes=bits if len(bits) == check.n_seeds else ()))
    return result


def run_check(
    ledger: Ledger,
    flops: float,
    *,
    n_seeds: int = 1,
    n_bootstrap: int = 300,
    n_jobs: int = 1,
    execute: Execute | None = None,
    on_event: Callable[[Event], None] = lambda _: None,
) -> Check:
    """Predict the bits per byte at a larger budget, train there, and return both.

    Args:
        ledger: The ledger.
        flops: The budget, which must be larger than that of every run in the ledger, except those of this check.
        n_seeds: Runs, which differ by their seed alone.
        n_bootstrap: Bootstrap samples of the prediction.
        n_jobs: Runs trained at the same time.
        execute: Performs the jobs, instead of processes.
        on_event: Called with what happens.

    Raises:
        ScalingError: The runs tell no law, the budget is not larger, or exceeds what the ledger may spend.
    """
    known = {check.flops: check for check in read_checks(ledger)}
    check = known.get(flops)
    if check is None:
        check = _predict(ledger, flops, n_seeds, n_bootstrap)
        cost = ledger.cost(_points(ledger, check))
        left = ledger.budget_flops - ledger.spent_flops
        if cost > left:
            raise ScalingError(
                f"the check costs {cost:.3g} FLOPs, and {max(left, 0.0):.3g} are left",
                hint="raise limit_flops, or check a smaller budget",
            )
        stored = [_stored(own) for own in (*known.values(), check)]
        write_json(ledger.path / "checks.json", {"checks": stored})
    failures = ledger.run(_points(ledger, check), n_jobs=n_jobs, execute=execute, on_event=on_event)
    for name, message in failures.items():
        raise ScalingError(f"{name} failed: {message}", hint="correct the cause, and check again")
    return next(own for own in read_checks(ledger) if own.flops == flops)


def _check(values: dict[str, Any]) -> Check:
    own = dict(values)
    predicted = Interval(**own.pop("predicted"))
    return Check(predicted=predicted, **own)


def _stored(check: Check) -> dict[str, Any]:
    values = asdict(check)
    del values["outcomes"]
    return values


def _predict(ledger: Ledger, flops: float, n_seeds: int, n_bootstrap: int) -> Check:
    table = ledger_table(ledger)
    largest = float(table.flops.max())
    if not flops > largest * 1.01:
        raise ScalingError(
            f"{flops:.3g} FLOPs are not more than the {largest:.3g} of the largest run in the ledger",
            hint="check a larger budget: a prediction is tested where no run was",
        )
    fit = fit_table(table, n_bootstrap)
    if fit.at_bound:
        raise ScalingError(
            f"{' and '.join(fit.at_bound)} of the law is at the end of its range",
            hint="add runs before a check",
        )
    depth = nearest_depth(ledger, fit.law.best(flops)[0])
    point = ledger.points.point({"depth": depth, "flops": flops})
    n_tokens = point.n_steps * ledger.sweep.step_tokens
    n = ledger.points.flops_per_token(point.chain) / FLOPS_PER_TOKEN
    predicted = fit.outcome(n, float(n_tokens), n_seeds)
    rate = _rate(ledger, depth)
    return Check(flops, depth, n_tokens, rate, n_seeds, predicted, len(table.runs), largest)


def nearest_depth(ledger: Ledger, parameters: float, vocab_size: int | None = None) -> float:
    """Return the position of the dial, in quarters, whose sixth of the FLOPs per token is nearest to a number."""
    sizes: dict[float, float] = {}
    depth = _DEPTH_STEP
    while depth < 256:
        try:
            settings = {"depth": depth, "tokens": 1e15}
            if vocab_size is not None:
                settings["vocab_size"] = vocab_size
            chain = ledger.points.point(settings).chain
            sizes[depth] = ledger.points.flops_per_token(chain) / FLOPS_PER_TOKEN
        except ModelConfigError:
            sizes[depth] = float("inf")
        if sizes[depth] > 2 * parameters and np.isfinite(sizes[depth]):
            break
        depth += _DEPTH_STEP
    finite = {own: size for own, size in sizes.items() if np.isfinite(size)}
    return min(finite, key=lambda own: abs(np.log(finite[own] / parameters)))


def _rate(ledger: Ledger, depth: float) -> float:
    """Return the dial's learning rate of a depth, times the factor that was chosen for the nearest depth."""
    chosen = choose_rates(ledger, planned_grid(ledger))
    if not chosen:
        return ledger.sweep.learning_rate.factors[0] * ledger.sweep.dial_rate(depth)
    near = min(chosen, key=lambda own: abs(np.log(own / depth)))
    return chosen[near].rate / ledger.sweep.dial_rate(near) * ledger.sweep.dial_rate(depth)


def _points(ledger: Ledger, check: Check) -> list[Point]:
    settings = {"depth": check.depth, "tokens": check.n_tokens, "learning_rate": check.learning_rate}
    return [ledger.points.point({**settings, "seed": seed}) for seed in range(check.n_seeds)]
