"""Cross-entropy, perplexity and bits per byte."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.tensors import split, widened

if TYPE_CHECKING:
    from bytemill.tokenizer.tokenizer import Tokenizer

# Logits per block. On the CPU, 2¹⁸ (1 MB in float32) stay in the cache of a core; other devices need larger blocks.
_BLOCK_CPU, _BLOCK = 2**18, 2**26


def cross_entropy(logits: Tensor, targets: Tensor, z_loss: float = 0.0) -> Tensor:
    """Compute the mean of −log softmax(logits)[target], or with a z-loss the mean of that + z log² Z.

    Z = Σ exp(x) normalizes softmax. The loss does not change if a constant is added to all logits; the z-loss (de
    Brébisson & Vincent 2016; Chowdhery et al. 2022, PaLM) keeps log Z near 0, and thereby logits small.

    Args:
        logits: (..., vocab_size).
        targets: Ids (...).
        z_loss: Weight z.

    Returns:
        Mean loss in nats, a float32 scalar.
    """
    return mean_losses(logits, targets, z_loss)[0]


def mean_losses(logits: Tensor, targets: Tensor, z_loss: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return `cross_entropy(logits, targets, z_loss)`, and without gradient the part of it that is cross-entropy."""
    losses, log_z = token_losses_and_log_z(logits, targets)
    mean = losses.mean()
    return (mean + z_loss * log_z.square().mean() if z_loss else mean), mean.detach()


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute −log softmax(logits)[target] of each token.

    Args:
        logits: (..., vocab_size).
        targets: Ids (...).

    Returns:
        Losses in nats, (...) in float32.

    Raises:
        ValueError: The shapes do not match.
    """
    return token_losses_and_log_z(logits, targets)[0]


def token_losses_and_log_z(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Compute −log softmax(logits)[target] and log Z = log Σ exp(logits) of each token.

    With the maximum m the loss is log Σ exp(x − m) − (x[target] − m): log and exp of the target's own term cancel, and
    no exponential overflows.

    Args:
        logits: (..., vocab_size).
        targets: Ids (...).

    Returns:
        Losses in nats and log Z, both (...) in float32.

    Raises:
        ValueError: The shapes do not match.
    """
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} do not match targets of shape {tuple(targets.shape)}"
        )
    flat = logits.reshape(-1, logits.shape[-1])
    losses, log_z = cast("tuple[Tensor, Tensor]", _TokenLosses.apply(flat, targets.reshape(-1).long()))  # pyright: ignore[reportUnknownMemberType]
    return losses.view(targets.shape), log_z.view(targets.shape)


def perplexity(mean_loss: float) -> float:
    """Compute exp(mean loss per token), the size of an equally uncertain uniform choice; ∞ on overflow.

    >>> round(perplexity(math.log(50)), 9)
    50.0
    """
    try:
        return math.exp(mean_loss)
    except OverflowError:
        return math.inf


def bits_per_byte(total_nats: float, n_bytes: int) -> float:
    """Compute the bits that a model needs per byte of text; unlike perplexity, comparable between tokenizers.

    Args:
        total_nats: Sum of the losses.
        n_bytes: Number of bytes that the tokens represent.

    Raises:
        ValueError: There are no bytes.

    >>> bits_per_byte(16 * math.log(2), 4)
    4.0
    """
    if n_bytes < 1:
        raise ValueError("no bytes to divide by: there are no tokens, or only special tokens")
    return total_nats / math.log(2) / n_bytes


