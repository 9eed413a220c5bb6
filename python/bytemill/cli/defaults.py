"""How every option of the command line behaves unless it says otherwise."""

from typing import Any, cast

from cyclopts import Parameter


def _shown_default(value: Any) -> str | None:
    """Return how the help shows a default value; None leaves it out."""
    if isinstance(value, tuple):
        value = " ".join(map(str, cast("tuple[Any, ...]", value)))
    return None if value is None or value is False or value == "" else str(value)


DEFAULTS = Parameter(negative=(), show_default=_shown_default)
"""Defaults of all options."""
