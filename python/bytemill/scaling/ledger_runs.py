"""The runs of a ledger as a table for fits, with N counted by one of three conventions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from bytemill.errors import ScalingError
from bytemill.scaling.fits import FLOPS_PER_TOKEN, Runs
from bytemill.scaling.run_files import RunTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.scaling.ledger import Ledger
    from bytemill.scaling.points import Outcome, Point

Convention: TypeAlias = Literal["flops", "non-vocabulary", "all"]
"""What N counts: a sixth of the FLOPs per token, parameters without embedding and output layer, or all parameters."""
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
    )
