"""The command `bytemill data curate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import CycloptsError, Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.cli.executor_options import ExecutorOptions
from bytemill.cli.failures import interruptible
from bytemill.cli.options import CorpusArguments
from bytemill.storage import shown
from bytemill.system.units import format_bytes, format_count, format_seconds, format_share, plural

if TYPE_CHECKING:
    from bytemill.data.executors import Executor

EXAMPLES = """Examples:
  bytemill data curate recipe.toml crawl/*.warc.gz -o clean
  bytemill data curate recipe.toml texts/ -o clean --jobs 8
  bytemill data curate recipe.toml crawl/ -o s3://bucket/clean --executor ray
  bytemill data curate recipe.toml crawl/ -o clean --dry-run
  bytemill data curate --rethreshold stricter.toml clean"""


def curate(
    recipe_file: Annotated[
        Path, Parameter(name="RECIPE", help="The recipe: TOML with a [[step]] for each step.")
    ],
    /,
    *inputs: Annotated[options.Inputs, Parameter(required=False)],
    output_folder: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"], help="The output folder, or the URL of one: s3://, gs:// or az://."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        Parameter(
            name=["--jobs", "-j"],
            validator=Number(gte=1, lte=4096),
            help="Processes of this machine: short for --executor local --num-workers N.",
        ),
    ] = None,
    is_rethreshold: Annotated[
        bool,
        Parameter(
            name="--rethreshold",
            negative="",
            help="Decide again by the thresholds of RECIPE in the result DIR, named instead of INPUTS, from what was "
            "measured. The inputs are not read.",
        ),
    ] = False,
    corpus: CorpusArguments = CorpusArguments(),  # noqa: B008  (it is immutable)
    processes: ExecutorOptions = ExecutorOptions(),  # noqa: B008
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make clean text of web archives and other texts by a recipe.

    The steps of the recipe extract, measure, mask and remove. The output folder
    gets kept/ and removed/, JSON lines with all measurements, and curation.json,
    which counts what each step and each rule removed. If interrupted, even by a
    crash, the same command continues and writes the same files.
    """
    from bytemill.cli.output import ProgressDisplay
    from bytemill.curation.recipe import Recipe
    from bytemill.curation.run import curate as run_curation
    from bytemill.curation.run import rethreshold

    if jobs is not None and (processes.executor is not None or processes.num_workers is not None):
        raise CycloptsError("--jobs N stands for --executor local --num-workers N: leave one of them out")
    if is_rethreshold and (len(inputs) != 1 or output_folder is not None):
        raise CycloptsError(
            "--rethreshold needs RECIPE and the output folder of a curation, and nothing else"
        )
    if not is_rethreshold and (not inputs or output_folder is None):
        raise CycloptsError("name RECIPE, INPUTS and --output DIR")
    recipe = Recipe.load(recipe_file)
    with (
        interruptible("run the same command again to continue"),
        ProgressDisplay(quiet=quiet) as display,
        _executor(processes, jobs) as executor,
    ):
        progress = processes.progress(display, quiet=quiet)

        def note(text: str) -> None:
            output.note(text, quiet=quiet)

        if is_rethreshold:
            output_folder = Path(inputs[0])
            result = rethreshold(executor, recipe, output_folder, progress=progress, note=note)
        else:
            assert output_folder is not None  # noqa: S101 - checked above
            source = corpus.corpus(inputs)
            if processes.dry_run:
                _write_estimate(executor, recipe, source, processes.unit_bytes, as_json=as_json)
                return
            result = run_curation(
                executor,
                recipe,
                source,
                output_folder,
                unit_bytes=processes.unit_bytes,
                progress=progress,
                note=note,
                overwrite=overwrite,
            )
    if as_json:
        output.write_json({"output": shown(output_folder), **result})
    elif not quiet:
        _write_funnel(result, output_folder)


def _executor(processes: ExecutorOptions, jobs: int | None) -> "Executor":
    from bytemill.data.executors import open_executor
    from bytemill.data.executors.inline import InlineExecutor

    if jobs is not None:
        return open_executor("local", num_workers=jobs)
    return InlineExecutor() if processes.executor is None else processes.open()


def _write_funnel(result: dict[str, Any], folder: Path) -> None:
    funnel = result["funnel"]
    output.write_line(
        f"{shown(folder)}: {plural(funnel['kept_documents'], 'document')} of {funnel['documents']:,}, "
        f"{format_bytes(funnel['kept_bytes'])} of {format_bytes(funnel['bytes'])}"
    )
    output.write_line()
    rows: list[tuple[str, str, str, str]] = []
    for name, step in funnel["steps"].items():
        n_removed = step["documents"] - step["kept_documents"]
        share = format_share(n_removed / step["documents"]) if step["documents"] else ""
        kept = f"{step['kept_documents']:,}", format_bytes(step["kept_bytes"])
        rows.append((name, *kept, f"{n_removed:,} ({share})" if n_removed else ""))
        for rule, counts in step["rules"].items():
            alone = f", {format_count(counts['alone_documents'])} alone" if counts["alone_documents"] else ""
            rows.append((f"  {rule}", "", "", f"{counts['documents']:,}{alone}"))
    output.write_table(("step", "documents", "text", "removed"), rows, right=(1, 2))


def _write_estimate(
    executor: "Executor", recipe: Any, corpus: Any, unit_bytes: int | None, *, as_json: bool
) -> None:
    from dataclasses import asdict

    from bytemill.curation.estimate import estimate_curation

    estimate = estimate_curation(executor, recipe, corpus, unit_bytes=unit_bytes)
    if as_json:
        output.write_json(asdict(estimate))
        return
    lines = [
        f"steps: {', '.join(estimate.steps)}",
        f"{plural(estimate.n_sources, 'input')}, {format_bytes(estimate.total_bytes)}",
        f"{plural(len(estimate.unit_sizes), 'unit')} of up to {format_bytes(max(estimate.unit_sizes))}",
        f"{estimate.executor}",
        f"measured on {format_bytes(estimate.sample_bytes)}: {format_bytes(round(estimate.rate))}/s for each process, "
        f"of {plural(estimate.n_documents, 'document')} {estimate.n_kept:,} stay",
        f"about {format_seconds(estimate.seconds)}, with {format_bytes(estimate.memory_bytes)} of memory for each",
        *estimate.notes,
    ]
    output.write("".join(f"  {line}\n" for line in lines))
