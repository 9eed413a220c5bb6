"""Mixture weights as exact fractions, so that weighted counts stay integers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from bytemill.errors import CorpusError, TokenizerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction
    from numbers import Rational

    from bytemill._core import PretokenCounter, PretokenCounts

Weight: TypeAlias = "int | float | str | Rational"
"""A number above 0. A float stands for its shortest decimal representation: 0.1 is a tenth."""

WEIGHTS_HINT = "use weights that differ less, or have fewer digits"
_MOST = (1 << 63) - 1


def exact_weight(weight: Weight) -> Fraction:
    """Return a weight as a fraction. Raises `CorpusError` unless it is a number above 0.

    >>> exact_weight(0.1), exact_weight("1/3"), exact_weight(2)
    (Fraction(1, 10), Fraction(1, 3), Fraction(2, 1))
    """
    from fractions import Fraction

    try:
        exact = Fraction(repr(weight)) if isinstance(weight, float) else Fraction(weight)
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        exact = Fraction(0)
    if exact <= 0:
        raise CorpusError(f"{weight!r} is not a weight", hint="use a number above 0, such as 2, 0.5 or 1/3")
    return exact


def common_scale(weights: Sequence[Weight]) -> tuple[list[int], int]:
    """Return the weights as multiples of 1 / denominator of the smallest, and the denominator.

    Merges depend on the ratios of the weights alone. In units of the smallest, no weight rounds counts away.

    Raises:
        CorpusError: The multiples exceed 64 bits.

    >>> common_scale([0.5, 1, "1/3"])
    ([3, 6, 2], 2)
    """
    exact = [exact_weight(weight) for weight in weights]
    smallest = min(exact, default=1)
    ratios = [weight / smallest for weight in exact]
    denominator = math.lcm(1, *(ratio.denominator for ratio in ratios))
    multiples = [int(ratio * denominator) for ratio in ratios]
    if max([denominator, *multiples]) > _MOST:
        raise CorpusError(
            "the ratios of the weights have no common denominator below 2**63",
            hint=WEIGHTS_HINT,
        )
    return multiples, denominator


def finish_weighted(counter: PretokenCounter, denominator: int, *, may_stay: bool) -> PretokenCounts:
    """Return the counts of a counter whose weights are multiples of 1 / denominator.

    Args:
        counter: The counter, which is finished.
        denominator: The denominator.
        may_stay: Leave counts that exceed the memory limit on disk.

    Raises:
        CorpusError: The counts exceed 64 bits.
    """
    try:
        return counter.finish(denominator, may_stay)
    except TokenizerError as error:
        raise CorpusError(str(error), hint=WEIGHTS_HINT) from error
