"""Generate tokens with a model, one after another: the context window, sampling, the core's decoder, the loop.

Sampling is in NumPy: a vector of the size of a vocabulary is too short to divide among threads, and after torch has
done so its threads wait in a loop, on the processors that compute the next token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import ModuleList

from bytemill._core import TokenDecoder
from bytemill.errors import RunConfigError
from bytemill.lm.batches import key_of
from bytemill.lm.device import are_cores_shared, shared_cores
from bytemill.lm.model import (
    Dropout,
    Embedding,
    FeedForward,
    KVCache,
    LayerNorm,
    Linear,
    MultiHeadSelfAttention,
    RMSNorm,
    RotaryEmbedding,
    SwiGLU,
    TransformerBlock,
    TransformerLM,
)
from bytemill.lm.model_config import FEED_FORWARDS, MIXERS, NORMS
from bytemill.lm.tensors import not_finite

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor


def window_start(n_ids: int, context_length: int) -> int:
    """Return the position of the first id that is read to predict the id after `n_ids` ids.

    When the context is full, its older half is dropped: dropping one id would recompute the whole context for each new
    one. The start depends on the number of ids alone, so that a text has the same probabilities whether it is generated
    at once, continued, or scored.

    Args:
        n_ids: Number of ids so far, including the prompt.
        context_length: Ids that the model can read.

    >>> [window_start(n_ids, 4) for n_ids in range(1, 12)]
    [0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9]
    """
    n_kept = max(1, context_length // 2)
    step = context_length + 1 - n_kept
    n_steps = max(0, -(-(n_ids - context_length) // step))
    return n_steps * step


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


_PARTS = frozenset(
    {
        *(TransformerLM, TransformerBlock, MultiHeadSelfAttention, RotaryEmbedding, SwiGLU, FeedForward),
        *(Embedding, Linear, RMSNorm, LayerNorm, Dropout, ModuleList),
    }
)
"""The modules that the core computes; a subclass may compute something else."""


class CoreDecoder:
    """Computes the logits after one token as `TransformerLM.forward` does, and adds to the same cache.

    Weights are used in place, so that a change of their numbers is seen; the tensors must not be replaced.

    Args:
        model: A model that `supports` accepts.
        cache: Its cache, for one sequence without padding.
    """

    def __init__(self, model: TransformerLM, cache: KVCache) -> None:
        config = model.config
        self._context_length = config.context_length
        self._cache = cache
        blocks: list[Any] = list(model.layers)
        rope = blocks[0].attn.rope
        sinusoids = model.sinusoids if config.position == "sinusoidal" else None
        learned = model.position_embeddings.weight if config.position == "learned" else None
        final: Any = model.ln_final if config.norm_position == "pre" else None
        weights: dict[str, Any] = {
            "embedding": model.token_embeddings.weight,
            "positions": sinusoids if learned is None else learned,
            "rotations": None if rope is None else rope.rotations,
            "final.weight": None if final is None else final.weight,
            "final.bias": getattr(final, "bias", None),
            "head": model.lm_head.weight,
        }
        self._decoder = TokenDecoder(
            {
                "vocab_size": config.vocab_size,
                "d_model": config.d_model,
                "d_head": config.d_head,
                "n_heads": config.num_heads,
                "n_kv_heads": config.n_kv_heads,
                "norm_first": config.norm_position == "pre",
                "centred": config.norm == "layer",
                "eps": config.norm_eps,
                "activation": config.feed_forward,
                "soft_cap": config.logit_soft_cap,
            },
            _arrays(weights),
            [_arrays(_block_weights(block)) for block in blocks],
            [(layer.keys[0].numpy(), layer.values[0].numpy()) for layer in cache.layers],
            torch.get_num_threads(),
        )

    @staticmethod
    def supports(model: TransformerLM, cache: KVCache) -> bool:
        """Return True for one sequence, and a model of known parts with weights in float32 on the CPU."""
        config = model.config
        has_known_parts = {type(module) for module in model.modules()} <= _PARTS
        parts = (MIXERS[config.mixer], FEED_FORWARDS[config.feed_forward], NORMS[config.norm])
        if not (has_known_parts and all(part.in_core for part in parts)) or config.unknown_options():
            return False
        tensors = [*model.parameters(), cache.layers[0].keys]
        return (
            cache.batch_size == 1
            and cache.n_padding is None
            and cache.layers[0].keys.numel() > 0
            and all(
                tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.is_contiguous()
                for tensor in tensors
            )
        )

    def logits_after(self, token_id: int) -> Tensor:
        """Return the logits after the next token, (vocab_size,).

        Raises:
            ValueError: The context is full.
        """
        position = self._cache.n_positions
        if position >= self._context_length:
            raise ValueError(
                f"{position + 1} positions exceed the context length of {self._context_length} tokens"
            )
        logits = self._decoder.next_logits(token_id, position, alone=are_cores_shared())
        self._cache.advance_to(position + 1)
        return torch.from_numpy(logits)  # pyright: ignore[reportUnknownMemberType]


def _block_weights(block: TransformerBlock) -> dict[str, Tensor | None]:
    attention, ffn = block.attn, block.ffn
    modules: dict[str, Any] = {
        "ln1": block.ln1,
        "ln2": block.ln2,
        "q": attention.q_proj,
        "k": attention.k_proj,
        "v": attention.v_proj,
        "output": attention.output_proj,
        "w1": ffn.w1,
        "w2": ffn.w2,
        "w3": getattr(ffn, "w3", None),
    }
    weights: dict[str, Tensor | None] = {}
    for name, module in modules.items():
        weights[f"{name}.weight"] = getattr(module, "weight", None)
        weights[f"{name}.bias"] = getattr(module, "bias", None)
    if attention.has_qk_norm:
        weights |= {"q_norm": attention.q_norm.weight, "k_norm": attention.k_norm.weight}
    return weights


def _arrays(tensors: dict[str, Tensor | None]) -> dict[str, Any]:
    return {name: None if tensor is None else tensor.detach().numpy() for name, tensor in tensors.items()}


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
    """Position of the first id that the model read; see `window_start`."""


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

    When the context is full, its older half is dropped; see `window_start`.

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
