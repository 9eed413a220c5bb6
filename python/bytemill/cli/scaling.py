"""`bytemill scaling`: scaling laws of runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from bytemill.cli import options

if TYPE_CHECKING:
    from bytemill.cli.scaling_views import BestModels
    from bytemill.scaling.run_files import RunTable

app = App(
    name="scaling",
    help="Fit scaling laws to runs, and predict the best model for a budget.",
    help_epilogue="`bytemill scaling COMMAND --help` shows options and examples.",
)

Table = Annotated[
    Path,
    Parameter(
        name="RUNS",
        help="A .csv, .json or .jsonl file with a row per run (parameters, tokens or FLOPs, and loss), or the folder "
        "of a ledger.",
    ),
]
Column = Annotated[str | None, Parameter(help="Column of this quantity, if it has an unusual name.")]
Convention = Annotated[
    Literal["flops", "non-vocabulary", "all"],
    Parameter(
        help="What N counts in a ledger: a sixth of the FLOPs per token, so that 6 N D are the FLOPs of a run; "
        "parameters without embedding and output layer; or all parameters."
    ),
]
VocabSize = Annotated[
    int | None,
    Parameter(
        name="--vocab-size", help="Vocabulary of the runs of a ledger; by default the first of the sweep."
    ),
]
FlopsPerToken = Annotated[
    float,
    Parameter(
        validator=Number(gt=0),
        help="FLOPs per token and parameter: budget = this times parameters times tokens.",
    ),
]
Samples = Annotated[int, Parameter(validator=Number(gte=0), help="Bootstrap samples of the intervals.")]


@app.command(
    help_epilogue="""Examples:
  bytemill scaling fit runs.csv
  bytemill scaling fit sweep.json --loss-column final_bits --json""",
)
def fit(
    runs: Table,
    /,
    *,
    parameters_column: Column = None,
    tokens_column: Column = None,
    flops_column: Column = None,
    loss_column: Column = None,
    flops_per_token: FlopsPerToken = 6.0,
    parameters: Convention = "flops",
    vocab_size: VocabSize = None,
    bootstrap: Samples = 500,
    as_json: options.Json = False,
) -> None:
    """Fit L(N, D) = E + A / N^alpha + B / D^beta and the best sizes by budget.

    Intervals of 95 % come from a bootstrap over the runs. The runs of the largest
    budget are also predicted from the others, and compared.
    """
    from bytemill.cli.scaling_views import write_fit

    columns = _columns(parameters_column, tokens_column, flops_column, loss_column)
    table = _table(runs, columns, flops_per_token, parameters, vocab_size)
    write_fit(table, n_bootstrap=bootstrap, as_json=as_json)


@app.command(
    help_epilogue="""Examples:
  bytemill scaling predict runs.csv --flops 1e21
  bytemill scaling predict runs.csv --flops 1e21 1e22""",
)
def predict(
    runs: Table,
    /,
    *,
    flops: Annotated[
        tuple[float, ...],
        Parameter(consume_multiple=True, validator=Number(gt=0), help="Budgets, such as 1e21."),
    ],
    parameters_column: Column = None,
    tokens_column: Column = None,
    flops_column: Column = None,
    loss_column: Column = None,
    flops_per_token: FlopsPerToken = 6.0,
    parameters: Convention = "flops",
    vocab_size: VocabSize = None,
    bootstrap: Samples = 500,
    as_json: options.Json = False,
) -> None:
    """Predict size, tokens and loss of the best model for a budget, with intervals.

    Each line says how far the budget is beyond the largest one of the runs, and
    how far a prediction from the smaller budgets could be tested.
    """
    from bytemill.cli.scaling_views import write_predictions

    columns = _columns(parameters_column, tokens_column, flops_column, loss_column)
    table = _table(runs, columns, flops_per_token, parameters, vocab_size)
    write_predictions(table, flops, _models(runs, table, parameters), n_bootstrap=bootstrap, as_json=as_json)


SweepFile = Annotated[Path, Parameter(name="SWEEP.toml", help="The sweep file.")]
Folder = Annotated[
    Path | None,
    Parameter(
        name=["--output", "-o"], help="Folder of the ledger; by default the file's name without its ending."
    ),
]
Jobs = Annotated[
    int,
    Parameter(
        validator=Number(gte=1),
        help="Models trained at the same time, each on a GPU of its own where there are several.",
    ),
]


@app.command(
    help_epilogue="""Examples:
  bytemill scaling plan scaling.toml
  bytemill scaling plan scaling.toml --no-probe --json""",
)
def plan(
    sweep: SweepFile,
    /,
    *,
    output_path: Folder = None,
    no_probe: Annotated[
        bool, Parameter(help="Do not train each model for 12 steps to estimate the time of the sweep.")
    ] = False,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Propose the runs of a sweep, and show what they cost.

    Sizes of models lie around the best one of each budget: that of the fit to the
    runs in the ledger, or at first that of 20 tokens per parameter. The next
    `scaling run` trains what was planned last.
    """
    from bytemill.cli.failures import interruptible
    from bytemill.cli.scaling_sweeps import write_plan
    from bytemill.lm.device import use_threads

    use_threads(threads)
    with interruptible("run the same command again"):
        write_plan(sweep, output_path, is_probed=not no_probe, as_json=as_json, quiet=quiet)


