"""Values of figures, with their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from bytemill.analysis.comparison.bootstrap import interval
from bytemill.system.units import format_share

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.analysis.comparison.figures import Figure


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

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, without what is missing, except the value."""
        rest = {"low": self.low, "high": self.high, "note": self.note}
        return {"value": self.value} | {key: value for key, value in rest.items() if value is not None}


Values: TypeAlias = dict[str, dict[str, dict[str, Value]]]
"""Group -> figure -> tokenizer -> value."""


def format_value(figure: Figure, value: Value, *, with_interval: bool = False) -> str:
    """Render a value; a missing one as a dash.

    >>> from bytemill.analysis.comparison.figures import FIGURES
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


def best_of(
    figure: Figure, values: Mapping[str, Value], samples: Mapping[str, NDArray[np.float64] | None]
) -> str | None:
    """Return the tokenizer with the best value, if it is shown to be better than each other one; else None.

    It is if the 95 % interval of the difference lies on its side of 0. Differences are taken sample by sample: in each
    sample of the bootstrap, all tokenizers have the same documents.

    Args:
        figure: The figure.
        values: Its values by tokenizer; those that are None are left out.
        samples: Its values in the samples; None if there are none.
    """
    known = {name: value.value for name, value in values.items() if value.value is not None}
    if figure.better is None or len(known) < 2:
        return None
    sign = 1 if figure.better == "higher" else -1
    best = max(known, key=lambda name: sign * known[name])
    for name in known:
        own, other = samples.get(best), samples.get(name)
        if name == best:
            continue
        ends = None if own is None or other is None else interval(sign * (own - other))
        if ends is None or ends[0] <= 0:
            return None
    return best
