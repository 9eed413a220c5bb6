"""Progress, plans and results of studies on the terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from bytemill.cli import output
from bytemill.cli.progress import ProgressDisplay
from bytemill.system.units import format_bytes, format_count, format_seconds, plural

if TYPE_CHECKING:
    from types import TracebackType

    from bytemill.experiment.findings import Findings
    from bytemill.experiment.plan import StudyPlan
    from bytemill.experiment.runner import Event


class StudyView:
    """Shows a line for each model that is finished or failed, and the progress of those that are being trained."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._display = ProgressDisplay(quiet=quiet)
        self._pause = 0.2 if output.is_terminal(sys.stderr) else 10.0
        self._shown = 0.0

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._display.__exit__(kind, error, traceback)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        state = f"{event.n_done} of {event.n_cells}"
        match event.kind:
            case "preparing":
                self._display.step(event.message)
            case "cell":
                self._display.step(f"training {event.cell}")
            case "record" if event.record["kind"] == "step" and time.monotonic() > self._shown + self._pause:
                self._shown = time.monotonic()
                loss = event.record["loss"]
                shown_loss = "not finite" if loss is None else f"{loss:.3f}"
                left = event.record.get("seconds_left")
                shown = "" if left is None else f", {format_seconds(left)} left"
                self._display.step(f"{event.cell}: step {event.record['step']:,}, loss {shown_loss}{shown}")
            case "finished":
                bits = ", ".join(f"{name} {own:.4f}" for name, own in event.record["bits_per_byte"].items())
                output.note(f"{event.cell}: {bits} bits per byte ({state})", quiet=self._quiet)
            case "known":
                output.note(f"{event.cell}: done before ({state})", quiet=self._quiet)
            case "failed":
                output.error(f"{event.cell} failed: {event.message}")
            case _:
                pass


def write_findings(findings: Findings) -> None:
    """Print the tables of a study."""
    from bytemill.experiment.report import (
        hellaswag_table,
        learning_table,
        means_table,
        pairs_table,
        predictions_table,
        trials_table,
    )

    title = findings.grid["title"] or str(findings.path)
    output.write_line(output.styled(title, "1"))
    if findings.missing:
        output.write_line(
            f"{plural(len(findings.missing), 'model')} not finished: {', '.join(findings.missing)}"
        )
    for name, message in findings.failures.items():
        output.write_line(f"{name} failed: {message}")
    for model in findings.models:
        for rows in (
            means_table(findings, model),
            pairs_table(findings, model),
            learning_table(findings, model),
            hellaswag_table(findings, model),
            predictions_table(findings, model),
        ):
            if len(rows) > 1:
                output.write_line()
                output.write_table(rows[0], rows[1:], right=range(1, len(rows[0])))
        output.write_line()
        for pair in findings.pairs:
            if pair.model == model:
                output.write_line(pair.sentence)
    trials = trials_table(findings)
    if len(trials) > 1:
        output.write_line()
        output.write_table(trials[0], trials[1:], right=(2, 3, 4, 5))
        output.write_line()
    for sentence in findings.rate_sentences:
        output.write_line(sentence)


def write_plan(plan: StudyPlan) -> None:
    """Print what a study will take."""
    if plan.title:
        output.write_line(output.styled(plan.title, "1"))
        output.write_line()
    output.write_table(
        (
            "tokenizer",
            "model",
            "ids",
            "embedding",
            "output",
            "rest",
            "steps",
            "text",
            "passes",
            "tokens/parameter",
            "FLOPs",
            "time",
        ),
        [
            (
                arm.tokenizer,
                arm.model,
                format_count(arm.n_ids),
                *(format_count(n) for n in arm.parameters.values()),
                format_count(arm.n_steps),
                format_bytes(arm.n_bytes),
                f"{arm.passes:.2f}",
                f"{arm.tokens_per_parameter:.2g}",
                f"{arm.flops:.2e}",
                "–" if arm.seconds is None else format_seconds(arm.seconds),
            )
            for arm in plan.arms
        ],
        right=range(2, 12),
    )
    output.write_line()
    n_trials = f", {plural(plan.n_trials, 'trial')} of learning rates before" if plan.n_trials else ""
    took = "" if plan.seconds is None else f", about {format_seconds(plan.seconds)} of training"
    output.write_line(f"{plural(plan.n_cells, 'model')}{n_trials}: {plan.flops:.2e} FLOPs{took}")
    output.write_line(f"Disk space: about {format_bytes(plan.n_disk_bytes)}")
    output.write_line(f"Models are scored with at least {plan.context_bytes:,} bytes of context")
    if plan.detectable is not None:
        low, high = plan.detectable
        output.write_line(
            f"Smallest difference the seeds show: {low:.4f} to {high:.4f} bits per byte, if models vary as published "
            "ones of 1B parameters; small models vary more"
        )
    for warning in plan.warnings:
        output.note(warning)
