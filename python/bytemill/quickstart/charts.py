"""Figures of the quickstart report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.analysis.summary import size_buckets
from bytemill.report import (
    Bar,
    Figure,
    Series,
    Table,
    bar_chart,
    column_chart,
    line_chart,
    parts_chart,
)
from bytemill.system.units import format_bytes, format_count, format_ratio, format_seconds, format_share

if TYPE_CHECKING:
    from bytemill.quickstart.result import Comparison, ModelResult, QuickstartResult


def compression(comparison: list[Comparison]) -> Figure:
    """Draw bytes per token: lossless tokenizers first, then those that lose text."""

    def bar(one: Comparison) -> Bar:
        shown = format_ratio(one.bytes_per_token)
        if one.is_lossy:
            return Bar(
                one.name, one.bytes_per_token, f"{shown}, {format_share(one.unknown_share)} unknown", "lossy"
            )
        return Bar(one.name, one.bytes_per_token, shown, "f1" if one is comparison[-1] else "f0")

    ordered = sorted(comparison, key=lambda one: (one.is_lossy, -one.bytes_per_token))
    rows = [
        (
            one.name,
            format_count(one.n_vocab),
            format_count(one.n_tokens),
            format_ratio(one.bytes_per_token),
            format_share(one.unknown_share),
        )
        for one in comparison
    ]
    return Figure(
        bar_chart(
            "compression-chart", "Bytes per token by tokenizer", list(map(bar, ordered)), "bytes per token"
        ),
        "Bytes per token on the validation text: longer is better.",
        Table(
            "Unknown: share of tokens that stand for text outside the vocabulary and cannot be decoded.",
            ("Tokenizer", "Vocabulary", "Tokens", "Bytes per token", "Unknown"),
            rows,
        ),
    )


def vocabulary_sizes(result: QuickstartResult) -> Figure:
    """Draw bytes per token over the size of the vocabulary."""
    first, last = result.sweep[0], result.sweep[-1]
    chart = line_chart(
        "sizes-chart",
        "Bytes per token by vocabulary size",
        f"Two lines over a logarithmic axis. From {first.n_vocab:,} to {last.n_vocab:,} tokens, bytes per token rise "
        f"from {first.validation:.2f} to {last.validation:.2f} on the validation text, and to {last.training:.2f} on "
        "the training text.",
        [
            Series("validation text", 1, [(point.n_vocab, point.validation) for point in result.sweep]),
            Series(
                "training text", 2, [(point.n_vocab, point.training) for point in result.sweep], dashed=True
            ),
        ],
        x_axis="vocabulary (tokens, logarithmic)",
        y_axis="bytes per token",
        log_x=True,
    )
    rows = [
        (format_count(point.n_vocab), format_ratio(point.training), format_ratio(point.validation))
        for point in result.sweep
    ]
    header = ("Vocabulary", "Training text", "Validation text")
    table = Table("Bytes per token by vocabulary size.", header, rows, n_text_columns=0)
    return Figure(chart, "Bytes per token of the tokenizers that the first merges make.", table)


def token_sizes(result: QuickstartResult) -> Figure:
    """Draw the shares of token sizes, in the vocabulary and in the validation text."""
    buckets = [
        dict(size_buckets(sizes)) for sizes in (result.vocabulary_token_sizes, result.text_token_sizes)
    ]
    names = list(max(buckets, key=len))
    in_vocabulary, in_text = (
        [counts.get(name, 0) / sum(counts.values()) for name in names] for counts in buckets
    )
    rows = [
        (name, format_share(a), format_share(b))
        for name, a, b in zip(names, in_vocabulary, in_text, strict=True)
    ]
    chart = column_chart(
        "token-sizes-chart",
        "Token sizes in bytes",
        "Columns in pairs, share of the vocabulary and share of the tokens of the validation text: "
        + "; ".join(f"{name} bytes {a} and {b}" for name, a, b in rows),
        names,
        [("the vocabulary", 3, in_vocabulary), ("the encoded validation text", 1, in_text)],
        x_axis="bytes of a token",
        y_axis="share of tokens",
    )
    table = Table("Share of tokens by size.", ("Bytes", "Vocabulary", "Text"), rows, n_text_columns=0)
    return Figure(chart, "Tokens by size.", table)


def loss(model: ModelResult) -> Figure:
    """Draw training and validation loss over steps, with untrained models as levels."""
    levels = [(score.name.lower(), score.loss) for score in model.scores[:-1]]
    series = [
        Series("validation text", 1, model.validation_curve),
        Series("training text", 2, model.curve, has_dots=False),
    ]
    chart = line_chart(
        "loss-chart",
        "Loss by step",
        f"Falling lines over {model.n_steps:,} steps; the loss on the validation text ends at "
        f"{model.scores[-1].loss:.2f} nats per token. Dashed levels: "
        + ", ".join(f"{name} {value:.2f}" for name, value in levels),
        [line for line in series if line.points],
        x_axis="step",
        y_axis="nats per token",
        levels=levels,
    )
    rows = [(format_count(step), f"{value:.3f}") for step, value in model.validation_curve]
    header = ("Step", "Validation loss")
    return Figure(
        chart,
        "Loss during training: lower is better. The dashed lines are models without training.",
        Table("Validation loss in nats per token.", header, rows, n_text_columns=0),
    )


def scores(model: ModelResult) -> Figure:
    """Draw bits per byte of the model and of the models without training."""
    bars = [
        Bar(
            score.name,
            score.bits_per_byte,
            f"{score.bits_per_byte:.2f}",
            "f1" if score is model.scores[-1] else "f0",
        )
        for score in model.scores
    ]
    rows = [
        (score.name, f"{score.loss:.3f}", f"{score.perplexity:,.1f}", f"{score.bits_per_byte:.3f}")
        for score in model.scores
    ]
    return Figure(
        bar_chart("bits-chart", "Bits per byte", bars, "bits per byte"),
        "Bits per byte on the validation text: shorter is better.",
        Table("On the validation text.", ("Model", "Loss", "Perplexity", "Bits per byte"), rows),
    )


def time_spent(result: QuickstartResult) -> Figure:
    """Draw the time of each step."""
    parts = [
        Bar(
            timing.step,
            timing.seconds,
            f"{format_seconds(timing.seconds)} ({format_share(timing.seconds / result.seconds)})",
            f"f{number % 7 + 1}",
        )
        for number, timing in enumerate(result.timings)
    ]
    report = result.training_report
    rows = [
        (phase.name, format_seconds(phase.seconds), format_bytes(phase.peak_memory_bytes))
        for phase in report.phases
    ]
    other = max(0.0, result.tokenizer_seconds - sum(phase.seconds for phase in report.phases))
    rows.append(("start, save", format_seconds(other), ""))
    return Figure(
        parts_chart("time-chart", "Time by step", parts),
        f"In total {format_seconds(result.seconds)}.",
        Table(
            f"Training the tokenizer, {format_seconds(result.tokenizer_seconds)} in detail.",
            ("Phase", "Time", "Peak memory"),
            rows,
        ),
    )
