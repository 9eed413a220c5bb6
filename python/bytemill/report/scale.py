"""Chart scales: map values to positions, and choose the values that axes show."""

from __future__ import annotations

import math
from dataclasses import dataclass

_CHARACTER_WIDTH = 0.56
"""Mean character width of a sans-serif typeface, as a fraction of the font size."""


@dataclass(frozen=True)
class Linear:
    """Linear scale: map `smallest` to `start` and `largest` to `end`."""

    largest: float
    start: float
    end: float
    smallest: float = 0.0

    def __call__(self, value: float) -> float:
        """Return the position of `value`."""
        span = self.largest - self.smallest
        return self.start + (self.end - self.start) * ((value - self.smallest) / span if span else 0.0)


@dataclass(frozen=True)
class Logarithmic:
    """Logarithmic scale: map `smallest` to `start` and `largest` to `end`; both values are positive."""

    smallest: float
    largest: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the position of `value`."""
        if self.largest <= self.smallest:
            return (self.start + self.end) / 2
        share = math.log(value / self.smallest) / math.log(self.largest / self.smallest)
        return self.start + (self.end - self.start) * share


def ticks(largest: float, n_wanted: int = 5) -> list[float]:
    """Return round values from 0 to at least `largest`, in about `n_wanted` steps.

    >>> ticks(4.3), ticks(0.23), ticks(70)
    ([0, 1, 2, 3, 4, 5], [0, 0.05, 0.1, 0.15, 0.2, 0.25], [0, 20, 40, 60, 80])
    """
    if largest <= 0:
        return [0, 1]
    rough = largest / n_wanted
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= rough * 0.999)
    n_steps = math.ceil(largest / step - 1e-9)
    return [_tidy(number * step) for number in range(n_steps + 1)]


def nice_range(low: float, high: float, n_wanted: int = 5) -> list[float]:
    """Return round values from at most `low` to at least `high`, in about `n_wanted` steps.

    >>> nice_range(2.18, 2.41), nice_range(3, 3)
    ([2.15, 2.2, 2.25, 2.3, 2.35, 2.4, 2.45], [2.4, 2.6, 2.8, 3, 3.2, 3.4, 3.6])
    """
    if high <= low:
        half = abs(low) / 6 or 0.5
        low, high = low - half, high + half
    step = ticks(high - low, n_wanted)[1]
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [_tidy(number * step) for number in range(first, last + 1)]


def powers_of_two(smallest: float, largest: float) -> list[int]:
    """Return the powers of two from `smallest` to `largest`.

    >>> powers_of_two(257, 5000)
    [512, 1024, 2048, 4096]
    """
    first, last = math.ceil(math.log2(smallest) - 1e-9), math.floor(math.log2(largest) + 1e-9)
    return [2**power for power in range(first, last + 1)]


def text_width(text: str, size: float = 13) -> float:
    """Estimate the width of a text in pixels."""
    return len(text) * size * _CHARACTER_WIDTH


def _tidy(value: float) -> float:
    rounded = round(value, 10)
    return int(rounded) if rounded == int(rounded) else rounded
