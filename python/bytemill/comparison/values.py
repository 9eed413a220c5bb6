"""Values of figures, with their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from bytemill.system.units import format_share

if TYPE_CHECKING:
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


def best_of(figure: Figure, values: dict[str, Value]) -> set[str]:
    """Return the tokenizers whose value is the best, if the interval of no other one reaches it; else none."""
    known = {name: value for name, value in values.items() if value.value is not None}
    if figure.better is None or len(known) < 2:
        return set()
    sign = 1 if figure.better == "higher" else -1
    best = max(known, key=lambda name: sign * (known[name].value or 0.0))
    limit = sign * (known[best].value or 0.0)
    for name, value in known.items():
        end = value.high if figure.better == "higher" else value.low
        reached = value.value if end is None else end
        if name != best and reached is not None and sign * reached >= limit:
            return set()
    return {best}
