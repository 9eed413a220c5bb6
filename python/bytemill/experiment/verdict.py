"""Sentences that say what a difference shows, and what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bytemill.experiment.statistics import Difference

ALPHA = 0.05
_BUDGETS = {"bytes": "equal bytes", "tokens": "equal tokens", "flops": "equal FLOPs", "time": "equal time"}


def verdict(
    first: str,
    second: str,
    difference: Difference,
    corrected_p: float | None,
    *,
    budget: str,
    model: str = "",
) -> str:
    """Return the sentence about two tokenizers.

    Args:
        first: Name of a tokenizer.
        second: Name of another one.
        difference: Bits per byte of the first − those of the second.
        corrected_p: Its p-value, corrected for the number of pairs; None for one seed.
        budget: What was equal.
        model: Name of the model, if the study has several.

    >>> from bytemill.experiment.statistics import paired_difference
    >>> difference = paired_difference([1.00, 1.01, 1.02], [1.02, 1.03, 1.041])
    >>> verdict("own", "gpt2", difference, 0.01, budget="bytes")
    'own beats gpt2 by 0.0203 ± 0.0014 bits per byte at equal bytes.'
    """
    where = f"at {_BUDGETS[budget]}" + (f" with {model}" if model else "")
    size = f"{abs(difference.value):.4f}"
    better, worse = (first, second) if difference.value < 0 else (second, first)
    if difference.half_width is None or corrected_p is None:
        return (
            f"With one seed nothing is shown: {better} is {size} bits per byte below {worse} {where}, which may be "
            "chance."
        )
    spread = f"± {difference.half_width:.4f}"
    if corrected_p < ALPHA:
        return f"{better} beats {worse} by {size} {spread} bits per byte {where}."
    detectable = difference.detectable
    power = (
        f" {difference.n} seeds show differences of {detectable:.4f} in four of five studies."
        if detectable is not None
        else ""
    )
    return (
        f"No difference between {first} and {second} is shown {where} ({better} is {size} {spread} bits per byte "
        f"lower).{power}"
    )
