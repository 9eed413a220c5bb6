"""`bytemill quickstart`: the guided first run."""

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
    usage="Usage: bytemill quickstart [OPTIONS] [DIR]",
    help_epilogue="""Examples:
  bytemill quickstart
  bytemill quickstart mine --corpus notes.txt 'essays/*.txt'
  bytemill quickstart big --vocab-size 16384 --model-steps 3000 --no-open
  bytemill quickstart --model-steps 0            skip the language model""",
)


@app.default
def quickstart(
    folder: Annotated[Path, Parameter(name="DIR", help="Output folder.")] = Path("quickstart"),
    /,
    *,
    corpus: Annotated[
        tuple[str, ...],
        Parameter(
            consume_multiple=True,
            help="Text files or globs to use instead of the documentation of this Python.",
        ),
    ] = (),
    vocab_size: Annotated[
        int,
        Parameter(
            name=["--vocab-size", "-n"], converter=options.count, help="Tokens in the vocabulary, such as 8k."
        ),
    ] = 8192,
    model_steps: Annotated[
        int,
        Parameter(validator=Number(gte=0), help="Training steps of the language model; 0 skips it."),
    ] = 300,
    threads: options.ModelThreads = None,
    no_open: Annotated[bool, Parameter(help="Do not open the report in a browser.")] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run the quickstart and print its results."""
    from bytemill.cli.lm_training import TrainingView
    from bytemill.cli.progress import ProgressDisplay, training_progress
    from bytemill.cli.quickstart_summary import write_quickstart
    from bytemill.quickstart import run
    from bytemill.system.browser import open_page

    if threads is not None:
        from bytemill.lm.device import use_threads

        use_threads(threads)
    with (
        interruptible("run the same command again to start over"),
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
            open_page((result.folder / "report.html").resolve().as_uri())
