"""What the quickstart has done, as people read it."""

from bytemill.cli import output
from bytemill.quickstart import QuickstartResult
from bytemill.units import format_bytes, format_count, format_ratio, format_seconds, format_share, plural


def write_quickstart(result: QuickstartResult) -> None:
    """What was done, how the tokenizer compares, and what to do next."""
    report = result.training_report
    output.write_line(
        output.styled(f"{result.folder}: text to tokens in {format_seconds(result.seconds)}", "1")
    )
    output.write_line()
    output.write_facts(
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
                f"{plural(result.n_vocab, 'token')}, trained in {format_seconds(report.seconds)}: "
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
    output.write_line()
    output.write_line(f"  report: {output.styled(result.report_file, '1')}")
    output.write_line()
    output.write_line("Go on:")
    for what, command in result.commands:
        output.write_line(f"  {output.styled(f'# {what}', '2')}")
        output.write_line(f"  {command}")
