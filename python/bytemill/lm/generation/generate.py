"""New tokens from a model, one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bytemill.errors import RunConfigError
from bytemill.lm.generation.sampling import SamplingParameters, draw, next_log_probabilities
from bytemill.lm.kv_cache import KVCache
from bytemill.lm.permutation import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from bytemill.lm.model import TransformerLM


@dataclass(frozen=True)
class NextToken:
    """One new token of one sample."""

    sample: int
    """Which of the samples, from 0 on."""
    id: int
    logits: Tensor
    """(vocab_size,) as the model gave them."""
    log_probabilities: Tensor
    """(vocab_size,) what it was drawn from: after temperature and cut-offs."""


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
    n_samples: int = 1,
    seed: int | None = None,
    use_cache: bool = True,
) -> list[list[int]]:
    """The ids that follow `prompt`, for each of `n_samples`; see `SamplingParameters` for what is drawn.

    A sample ends after `max_tokens` or with a token of `stop_ids`, which belongs to it. Sample i of a seed is the same
    however many there are.
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
    n_samples: int = 1,
    seed: int | None = None,
    use_cache: bool = True,
    n_vocab: int | None = None,
    ends: Callable[[NextToken], bool] | None = None,
) -> Iterator[NextToken]:
    """As `generate`, token by token; the samples take turns. Ids from `n_vocab` on are never drawn.

    `ends` is asked of each token whether its sample ends with it.

    Who has seen enough closes the iterator. Where the context is full, its older half is forgotten: with and without
    cache at the same places, so that both give the same ids. The model is put into evaluation mode.

    Raises `RunConfigError` for a prompt that is empty or holds ids that the model does not have.
    """
    _check(model, prompt, max_tokens, n_samples)
    parameters = parameters or SamplingParameters()
    device = next(model.parameters()).device
    # A generator for each sample, on the CPU: the draws do not depend on how many samples there are, nor on the device.
    base = int(torch.randint(2**62, ())) if seed is None else seed
    generators = [torch.Generator().manual_seed(key_of(base, sample) >> 1) for sample in range(n_samples)]
    rows = [list(prompt) for _ in range(n_samples)]
    running = list(range(n_samples))
    window = _Window(model, n_samples, device, use_cache=use_cache)
    for _ in range(max_tokens):
        logits = window.logits_after(rows)
        for sample in list(running):
            own = logits[sample, :n_vocab]
            chances = next_log_probabilities(own, parameters, rows[sample])
            chosen = draw(chances, generators[sample])
            rows[sample].append(chosen)
            token = NextToken(sample, chosen, own, chances)
            has_ended = ends is not None and ends(token)
            if has_ended or chosen in stop_ids:
                running.remove(sample)
            yield token
        if not running:
            return
        n_ids = len(rows[running[0]])
        for row in rows:
            row.extend(row[-1:] * (n_ids - len(row)))  # keeps the batch rectangular; nobody reads it


class _Window:
    """The ids that the model sees: all that fit, and after the context was full once, from half of it on."""

    def __init__(self, model: TransformerLM, n_rows: int, device: torch.device, *, use_cache: bool) -> None:
        self._model = model.eval()
        self._device = device
        self._start = 0
        self._n_seen = 0
        dtype = next(model.parameters()).dtype
        self._cache = KVCache(model.config, n_rows, device, dtype) if use_cache else None

    @torch.inference_mode()
    def logits_after(self, rows: list[list[int]]) -> Tensor:
        """(n_rows, vocab_size) on the CPU: the logits of what follows the last id of each row."""
        context = self._model.config.context_length
        n_ids = len(rows[0])
        if n_ids - self._start > context:
            # Half of it: to drop a single token would have to compute the whole context anew for each new one.
            self._start = n_ids - max(1, context // 2)
            self._n_seen = self._start
            if self._cache is not None:
                self._cache.reset()
        first = self._start if self._cache is None else max(self._n_seen, self._start)
        ids = torch.tensor([row[first:] for row in rows], device=self._device)
        self._n_seen = n_ids
        return self._model(ids, self._cache, last_only=True)[:, -1].float().cpu()


def _check(model: TransformerLM, prompt: Sequence[int], max_tokens: int, n_samples: int) -> None:
    if max_tokens < 0 or n_samples < 1:
        raise RunConfigError(f"max_tokens is {max_tokens} and n_samples {n_samples}", hint="take 1 or more")
    if not prompt:
        raise RunConfigError("the prompt is empty", hint="give at least one token, say the end of a text")
    if wrong := [i for i in prompt if not 0 <= i < model.config.vocab_size]:
        raise RunConfigError(
            f"the prompt holds id {wrong[0]}, and the model has ids up to {model.config.vocab_size - 1}",
            hint="use the tokenizer that the model was trained with",
        )
