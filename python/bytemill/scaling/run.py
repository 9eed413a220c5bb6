"""Run a sweep: first the trials of learning rates, then the grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.errors import ScalingError
from bytemill.scaling.grid import choose_rates, cost, grid_points, planned_grid, trial_points

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.experiment.runner import Event, Execute
    from bytemill.scaling.ledger import Ledger


def run_sweep(
    ledger: Ledger,
    *,
    n_jobs: int = 1,
    execute: Execute | None = None,
    on_event: Callable[[Event], None] = lambda _: None,
) -> dict[str, str]:
    """Train the runs of the grid that are not in the ledger.

    After a crash, the same call resumes, and gives the same ledger.

    Args:
        ledger: The ledger.
        n_jobs: Chains of runs trained at the same time.
        execute: Performs the jobs, instead of processes.
        on_event: Called with what happens.

    Returns:
        Messages of the chains that failed, by name.

    Raises:
        ScalingError: The grid exceeds the budget of the ledger; nothing was trained.
    """
    grid = planned_grid(ledger)
    missing = cost(ledger, grid)
    if missing.flops > missing.left_flops * (1 + 1e-9):
        raise ScalingError(
            f"the grid would cost {missing.flops:.4g} FLOPs, and {max(0.0, missing.left_flops):.4g} of "
            f"{ledger.budget_flops:.4g} are left",
            hint="name fewer budgets, depths or seeds, or raise limit_flops",
        )
    trials = trial_points(ledger, grid)
    failures = ledger.run(trials, n_jobs=n_jobs, execute=execute, on_event=on_event)
    if failures:
        return failures
    points = grid_points(ledger, grid, choose_rates(ledger, grid))
    return ledger.run(points, n_jobs=n_jobs, execute=execute, on_event=on_event)
