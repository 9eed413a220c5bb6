"""Run sweeps, and show their ledgers and progress."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.cli import output
from bytemill.cli.experiment import StudyView
from bytemill.scaling.check import nearest_depth, run_check
from bytemill.scaling.findings import ScalingFindings
from bytemill.scaling.grid import choose_rates, cost, planned_grid, probe, trial_points
from bytemill.scaling.ledger import Ledger
from bytemill.scaling.report import (
    budgets_table,
    checks_table,
    exponents_table,
    law_table,
    rates_table,
    report,
    sentences,
)
from bytemill.scaling.run import run_sweep
from bytemill.system.atomic_files import write_text
from bytemill.system.units import format_count, format_seconds, plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.experiment.runner import Event
    from bytemill.scaling.vocabulary import BestVocabulary


def open_ledger(sweep: Path, folder: Path | None, *, quiet: bool) -> Ledger:
    """Open the ledger of a sweep file, by default in a folder of the file's name."""
    return Ledger(
        Path(sweep.stem) if folder is None else folder,
        sweep=sweep,
        report=lambda step: output.note(step, quiet=quiet),
    )


def open_folder(folder: Path) -> Ledger:
    """Open the ledger in a folder.

    Raises:
        ScalingError: There is none.
    """
    return Ledger(folder, report=output.note)


class LedgerModels:
    """What a ledger tells of the best models.

    Args:
        ledger: The ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._findings: ScalingFindings | None = None

    def depth(self, parameters: float) -> float:
        """Return the position of the depth dial nearest to N."""
        return nearest_depth(self._ledger, parameters)

    def vocabulary(self, flops: float, n_bootstrap: int) -> BestVocabulary | None:
        """Return the best vocabulary for a budget; None if the runs do not tell it."""
        if self._findings is None:
            self._findings = ScalingFindings(self._ledger, n_bootstrap)
        return self._findings.best_vocabulary(flops)


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


def check_and_show(
    sweep: Path, folder: Path | None, flops: float, n_seeds: int, *, jobs: int, as_json: bool, quiet: bool
) -> None:
    """Test a prediction, and print it with the outcome."""
    ledger = open_ledger(sweep, folder, quiet=quiet)
    with SweepView(quiet=quiet) as view:
        checked = run_check(ledger, flops, n_seeds=n_seeds, n_jobs=jobs, on_event=view)
    if as_json:
        output.write_json({**asdict(checked), "outcome": checked.outcome})
        return
    output.write_line(checked.sentence)


def write_report(folder: Path, page: Path | None, *, n_bootstrap: int, as_json: bool) -> None:
    """Write the page of a ledger, and print its tables."""
    findings = ScalingFindings(open_folder(folder), n_bootstrap)
    target = folder / "report.html" if page is None else page
    write_text(target, report(findings))
    if as_json:
        output.write_json(findings.to_dict())
        return
    for table in (law_table, exponents_table, budgets_table, checks_table, rates_table):
        rows = table(findings)
        if len(rows) > 1:
            output.write_table(rows[0], rows[1:], right=range(1, len(rows[0])))
            output.write_line()
    for name, why in findings.table.left_out:
        output.write_line(f"left out: {name}: {why}")
    for sentence in sentences(findings):
        output.write_line(sentence)
    output.write_line(f"The page is {target}")
