"""From logits to the next token: what may be drawn, with what probability, and the draw."""

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
    """How the next token is chosen. Cut-offs apply in this order, each to what the one before has left."""

    repetition_penalty: float = 1.0
    """Logits of tokens that are there already are divided by it, or multiplied if negative (Keskar et al. 2019)."""
    no_repeat_ngram: int = 0
    """No sequence of so many tokens comes twice; 0: may."""
    temperature: float = 1.0
    """Logits are divided by it: below 1 the likely becomes likelier; 0 takes the likeliest always."""
    top_k: int = 0
    """Only the so many likeliest; 0: all."""
    top_p: float = 1.0
    """Only the likeliest, as few as together reach this probability (Holtzman et al. 2020)."""
    min_p: float = 0.0
    """Only those at least this likely, as a share of the likeliest's probability (Nguyen et al. 2024)."""

    def __post_init__(self) -> None:
        self._check("repetition_penalty", self.repetition_penalty > 0, "above 0; 1 changes nothing")
        self._check("no_repeat_ngram", self.no_repeat_ngram >= 0, "0 or more")
        self._check("temperature", 0 <= self.temperature < float("inf"), "0 or more")
        self._check("top_k", self.top_k >= 0, "0 (all) or more")
        self._check("top_p", 0 < self.top_p <= 1, "above 0 and at most 1")
        self._check("min_p", 0 <= self.min_p <= 1, "from 0 to 1")

    def _check(self, name: str, ok: bool, wanted: str) -> None:
        if not ok:
            raise RunConfigError(f"{name} is {getattr(self, name)}", hint=f"take a value {wanted}")


def next_log_probabilities(
    logits: Tensor, parameters: SamplingParameters, history: Sequence[int] = ()
) -> Tensor:
    """Log-probabilities (vocab_size,) in float32 to draw from, -inf for what is cut off; at least one is not.

    `logits` (vocab_size,) are the model's, `history` the ids so far, prompt included.
    """
    x = logits.detach().float().cpu().clone()
    if history and parameters.repetition_penalty != 1.0:
        seen = torch.tensor(sorted(set(history)))
        # Dividing a negative logit would make it larger.
        penalty = parameters.repetition_penalty
        x[seen] = torch.where(x[seen] > 0, x[seen] / penalty, x[seen] * penalty)
    banned = _would_repeat(history, parameters.no_repeat_ngram)
    if banned and len(banned) < len(x):
        x[torch.tensor(banned)] = -torch.inf
    if parameters.temperature == 0:
        return _only(x, int(x.argmax()))
    # The maximum first: a small temperature must not push everything beyond what float32 holds.
    x = (x - x.max()) / parameters.temperature
    if 0 < parameters.top_k < len(x):
        x = _keep(x, x.sort(descending=True, stable=True).indices[: parameters.top_k])
    if parameters.top_p < 1:
        ordered, order = x.sort(descending=True, stable=True)
        probabilities = softmax(ordered, 0)
        before = probabilities.cumsum(0) - probabilities
        # Those are kept before which the others have not reached top_p: the likeliest always is.
        x = _keep(x, order[(before < parameters.top_p) & (ordered > -torch.inf)])
    if parameters.min_p > 0:
        x = torch.where(x >= x.max() + torch.tensor(parameters.min_p).log(), x, -torch.inf)
    x = x - x.max()
    return x - x.exp().sum().log()


def draw(log_probabilities: Tensor, generator: torch.Generator | None = None) -> int:
    """An id drawn from log-probabilities (vocab_size,)."""
    return int(torch.multinomial(log_probabilities.exp(), 1, generator=generator))


def _keep(x: Tensor, kept: Tensor) -> Tensor:
    cut = torch.full_like(x, -torch.inf)
    cut[kept] = x[kept]
    return cut


def _only(x: Tensor, index: int) -> Tensor:
    one = torch.full_like(x, -torch.inf)
    one[index] = 0.0
    return one


def _would_repeat(history: Sequence[int], n: int) -> list[int]:
    """The ids that would end a sequence of `n` ids that `history` holds already."""
    if n < 1 or len(history) < n:
        return []
    if n == 1:
        return sorted(set(history))
    last = tuple(history[len(history) - n + 1 :])
    return sorted(
        {history[i + n - 1] for i in range(len(history) - n + 1) if tuple(history[i : i + n - 1]) == last}
    )