@app.command(
    help_epilogue="""Examples:
  bytemill scaling run scaling.toml
  bytemill scaling run scaling.toml -o sweep --jobs 2""",
)
def run(
    sweep: SweepFile,
    /,
    *,
    output_path: Folder = None,
    jobs: Jobs = 1,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Train the runs of a sweep, or what is missing of them.

    Runs of one model with different numbers of tokens share their beginning. After
    Ctrl-C or a crash, the same command resumes, and the ledger is the same.
    """
    from bytemill.cli.failures import interruptible
    from bytemill.cli.scaling_sweeps import run_and_show
    from bytemill.lm.device import use_threads

    use_threads(threads)
    with interruptible("run the same command again to resume"):
        return run_and_show(sweep, output_path, jobs=jobs, as_json=as_json, quiet=quiet)


@app.command(
    help_epilogue="""Examples:
  bytemill scaling check scaling.toml --budget 1e13
  bytemill scaling check scaling.toml --budget 1e13 --seeds 3""",
)
def check(
    sweep: SweepFile,
    /,
    *,
    budget: Annotated[
        float, Parameter(validator=Number(gt=0), help="FLOPs, above those of all runs in the ledger.")
    ],
    seeds: Annotated[int, Parameter(validator=Number(gte=1), help="Runs, which differ by their seed.")] = 1,
    output_path: Folder = None,
    jobs: Jobs = 1,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train at the predicted best model of a larger budget, and compare the outcome.

    The prediction is written down before the runs are trained. Its interval holds
    the mean of the runs.
    """
    from bytemill.cli.failures import interruptible
    from bytemill.cli.scaling_sweeps import check_and_show
    from bytemill.lm.device import use_threads

    use_threads(threads)
    with interruptible("run the same command again to resume"):
        check_and_show(sweep, output_path, budget, seeds, jobs=jobs, as_json=as_json, quiet=quiet)


@app.command(
    help_epilogue="""Examples:
  bytemill scaling report sweep
  bytemill scaling report sweep -o sweep.html --json""",
)
def report(
    folder: Annotated[Path, Parameter(name="FOLDER", help="Folder of a ledger.")],
    /,
    *,
    output_path: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], help="File of the page; by default report.html in the folder."),
    ] = None,
    bootstrap: Samples = 300,
    as_json: options.Json = False,
) -> None:
    """Show what the runs of a ledger tell, and write a page with charts.

    The page loads nothing from elsewhere, and saves its charts as SVG or PNG.
    """
    from bytemill.cli.scaling_sweeps import write_report

    write_report(folder, output_path, n_bootstrap=bootstrap, as_json=as_json)


@app.command(
    help_epilogue="""Examples:
  bytemill scaling submit scaling.toml 2 --budget 1e12
  bytemill scaling submit scaling.toml 1.5 --training-tokens 1M --seed 1 \\
    --vocab-size 1024 --json""",
)
def submit(
    sweep: SweepFile,
    depth: Annotated[float, Parameter(name="DEPTH", help="Position on the depth dial, such as 2 or 2.5.")],
    /,
    *,
    budget: Annotated[float | None, Parameter(help="FLOPs of the run; or name --training-tokens.")] = None,
    training_tokens: Annotated[
        int | None,
        Parameter(validator=Number(gte=1), converter=options.count, help="Tokens of the run, such as 2M."),
    ] = None,
    vocab_size: Annotated[
        int | None, Parameter(help="Size of the vocabulary; by default the first of the sweep.")
    ] = None,
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="Seed of the run.")] = 0,
    learning_rate: Annotated[
        float | None, Parameter(help="Peak learning rate; by default the depth dial's.")
    ] = None,
    output_path: Folder = None,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train one run of a sweep, and show its loss, bits per byte, FLOPs and seconds.

    A run that is in the ledger costs nothing. One that exceeds the budget of the
    ledger is refused before any work.
    """
    from bytemill.cli.failures import interruptible
    from bytemill.cli.scaling_sweeps import submit_run
    from bytemill.lm.device import use_threads

    use_threads(threads)
    wanted = {
        "depth": depth,
        "flops": budget,
        "tokens": training_tokens,
        "vocab_size": vocab_size,
        "seed": seed,
        "learning_rate": learning_rate,
    }
    settings = {name: value for name, value in wanted.items() if value is not None}
    with interruptible("run the same command again to resume"):
        submit_run(sweep, output_path, settings, as_json=as_json, quiet=quiet)


def _table(
    runs: Path,
    columns: dict[str, str],
    flops_per_token: float,
    convention: Convention,
    vocab_size: int | None,
) -> "RunTable":
    """Read runs of a file or of the folder of a ledger."""
    from bytemill.cli.scaling_sweeps import open_folder
    from bytemill.scaling.ledger_runs import ledger_table
    from bytemill.scaling.run_files import read_runs

    if runs.is_dir():
        return ledger_table(open_folder(runs), vocab_size, convention)
    return read_runs(runs, columns, flops_per_token)


def _models(runs: Path, table: "RunTable", convention: Convention) -> "BestModels | None":
    """Return what a ledger tells of the best models; None for a file, or N of which the dial knows nothing."""
    if not runs.is_dir() or convention != "flops" or not table.runs.losses.size:
        return None
    from bytemill.cli.scaling_sweeps import LedgerModels, open_folder

    return LedgerModels(open_folder(runs))


def _columns(*names: str | None) -> dict[str, str]:
    quantities = ("parameters", "tokens", "flops", "loss")
    return {quantity: name for quantity, name in zip(quantities, names, strict=True) if name is not None}
