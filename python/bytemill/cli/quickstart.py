"""`bytemill quickstart`: the whole arc."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from bytemill.cli import options, output
from bytemill.cli.failures import on_interrupt

app = App(
    name="quickstart",
    sort_key=1,
    help="""Run the whole arc: train, encode, check, compare, and write a report.

The text is the documentation that every Python brings along, a few megabytes;
nothing is fetched. What an earlier quickstart left in DIR is replaced; a folder
with other files is refused.""",
    help_epilogue="""Examples:
  bytemill quickstart
  bytemill quickstart mine --corpus notes.txt 'essays/*.txt'
  bytemill quickstart big --vocab-size 16384 --no-open""",
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
    no_open: Annotated[
        bool, Parameter(name="--no-open", show_default=False, help="Do not open the report in a browser.")
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Runs the arc and prints what came of it."""
    from bytemill.cli.progress import ProgressDisplay, training_progress
    from bytemill.cli.quickstart_summary import write_quickstart
    from bytemill.quickstart import browser, run

    with (
        on_interrupt("run the same command again: it starts afresh"),
        ProgressDisplay(quiet=quiet) as display,
    ):
        result = run(
            folder,
            corpus=corpus or None,
            vocab_size=vocab_size,
            on_step=display.step,
            on_training=None if quiet else training_progress(display),
        )
    if as_json:
        output.write_json(result.to_dict())
    elif not quiet:
        write_quickstart(result)
        if not no_open and sys.stdout.isatty():
            browser.open_page(Path(result.report_file))
