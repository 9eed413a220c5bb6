"""The report of the arc: one page that says what was done and what came of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bytemill.analysis.inspection import inspect, visible
from bytemill.quickstart.report_charts import compression, time_spent, vocabulary, vocabulary_sizes
from bytemill.quickstart.report_model import language_model
from bytemill.report.markup import Markup, tag
from bytemill.report.page import commands, page, paragraph, section, tiles
from bytemill.report.tokens import sample
from bytemill.system.units import format_bytes, format_count, format_ratio, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.quickstart.result import QuickstartResult
    from bytemill.tokenizer.tokenizer import Tokenizer

_SAMPLE_CHARACTERS = 700

OTHER_SCRIPTS = (
    "Ça va? Grüß Gott! Καλημέρα κόσμε. Доброе утро.\n"
    "こんにちは、世界。 안녕하세요. नमस्ते दुनिया। مرحبا بالعالم\n"
    "∀x ∈ ℝ: x² ≥ 0 → 👩‍🚀🎉"
)
"""Text that the corpus has little of: what the tokenizer does without merges to help it."""


def report(result: QuickstartResult, tokenizer: Tokenizer, validation: Sequence[str]) -> str:
    """The page. `validation` are the documents of which one is shown."""
    return page(
        "From text to tokens",
        f"What bytemill quickstart did with {_shown(result.corpus)}: it trained a tokenizer, encoded the "
        "text to shards, checked that they decode to the same bytes, and compared.",
        [
            _overview(result),
            compression(result),
            vocabulary_sizes(result),
            _samples(tokenizer, validation),
            vocabulary(result),
            *language_model(result),
            time_spent(result),
            _next_steps(result),
        ],
    )


def _overview(result: QuickstartResult) -> Markup:
    own, training = result.comparison[-1], result.training_report
    return tiles(
        [
            (format_ratio(own.bytes_per_token), "bytes per token, on text it was not trained on"),
            (format_count(result.n_vocab), "tokens in the vocabulary"),
            (format_bytes(training.n_bytes), "of text to train on"),
            (format_seconds(training.seconds), "of training"),
            ("exact", "every byte is the same after decoding"),
        ]
    )


def _samples(tokenizer: Tokenizer, validation: Sequence[str]) -> Markup:
    own, other = inspect(tokenizer, pick_sample(validation)), inspect(tokenizer, OTHER_SCRIPTS)
    return section(
        "How a text splits",
        paragraph("Point at a token, or move to it with the Tab key, to see its id."),
        tag("h3", f"From the validation text: {format_ratio(own.bytes_per_token)} bytes per token"),
        sample(own.pieces, "own-sample"),
        tag("h3", f"Other scripts: {format_ratio(other.bytes_per_token)} bytes per token"),
        paragraph(
            "Every text can be encoded, whatever the tokenizer was trained on: where no merge fits, tokens "
            "are single bytes. Those that are part of a character are shown as such: ",
            tag("code", "⟨e2\N{NO-BREAK SPACE}80⟩"),
            ".",
        ),
        sample(other.pieces, "other-sample"),
        id_="samples",
    )


def _next_steps(result: QuickstartResult) -> Markup:
    blocks: list[str] = []
    for what, command in result.commands:
        blocks += [tag("h3", f"{what[:1].upper()}{what[1:]}"), commands([_shown(command)])]
    return section("Go on", *blocks, id_="next")


def pick_sample(documents: Sequence[str]) -> str:
    """The beginning of the first document that is long enough, else of the longest; cut between words."""
    longest = max(documents, key=len)
    document = next((text for text in documents if len(text) >= _SAMPLE_CHARACTERS), longest)
    if len(document) <= _SAMPLE_CHARACTERS:
        return document
    # With the character after it, which tells whether the last word is whole.
    beginning = document[: _SAMPLE_CHARACTERS + 1]
    words = beginning.rsplit(maxsplit=1)
    if beginning[-1].isspace() or len(words) < 2:
        return beginning[:_SAMPLE_CHARACTERS].rstrip()
    return words[0]


def _shown(name: str) -> str:
    """Names of files may hold anything, also what is neither text nor visible."""
    return visible(os.fsencode(name))