@dataclass(frozen=True)
class TokenBytes:
    """How many bytes of text each token stands for."""

    counts: Tensor
    """(n_vocab,) of int64; 0 for special tokens."""
    begins: Tensor | None = None
    """(n_vocab,) of int64; 1 for special tokens after which a new text begins. None if no space is put before texts."""
    prefixed: Tensor | None = None
    """(n_vocab,) of int64; 1 for tokens that begin with a space, which is not the text's own if a text begins there."""

    def of(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the bytes of `targets`, each of which follows the token of `inputs` at its place."""
        n_bytes = self.counts[targets.long()]
        if self.begins is None or self.prefixed is None:
            return n_bytes
        return n_bytes - self.begins[inputs.long()] * self.prefixed[targets.long()]

    def padded(self, n_ids: int, device: torch.device) -> TokenBytes:
        """Return the same on a device, for a vocabulary of at least `n_ids`, whose further ids have no bytes."""

        def moved(values: Tensor) -> Tensor:
            return torch.cat([values, values.new_zeros(max(0, n_ids - len(values)))]).to(device)

        if self.begins is None or self.prefixed is None:
            return TokenBytes(moved(self.counts))
        return TokenBytes(moved(self.counts), moved(self.begins), moved(self.prefixed))


def token_byte_counts(tokenizer: Tokenizer) -> TokenBytes:
    """Return the number of bytes of text that each token of a tokenizer stands for."""
    special = {i: token for token, i in tokenizer.special_tokens.items()}
    counts = torch.zeros(tokenizer.n_vocab, dtype=torch.int64)
    prefixed = torch.zeros_like(counts)
    for token, token_bytes in tokenizer.vocab.items():
        if token not in special:
            counts[token], prefixed[token] = len(token_bytes), token_bytes.startswith(b" ")
    if not puts_space_first(tokenizer):
        return TokenBytes(counts)
    begins = torch.zeros_like(counts)
    for token_id, token in special.items():
        # Symbols that are searched in the normalized text, and what stands for unknown characters, are inside a text.
        flags = tokenizer.token_flags.get(token)
        is_inside = flags is not None and flags.normalized
        is_unknown = tokenizer.characters is not None and tokenizer.characters.unk_id == token_id
        begins[token_id] = not is_inside and not is_unknown
    return TokenBytes(counts, begins, prefixed)


def puts_space_first(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer puts a space before texts, as SentencePiece does (`add_dummy_prefix`)."""
    if tokenizer.engine != "core":
        return tokenizer.decode_strip != "none"
    return any(
        name == "Metaspace" or (name, *rest) == ("Prepend", " ") for name, *rest in tokenizer.core.normalizer
    )


def text_nats_and_bytes(
    losses: Tensor, inputs: Tensor, targets: Tensor, byte_counts: TokenBytes
) -> tuple[float, int]:
    """Return the arguments of `bits_per_byte`; special tokens count neither in nats nor in bytes.

    Args:
        losses: Losses in nats; summed in float64.
        inputs: Ids before the targets, of the same shape.
        targets: Ids, of the same shape.
        byte_counts: Result of `token_byte_counts`, on the device of the ids.
    """
    is_special = byte_counts.counts[targets.long()] == 0
    nats = losses.detach().double().masked_fill(is_special, 0.0).sum()
    return float(nats), int(byte_counts.of(inputs, targets).sum())


def _maximum_and_total(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maximum m and Σ exp(x − m) of each row, (n_rows, 1), in float32 or wider."""
    wide = widened(x)
    maximum = wide.amax(-1, keepdim=True)
    return maximum, (wide - maximum).exp_().sum(-1, keepdim=True)


def rows_per_block(logits: Tensor) -> int:
    """Return the number of rows of logits to process at once."""
    block = _BLOCK_CPU if logits.device.type == "cpu" else _BLOCK
    return max(1, block // logits.shape[-1])


class _TokenLosses(torch.autograd.Function):
    """Cross-entropy that saves the logits and two numbers per row; the backward pass computes softmax again."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        blocks = [_maximum_and_total(block) for block in split(logits, rows_per_block(logits))]
        maximum, total = (torch.cat(numbers) for numbers in zip(*blocks, strict=True))
        chosen = logits.gather(-1, targets[:, None])
        ctx.save_for_backward(logits, targets, maximum, total)
        # Subtract first: added to a logit of 10⁴, the logarithm would lose 10 of its 24 bits.
        log_total = total.log()
        return (maximum - chosen).add_(log_total).squeeze(-1), (maximum + log_total).squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, gradient_z: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        logits, targets, maximum, total = ctx.saved_tensors
        result = torch.empty_like(logits)
        n_rows = rows_per_block(logits)
        gradients = gradient[:, None], (gradient + gradient_z)[:, None]
        for x, target, most, sum_, g, g_softmax, out in zip(
            *(split(t, n_rows) for t in (logits, targets, maximum, total, *gradients, result)),
            strict=True,
        ):
            # d loss / d x = softmax(x) − 1 at the target; d log Z / d x = softmax(x)
            share = (x - most).exp_().mul_(g_softmax / sum_)
            out.copy_(share.scatter_add_(-1, target[:, None], -g))
        return result, None
