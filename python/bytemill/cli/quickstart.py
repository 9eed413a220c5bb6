"""`bytemill quickstart`: the whole arc."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.cli.interruption import interruptible

app = App(
    name="quickstart",
    sort_key=1,
    help="""Run the whole arc: tokenizer, shards, comparison, language model, report.

The text is the documentation that every Python brings along, a few megabytes;
nothing is fetched. The model takes about two minutes on two CPU cores, and needs
torch (pip install 'bytemill[lm]'); without it all else is done. What an earlier
quickstart left in DIR is replaced; a folder with other files is refused.""",
    help_epilogue="""Examples:
  bytemill quickstart
  bytemill quickstart mine --corpus notes.txt 'essays/*.txt'
  bytemill quickstart big --vocab-size 16384 --model-steps 3000 --no-open
  bytemill quickstart --model-steps 0            without a language model""",
)


@app.default
def quickstart(
    folder: Annotated[Path, Parameter(name="DIR", help="The folder to write to.")] = Path("quickstart"),
    /,
    *,
    corpus: Annotated[
        tuple[str, ...],
        Parameter(
            name="--corpus",
            consume_multiple=True,
            show_default=False,
            help="Text files or globs to use instead of this Python's documentation.",
        ),
    ] = (),
    vocab_size: Annotated[int, Parameter(name=["--vocab-size", "-n"], help="Tokens in all.")] = 8192,
    model_steps: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=0),
            help="Steps of training the language model; 0: none. By default about two minutes' worth.",
        ),
    ] = None,
    no_open: Annotated[
        bool, Parameter(name="--no-open", show_default=False, help="Do not open the report in a browser.")
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Runs the arc and prints what came of it."""
    from bytemill.cli.lm_training import TrainingView
    from bytemill.cli.progress import ProgressDisplay, training_progress
    from bytemill.cli.quickstart_summary import write_quickstart
    from bytemill.quickstart import browser, run

    with (
        interruptible("run the same command again: it starts afresh"),
        ProgressDisplay(quiet=quiet) as display,
        ExitStack() as model_view,
    ):
        view: list[TrainingView] = []

        def show_model(record: dict[str, Any]) -> None:
            if not view:
                display.end_bar()
                view.append(model_view.enter_context(TrainingView(quiet=quiet)))
            view[0](record)

        result = run(
            folder,
            corpus=corpus or None,
            vocab_size=vocab_size,
            model_steps=model_steps,
            on_step=display.step,
            on_training=None if quiet else training_progress(display),
            on_model=None if quiet else show_model,
        )
    if as_json:
        output.write_json(result.to_dict())
    elif not quiet:
        write_quickstart(result)
        if not no_open and sys.stdout.isatty():
            browser.open_page(Path(result.report_file))
