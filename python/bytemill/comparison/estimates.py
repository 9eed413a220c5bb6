"""Figures and their intervals from the counts of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bytemill.analysis.comparison.bootstrap import interval, quantiles_with_intervals, sampled_sums
from bytemill.analysis.comparison.figures import FIGURES, Ratio
from bytemill.analysis.comparison.information import renyi_efficiency, used_share
from bytemill.comparison.values import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bytemill.comparison.counting import Columns
    from bytemill.comparison.token_table import TokenTable

    Samples = dict[str, NDArray[np.float64]]
    """Figure -> its values in the samples of the bootstrap."""

_QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}
_ALPHAS = {
    "shannon_efficiency": 1,
    "renyi_efficiency_2": 2,
    "renyi_efficiency_2.5": 2.5,
    "renyi_efficiency_3": 3,
}


def samples_of(columns: dict[str, Columns], seed: int) -> dict[str, Columns]:
    """Return the sums of each tokenizer's columns over units drawn with replacement, the same for all."""
    keys = [(name, column) for name, own in columns.items() for column in own]
    if len(next(iter(columns.values()))["n_bytes"]) < 2:
        return {name: {} for name in columns}
    sums = sampled_sums(np.stack([columns[name][column] for name, column in keys], axis=1), seed)
    samples: dict[str, Columns] = {name: {} for name in columns}
    for (name, column), own in zip(keys, sums.T, strict=True):
        samples[name][column] = own
    return samples


def ratios_of(columns: Columns, samples: Columns) -> tuple[dict[str, Value], Samples]:
    """Return the figures that are ratios of sums, and their values in the samples."""
    round_trips = int(columns["round_trips"].sum()) == int(columns["n_documents"].sum())
    values: dict[str, Value] = {}
    drawn: Samples = {}
    for figure in FIGURES.values():
        if not isinstance(figure, Ratio):
            continue
        top, bottom = figure.numerator, figure.denominator
        total = int(columns[bottom].sum())
        if total == 0:
            values[figure.name] = Value(None, note="the text has none")
        elif not round_trips and top in _PLACES:
            values[figure.name] = Value(None, note="the tokens are not the text")
        else:
            ratio = int(columns[top].sum()) / total
            if not samples:
                values[figure.name] = Value(ratio, note="a single document")
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                drawn[figure.name] = samples[top] / samples[bottom]
            values[figure.name] = Value(ratio, *(interval(drawn[figure.name]) or (None, None)))
    return values, drawn


def quantiles_of(lengths: NDArray[np.int64]) -> dict[str, Value]:
    """Return quantiles of the number of tokens; `lengths` is the number of units with 0, 1, 2, … of them."""
    values = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    quantiles = quantiles_with_intervals(values, list(_QUANTILES.values()))
    return {
        f"tokens_per_document_{name}": Value(value, *(ends or (None, None)))
        for name, (value, ends) in zip(_QUANTILES, quantiles, strict=True)
    }


def uses_of(histogram: NDArray[np.int64], table: TokenTable) -> dict[str, Value]:
    """Return the figures of how often each id is used; they have no intervals."""
    partial = float(histogram[table.is_partial].sum() / histogram.sum()) if histogram.sum() else None
    return {
        "vocabulary_used": Value(used_share(histogram)),
        "partial_characters": Value(partial),
        **{name: Value(renyi_efficiency(histogram, alpha)) for name, alpha in _ALPHAS.items()},
    }


_PLACES = frozenset(
    {"n_whole_words", "n_split_characters", "n_whole_short_numbers", "n_grouped_numbers", "n_whole_indents"}
)
