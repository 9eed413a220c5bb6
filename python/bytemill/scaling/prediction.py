"""Predict the best model for a budget, and test predictions on a budget that was held out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import ScalingError
from bytemill.scaling.fits import fit_loss

if TYPE_CHECKING:
    from bytemill.scaling.fits import Fit, Interval
    from bytemill.scaling.run_files import RunTable

_SAME_BUDGET = 1.05
"""Budgets within this factor of the largest are held out together."""


@dataclass(frozen=True)
class Prediction:
    """The best model for a budget, with intervals."""

    flops: float
    parameters: Interval
    tokens: Interval
    loss: Interval
    beyond: float
    """Factor from the largest budget of the runs to this one; at most 1 within them."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class HeldOut:
    """How well the runs of smaller budgets predict those of the largest."""

    flops: float
    ratio: float
    """Factor from the largest budget of the fit to the held-out one."""
    n_runs: int
    mean_error: float
    """Mean of predicted / measured loss − 1."""
    largest_error: float
    """Largest of |predicted / measured loss − 1|."""
    n_inside: int
    """Runs inside of their predicted 95 % interval."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)


def fit_table(table: RunTable, n_bootstrap: int = 0) -> Fit:
    """Fit the law to the runs of a table, with the uncertainty of their learning rates."""
    return fit_loss(table.runs, n_bootstrap=n_bootstrap, log_shifts=table.log_shifts)


def predict(fit: Fit, table: RunTable, flops: float) -> Prediction:
    """Predict the best model for a budget."""
    k = table.flops_per_token
    return Prediction(
        flops,
        fit.interval(lambda law: law.best(flops, k)[0]),
        fit.interval(lambda law: law.best(flops, k)[1]),
        fit.interval(lambda law: law.loss(*law.best(flops, k))),
        flops / float(table.flops.max()),
    )


def hold_out(table: RunTable, n_bootstrap: int = 100) -> HeldOut | None:
    """Fit the runs without those of the largest budget, and predict their losses; None if too few are left."""
    largest = float(table.flops.max())
    is_held = table.flops * _SAME_BUDGET >= largest
    rest = np.flatnonzero(~is_held)
    held = table.runs.take(np.flatnonzero(is_held))
    try:
        shifts = None if table.log_shifts is None else table.log_shifts[:, rest]
        fit = fit_loss(table.runs.take(rest), n_bootstrap=n_bootstrap, log_shifts=shifts)
    except ScalingError:
        return None
    errors = fit.law.loss(held.parameters, held.tokens) / held.losses - 1
    n_inside = 0
    for n, d, loss in zip(held.parameters, held.tokens, held.losses, strict=True):
        own = fit.outcome(float(n), float(d))
        n_inside += int(own.low <= loss <= own.high)
    return HeldOut(
        largest,
        largest / float(table.flops[rest].max()),
        len(held),
        float(errors.mean()),
        float(np.abs(errors).max()),
        n_inside,
    )
