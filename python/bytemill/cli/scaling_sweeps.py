"""Run sweeps, and show their ledgers and progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.cli import output
from bytemill.cli.experiment import StudyView
from bytemill.scaling.ledger import Ledger
from bytemill.system.units import format_seconds

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
