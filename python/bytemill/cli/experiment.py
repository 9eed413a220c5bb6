"""`bytemill experiment`: compare tokenizers by the models they make."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from cyclopts import App, Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.storage import url_of
from bytemill.system.units import format_bytes, format_count, format_seconds, plural

if TYPE_CHECKING:
    from types import TracebackType

    from bytemill.experiment.findings import Findings
    from bytemill.experiment.plan import StudyPlan
    from bytemill.experiment.runner import Event

app = App(
    name="experiment",
    help_epilogue="""Examples:
  bytemill experiment plan study.toml
  bytemill experiment run study.toml --jobs 2
  bytemill experiment report study""",
)

StudyFile = Annotated[Path, Parameter(name="STUDY.toml", help="The study file.")]
Folder = Annotated[
    Path | None,
    Parameter(
        name=["--output", "-o"], help="Folder of the study; by default the file's name without its ending."
    ),
]


@app.command(
    sort_key=1,
    help_epilogue="""Examples:
  bytemill experiment run study.toml
  bytemill experiment run study.toml -o results --jobs 2""",
)
def run(
    study: StudyFile,
    /,
    *,
    output_path: Folder = None,
    jobs: Annotated[
        int,
        Parameter(
            validator=Number(gte=1),
            help="Models trained at the same time, each on a GPU of its own where there are several.",
        ),
    ] = 1,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Run a study, or what is missing of it, and write its report.

    Every model is a run of its own: after Ctrl-C or a crash, the same command
    resumes, and the results are the same. A model that fails is reported, and the
    others go on; the exit code is then 1.
    """
    from bytemill.cli.failures import interruptible
    from bytemill.experiment.findings import Findings
    from bytemill.experiment.runner import run_study
    from bytemill.lm.device import use_threads

    use_threads(threads)
    with interruptible("run the same command again to resume"), StudyView(quiet=quiet) as view:
        folder = run_study(study, output_path, n_jobs=jobs, on_event=view)
    findings = Findings(folder.path)
    if as_json:
        output.write_json(findings.to_dict())
    elif not quiet:
        write_findings(findings)
        url = None if output_path is None else url_of(output_path)
        output.write_line(f"The page is {folder.report if url is None else f'{url}/report.html'}")
    return 1 if findings.failures else 0


@app.command(
    sort_key=2,
    help_epilogue="""Examples:
  bytemill experiment plan study.toml
  bytemill experiment plan study.toml --no-probe --json""",
)
def plan(
    study: StudyFile,
    /,
    *,
    output_path: Folder = None,
    no_probe: Annotated[
        bool, Parameter(help="Do not train each model for 20 steps to estimate the time of the study.")
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what a study will take: parameters, FLOPs, time, disk space.

    The tokenizers of the study are trained for that, and kept for the run.
    """
    from bytemill.cli.failures import interruptible
    from bytemill.experiment.plan import plan_study

    with interruptible("run the same command again"), output.ProgressDisplay(quiet=quiet) as display:
        planned = plan_study(study, output_path, probe=not no_probe, report=display.step)
    if as_json:
        output.write_json(planned.to_dict())
    elif not quiet:
        write_plan(planned)


@app.command(
    sort_key=3,
    help_epilogue="""Examples:
  bytemill experiment report study
  bytemill experiment report study -o study.html --json""",
)
def report(
    folder: Annotated[Path, Parameter(name="FOLDER", help="Folder of a study, finished or not.")],
    /,
    *,
    output_path: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="Also write the page to this file.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show the results of a study so far."""
    from bytemill.experiment.findings import Findings
    from bytemill.experiment.report import report as render
    from bytemill.experiment.results import StudyFolder
    from bytemill.storage import write_file
    from bytemill.storage.input_check import check_file_is_no_input

    own = StudyFolder(folder)
    if output_path is not None:
        check_file_is_no_input(output_path, set(own.files) - {own.report})
    findings = Findings(folder)
    if output_path is not None:
        write_file(output_path, render(findings).encode())
    if as_json:
        output.write_json(findings.to_dict())
    else:
        write_findings(findings)


@app.command(
    name="list",
    sort_key=4,
    usage="Usage: bytemill experiment list [OPTIONS] [FOLDER]",
    help_epilogue="""Examples:
  bytemill experiment list
  bytemill experiment list results --json""",
)
def list_studies(
    root: Annotated[Path, Parameter(name="FOLDER", help="Folder that is searched.")] = Path(),
    /,
    *,
    as_json: options.Json = False,
) -> None:
    """List the studies in a folder, and how far they are."""
    from bytemill.errors import RunConfigError
    from bytemill.experiment.findings import Findings

    rows: list[dict[str, Any]] = []
    for path in sorted(root.glob("*/study.json")):
        try:
            findings = Findings(path.parent)
        except RunConfigError as error:
            output.error(str(error))
            continue
        rows.append(
            {
                "folder": str(path.parent),
                "title": findings.grid["title"],
                "n_cells": len(findings.grid["cells"]),
                "n_missing": len(findings.missing),
                "n_failed": len(findings.failures),
            }
        )
    if as_json:
        output.write_json(rows)
        return
    if not rows:
        output.write_line(f"There is no study in {root}.")
        return
    output.write_table(
        ("study", "title", "models", "missing", "failed"),
        [
            (row["folder"], row["title"], str(row["n_cells"]), str(row["n_missing"]), str(row["n_failed"]))
            for row in rows
        ],
        right=(2, 3, 4),
    )


# What the commands show.


class StudyView:
    """Shows a line for each model that is finished or failed, and the progress of those that are being trained."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._display = output.ProgressDisplay(quiet=quiet)
        self._pause = 0.2 if output.is_terminal(sys.stderr) else 10.0
        self._shown = 0.0

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        traceback: "TracebackType | None",
    ) -> None:
        self._display.__exit__(kind, error, traceback)

    def __call__(self, event: "Event") -> None:
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


def write_findings(findings: "Findings") -> None:
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


def write_plan(plan: "StudyPlan") -> None:
    """Print what a study will take."""
    from bytemill.experiment.study import with_text

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
                with_text(arm.tokenizer, arm.text),
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
