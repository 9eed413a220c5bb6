"""How evenly a tokenizer uses its vocabulary."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def renyi_efficiency(
    histogram: NDArray[np.integer], alpha: float, n_vocab: int | None = None
) -> float | None:
    """Compute H_α / log₂ n_vocab, from 0 to 1, of the tokens' distribution (Zouhar et al. 2023).

    H_α = log₂(Σ pᵢ^α) / (1 − α); at α = 1 it is the Shannon entropy −Σ pᵢ log₂ pᵢ. Larger α weigh frequent tokens more.
    High efficiency means that no token is used much more than others. It does not say that the tokens are good ones: a
    random vocabulary can be efficient.

    Args:
        histogram: Uses of each id.
        alpha: Order, above 0.
        n_vocab: Size of the vocabulary; by default the length of the histogram.

    Returns:
        None if there are no tokens, or a single id.

    >>> renyi_efficiency(np.array([2, 2, 2, 2]), 2.5)
    1.0
    """
    n_vocab = len(histogram) if n_vocab is None else n_vocab
    total = int(histogram.sum())
    if total == 0 or n_vocab < 2:
        return None
    p = histogram[histogram > 0] / total
    entropy = -float(p @ np.log2(p)) if alpha == 1 else math.log2(float((p**alpha).sum())) / (1 - alpha)
    return entropy / math.log2(n_vocab)


def used_share(histogram: NDArray[np.integer]) -> float | None:
    """Return the share of ids that occur; it grows with the amount of text."""
    return float((histogram > 0).mean()) if len(histogram) else None
