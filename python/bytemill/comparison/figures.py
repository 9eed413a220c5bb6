"""The figures of a comparison: each is a name, a formula and a function of what was counted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bytemill.analysis.intervals import interval, quantile, sampled_sums
from bytemill.system.units import format_share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from bytemill.comparison.counting import Columns, SyntaxMarks, TokenTable
    from bytemill.comparison.ngram import NgramModels, NgramScore
    from bytemill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Value:
    """A figure of a tokenizer on a text group."""

    value: float | None
    """None if it cannot be computed."""
    low: float | None = None
    """Ends of the 95 % interval; None if there is none."""
    high: float | None = None
    note: str | None = None
    """Why a number is missing."""
    samples: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)
    """The figure in the samples of the bootstrap, from which the best is found. A `Comparison` does not keep them."""

    @classmethod
    def sampled(cls, value: float, samples: NDArray[np.float64]) -> Value:
        """Return a value with the interval of its samples."""
        return cls(value, *(interval(samples) or (None, None)), samples=samples)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        rest = {"low": self.low, "high": self.high, "note": self.note}
        return {"value": self.value} | {key: value for key, value in rest.items() if value is not None}


@dataclass
class Counted:
    """What was counted for one tokenizer on one text group. Units are documents, and passages of long documents."""

    tokenizer: Tokenizer
    table: TokenTable
    """Its tokens."""
    columns: Columns
    """Counts by unit, or by group of units beyond 2,000: n_bytes, n_characters, n_words, n_tokens, n_whole_words, …"""
    lengths: NDArray[np.int64]
    """Number of units with 0, 1, 2, … tokens."""
    histogram: NDArray[np.int64]
    """Uses of each id."""
    models: NgramModels
    """N-gram models of the beginning of the group."""
    syntax: SyntaxMarks
    """Boundaries of syntax leaves in its code."""
    seed: int = 0
    """Of the bootstrap."""

    @cached_property
    def samples(self) -> Columns:
        """The sum of each column in every sample of the bootstrap; empty for a single unit."""
        if len(self.columns["n_bytes"]) < 2:
            return {}
        sums = sampled_sums(np.stack(list(self.columns.values()), axis=1), self.seed)
        return dict(zip(self.columns, sums.T, strict=True))

    @cached_property
    def scores(self) -> dict[int, NgramScore]:
        """The scores of the n-gram models by their order; empty for less than two units."""
        return self.models.scores(self.tokenizer)

    @property
    def round_trips(self) -> bool:
        """Whether the tokens of every unit are its text."""
        return int(self.columns["round_trips"].sum()) == int(self.columns["n_documents"].sum())


@dataclass(frozen=True)
class Figure:
    """A figure of a tokenizer on a text group."""

    name: str
    """Key in JSON."""
    title: str
    formula: str
    blind_to: str
    """What it does not show."""
    compute: Callable[[Counted], Value]
    """Returns the value, with an interval and samples if it has them."""
    better: Literal["higher", "lower"] | None = None
    """None where neither is better by itself."""
    decimals: int = 3
    is_share: bool = False
    """Whether it is shown in percent."""


FIGURES: dict[str, Figure] = {}
"""By name, in the order of tables."""


def register_figure(figure: Figure) -> None:
    """Add a figure to all comparisons.

    Args:
        figure: The figure. It comes last in tables.

    Raises:
        ValueError: There is a figure of this name.
    """
    if figure.name in FIGURES:
        raise ValueError(f"the figure {figure.name!r} is already registered")
    FIGURES[figure.name] = figure


def format_value(figure: Figure, value: Value, *, with_interval: bool = False) -> str:
    """Render a value; a missing one as a dash.

    >>> figure = FIGURES["bytes_per_token"]
    >>> format_value(figure, Value(4.1234, 4.1, 4.15), with_interval=True), format_value(figure, Value(None))
    ('4.123 [4.100, 4.150]', '–')
    """

    def number(x: float) -> str:
        return format_share(x) if figure.is_share else f"{x:,.{figure.decimals}f}"

    if value.value is None:
        return "–"
    text = number(value.value)
    if with_interval and value.low is not None and value.high is not None:
        text += f" [{number(value.low)}, {number(value.high)}]"
    return text


def best_of(figure: Figure, values: Mapping[str, Value]) -> str | None:
    """Return the tokenizer with the best value, if it is shown to be better than each other one; else None.

    It is if the 95 % interval of the difference lies on its side of 0. Differences are taken sample by sample: in each
    sample of the bootstrap, all tokenizers have the same documents.

    Args:
        figure: The figure.
        values: Its values by tokenizer, with samples; those that are None are left out.
    """
    known = {name: value for name, value in values.items() if value.value is not None}
    if figure.better is None or len(known) < 2:
        return None
    sign = 1 if figure.better == "higher" else -1
    best = max(known, key=lambda name: sign * (known[name].value or 0))
    for name in known.keys() - {best}:
        own, other = known[best].samples, known[name].samples
        ends = None if own is None or other is None else interval(sign * (own - other))
        if ends is None or ends[0] <= 0:
            return None
    return best


def ratio(top: str, bottom: str, *, of_places: bool = False) -> Callable[[Counted], Value]:
    """Return the function of a figure that is a ratio of sums over units.

    Args:
        top: Column of the numerator.
        bottom: Column of the denominator.
        of_places: The numerator counts places in the text, so that the tokens must be the text.
    """

    def compute(counted: Counted) -> Value:
        total = int(counted.columns[bottom].sum())
        if total == 0:
            return Value(None, note="the text has none")
        if of_places and not counted.round_trips:
            return Value(None, note="the tokens are not the text")
        value = int(counted.columns[top].sum()) / total
        if not counted.samples:
            return Value(value, note="a single document")
        with np.errstate(divide="ignore", invalid="ignore"):
            return Value.sampled(value, counted.samples[top] / counted.samples[bottom])

    return compute


def ngram_bits(order: int) -> Callable[[Counted], Value]:
    """Return the function for the bits per byte of an n-gram model."""

    def compute(counted: Counted) -> Value:
        score = counted.scores.get(order)
        if score is None:
            return Value(None, note="a single document" if counted.models.n_units else "not computed")
        if len(score.bits) < 2:
            return Value(score.bits_per_byte)
        sums = sampled_sums(np.stack([score.bits, score.n_bytes], axis=1), counted.seed)
        return Value.sampled(score.bits_per_byte, sums[:, 0] / sums[:, 1])

    return compute


def syntax_share(counted: Counted) -> Value:
    """Return the share of the boundaries of syntax leaves that are boundaries of tokens."""
    if counted.syntax.note is not None:
        return Value(None, note=counted.syntax.note)
    rows = counted.syntax.kept(counted.tokenizer, counted.table)
    if rows is None:
        return Value(None, note="the tokens are not the text")
    n_kept, n_boundaries = rows.sum(axis=0).tolist()
    if not n_boundaries:
        return Value(None, note="the code has no leaves")
    if len(rows) < 2:
        return Value(n_kept / n_boundaries, note="a single document")
    sums = sampled_sums(rows, counted.seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        return Value.sampled(n_kept / n_boundaries, sums[:, 0] / sums[:, 1])


def tokens_quantile(share: float) -> Callable[[Counted], Value]:
    """Return the function for a quantile of the number of tokens of units."""

    def compute(counted: Counted) -> Value:
        n_tokens = np.arange(len(counted.lengths), dtype=np.int32)
        value, ends = quantile(np.repeat(n_tokens, counted.lengths), share)
        return Value(value, *(ends or (None, None)))

    return compute


def used_share(histogram: NDArray[np.integer]) -> float | None:
    """Return the share of ids that occur; it grows with the amount of text."""
    return float((histogram > 0).mean()) if len(histogram) else None


def renyi_efficiency(histogram: NDArray[np.integer], alpha: float) -> float | None:
    """Compute H_α / log₂ of the number of ids, from 0 to 1, of the tokens' distribution (Zouhar et al. 2023).

    H_α = log₂(Σ pᵢ^α) / (1 − α); at α = 1 it is the Shannon entropy −Σ pᵢ log₂ pᵢ. Larger α weigh frequent tokens more.
    High efficiency means that no token is used much more than others. It does not say that the tokens are good ones: a
    random vocabulary can be efficient.

    Args:
        histogram: Uses of each id.
        alpha: Order, above 0.

    Returns:
        None if there are no tokens, or a single id.

    >>> renyi_efficiency(np.array([2, 2, 2, 2]), 2.5)
    1.0
    """
    total = int(histogram.sum())
    if total == 0 or len(histogram) < 2:
        return None
    p = histogram[histogram > 0] / total
    entropy = -float(p @ np.log2(p)) if alpha == 1 else math.log2(float((p**alpha).sum())) / (1 - alpha)
    return entropy / math.log2(len(histogram))


def efficiency(alpha: float) -> Callable[[Counted], Value]:
    """Return the function for an entropy over that of equal use; it has no interval."""
    return lambda counted: Value(renyi_efficiency(counted.histogram, alpha))


def partial_share(counted: Counted) -> Value:
    """Return the share of the tokens that are not valid UTF-8."""
    total = counted.histogram.sum()
    return Value(float(counted.histogram[counted.table.is_partial].sum() / total) if total else None)


for _figure in (
    Figure(
        "trigram_bits_per_byte",
        "trigram bits/byte",
        "bits of held-out text under a trigram model of tokens (modified Kneser–Ney) / bytes",
        "what a larger model makes of longer contexts",
        ngram_bits(3),
        "lower",
    ),
    Figure(
        "bigram_bits_per_byte",
        "bigram bits/byte",
        "the same with bigrams",
        "what a larger model makes of longer contexts",
        ngram_bits(2),
        "lower",
    ),
    Figure(
        "bytes_per_token",
        "bytes/token",
        "bytes / tokens",
        "whether the tokens are easy to predict",
        ratio("n_bytes", "n_tokens"),
        "higher",
    ),
    Figure(
        "characters_per_token",
        "characters/token",
        "code points / tokens",
        "whether the tokens are easy to predict",
        ratio("n_characters", "n_tokens"),
        "higher",
    ),
    Figure(
        "tokens_per_word",
        "tokens/word",
        "tokens / words of UAX #29 that have a letter or digit (fertility)",
        "tokens between words count too; words of scripts without spaces are single characters for UAX #29",
        ratio("n_tokens", "n_words"),
        "lower",
    ),
    Figure(
        "whole_words",
        "words kept whole",
        "words without a token boundary inside / words",
        "whether the cut words are cut sensibly",
        ratio("n_whole_words", "n_words", of_places=True),
        "higher",
        is_share=True,
    ),
    Figure(
        "split_characters",
        "characters cut",
        "characters with a token boundary inside / characters",
        "how often a model has to write half a character",
        ratio("n_split_characters", "n_characters", of_places=True),
        "lower",
        is_share=True,
    ),
    Figure(
        "whole_short_numbers",
        "numbers of 1–3 digits whole",
        "runs of 1 to 3 digits in one token / such runs",
        "whether single digits would be better for arithmetic",
        ratio("n_whole_short_numbers", "n_short_numbers", of_places=True),
        is_share=True,
    ),
    Figure(
        "grouped_numbers",
        "long numbers in threes",
        "longer runs of digits cut into groups of three from the right, and nowhere else / such runs",
        "whether another way of cutting would be as good",
        ratio("n_grouped_numbers", "n_long_numbers", of_places=True),
        is_share=True,
    ),
    Figure(
        "whole_indents",
        "indents whole",
        "indents of at least two spaces or a tab in one token, but for the last space / such indents",
        "other structure of code",
        ratio("n_whole_indents", "n_indents", of_places=True),
        "higher",
        is_share=True,
    ),
    Figure(
        "syntax_boundaries",
        "syntax boundaries kept",
        "boundaries between leaves of the syntax tree that are token boundaries, but for white space / such boundaries",
        "whether the other boundaries help: a tokenizer of single bytes keeps all",
        syntax_share,
        "higher",
        is_share=True,
    ),
    Figure(
        "tokens_per_document_median",
        "tokens/document, median",
        "median over documents",
        "long documents",
        tokens_quantile(0.5),
        "lower",
        decimals=0,
    ),
    *(
        Figure(
            f"tokens_per_document_p{percent}",
            f"tokens/document, {percent} %",
            f"{percent}th percentile over documents",
            "typical documents",
            tokens_quantile(percent / 100),
            "lower",
            decimals=0,
        )
        for percent in (95, 99)
    ),
    Figure(
        "vocabulary_used",
        "vocabulary used",
        "ids that occur / ids",
        "it grows with the amount of text",
        lambda counted: Value(used_share(counted.histogram)),
        is_share=True,
    ),
    Figure(
        "shannon_efficiency",
        "Shannon efficiency",
        "entropy of the tokens / log₂ of the vocabulary",
        "whether the tokens are good ones: a random vocabulary can be efficient",
        efficiency(1),
    ),
    *(
        Figure(
            f"renyi_efficiency_{alpha}",
            f"Rényi efficiency, α = {alpha}",
            "Rényi entropy of the tokens / log₂ of the vocabulary",
            "as for Shannon's",
            efficiency(alpha),
        )
        for alpha in (2, 2.5, 3)
    ),
    Figure(
        "partial_characters",
        "tokens that are not UTF-8",
        "uses of tokens that are not valid UTF-8 by themselves / tokens",
        "which characters they belong to",
        partial_share,
        "lower",
        is_share=True,
    ),
    Figure(
        "round_trip",
        "documents that round-trip",
        "documents whose tokens are their text / documents: a condition, not a score",
        "normalization that the tokenizer is meant to do",
        ratio("round_trips", "n_documents"),
        is_share=True,
    ),
):
    register_figure(_figure)
