"""How wrong a model is: cross-entropy, perplexity, bits per byte."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.tensors import split, widened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bytemill.tokenizer.tokenizer import Tokenizer

# Numbers of a block of logits. On the CPU 2¹⁸ (1 MB in float32) stay in a core's cache between the steps; on other
# devices 2²⁶ are enough to keep them busy.
_BLOCK_CPU, _BLOCK = 2**18, 2**26


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean of −log softmax(logits)[target]: (..., vocab_size) and (...) of ids -> one float32 number, in nats."""
    return token_losses(logits, targets).mean()


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """−log softmax(logits)[target] of each token: (..., vocab_size) and (...) of ids -> (...) in float32, in nats.

    With the maximum m this is log Σ exp(x − m) − (x[target] − m): log and exp of the target's own term cancel, and no
    exponential overflows.

    Raises:
        ValueError: the shapes do not fit.
    """
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"logits of the shape {tuple(logits.shape)} do not fit targets of the shape {tuple(targets.shape)}"
        )
    flat = logits.reshape(-1, logits.shape[-1])
    losses: Tensor = _TokenLosses.apply(flat, targets.reshape(-1).long())  # pyright: ignore[reportUnknownMemberType, reportAssignmentType]
    return losses.view(targets.shape)


def perplexity(mean_loss: float) -> float:
    """exp of the mean loss per token: as unsure as a fair choice among so many tokens. ∞ where that overflows.

    >>> round(perplexity(math.log(50)), 9)
    50.0
    """
    try:
        return math.exp(mean_loss)
    except OverflowError:
        return math.inf


def bits_per_byte(total_nats: float, n_bytes: int) -> float:
    """Bits that the model needs for a byte of text: the sum of the losses over the bytes that the tokens stand for.

    Unlike perplexity it can be compared between tokenizers.

    >>> bits_per_byte(16 * math.log(2), 4)
    4.0

    Raises:
        ValueError: there are no bytes.
    """
    if n_bytes < 1:
        raise ValueError("bits per byte of no bytes: every token scored is a special token, or there is none")
    return total_nats / math.log(2) / n_bytes


def token_byte_counts(tokenizer: Tokenizer) -> Tensor:
    """(n_vocab,) of int64: how many bytes each token stands for; 0 for special tokens, which stand for no text."""
    counts = torch.zeros(tokenizer.n_vocab, dtype=torch.int64)
    for token, count in _byte_counts(tokenizer):
        counts[token] = count
    return counts


def text_nats_and_bytes(losses: Tensor, targets: Tensor, byte_counts: Tensor) -> tuple[float, int]:
    """What `bits_per_byte` takes, for the tokens scored: `losses` and `targets` of one shape, and `token_byte_counts`.

    Special tokens count neither in nats nor in bytes: what is measured is text. The sum is taken in float64.
    """
    counts = byte_counts.to(targets.device)[targets.long()]
    nats = losses.detach().double().masked_fill(counts == 0, 0.0).sum()
    return float(nats), int(counts.sum())


def _greatest_and_total(x: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum m and Σ exp(x − m) of each row, (n_rows, 1); in float32 at least."""
    wide = widened(x)
    greatest = wide.amax(-1, keepdim=True)
    return greatest, (wide - greatest).exp_().sum(-1, keepdim=True)


def rows_per_block(logits: Tensor) -> int:
    """How many rows of logits to treat at once."""
    block = _BLOCK_CPU if logits.device.type == "cpu" else _BLOCK
    return max(1, block // logits.shape[-1])


class _TokenLosses(torch.autograd.Function):
    """Keeps the logits and one number a row; softmax is made anew for the backward pass, block by block."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        parts = [_greatest_and_total(block) for block in split(logits, rows_per_block(logits))]
        greatest, total = (torch.cat(numbers) for numbers in zip(*parts, strict=True))
        chosen = logits.gather(-1, targets[:, None])
        ctx.save_for_backward(logits, targets, greatest, total)
        # The maximum first: beside logits of 10⁴ the logarithm would lose 10 of its 24 bits.
        return (greatest - chosen).add_(total.log()).squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        logits, targets, greatest, total = ctx.saved_tensors
        result = torch.empty_like(logits)
        n_rows = rows_per_block(logits)
        for x, target, most, sum_, g, out in zip(
            *(split(t, n_rows) for t in (logits, targets, greatest, total, gradient[:, None], result)),
            strict=True,
        ):
            # d loss / d x = softmax(x) − 1 at the target
            share = (x - most).exp_().mul_(g / sum_)
            out.copy_(share.scatter_add_(-1, target[:, None], -g))
        return result, None


def _byte_counts(tokenizer: Tokenizer) -> Iterator[tuple[int, int]]:
    for token, spelling in tokenizer.vocab.items():
        if not tokenizer.is_special_token(token):
            yield token, len(spelling)
