"""Range checks of optimizer arguments."""

from __future__ import annotations


def check_not_negative(**settings: float) -> None:
    """Raise ValueError if a setting is negative or NaN."""
    for name, value in settings.items():
        if not value >= 0:
            raise ValueError(f"{name} is {value}; it must be at least 0")


def check_below_one(**settings: float) -> None:
    """Raise ValueError if a setting is not in 0 ≤ value < 1."""
    for name, value in settings.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 0 and below 1")
