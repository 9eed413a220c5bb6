"""Speculative decoding: a cheap draft guesses several tokens, and the model checks them in one pass.

The result has the distribution of the model's own sampling, whatever the draft is (Leviathan et al. 2023, Chen et al.
2023). A guess x, drawn from q, is kept with probability min(1, p(x) / q(x)), where p is the model's distribution. The
first guess that is not kept is replaced by a token from max(0, p − q), normalized; after n kept guesses, the pass gives
one more token for free. With temperature 0 the tokens are those of greedy decoding.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from bytemill.errors import RunConfigError
from bytemill.lm.device import autocast
from bytemill.lm.generation.core_decoder import CoreDecoder
from bytemill.lm.generation.sampling import SamplingParameters, draw, next_log_probabilities
from bytemill.lm.generation.window import window_start
from bytemill.lm.model import KVCache, LayerCache, TransformerLM
from bytemill.lm.tensors import not_finite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True)
class Guess:
    """A token of a draft."""

    id: int
    log_probabilities: Tensor | None
    """(vocab_size,), what it was drawn from; None if it was certain."""


class Draft(Protocol):
    """What guesses the next tokens."""

    def guess(
        self,
        ids: Sequence[int],
        n: int,
        parameters: SamplingParameters,
        generator: torch.Generator,
        excluded_ids: Sequence[int],
        /,
    ) -> list[Guess]:
        """Return up to `n` guesses for the tokens after `ids`."""
        ...


class NgramDraft:
    """Guess what followed the last occurrence of the last tokens in the text so far (Saxena 2023, "prompt lookup").

    Args:
        longest: Number of last tokens to look for; if they did not occur before, fewer are looked for.
    """

    def __init__(self, longest: int = 3) -> None:
        self._longest = longest

    def guess(
        self,
        ids: Sequence[int],
        n: int,
        parameters: SamplingParameters,  # noqa: ARG002 - a draft model uses these
        generator: torch.Generator,  # noqa: ARG002
        excluded_ids: Sequence[int],
    ) -> list[Guess]:
        for length in range(min(self._longest, len(ids) - 1), 0, -1):
            last = list(ids[-length:])
            for start in range(len(ids) - length - 1, -1, -1):
                if list(ids[start : start + length]) == last:
                    found = ids[start + length : start + length + n]
                    return [
                        Guess(each, None) for each in takewhile(lambda each: each not in excluded_ids, found)
                    ]
        return []


class ModelDraft:
    """Guess with a smaller model.

    Args:
        model: A model with the vocabulary of the large one.
    """

    def __init__(self, model: TransformerLM) -> None:
        self.model = model.eval()
        self._reader: Reader | None = None

    def guess(
        self,
        ids: Sequence[int],
        n: int,
        parameters: SamplingParameters,
        generator: torch.Generator,
        excluded_ids: Sequence[int],
    ) -> list[Guess]:
        self._reader = self._reader or Reader(self.model)
        own, guesses = list(ids), list[Guess]()
        for _ in range(n):
            logits = self._reader.logits_after(own, 1)[-1]
            logits[list(excluded_ids)] = -torch.inf
            log_probabilities = next_log_probabilities(logits, parameters, own)
            chosen = draw(log_probabilities, generator)
            guesses.append(Guess(chosen, log_probabilities))
            own.append(chosen)
        return guesses


class Reader:
    """A model that reads a growing sequence, of which it may have to forget the last ids.

    Args:
        model: The model.
        dtype: Type of matrix products; None: that of the weights.

    Raises:
        RunConfigError: The model keeps a state that cannot forget.
    """

    def __init__(self, model: TransformerLM, dtype: torch.dtype | None = None) -> None:
        weight = model.lm_head.weight
        self._model, self._device = model, weight.device
        self._context_length = model.config.context_length
        is_autocast = dtype not in (None, torch.float32, weight.dtype)
        self._autocast = partial(autocast, weight.device, dtype) if is_autocast else nullcontext
        self._cache = KVCache(model.config, 1, weight.device, weight.dtype)
        if any(type(layer) is not LayerCache for layer in self._cache.layers):
            raise RunConfigError(
                "speculative decoding needs layers that attend to all tokens",
                hint="leave --draft out for models with sliding windows or recurrent layers",
            )
        self._read: list[int] = []
        """Ids in the cache, which begin at `_start` of the sequence."""
        self._start = 0
        can_decode = model.kernels.core_decoding and not is_autocast
        self._decoder = (
            CoreDecoder(model, self._cache)
            if can_decode and CoreDecoder.supports(model, self._cache)
            else None
        )

    def logits_after(self, ids: Sequence[int], n: int) -> Tensor:
        """Return the logits after each of the last `n` ids, (n, vocab_size) in float32 on the CPU.

        The context begins where it does after the first of them, as if each were read alone.

        Raises:
            NotFiniteError: The weights or the logits are not finite.
        """
        start = window_start(len(ids) - n + 1, self._context_length)
        if start != self._start:
            self._start, self._read = start, []
        own = list(ids[start:])
        n_known = _common_length(self._read, own[: len(own) - n])
        self._cache.advance_to(n_known)
        self._read = own
        logits = self._logits(own[n_known:], n).clone()  # a clone of an inference tensor is not one
        if not np.isfinite(logits.numpy()).all():
            raise not_finite(self._model)
        return logits

    @torch.inference_mode()
    def _logits(self, new: list[int], n: int) -> Tensor:
        if self._decoder is not None and len(new) == 1:
            return self._decoder.logits_after(new[0])[None]
        with self._autocast():
            hidden = self._model.hidden(torch.tensor([new], device=self._device), self._cache)
            return self._model.logits(hidden[0, -n:]).float().cpu()


def _common_length(left: Sequence[int], right: Sequence[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )


@dataclass
class Speculation:
    """How to speculate, and what came of it."""

    draft: Draft
    n_guesses: int = 4
    """Largest number of guesses per pass."""
    n_guessed: int = field(default=0, init=False)
    n_kept: int = field(default=0, init=False)
    n_passes: int = field(default=0, init=False)

    def check(self, model: TransformerLM) -> None:
        """Raise RunConfigError if the draft does not fit a model."""
        if self.n_guesses < 1:
            raise RunConfigError(f"the draft guesses {self.n_guesses} tokens", hint="choose 1 or more")
        own = self.draft.model.config.vocab_size if isinstance(self.draft, ModelDraft) else None
        if own not in (None, model.config.vocab_size):
            raise RunConfigError(
                f"the draft model has {own:,} ids, but the model has {model.config.vocab_size:,}",
                hint="use a draft model with the same tokenizer",
            )


@dataclass(frozen=True)
class Chosen:
    """A token, and what it was chosen from."""

    id: int
    logits: Tensor
    log_probabilities: Tensor
    window_start: int


def speculate(
    reader: Reader,
    speculation: Speculation,
    ids: Sequence[int],
    max_tokens: int,
    parameters: SamplingParameters,
    *,
    generator: torch.Generator,
    excluded_ids: Sequence[int],
    context_length: int,
) -> Iterator[Chosen]:
    """Yield the tokens after `ids`, until the caller stops.

    Args:
        reader: The model.
        speculation: The draft.
        ids: The prompt.
        max_tokens: Maximum number of tokens.
        parameters: How to sample.
        generator: Generator of the guesses and of the choices.
        excluded_ids: These ids are never sampled.
        context_length: Context length of the model.
    """
    own = list(ids)
    end = len(own) + max_tokens
    while len(own) < end:
        start = window_start(len(own), context_length)
        # A pass has one context, so no guess may be beyond the place where the context is dropped.
        n = min(speculation.n_guesses, end - len(own) - 1)
        while n and window_start(len(own) + n, context_length) != start:
            n -= 1
        guesses = speculation.draft.guess(own, n, parameters, generator, excluded_ids) if n else []
        logits = reader.logits_after([*own, *(guess.id for guess in guesses)], len(guesses) + 1)
        speculation.n_passes += 1
        speculation.n_guessed += len(guesses)
        for guess, row in zip([*guesses, None], logits, strict=True):
            row[list(excluded_ids)] = -torch.inf
            target = next_log_probabilities(row, parameters, own)
            chosen = _choose(guess, target, generator)
            own.append(chosen)
            is_kept = guess is not None and chosen == guess.id
            speculation.n_kept += is_kept
            yield Chosen(chosen, row, target, start)
            if not is_kept:
                break


def _choose(guess: Guess | None, target: Tensor, generator: torch.Generator) -> int:
    """Return the guess, or another token if it is not kept."""
    if guess is None:
        return draw(target, generator)
    p = np.exp(target.numpy().astype(np.float64))
    q = np.zeros_like(p)
    if guess.log_probabilities is None:
        q[guess.id] = 1
    else:
        q = np.exp(guess.log_probabilities.numpy().astype(np.float64))
    # The random number is drawn in any case.
    if float(torch.rand((), dtype=torch.float64, generator=generator)) * q[guess.id] < p[guess.id]:
        return guess.id
    rest = np.maximum(p - q, 0)
    if not rest.any():  # p = q but for rounding, where a guess is always kept
        return guess.id
    with np.errstate(divide="ignore"):
        return draw(torch.from_numpy(np.log(rest / rest.sum()).astype(np.float32)), generator)  # pyright: ignore[reportUnknownMemberType]
