"""The parts of the report that are charts, each with its numbers as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.quickstart.measure import TOKENIZER_NAME
from bytemill.report.charts import Bar, Series, bar_chart, column_chart, line_chart, parts_chart
from bytemill.report.markup import Markup, join, tag
from bytemill.report.page import figure, paragraph, section, table
from bytemill.report.svg import Caption, legend
from bytemill.report.tokens import chips, merge_list
from bytemill.system.units import (
    format_bytes,
    format_count,
    format_ratio,
    format_seconds,
    format_share,
    plural,
)

if TYPE_CHECKING:
    from bytemill.quickstart.result import QuickstartResult

_LARGEST_SIZE = 16
"""Tokens of so many bytes and more share one column."""


def compression(result: QuickstartResult) -> Markup:
    bars = [
        Bar(
            one.name,
            one.bytes_per_token,
            format_ratio(one.bytes_per_token),
            "f1" if one.name == TOKENIZER_NAME else "f0",
        )
        for one in sorted(result.comparison, key=lambda one: -one.bytes_per_token)
    ]
    described = "; ".join(f"{bar.label} {bar.shown}" for bar in bars)
    words = next(one for one in result.comparison if one.name == "Words")
    rows = [
        (
            one.name,
            format_count(one.n_vocab),
            format_count(one.n_tokens),
            format_ratio(one.bytes_per_token),
            format_share(one.unknown_share),
        )
        for one in result.comparison
    ]
    chart = bar_chart(
        Caption("compression-chart", "Bytes per token by tokenizer", f"Horizontal bars: {described}."),
        bars,
        "bytes per token",
    )
    numbers = table(
        ("Tokenizer", "Vocabulary", "Tokens", "Bytes per token", "Unknown"),
        rows,
        "Unknown: the share of tokens that stand for something outside the vocabulary and cannot be decoded.",
    )
    return section(
        "How well it compresses",
        paragraph(
            "The more bytes a token stands for, the more text fits into a model's context. All four "
            "tokenizers saw the same training text; they are compared on text that was set aside, "
            f"{plural(result.validation.n_documents, 'document')}. Of the words, "
            f"{format_share(words.unknown_share)} are unknown and lost; byte-pair encoding loses nothing.",
        ),
        figure(chart, "Bytes per token on the validation text: longer is better.", numbers),
        id_="compression",
    )


def vocabulary_sizes(result: QuickstartResult) -> Markup:
    sizes = [point.n_vocab for point in result.sweep]
    series = [
        Series("training text", 2, [point.training for point in result.sweep], dashed=True),
        Series("validation text", 1, [point.validation for point in result.sweep]),
    ]
    first, last = result.sweep[0], result.sweep[-1]
    caption = Caption(
        "sizes-chart",
        "Bytes per token by size of the vocabulary",
        f"Two lines over a logarithmic axis. From {first.n_vocab:,} to {last.n_vocab:,} tokens, bytes per "
        f"token go from {first.validation:.2f} to {last.validation:.2f} on the validation text, and to "
        f"{last.training:.2f} on the training text.",
    )
    chart = line_chart(caption, sizes, series, "vocabulary (tokens, logarithmic)", "bytes per token")
    rows = [
        (format_count(point.n_vocab), format_ratio(point.training), format_ratio(point.validation))
        for point in result.sweep
    ]
    return section(
        "What a larger vocabulary buys",
        paragraph(
            "Merges are learnt one after another, so the first ones make a smaller tokenizer. Each doubling "
            "of the vocabulary tends to add less; where the two lines part, merges fit the training text and "
            "not the language."
        ),
        figure(
            join([legend([("f1", "validation text"), ("f2", "training text")]), chart]),
            "Bytes per token of the tokenizers that the first merges make.",
            table(
                ("Vocabulary", "Training text", "Validation text"),
                rows,
                "Bytes per token by size of the vocabulary.",
                left=0,
            ),
        ),
        id_="sizes",
    )


def vocabulary(result: QuickstartResult) -> Markup:
    names, of_vocabulary, of_text = _size_shares(result)
    caption = Caption(
        "token-sizes-chart",
        "How many bytes tokens have",
        "Columns in pairs, share of the vocabulary and share of the validation text's tokens: "
        + "; ".join(
            f"{name} bytes {format_share(a)} and {format_share(b)}"
            for name, a, b in zip(names, of_vocabulary, of_text, strict=True)
        ),
    )
    chart = column_chart(
        caption,
        names,
        [Series("of the vocabulary", 3, of_vocabulary), Series("of the text's tokens", 1, of_text)],
        "bytes of a token",
        "share of tokens",
    )
    rows = [
        (name, format_share(a), format_share(b))
        for name, a, b in zip(names, of_vocabulary, of_text, strict=True)
    ]
    blocks: list[str] = [
        paragraph(
            f"The training text uses {format_share(result.vocabulary_use)} of the vocabulary. Tokens in use "
            "are shorter than those in the vocabulary, since the short ones are the frequent ones."
        ),
        figure(
            join([legend([("f3", "the vocabulary"), ("f1", "the validation text as encoded")]), chart]),
            "Tokens by their number of bytes.",
            table(("Bytes", "Vocabulary", "Text"), rows, "Share of tokens by their number of bytes.", left=0),
        ),
    ]
    if result.first_merges:
        blocks += [
            tag("h3", f"The first {plural(len(result.first_merges), 'merge')}"),
            paragraph(
                "The most frequent pair of neighbours becomes one token, again and again; ␣ is a space."
            ),
            merge_list(result.first_merges, result.first_merge_counts),
            tag("h3", "The longest tokens"),
            chips(token for _, token in result.longest_tokens),
            tag("h3", "The longest words"),
            chips(token for _, token in result.longest_words),
        ]
    return section("What is in the vocabulary", *blocks, id_="vocabulary")


def time_spent(result: QuickstartResult) -> Markup:
    parts = [
        Bar(timing.step, timing.seconds, format_seconds(timing.seconds), f"f{place % 7 + 1}")
        for place, timing in enumerate(result.timings)
    ]
    caption = Caption(
        "time-chart",
        "Where the time went",
        "One bar in parts: " + "; ".join(f"{part.label} {part.shown}" for part in parts) + ".",
    )
    share = [format_share(part.value / result.seconds) for part in parts]
    phases = [
        (phase.name, format_seconds(phase.seconds), format_bytes(phase.peak_memory_bytes))
        for phase in result.training_report.phases
    ]
    return section(
        "Where the time went",
        figure(
            join(
                [
                    parts_chart(caption, parts),
                    legend(
                        [
                            (part.colour, f"{part.label}: {part.shown} ({percent})")
                            for part, percent in zip(parts, share, strict=True)
                        ]
                    ),
                ]
            ),
            f"All in all {format_seconds(result.seconds)}.",
            table(
                ("Phase", "Time", "Peak memory"),
                phases,
                "Training in detail; reading goes on beside counting.",
            ),
        ),
        id_="time",
    )


def _size_shares(result: QuickstartResult) -> tuple[list[str], list[float], list[float]]:
    """Names of sizes, and the shares that they have of the vocabulary and of the text's tokens."""
    largest = min(_LARGEST_SIZE, max(*result.vocabulary_token_sizes, *result.text_token_sizes))
    names = [str(size) for size in range(1, largest)] + [
        f"{largest}+" if largest == _LARGEST_SIZE else str(largest)
    ]

    def shares(sizes: dict[int, int]) -> list[float]:
        n_tokens = sum(sizes.values())
        exact = [sizes.get(size, 0) / n_tokens for size in range(1, largest)]
        return [*exact, sum(n for size, n in sizes.items() if size >= largest) / n_tokens]

    return names, shares(result.vocabulary_token_sizes), shares(result.text_token_sizes)
