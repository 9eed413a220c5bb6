"""Registry of the metrics that `tokenizer show` and `tokenizer inspect` report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.system.units import format_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bytemill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenizedText:
    """A text with its tokens."""

    tokenizer: Tokenizer
    text: str
    ids: Sequence[int]


@dataclass(frozen=True)
class TextMetric:
    """A metric of a tokenized text, reported by `tokenizer inspect`."""

    name: str
    """Key in the JSON output."""
    unit: str
    """Unit after the number, for example "bytes/token"."""
    compute: Callable[[TokenizedText], float | None]
    """Returns None if the metric is not defined for the text."""
    format: Callable[[float], str] = format_ratio
    """Renders the number."""


@dataclass(frozen=True)
class TokenizerMetric:
    """A metric of a tokenizer alone, reported by `tokenizer show`."""

    name: str
    """Key in the JSON output."""
    label: str
    """Label of the row."""
    compute: Callable[[Tokenizer], float | None]
    """Returns None if the metric is not defined for the tokenizer."""
    format: Callable[[float], str] = format_ratio
    """Renders the number."""


TEXT_METRICS: dict[str, TextMetric] = {}
TOKENIZER_METRICS: dict[str, TokenizerMetric] = {}


def register_metric(metric: TextMetric | TokenizerMetric) -> None:
    """Add a metric.

    Raises:
        ValueError: There is a metric of this name.
    """
    if metric.name in TEXT_METRICS or metric.name in TOKENIZER_METRICS:
        raise ValueError(f"the metric {metric.name!r} is already registered")
    if isinstance(metric, TextMetric):
        TEXT_METRICS[metric.name] = metric
    else:
        TOKENIZER_METRICS[metric.name] = metric


def text_metrics(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> dict[str, float]:
    """Compute the metrics of a tokenized text, by name."""
    tokenized = TokenizedText(tokenizer, text, ids)
    values = {metric.name: metric.compute(tokenized) for metric in TEXT_METRICS.values()}
    return {name: value for name, value in values.items() if value is not None}


def tokenizer_metrics(tokenizer: Tokenizer) -> dict[str, float]:
    """Compute the metrics of a tokenizer, by name."""
    values = {metric.name: metric.compute(tokenizer) for metric in TOKENIZER_METRICS.values()}
    return {name: value for name, value in values.items() if value is not None}


def format_text_metrics(values: Mapping[str, float]) -> list[str]:
    """Render metrics of a text with their units.

    >>> format_text_metrics({"bytes_per_token": 4.056})
    ['4.06 bytes/token']
    """
    return [f"{TEXT_METRICS[name].format(value)} {TEXT_METRICS[name].unit}" for name, value in values.items()]


def format_tokenizer_metrics(values: Mapping[str, float]) -> list[tuple[str, str]]:
    """Render metrics of a tokenizer as rows of label and number."""
    return [
        (TOKENIZER_METRICS[name].label, TOKENIZER_METRICS[name].format(value))
        for name, value in values.items()
    ]


register_metric(
    TextMetric("bytes_per_token", "bytes/token", lambda text: len(text.text.encode()) / len(text.ids))
)
