"""Generate tokens with a model, one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from bytemill.errors import RunConfigError
from bytemill.lm.batches import key_of
from bytemill.lm.cpu_threads import shared_cores
from bytemill.lm.generation.context_window import window_start
from bytemill.lm.generation.sampling import SamplingParameters, draw, next_log_probabilities
from bytemill.lm.generation.token_decoder import CoreDecoder
from bytemill.lm.model import KVCache
from bytemill.lm.tensors import not_finite

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from bytemill.lm.model import TransformerLM


@dataclass(frozen=True)
class NextToken:
    """A new token of a sample."""

    sample: int
    """Index of the sample."""
    id: int
    logits: Tensor
    """(vocab_size,), from the model; −∞ for excluded ids."""
    log_probabilities: Tensor
    """(vocab_size,), after temperature and cut-offs; the token was sampled from these."""
    window_start: int
    """Position of the first id that the model read; see `context_window`."""


def generate(
    model: TransformerLM,
    prompt: Sequence[int],
    max_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    no_repeat_ngram: int = 0,
    stop_ids: Collection[int] = (),
    excluded_ids: Collection[int] = (),
    n_samples: int = 1,
    seed: int | None = None,
    use_cache: bool = True,
) -> list[list[int]]:
    """Continue `prompt`, and return the new ids of each sample.

    Args:
        model: Model; it is set to evaluation mode.
        prompt: Ids to continue, at least one.
        max_tokens: Maximum number of new tokens per sample.
        temperature: See `SamplingParameters`, also for `top_k`, `top_p`, `min_p`, `repetition_penalty` and
            `no_repeat_ngram`.
        stop_ids: A sample ends after one of these ids.
        excluded_ids: These ids are never sampled; `ids_without_token` returns those that no text has.
        n_samples: Number of samples. Sample i of a seed does not depend on it.
        seed: Seed of the sampling; by default random.
        use_cache: Cache keys and values; the ids are the same without.

    Raises:
        RunConfigError: The prompt is empty or has ids that the model lacks, or an argument is out of range.
        NotFiniteError: The weights or the logits are not finite.
    """
    parameters = SamplingParameters(
        repetition_penalty=repetition_penalty,
        no_repeat_ngram=no_repeat_ngram,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
    )
    samples: list[list[int]] = [[] for _ in range(n_samples)]
    for token in next_tokens(
        model,
        prompt,
        max_tokens,
        parameters,
        stop_ids=stop_ids,
        excluded_ids=excluded_ids,
        n_samples=n_samples,
        seed=seed,
        use_cache=use_cache,
    ):
        samples[token.sample].append(token.id)
    return samples


def next_tokens(
    model: TransformerLM,
    prompt: Sequence[int],
    max_tokens: int,
    parameters: SamplingParameters | None = None,
    *,
    stop_ids: Collection[int] = (),
    excluded_ids: Collection[int] = (),
    n_samples: int = 1,
    seed: int | None = None,
    use_cache: bool = True,
    is_last: Callable[[NextToken], bool] | None = None,
) -> Iterator[NextToken]:
    """Yield tokens like `generate`, with samples interleaved.

    When the context is full, its older half is dropped; see `context_window.window_start`.

    Args:
        model: As in `generate`, like all parameters that are not listed here.
        parameters: How to sample.
        is_last: Return True if the sample ends after the token.

    Raises:
        RunConfigError: As in `generate`.
    """
    _check(model, prompt, max_tokens, n_samples)
    parameters = parameters or SamplingParameters()
    device = next(model.parameters()).device
    # One generator per sample, on the CPU: samples do not depend on their number or on the device.
    base = int(torch.randint(2**62, ())) if seed is None else seed
    generators = [torch.Generator().manual_seed(key_of(base, sample) >> 1) for sample in range(n_samples)]
    rows = [list(prompt) for _ in range(n_samples)]
    running = list(range(n_samples))
    window = _Window(model, n_samples, device, use_cache=use_cache)
    excluded = np.array(sorted(excluded_ids), dtype=np.int64)
    with shared_cores(device):
        for _ in range(max_tokens):
            logits = window.logits_after(rows)
            if not np.isfinite(logits.numpy()).all():
                raise not_finite(model)
            logits.numpy()[:, excluded] = -np.inf
            for sample in list(running):
                own = logits[sample]
                log_probabilities = next_log_probabilities(own, parameters, rows[sample])
                chosen = draw(log_probabilities, generators[sample])
                rows[sample].append(chosen)
                token = NextToken(sample, chosen, own, log_probabilities, window.start)
                if (is_last is not None and is_last(token)) or chosen in stop_ids:
                    running.remove(sample)
                yield token
            if not running:
                return
            n_ids = len(rows[running[0]])
            for row in rows:
                row.extend(
                    row[-1:] * (n_ids - len(row))
                )  # keep the batch rectangular; these ids are never read


class _Window:
    """The ids that the model reads: all, or the most recent ones after the context was full."""

    start: int
    """Position of the first id that was read last."""

    def __init__(self, model: TransformerLM, n_rows: int, device: torch.device, *, use_cache: bool) -> None:
        self._model = model.eval()
        self._device = device
        self.start = 0
        self._n_seen = 0
        dtype = next(model.parameters()).dtype
        self._cache = KVCache(model.config, n_rows, device, dtype) if use_cache else None
        self._decoder: CoreDecoder | None = None
        if (
            model.kernels.core_decoding
            and self._cache is not None
            and CoreDecoder.supports(model, self._cache)
        ):
            self._decoder = CoreDecoder(model, self._cache)

    @torch.inference_mode()
    def logits_after(self, rows: list[list[int]]) -> Tensor:
        """Return the logits of the next id of each row, (n_rows, vocab_size) on the CPU."""
        n_ids = len(rows[0])
        start = window_start(n_ids, self._model.config.context_length)
        if start != self.start:
            self.start = self._n_seen = start
            if self._cache is not None:
                self._cache.reset()
        first = start if self._cache is None else self._n_seen
        self._n_seen = n_ids
        if self._decoder is not None and first == n_ids - 1:
            return self._decoder.logits_after(rows[0][-1])[None]
        ids = torch.tensor([row[first:] for row in rows], device=self._device)
        return self._model(ids, self._cache, last_only=True)[:, -1].float().cpu()


def _check(model: TransformerLM, prompt: Sequence[int], max_tokens: int, n_samples: int) -> None:
    if max_tokens < 0 or n_samples < 1:
        raise RunConfigError(f"max_tokens is {max_tokens} and n_samples {n_samples}", hint="choose 1 or more")
    if not prompt:
        raise RunConfigError(
            "the prompt is empty", hint="give at least one id, such as that of <|endoftext|>"
        )
    if wrong := [i for i in prompt if not 0 <= i < model.config.vocab_size]:
        raise RunConfigError(
            f"the prompt contains id {wrong[0]}, but the model has ids up to {model.config.vocab_size - 1}",
            hint="use the tokenizer that the model was trained with",
        )
