"""The quickstart report: one HTML page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bytemill.analysis.inspection import inspect, visible
from bytemill.quickstart import charts
from bytemill.report import render

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
"""Text that the corpus has little of, to show how it splits without merges of its own."""


def report(result: QuickstartResult, tokenizer: Tokenizer, validation: Sequence[str]) -> str:
    """Render the page.

    Args:
        result: What the run produced.
        tokenizer: The trained tokenizer.
        validation: Validation documents, one of which is shown.
    """
    model = result.model
    return render(
        "report.html",
        "bytemill.quickstart",
        result=result,
        model=model,
        corpus=_visible_name(result.corpus),
        own=result.comparison[-1],
        lossy=[one for one in result.comparison if one.is_lossy],
        compression=charts.compression(result.comparison),
        sizes=charts.vocabulary_sizes(result),
        own_sample=inspect(tokenizer, pick_sample(validation)),
        other_sample=inspect(tokenizer, OTHER_SCRIPTS),
        token_sizes=charts.token_sizes(result),
        merges=list(zip(result.first_merges, result.first_merge_counts, strict=True)),
        torch_is_missing="torch" in (result.model_note or ""),
        loss=model and charts.loss(model),
        scores=model and charts.scores(model),
        samples=[]
        if model is None
        else [(_visible_lines(s.prompt), _visible_lines(s.text)) for s in model.samples],
        time=charts.time_spent(result),
        commands=[
            (purpose[:1].upper() + purpose[1:], _visible_name(line)) for purpose, line in result.commands
        ],
    )


def pick_sample(documents: Sequence[str]) -> str:
    """Return the start of the first document that is long enough, else of the longest, cut between words."""
    longest = max(documents, key=len)
    document = next((text for text in documents if len(text) >= _SAMPLE_CHARACTERS), longest)
    if len(document) <= _SAMPLE_CHARACTERS:
        return document
    # The character after the limit shows whether the last word is whole.
    start = document[: _SAMPLE_CHARACTERS + 1]
    words = start.rsplit(maxsplit=1)
    if start[-1].isspace() or len(words) < 2:
        return start[:_SAMPLE_CHARACTERS].rstrip()
    return words[0]


def _visible_name(name: str) -> str:
    """Make a file name visible, which may hold control characters and invalid UTF-8."""
    return visible(os.fsencode(name))


def _visible_lines(text: str) -> str:
    return "\n".join(visible(line.encode("utf-8", "replace")) for line in text.split("\n"))
