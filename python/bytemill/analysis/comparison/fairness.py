"""Fairness between languages, on parallel text: the same content in each, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def gini(values: NDArray[np.integer] | NDArray[np.floating]) -> float | None:
    """Compute the Gini coefficient Σᵢ Σⱼ |xᵢ − xⱼ| / (2 n² mean(x)): 0 if all are equal, near 1 if one has all.

    Computed as Σᵢ (2i − n − 1) xᵢ / (n Σ x) with x in ascending order and i from 1. Over the tokens that languages take
    for the same content it says how unevenly they are treated, not which of them.

    Returns:
        None if there are no values, or all are 0.

    >>> gini(np.array([1, 1, 1])), gini(np.array([0, 0, 0, 8]))
    (0.0, 0.75)
    """
    x = np.sort(np.asarray(values, np.float64))
    n, total = len(x), float(x.sum())
    if n == 0 or total == 0:
        return None
    return float((2 * np.arange(1, n + 1) - n - 1) @ x) / (n * total)


def lorenz_curve(values: NDArray[np.integer] | NDArray[np.floating]) -> list[tuple[float, float]]:
    """Return the points (share of languages, share of tokens), from the cheapest language on; equality is the diagonal.

    >>> lorenz_curve(np.array([3, 1]))
    [(0.0, 0.0), (0.5, 0.25), (1.0, 1.0)]
    """
    x = np.sort(np.asarray(values, np.float64))
    shares = np.concatenate([[0.0], np.cumsum(x) / x.sum()])
    return [(i / len(x), float(share)) for i, share in enumerate(shares)]


def premiums(tokens: dict[str, NDArray[np.integer]], reference: str) -> dict[str, float | None]:
    """Return the tokens that each language takes, relative to the reference (Petrov et al. 2023).

    All are None if the reference takes no tokens.

    Args:
        tokens: Tokens of each line, by language.
        reference: Language that counts as 1, such as English.

    >>> premiums({"en": np.array([2, 2]), "my": np.array([9, 11])}, "en")
    {'en': 1.0, 'my': 5.0}
    """
    base = float(tokens[reference].sum())
    return {language: float(own.sum()) / base if base else None for language, own in tokens.items()}
