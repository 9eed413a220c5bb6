"""Settings of optimizers that make no sense, refused before the first step."""

from __future__ import annotations


def check_not_negative(**settings: float) -> None:
    """Raises ValueError for a setting below 0 (or no number)."""
    for name, value in settings.items():
        if not value >= 0:
            raise ValueError(f"{name} is {value}: it has to be 0 or more")


def check_below_one(**settings: float) -> None:
    """Raises ValueError for a setting outside 0 ≤ value < 1."""
    for name, value in settings.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}: it has to be at least 0 and below 1")
