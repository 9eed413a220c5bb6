"""Prompts with responses: their ids, the mask of the response, and its log-probabilities.

Functions take models and tokenizers of bytemill and of transformers alike. Shapes: a batch holds B sequences of T ids
each, prompt and response, padded on the right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from bytemill.errors import TokenizerError
from bytemill.lm.batches import key_of, permuted
from bytemill.lm.kernels.common_order import common_order
from bytemill.lm.loss import token_losses
from bytemill.lm.tuning.rows import read_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from torch import Tensor

ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{prompt}\n\n### Response:\n{response}"
)
"""Template of Stanford Alpaca (Taori et al. 2023) for an instruction without further input."""


class ResponseBatch(NamedTuple):
    """Prompts with responses, ready for a model; each field has the shape (B, T − 1)."""

    input_ids: Tensor
    """Ids without the last one of the longest sequence."""
    labels: Tensor
    """Ids without the first one: `labels[b, t]` follows `input_ids[b, t]`."""
    response_mask: Tensor
    """True where the label belongs to the response."""


class ResponseLogProbs(NamedTuple):
    """Log-probabilities of labels; fields have their shape."""

    log_probs: Tensor
    """log p(label | ids before it)."""
    token_entropy: Tensor | None
    """Entropy of the model's distribution, in nats; None unless asked for."""


def batch_responses(
    prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], *, padding_id: int = 0
) -> ResponseBatch:
    """Join ids of prompts and responses, and pad them to the longest.

    Args:
        prompts: Ids of each prompt.
        responses: Ids of each response.
        padding_id: Id after the end of shorter sequences; it is never part of a response.

    Raises:
        ValueError: There is no sequence, or the numbers of prompts and responses differ.
    """
    rows = [[*prompt, *response] for prompt, response in zip(prompts, responses, strict=True)]
    if not rows:
        raise ValueError("there is no prompt")
    ids = np.full((len(rows), max(2, *map(len, rows))), padding_id, dtype=np.int64)
    mask = np.zeros(ids.shape, dtype=bool)
    for number, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        ids[number, : len(row)] = row
        mask[number, len(prompt) : len(row)] = True
    return ResponseBatch(torch.tensor(ids[:, :-1]), torch.tensor(ids[:, 1:]), torch.tensor(mask[:, 1:]))


def encode_responses(prompts: Sequence[str], responses: Sequence[str], tokenizer: Any) -> ResponseBatch:
    """Encode prompts and responses, each for itself, and join them; no token crosses from prompt to response.

    Args:
        prompts: Texts.
        responses: Text of the response to each.
        tokenizer: Tokenizer of bytemill or transformers; its padding token fills shorter sequences.
    """
    prompt_ids, response_ids = ([ids_of(text, tokenizer) for text in texts] for texts in (prompts, responses))
    return batch_responses(prompt_ids, response_ids, padding_id=_padding_id(tokenizer))


def ids_of(text: str, tokenizer: Any, *, add_special_tokens: bool = False) -> list[int]:
    """Encode a text, by default without the tokens that a tokenizer puts around texts."""
    return list(tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"])


def _padding_id(tokenizer: Any) -> int:
    found = (getattr(tokenizer, name, None) for name in ("pad_token_id", "eos_token_id"))
    return next((number for number in found if number is not None), 0)


def logits_of(model: Any, input_ids: Tensor) -> Tensor:
    """Return the logits (B, T, vocab_size) of a model of bytemill or transformers."""
    with common_order(False):  # a reference in evaluation mode computes as the model in training does
        output = model(input_ids)
    return output.logits if hasattr(output, "logits") else output


def response_log_probs(
    model: Any, input_ids: Tensor, labels: Tensor, *, with_entropy: bool = False
) -> ResponseLogProbs:
    """Compute the log-probability of each label, and the entropy of the distribution that it comes from.

    Args:
        model: Model; called once.
        input_ids: (B, T).
        labels: (B, T).
        with_entropy: Compute the entropy too, without gradient.
    """
    logits = logits_of(model, input_ids)
    entropy = token_entropy(logits.detach()) if with_entropy else None
    return ResponseLogProbs(-token_losses(logits, labels), entropy)


def token_entropy(logits: Tensor) -> Tensor:
    """Compute H = log Z − Σ p x of softmax(x) for logits x (..., vocab_size) -> (...), in nats."""
    x = logits - logits.amax(-1, keepdim=True)
    exponentials = x.exp()
    total = exponentials.sum(-1)
    return total.log() - (exponentials * x).sum(-1) / total


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None, *, divisor: float = 1.0) -> Tensor:
    """Return the sum of `values` where `mask` is set, over `dim` or all dimensions, divided by `divisor`."""
    return values.masked_fill(~mask.bool(), 0.0).sum(dim) / divisor


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Return the mean of `values` where `mask` is set, over `dim` or all dimensions; nan if it is nowhere set."""
    return masked_sum(values, mask, dim) / mask.sum(dim)


class PackedExamples(torch.utils.data.Dataset[dict[str, "torch.Tensor"]]):
    """Windows of constant length over prompts with responses, joined in one stream.

    Every id is a target, also those of prompts. Shards with a mask (`bytemill data encode --conversations`) are the
    better way to tune; this one is that of Alpaca's time.

    Args:
        tokenizer: Tokenizer of bytemill or transformers, with an end token.
        path: JSON lines with `prompt` and `response`.
        length: Ids per window; a shorter rest at the end is left out.
        shuffle: Shuffle the examples before joining them.
        template: Text of an example, with `{prompt}` and `{response}`.
        seed: Seed of the order.

    Raises:
        CorpusError: A line has no prompt or response.
        TokenizerError: The tokenizer has no end token.
    """

    def __init__(
        self,
        tokenizer: Any,
        path: str | os.PathLike[str],
        length: int,
        *,
        shuffle: bool = False,
        template: str = ALPACA,
        seed: int = 0,
    ) -> None:
        end = tokenizer.eos_token_id
        if end is None:
            raise TokenizerError(
                "the tokenizer has no end token", hint="set eos_token in its tokenizer_config.json"
            )
        examples = read_rows(path, ("prompt", "response"))
        if shuffle and examples:
            order = permuted(np.arange(len(examples)), len(examples), key_of(seed))
            examples = [examples[number] for number in map(int, order)]
        ids: list[int] = []
        for example in examples:
            text = template.format(prompt=example["prompt"], response=example["response"])
            ids += [*ids_of(text, tokenizer, add_special_tokens=True), end]
        self.length = length
        self._ids = torch.tensor(ids)

    def __len__(self) -> int:
        return max(0, len(self._ids) - 1) // self.length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Return `input_ids` and `labels`, int64 of shape (length,)."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = index * self.length
        window = self._ids[start : start + self.length + 1]
        return {"input_ids": window[:-1], "labels": window[1:]}
