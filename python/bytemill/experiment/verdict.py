"""Sentences that say what a difference shows, and what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.experiment.statistics import LEARNED_SHARE
from bytemill.system.units import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.experiment.statistics import Difference, Learning, RateChoice

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
    where = _where(budget, model)
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


def no_verdict(
    first: str, second: str, untrained: Mapping[str, Learning | None], *, budget: str, model: str = ""
) -> str:
    """Return the sentence about two tokenizers if the models of one have not clearly left the unigram distribution.

    Args:
        first: Name of a tokenizer.
        second: Name of another one.
        untrained: What is known of the models, by the name of their tokenizer; None if nothing is.
        budget: What was equal.
        model: Name of the model, if the study has several.

    >>> from bytemill.experiment.statistics import Learning
    >>> no_verdict("own", "gpt2", {"gpt2": Learning(15.3, 10.7, -0.43, None)}, budget="bytes")
    'No verdict on own and gpt2 at equal bytes: gpt2 has 15.30 bits per token, 43.0% above the 10.70 of the unigram \
distribution of its training tokens. Models must be clearly below it, by at least 10%: train longer.'
    """
    reasons: list[str] = []
    for name, own in untrained.items():
        if own is None:
            reasons.append(f"{name} was scored by an earlier version; run the study again to score it anew")
            continue
        side = "below" if own.gain >= 0 else "above"
        reasons.append(
            f"{name} has {own.loss:.2f} bits per token, {abs(own.gain):.1%} {side} the {own.unigram:.2f} of the "
            "unigram distribution of its training tokens"
        )
    rule = f" Models must be clearly below it, by at least {LEARNED_SHARE:.0%}: train longer."
    is_measured = any(own is not None for own in untrained.values())
    return (
        f"No verdict on {first} and {second} {_where(budget, model)}: {'; '.join(reasons)}."
        f"{rule if is_measured else ''}"
    )


def rate_sentence(tokenizer: str, model: str, choice: RateChoice, *, is_trained: bool = True) -> str:
    """Return the sentence about the learning rate of an arm.

    Args:
        tokenizer: Name of the tokenizer.
        model: Name of the model.
        choice: The rate and its neighbours.
        is_trained: Whether the models of the trials have clearly left the unigram distribution.

    >>> from bytemill.experiment.statistics import choose_rate
    >>> choice = choose_rate({0.1: {0: 1.0, 1: 1.1}, 0.2: {0: 1.0, 1: 1.2}})
    >>> rate_sentence("own", "tiny", choice)
    'own with tiny: 0.1 is best in 2 seeds; not told apart from 0.2 (+0.0500 ± 0.6353 bits per byte); it is at the \
edge of the rates that were tried, and another one may be better.'
    """
    parts = [f"{tokenizer} with {model}: {choice.rate:g} is best in {plural(choice.n, 'seed')}"]
    for what, rates in (
        ("better than", [rate for rate in choice.neighbours if rate not in choice.rivals]),
        ("not told apart from", choice.rivals),
    ):
        if rates:
            shown = [f"{rate:g} ({_spread(choice.neighbours[rate])} bits per byte)" for rate in rates]
            parts.append(f"{what} {' and '.join(shown)}")
    if choice.is_at_edge:
        parts.append("it is at the edge of the rates that were tried, and another one may be better")
    if not is_trained:
        parts.append(
            "the models of its trials have not clearly left the unigram distribution, so that it says little"
        )
    return "; ".join(parts) + "."


def _spread(difference: Difference) -> str:
    width = "" if difference.half_width is None else f" ± {difference.half_width:.4f}"
    return f"{difference.value:+.4f}{width}"


def _where(budget: str, model: str) -> str:
    return f"at {_BUDGETS[budget]}" + (f" with {model}" if model else "")
