"""Sampling of the next token from logits, in NumPy.

A vector of the size of a vocabulary is too short to divide among threads, and after torch has done so its threads wait
in a loop, on the processors that compute the next token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bytemill.errors import RunConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor


_BLOCK = 256
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class SamplingParameters:
    """How the next token is sampled. The steps apply in the order of the fields, each to the result of the last."""

    repetition_penalty: float = 1.0
    """Divides logits of tokens that already occur, or multiplies them if negative (Keskar et al. 2019)."""
    no_repeat_ngram: int = 0
    """Never repeat a sequence of this many tokens; 0: allow."""
    temperature: float = 1.0
    """Divides the logits: below 1 favours likely tokens, 0 always takes the most likely one."""
    top_k: int = 0
    """Keep only this many of the most likely tokens; 0: all."""
    top_p: float = 1.0
    """Keep the smallest set of most likely tokens that reaches this probability (Holtzman et al. 2020)."""
    min_p: float = 0.0
    """Keep tokens with at least this share of the highest probability (Nguyen et al. 2024)."""

    def __post_init__(self) -> None:
        self._check("repetition_penalty", self.repetition_penalty > 0, "above 0; 1 changes nothing")
        self._check("no_repeat_ngram", self.no_repeat_ngram >= 0, "0 or more")
        self._check("temperature", 0 <= self.temperature < float("inf"), "0 or more")
        self._check("top_k", self.top_k >= 0, "0 (all) or more")
        self._check("top_p", 0 < self.top_p <= 1, "above 0 and at most 1")
        self._check("min_p", 0 <= self.min_p <= 1, "from 0 to 1")

    @property
    def keeps_all(self) -> bool:
        """Whether only the temperature changes probabilities, and no token is cut off."""
        return self.temperature > 0 and self == SamplingParameters(temperature=self.temperature)

    def _check(self, name: str, ok: bool, allowed: str) -> None:
        if not ok:
            raise RunConfigError(f"{name} is {getattr(self, name)}", hint=f"choose a value {allowed}")


def next_log_probabilities(
    logits: Tensor, parameters: SamplingParameters, history: Sequence[int] = ()
) -> Tensor:
    """Return the log-probabilities to sample from.

    Args:
        logits: (vocab_size,), from the model.
        parameters: How to sample.
        history: Ids so far, including the prompt.

    Returns:
        (vocab_size,) in float32 on the CPU; −∞ for tokens that are cut off, never for all.
    """
    x = logits.detach().float().cpu().numpy().copy()
    if history and parameters.repetition_penalty != 1.0:
        seen = np.array(sorted(set(history)))
        seen = seen[x[seen] > -np.inf]
        # Dividing a negative logit would increase it.
        values, penalty = x[seen].astype(np.float64), parameters.repetition_penalty
        with np.errstate(over="ignore"):  # to infinity, which is clipped
            x[seen] = np.clip(np.where(values > 0, values / penalty, values * penalty), -_LARGEST, _LARGEST)
    banned = _repeating_ids(history, parameters.no_repeat_ngram)
    if banned and (np.delete(x, banned) > -np.inf).any():
        x[banned] = -np.inf
    temperature = np.float32(min(parameters.temperature, _LARGEST))
    if temperature == 0:
        return _tensor(_keep(x, np.argmax(x), 0.0))
    with np.errstate(over="ignore"):  # to −∞
        x -= x.max()  # first, so that a small temperature does not overflow; the maximum is never cut off
        x /= temperature
    if 0 < parameters.top_k < len(x):
        kept = np.argsort(-x, kind="stable")[: parameters.top_k]
        x = _keep(x, kept, x[kept])
    if parameters.top_p < 1:
        order = np.argsort(-x, kind="stable")
        probabilities = np.exp(x[order])
        probabilities /= probabilities.sum()
        before = probabilities.cumsum() - probabilities
        # Keep a token if the tokens before it do not reach top_p; the first is always kept.
        is_kept = (before < parameters.top_p) & (x[order] > -np.inf)
        is_kept[0] = True  # also with a top_p that is 0 in float32
        kept = order[is_kept]
        x = _keep(x, kept, x[kept])
    if parameters.min_p > 0:
        x[x < math.log(parameters.min_p)] = -np.inf
    return _tensor(x - np.log(np.exp(x).sum()))


def draw(log_probabilities: Tensor, generator: torch.Generator | None = None) -> int:
    """Sample an id from log-probabilities of shape (vocab_size,): the first whose cumulative probability is enough."""
    probabilities: NDArray[np.float32] = np.exp(log_probabilities.numpy())
    # First the block of the id, then the id: a cumulative sum over all ids would take longer than everything else.
    starts = np.arange(0, len(probabilities), _BLOCK)
    sums: NDArray[Any] = np.add.reduceat(probabilities, starts, dtype=np.float64).cumsum()
    target: float = sums[-1] * float(torch.rand((), dtype=torch.float64, generator=generator))
    number = min(_first_above(sums, target), int(np.argmax(sums)))
    block: NDArray[Any] = probabilities[number * _BLOCK : (number + 1) * _BLOCK].astype(np.float64)
    before: float = sums[number - 1] if number else 0.0
    index = _first_above(before + block.cumsum(), target)
    return number * _BLOCK + min(index, int(block.nonzero()[0][-1]))  # rounded sums may stay below the target


def draw_rows(logits: Tensor, temperature: float, generators: Sequence[torch.Generator]) -> list[int]:
    """Sample an id from each row of logits, as `draw` of `next_log_probabilities` does, all rows at once.

    One array of the size of the logits is made: the system takes longer to give a new one than to fill it.

    Args:
        logits: (n, vocab_size), on the CPU.
        temperature: Above 0; nothing else may change the probabilities.
        generators: Generator of each row.
    """
    x: NDArray[np.float32] = logits.float().numpy()
    with np.errstate(over="ignore"):  # to −∞
        weights = x - x.max(1, keepdims=True)
        weights /= np.float32(min(temperature, _LARGEST))
    np.exp(weights, out=weights)  # probabilities times a constant of the row, which draws do not depend on
    rows, n_ids = np.arange(len(weights)), weights.shape[1]
    starts: Any = range(0, n_ids, _BLOCK)
    sums: NDArray[Any] = np.add.reduceat(weights, starts, axis=1, dtype=np.float64).cumsum(1)
    uniform = [float(torch.rand((), dtype=torch.float64, generator=each)) for each in generators]
    targets: NDArray[Any] = sums[:, -1] * uniform
    numbers = np.minimum((sums <= targets[:, None]).sum(1), sums.argmax(1))
    before = np.where(numbers > 0, sums[rows, numbers - 1], 0.0)
    columns = numbers[:, None] * _BLOCK + np.arange(_BLOCK)
    blocks: NDArray[Any] = np.where(
        columns < n_ids, weights[rows[:, None], np.minimum(columns, n_ids - 1)], 0.0
    ).astype(np.float64)
    last = _BLOCK - 1 - (blocks[:, ::-1] > 0).argmax(1)
    indices = (before[:, None] + blocks.cumsum(1) <= targets[:, None]).sum(1)
    return (numbers * _BLOCK + np.minimum(indices, last)).tolist()


def _first_above(increasing: NDArray[Any], target: float) -> int:
    return int(increasing.searchsorted(target, side="right"))


def _keep(x: NDArray[np.float32], kept: Any, values: Any) -> NDArray[np.float32]:
    result = np.full_like(x, -np.inf)
    result[kept] = values
    return result


def _tensor(x: NDArray[np.float32]) -> Tensor:
    return torch.from_numpy(x)  # pyright: ignore[reportUnknownMemberType]


def _repeating_ids(history: Sequence[int], n: int) -> list[int]:
    """Return the ids that would complete a sequence of `n` ids that is already in `history`."""
    if n < 1 or len(history) < n:
        return []
    if n == 1:
        return sorted(set(history))
    last = tuple(history[len(history) - n + 1 :])
    return sorted(
        {history[i + n - 1] for i in range(len(history) - n + 1) if tuple(history[i : i + n - 1]) == last}
    )
