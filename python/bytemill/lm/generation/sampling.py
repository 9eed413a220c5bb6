"""Sample the next token from logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bytemill.errors import RunConfigError
from bytemill.lm.attention import softmax

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    x = logits.detach().float().cpu().clone()
    if history and parameters.repetition_penalty != 1.0:
        seen = torch.tensor(sorted(set(history)))
        # Dividing a negative logit would increase it.
        penalty = parameters.repetition_penalty
        x[seen] = torch.where(x[seen] > 0, x[seen] / penalty, x[seen] * penalty)
    banned = _repeating_ids(history, parameters.no_repeat_ngram)
    if banned and len(banned) < len(x):
        x[torch.tensor(banned)] = -torch.inf
    if parameters.temperature == 0:
        return _only(x, int(x.argmax()))
    # Subtract the maximum first, so that a small temperature does not overflow float32.
    x = (x - x.max()) / parameters.temperature
    if 0 < parameters.top_k < len(x):
        x = _keep(x, x.sort(descending=True, stable=True).indices[: parameters.top_k])
    if parameters.top_p < 1:
        ordered, order = x.sort(descending=True, stable=True)
        probabilities = softmax(ordered, 0)
        before = probabilities.cumsum(0) - probabilities
        # Keep a token if the tokens before it do not reach top_p; the first is always kept.
        x = _keep(x, order[(before < parameters.top_p) & (ordered > -torch.inf)])
    if parameters.min_p > 0:
        x = torch.where(x >= x.max() + torch.tensor(parameters.min_p).log(), x, -torch.inf)
    x = x - x.max()
    return x - x.exp().sum().log()


def draw(log_probabilities: Tensor, generator: torch.Generator | None = None) -> int:
    """Sample an id from log-probabilities of shape (vocab_size,)."""
    return int(torch.multinomial(log_probabilities.exp(), 1, generator=generator))


def _keep(x: Tensor, kept: Tensor) -> Tensor:
    result = torch.full_like(x, -torch.inf)
    result[kept] = x[kept]
    return result


def _only(x: Tensor, index: int) -> Tensor:
    result = torch.full_like(x, -torch.inf)
    result[index] = 0.0
    return result


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
