"""The figures of a comparison: what each is, and what it does not show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Figure:
    """A figure of a tokenizer on a text."""

    name: str
    """Key in JSON."""
    title: str
    formula: str
    blind_to: str
    """What it does not show."""
    better: Better | None = None
    """None where neither is better by itself."""
    decimals: int = 3
    is_share: bool = False


@dataclass(frozen=True)
class Ratio(Figure):
    """A ratio of sums over documents."""

    numerator: str = ""
    denominator: str = ""


FIGURES: dict[str, Figure] = {}
"""By name, in the order of tables."""


def register_figure(figure: Figure) -> None:
    """Add a figure. Raises ValueError if there is one of this name."""
    if figure.name in FIGURES:
        raise ValueError(f"the figure {figure.name!r} is already registered")
    FIGURES[figure.name] = figure


for _figure in (
    Figure(
        "trigram_bits_per_byte",
        "trigram bits/byte",
        "bits of held-out text under a trigram model of tokens (modified Kneser–Ney) / bytes",
        "what a larger model makes of longer contexts",
        "lower",
    ),
    Figure(
        "bigram_bits_per_byte",
        "bigram bits/byte",
        "the same with bigrams",
        "what a larger model makes of longer contexts",
        "lower",
    ),
    Ratio(
        "bytes_per_token",
        "bytes/token",
        "bytes / tokens",
        "whether the tokens are easy to predict",
        "higher",
        numerator="n_bytes",
        denominator="n_tokens",
    ),
    Ratio(
        "characters_per_token",
        "characters/token",
        "code points / tokens",
        "whether the tokens are easy to predict",
        "higher",
        numerator="n_characters",
        denominator="n_tokens",
    ),
    Ratio(
        "tokens_per_word",
        "tokens/word",
        "tokens / words of UAX #29 that have a letter or digit (fertility)",
        "tokens between words count too; words of scripts without spaces are single characters for UAX #29",
        "lower",
        numerator="n_tokens",
        denominator="n_words",
    ),
    Ratio(
        "whole_words",
        "words kept whole",
        "words without a token boundary inside / words",
        "whether the cut words are cut sensibly",
        "higher",
        is_share=True,
        numerator="n_whole_words",
        denominator="n_words",
    ),
    Ratio(
        "split_characters",
        "characters cut",
        "characters with a token boundary inside / characters",
        "how often a model has to write half a character",
        "lower",
        is_share=True,
        decimals=4,
        numerator="n_split_characters",
        denominator="n_characters",
    ),
    Ratio(
        "whole_short_numbers",
        "numbers of 1–3 digits whole",
        "runs of 1 to 3 digits in one token / such runs",
        "whether single digits would be better for arithmetic",
        None,
        is_share=True,
        numerator="n_whole_short_numbers",
        denominator="n_short_numbers",
    ),
    Ratio(
        "grouped_numbers",
        "long numbers in threes",
        "longer runs of digits cut into groups of three from the right, and nowhere else / such runs",
        "whether another way of cutting would be as good",
        None,
        is_share=True,
        numerator="n_grouped_numbers",
        denominator="n_long_numbers",
    ),
    Ratio(
        "whole_indents",
        "indents whole",
        "indents of at least two spaces or a tab in one token, but for the last space / such indents",
        "other structure of code",
        "higher",
        is_share=True,
        numerator="n_whole_indents",
        denominator="n_indents",
    ),
    Figure(
        "syntax_boundaries",
        "syntax boundaries kept",
        "boundaries between leaves of the syntax tree that are token boundaries, but for white space / such boundaries",
        "whether the other boundaries help: a tokenizer of single bytes keeps all",
        "higher",
        is_share=True,
    ),
    Figure(
        "tokens_per_document_median",
        "tokens/document, median",
        "median over documents",
        "long documents",
        "lower",
        decimals=0,
    ),
    Figure(
        "tokens_per_document_p95",
        "tokens/document, 95 %",
        "95th percentile over documents",
        "typical documents",
        "lower",
        decimals=0,
    ),
    Figure(
        "tokens_per_document_p99",
        "tokens/document, 99 %",
        "99th percentile over documents",
        "typical documents",
        "lower",
        decimals=0,
    ),
    Figure(
        "vocabulary_used",
        "vocabulary used",
        "ids that occur / ids",
        "it grows with the amount of text",
        None,
        is_share=True,
    ),
    Figure(
        "shannon_efficiency",
        "Shannon efficiency",
        "entropy of the tokens / log₂ of the vocabulary",
        "whether the tokens are good ones: a random vocabulary can be efficient",
    ),
    Figure(
        "renyi_efficiency_2",
        "Rényi efficiency, α = 2",
        "Rényi entropy of the tokens / log₂ of the vocabulary",
        "as for Shannon's",
    ),
    Figure(
        "renyi_efficiency_2.5",
        "Rényi efficiency, α = 2.5",
        "Rényi entropy of the tokens / log₂ of the vocabulary",
        "as for Shannon's",
    ),
    Figure(
        "renyi_efficiency_3",
        "Rényi efficiency, α = 3",
        "Rényi entropy of the tokens / log₂ of the vocabulary",
        "as for Shannon's",
    ),
    Figure(
        "partial_characters",
        "tokens that are not UTF-8",
        "uses of tokens that are not valid UTF-8 by themselves / tokens",
        "which characters they belong to",
        "lower",
        decimals=4,
        is_share=True,
    ),
    Ratio(
        "round_trip",
        "documents that round-trip",
        "documents whose tokens are their text / documents: a condition, not a score",
        "normalization that the tokenizer is meant to do",
        None,
        is_share=True,
        numerator="round_trips",
        denominator="n_documents",
    ),
):
    register_figure(_figure)
