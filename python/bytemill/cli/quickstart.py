"""`bytemill quickstart`: the guided first run."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.cli.failures import interruptible

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.quickstart import QuickstartResult

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
    from bytemill.quickstart import run

    if threads is not None:
        from bytemill.lm.device import use_threads

        use_threads(threads)
    with (
        interruptible("run the same command again to start over"),
        output.ProgressDisplay(quiet=quiet) as display,
    ):
        result = run(
            folder,
            corpus=corpus or None,
            vocab_size=vocab_size,
            model_steps=model_steps,
            on_step=display.step,
            on_training=None if quiet else output.training_progress(display),
            on_model=None if quiet else _model_progress(display),
        )
    if as_json:
        output.write_json(result.to_dict())
    elif not quiet:
        write_quickstart(result)
        if not no_open and sys.stdout.isatty():
            output.open_page((result.folder / "report.html").resolve().as_uri())


def _model_progress(display: output.ProgressDisplay) -> "Callable[[dict[str, Any]], None]":
    """Return a callback for the records of the model's training log."""
    phase, n_tokens, tokens_per_step = "", 0, 0

    def show(record: dict[str, Any]) -> None:
        nonlocal phase, n_tokens, tokens_per_step
        match record["kind"]:
            case "start":
                phase = f"training a model of {record['n_parameters']:,} parameters"
                tokens_per_step = record["tokens_per_step"]
                n_tokens = record["n_steps"] * tokens_per_step
                display.update(phase, "tokens", 0, n_tokens)
            case "step":
                loss = "not finite" if record["loss"] is None else f"{record['loss']:.2f}"
                n_done = record["step"] * tokens_per_step
                display.update(
                    phase, "tokens", n_done, n_tokens, more=f"step {record['step']:,}, loss {loss}"
                )
            case "end":
                display.step("evaluating the model")
            case _:
                pass

    return show


def write_quickstart(result: "QuickstartResult") -> None:
    """Print the files, the comparison, the model's scores and the next commands."""
    from bytemill.quickstart import TRAINING_STEP
    from bytemill.system.units import format_bytes, format_ratio, format_seconds, plural

    output.write_line(output.styled(f"{result.folder}: finished in {format_seconds(result.seconds)}", "1"))
    output.write_line()
    output.write_fields(
        [
            ("text", f"{result.corpus}"),
            *(
                (
                    part,
                    f"{plural(own.n_documents, 'document')}, {format_bytes(own.n_bytes)}, "
                    f"{plural(own.n_tokens, 'token')} in {result.folder / part}",
                )
                for part, own in result.shards.items()
            ),
            (
                "tokenizer",
                f"{plural(result.tokenizer.n_vocab, 'token')}, trained in "
                f"{format_seconds(result.timings[TRAINING_STEP])}: {result.folder / 'tokenizer.json'}",
            ),
            ("round trip", "every byte is the same after decoding"),
        ]
    )
    output.write_line()
    output.write_table(
        ("on the validation text", "bytes/token", "95 % interval"),
        [
            (name, format_ratio(own.value or 0), f"{own.low or 0:.2f} to {own.high or 0:.2f}")
            for name, own in result.comparison.values["text"]["bytes_per_token"].items()
        ],
        right=(1, 2),
    )
    _write_model(result)
    output.write_line()
    output.write_line(f"  report: {output.styled(str(result.folder / 'report.html'), '1')}")
    output.write_line()
    output.write_line("Next:")
    for what, command in result.commands:
        output.write_line(f"  {output.styled(f'# {what}', '2')}")
        output.write_line(f"  {command}")


def _write_model(result: "QuickstartResult") -> None:
    from bytemill.analysis.inspection import visible
    from bytemill.system.units import plural

    output.write_line()
    if result.model is None:
        output.write_line(f"  no language model: {result.model_note}")
        return
    model = result.model
    explained = {
        "unigram": "unigram, which knows only the counts of tokens",
        "the model": f"the model, {model.n_parameters:,} parameters after {plural(model.n_steps, 'step')}",
    }
    output.write_table(
        ("prediction of the validation text", "nats/token", "bits/byte"),
        [(explained[name], f"{loss:.3f}", f"{bits:.3f}") for name, (loss, bits) in model.scores.items()],
        right=(1, 2),
    )
    for prompt, text in model.samples[:1]:
        output.write_line()
        output.write_line(f"  the model continues '{visible(prompt.encode())}' with:")
        output.write_line(f"  {visible(text.encode())}")
