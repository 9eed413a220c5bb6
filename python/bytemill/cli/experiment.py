"""`bytemill experiment`: compare tokenizers by the models they make."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.storage import url_of

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
    from bytemill.cli.experiment_views import StudyView, write_findings
    from bytemill.cli.interruption import interruptible
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
    from bytemill.cli.experiment_views import write_plan
    from bytemill.cli.interruption import interruptible
    from bytemill.cli.progress import ProgressDisplay
    from bytemill.experiment.plan import plan_study

    with interruptible("run the same command again"), ProgressDisplay(quiet=quiet) as display:
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
    from bytemill.cli.experiment_views import write_findings
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
