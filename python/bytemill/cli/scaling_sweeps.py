"""Run sweeps, and show their ledgers and progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.cli import output
from bytemill.cli.experiment import StudyView
from bytemill.scaling.grid import choose_rates, cost, planned_grid, probe, trial_points
from bytemill.scaling.ledger import Ledger
from bytemill.scaling.run import run_sweep
from bytemill.system.units import format_count, format_seconds, plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.experiment.runner import Event


def open_ledger(sweep: Path, folder: Path | None, *, quiet: bool) -> Ledger:
    """Open the ledger of a sweep file, by default in a folder of the file's name."""
    return Ledger(
        Path(sweep.stem) if folder is None else folder,
        sweep=sweep,
        report=lambda step: output.note(step, quiet=quiet),
    )


class SweepView(StudyView):
    """Shows a line for each finished run, and the progress of those that are being trained."""

    def __call__(self, event: Event) -> None:
        """Show an event."""
        match event.kind:
            case "record" if event.record["kind"] == "run":
                bits = event.record["bits_per_byte"]
                shown = "diverged" if bits is None else f"{bits:.4f} bits per byte"
                name = f"{event.cell}, {event.record['n_steps']:,} steps"
                output.note(f"{name}: {shown} ({event.n_done} of {event.n_cells})", quiet=self.quiet)
            case "finished" | "known":
                pass
            case _:
                super().__call__(event)


def submit_run(
    sweep: Path, folder: Path | None, settings: Mapping[str, Any], *, as_json: bool, quiet: bool
) -> None:
    """Train one run, and print its outcome."""
    ledger = open_ledger(sweep, folder, quiet=quiet)
    with SweepView(quiet=quiet) as view:
        outcome = ledger.loss(settings, view)
    left = ledger.budget_flops - ledger.spent_flops
    if as_json:
        values = {**outcome.to_dict(), "seconds": outcome.seconds, "left_flops": left}
        output.write_json(values)
        return
    problem = outcome.problem
    shown = {
        "run": outcome.point.name,
        "loss": "–" if outcome.loss is None else f"{outcome.loss:.4f} nats per token",
        "bits per byte": "–" if outcome.bits_per_byte is None else f"{outcome.bits_per_byte:.4f}",
        "FLOPs": f"{outcome.flops:.4g}",
        "time": "–" if outcome.seconds is None else format_seconds(outcome.seconds),
        **({"problem": problem} if problem else {}),
        "left in the ledger": f"{left:.4g} of {ledger.budget_flops:.4g} FLOPs",
    }
    output.write_fields(list(shown.items()))


def write_plan(sweep: Path, folder: Path | None, *, is_probed: bool, as_json: bool, quiet: bool) -> None:
    """Propose a grid, and print it with its cost."""
    ledger = open_ledger(sweep, folder, quiet=quiet)
    grid = planned_grid(ledger, renew=True)
    depths = sorted({cell.depth for cell in grid.cells})
    with output.ProgressDisplay(quiet=quiet) as display:
        speeds = probe(ledger, depths, display.step) if is_probed else None
    own = cost(ledger, grid, speeds)
    n_trials = len(trial_points(ledger, grid))
    if as_json:
        output.write_json(
            {
                "cells": [vars(cell) for cell in grid.cells],
                "centres": {f"{budget:g}": centre for budget, centre in grid.centres.items()},
                "is_fitted": grid.is_fitted,
                "skipped": grid.skipped,
                "n_trials": n_trials,
                **vars(own),
            }
        )
        return
    if ledger.sweep.title:
        output.write_line(output.styled(ledger.sweep.title, "1"))
        output.write_line()
    rows: list[tuple[str, ...]] = []
    for budget, centre in grid.centres.items():
        for vocab_size in ledger.sweep.vocabularies.sizes:
            cells = [cell for cell in grid.cells if (cell.budget, cell.vocab_size) == (budget, vocab_size)]
            for cell in cells:
                settings = {"vocab_size": vocab_size, "depth": cell.depth, "flops": budget}
                point = ledger.points.point(settings)
                parts = ledger.points.parameters(point.chain)
                n_tokens = point.n_steps * ledger.sweep.step_tokens
                best = f"{centre:.3g}" if cell == cells[0] else ""
                rows.append(
                    (
                        f"{budget:.3g}" if cell == cells[0] else "",
                        f"{vocab_size:,}" if cell == cells[0] else "",
                        best,
                        f"{cell.depth:g}",
                        f"{ledger.points.flops_per_token(point.chain) / 6:.3g}",
                        format_count(parts["rest"]),
                        format_count(sum(parts.values())),
                        format_count(n_tokens),
                        f"{point.n_steps:,}",
                    )
                )
    header = ("FLOPs", "ids", "best N", "depth", "N by FLOPs", "non-vocabulary", "all", "tokens", "steps")
    output.write_table(header, rows, right=range(len(header)))
    output.write_line()
    source = "the fit to the ledger" if grid.is_fitted else "20 tokens per N, as there is no fit yet"
    output.write_line(f"Best sizes by {source}; N by FLOPs is a sixth of the FLOPs per token")
    trials = f", {n_trials} of them trials of learning rates" if n_trials else ""
    output.write_line(f"{plural(own.n_runs, 'run')}{trials}; {own.n_missing} are not in the ledger")
    time = "" if own.seconds is None else f", about {format_seconds(own.seconds)} of training"
    output.write_line(f"They cost {own.flops:.3g} of the {own.left_flops:.3g} FLOPs left{time}")
    if own.passes > 1:
        output.note(f"the longest run reads the text {own.passes:.1f} times: laws are about new text")
    for each in grid.skipped:
        output.note(f"left out: {each}")


def run_and_show(sweep: Path, folder: Path | None, *, jobs: int, as_json: bool, quiet: bool) -> int:
    """Run a sweep, and print what its ledger holds."""
    ledger = open_ledger(sweep, folder, quiet=quiet)
    with SweepView(quiet=quiet) as view:
        failures = run_sweep(ledger, n_jobs=jobs, on_event=view)
    problems = {own.point.name: own.problem for own in ledger.outcomes if own.problem}
    if as_json:
        output.write_json(
            {
                "runs": [own.to_dict() for own in ledger.outcomes],
                "left_out": problems,
                "failures": failures,
                "spent_flops": ledger.spent_flops,
                "budget_flops": ledger.budget_flops,
            }
        )
        return 1 if failures else 0
    if not quiet:
        output.write_line(f"{plural(len(ledger.outcomes), 'run')} in {ledger.file}")
        output.write_line(f"spent: {ledger.spent_flops:.4g} of {ledger.budget_flops:.4g} FLOPs")
        for name, why in problems.items():
            output.write_line(f"left out of fits: {name}: {why}")
        if not failures:
            for depth, choice in choose_rates(ledger, planned_grid(ledger)).items():
                edge = ", at the edge of those tried" if choice.is_at_edge else ""
                output.write_line(f"learning rate of depth {depth:g}: {choice.rate:.3g}{edge}")
    return 1 if failures else 0
