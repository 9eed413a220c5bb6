"""See into a model: what each token of a text costs it, what sampling does to its predictions, what it attends to."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from bytemill.errors import RunConfigError
from bytemill.lm.generation.sampling import SamplingParameters, next_log_probabilities
from bytemill.lm.generation.text_generation import start_id
from bytemill.lm.generation.window import window_start
from bytemill.lm.loss import puts_space_first, token_losses
from bytemill.lm.model import MultiHeadSelfAttention, softmax
from bytemill.lm.tensors import not_finite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor
    from torch.nn import Module

    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Surprisal:
    """The tokens of a text, and what each costs."""

    ids: list[int]
    bits: NDArray[np.float64]
    """(n_tokens,), −log₂ of the probability of each token; NaN for a first token that nothing precedes."""
    n_bytes: int
    """Bytes of the text that have a cost."""
    start_id: int | None
    """The id that the text follows; None if nothing precedes it."""
    window_starts: list[int]
    """(n_tokens,), index of the first token that each is predicted from; −1 is the token that the text follows."""

    @property
    def bits_per_byte(self) -> float | None:
        """The mean over the bytes; None if there are none."""
        return float(np.nansum(self.bits)) / self.n_bytes if self.n_bytes else None


def surprisal(
    model: TransformerLM,
    tokenizer: Tokenizer,
    text: str,
    *,
    bos_id: int | None = None,
    check: Callable[[], None] | None = None,
) -> Surprisal:
    """Compute the surprisal of each token of `text`.

    The text follows the token that began every training document, or `<|endoftext|>` if the tokenizer has it;
    otherwise its first token has no cost. Each token is predicted from the window from which generation predicts it:
    see `window_start`. Special tokens in the text are treated as text. Ids without a token keep the
    probability that the model gives them, as in `evaluate_text`; generation excludes them.

    Args:
        model: The model; it is set to evaluation mode.
        tokenizer: Its tokenizer.
        text: A text, not empty.
        bos_id: Id of the token that began every training document.
        check: Called before each window; an exception that it raises ends the computation.

    Raises:
        RunConfigError: The text is empty.
        NotFiniteError: The weights or the logits are not finite.
    """
    ids = tokenizer.encode_ordinary(text)
    if not ids:
        raise RunConfigError("the text is empty", hint="give a text")
    start = start_id(tokenizer, bos_id)
    row = ids if start is None else [start, *ids]
    nats = _losses(model.eval(), row, check)
    bits = (
        nats[len(row) - len(ids) - 1 :] / math.log(2)
        if start is not None
        else np.append(np.nan, nats / math.log(2))
    )
    n_bytes = len(text.encode())
    if start is None:
        first = tokenizer.decode_bytes(ids[:1])
        n_bytes -= len(first) - (puts_space_first(tokenizer) and first.startswith(b" "))
    n_before = len(row) - len(ids)
    starts = [window_start(n_before + i, model.config.context_length) - n_before for i in range(len(ids))]
    return Surprisal(ids, bits, n_bytes, start, starts)


@torch.inference_mode()
def _losses(model: TransformerLM, row: list[int], check: Callable[[], None] | None) -> NDArray[np.float64]:
    """Return the loss of every id of `row` but the first, in nats: (len(row) − 1,)."""
    context = model.config.context_length
    losses = np.zeros(len(row) - 1)
    device = next(model.parameters()).device
    done = 0
    while done < len(losses):
        if check is not None:
            check()
        start = window_start(done + 1, context)
        end = min(len(losses), start + context)
        inputs = torch.tensor([row[start:end]], device=device)
        targets = torch.tensor([row[start + 1 : end + 1]], device=device)
        hidden = model.hidden(inputs)[:, done - start :]
        own = token_losses(model.logits(hidden), targets[:, done - start :])
        losses[done:end] = own[0].double().cpu().numpy()
        if not np.isfinite(losses[done:end]).all():
            raise not_finite(model)
        done = end
    return losses


@dataclass(frozen=True)
class SamplingStage:
    """A distribution of the next token."""

    name: str
    """The step of `SamplingParameters` that led to it; "model" for the first."""
    is_active: bool
    """Whether the step can change anything."""
    n_kept: int
    """Number of tokens with a probability above 0."""
    entropy_bits: float
    probabilities: NDArray[np.float64]
    """(vocab_size,)."""


def sampling_stages(
    logits: Tensor, parameters: SamplingParameters, history: Sequence[int] = ()
) -> list[SamplingStage]:
    """Return the distribution of the model, and after each step that `parameters` describe, in their order.

    The last one is what the next token is sampled from.

    Args:
        logits: (vocab_size,), from the model.
        parameters: How to sample.
        history: Ids so far, including the prompt.
    """
    applied = SamplingParameters()
    stages = [_stage("model", logits, applied, history, is_active=True)]
    for step in fields(SamplingParameters):
        value = getattr(parameters, step.name)
        applied = replace(applied, **{step.name: value})
        stages.append(_stage(step.name, logits, applied, history, is_active=value != step.default))
    return stages


def _stage(
    name: str, logits: Tensor, parameters: SamplingParameters, history: Sequence[int], *, is_active: bool
) -> SamplingStage:
    p = np.exp(next_log_probabilities(logits, parameters, history).double().numpy())
    kept = p[p > 0]
    return SamplingStage(name, is_active, len(kept), float(-(kept * np.log2(kept)).sum()), p)


_BLOCK = 64
"""Positions whose logits are held at a time."""


@dataclass(frozen=True)
class Trace:
    """The inner values of a model for one sequence of ids. All are on the CPU, in float32."""

    ids: list[int]
    attention: list[Tensor]
    """By layer, (n_heads, n_tokens, n_tokens): how much each token (row) attends to each token (column)."""
    residual_norms: Tensor
    """(n_layers + 1, n_tokens): Euclidean norm of the residual stream, after the embedding and after each block."""
    lens_ids: Tensor
    """(n_layers + 1, n_tokens, k): the most likely next tokens, if the output layer were applied there."""
    lens_probabilities: Tensor
    """Their probabilities, of the same shape (nostalgebraist 2020)."""


def trace(
    model: TransformerLM,
    ids: Sequence[int],
    *,
    n_best: int = 5,
    excluded_ids: Sequence[int] = (),
    check: Callable[[], None] | None = None,
) -> Trace:
    """Run the textbook kernels on `ids`, and keep what they compute.

    The model itself is not changed, so other threads may use it.

    Args:
        model: The model.
        ids: At least one id, and at most the context length.
        n_best: Number of tokens of the logit lens.
        excluded_ids: These ids have the probability 0 in the logit lens.
        check: Called before each layer; an exception that it raises ends the computation.

    Raises:
        RunConfigError: There are no ids, or more than the context length.
        NotFiniteError: The weights are not finite, or what they compute is not.
    """
    if not 1 <= len(ids) <= model.config.context_length:
        raise RunConfigError(
            f"{len(ids)} tokens cannot be traced", hint=f"give 1 to {model.config.context_length} tokens"
        )
    if not all(isinstance(layer.attn, MultiHeadSelfAttention) for layer in model.layers):
        raise RunConfigError(
            f"mixer {model.config.mixer!r} has no attention weights to show",
            hint="generate or evaluate instead",
        )
    own = _with_shared_weights(model).eval().use_kernels("scratch")
    attention: list[Tensor] = []
    residual: list[Tensor] = []

    def keep_input(_: Module, inputs: tuple[Any, ...]) -> None:
        if check is not None:
            check()
        if not residual:
            residual.append(inputs[0])

    def keep_output(_: Module, __: Any, output: Tensor) -> None:
        residual.append(output)

    def keep_weights(_: Module, inputs: tuple[Any, ...]) -> None:
        # (1, n_kv_heads, group · n_tokens, n_tokens): the heads of a group are one after the other.
        attention.append(inputs[0].reshape(model.config.num_heads, len(ids), len(ids)).float().cpu())

    for layer in own.layers:
        layer.register_forward_pre_hook(keep_input)
        layer.register_forward_hook(keep_output)
        # Dropout is the last step that sees the attention weights; in evaluation it returns them unchanged.
        cast("Any", layer).attn.dropout.register_forward_pre_hook(keep_weights)
    with torch.inference_mode():
        own.hidden(torch.tensor([list(ids)], device=next(model.parameters()).device))
        stream = torch.stack([x[0] for x in residual])  # (n_layers + 1, n_tokens, d_model)
        lens_ids, lens_probabilities = _logit_lens(own, stream, n_best, excluded_ids, check)
        if not all(bool(torch.isfinite(values).all()) for values in (stream, lens_probabilities)):
            raise not_finite(model)
        norms = stream.float().square().sum(-1).sqrt().cpu()
    return Trace(list(ids), attention, norms, lens_ids, lens_probabilities)


def _logit_lens(
    model: TransformerLM,
    stream: Tensor,
    n_best: int,
    excluded_ids: Sequence[int],
    check: Callable[[], None] | None,
) -> tuple[Tensor, Tensor]:
    n_best = min(n_best, model.config.vocab_size - len(excluded_ids))
    excluded = torch.tensor(excluded_ids, dtype=torch.int64, device=stream.device)
    found_ids: list[list[Tensor]] = []
    found: list[list[Tensor]] = []
    for x in stream:
        found_ids.append([])
        found.append([])
        for start in range(0, len(x), _BLOCK):
            rows = x[start : start + _BLOCK]
            if check is not None:
                check()
            normed: Tensor = model.ln_final(rows) if model.config.norm_position == "pre" else rows
            logits = model.logits(normed).float().index_fill(-1, excluded, -torch.inf)
            best = softmax(logits, -1).topk(n_best)
            found_ids[-1].append(best.indices.cpu())
            found[-1].append(best.values.cpu())
    return torch.stack([torch.cat(own) for own in found_ids]), torch.stack([torch.cat(own) for own in found])


def _with_shared_weights(model: TransformerLM) -> TransformerLM:
    """Return a model of its own modules, whose tensors are those of `model`."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
