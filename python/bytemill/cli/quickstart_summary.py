"""Print the result of `bytemill quickstart`."""

from bytemill.analysis.inspection import visible
from bytemill.cli import output
from bytemill.quickstart import QuickstartResult
from bytemill.system.units import (
    format_bytes,
    format_count,
    format_ratio,
    format_seconds,
    format_share,
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
                    name,
                    f"{plural(part.n_documents, 'document')}, {format_bytes(part.n_bytes)}, "
                    f"{plural(part.n_tokens, 'token')} in {part.shard_folder}",
                )
                for name, part in (("training", result.training), ("validation", result.validation))
            ),
            (
                "tokenizer",
                f"{plural(result.n_vocab, 'token')}, trained in {format_seconds(result.tokenizer_seconds)}: "
                f"{result.tokenizer_file}",
            ),
            ("round trip", "every byte is the same after decoding"),
        ]
    )
    output.write_line()
    output.write_table(
        ("on the validation text", "vocabulary", "tokens", "bytes/token", "unknown"),
        [
            (
                one.name,
                format_count(one.n_vocab),
                format_count(one.n_tokens),
                format_ratio(one.bytes_per_token),
                format_share(one.unknown_share),
            )
            for one in result.comparison
        ],
        right=(1, 2, 3, 4),
    )
    _write_model(result)
    output.write_line()
    output.write_line(f"  report: {output.styled(result.report_file, '1')}")
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
        (f"{model.n_parameters:,} parameters, {model.n_steps:,} steps", "loss", "perplexity", "bits/byte"),
        [
            (score.name, f"{score.loss:.3f}", f"{score.perplexity:,.1f}", f"{score.bits_per_byte:.3f}")
            for score in model.scores
        ],
        right=(1, 2, 3),
    )
    for sample in model.samples[:1]:
        output.write_line()
        output.write_line(
            f"  {output.styled(visible(sample.prompt.encode()), '1')}{visible(sample.text.encode())}"
        )
