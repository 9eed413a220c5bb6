"""Print the result of `bytemill quickstart`."""

from bytemill.analysis.inspection import visible
from bytemill.cli import output
from bytemill.quickstart import TRAINING_STEP, QuickstartResult
from bytemill.system.units import (
    format_bytes,
    format_ratio,
    format_seconds,
    plural,
)


def write_quickstart(result: QuickstartResult) -> None:
    """Print the files, the comparison, the model's scores and the next commands."""
    output.write_line(
        output.styled(f"{result.folder}: text to tokens in {format_seconds(result.seconds)}", "1")
    )
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


def _write_model(result: QuickstartResult) -> None:
    output.write_line()
    if result.model is None:
        output.write_line(f"  no language model: {result.model_note}")
        return
    model = result.model
    output.write_table(
        (f"{model.n_parameters:,} parameters, {model.n_steps:,} steps", "loss", "bits/byte"),
        [(name, f"{loss:.3f}", f"{bits:.3f}") for name, (loss, bits) in model.scores.items()],
        right=(1, 2),
    )
    for prompt, text in model.samples[:1]:
        output.write_line()
        output.write_line(f"  {output.styled(visible(prompt.encode()), '1')}{visible(text.encode())}")
