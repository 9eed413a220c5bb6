"""Surprisal: how many bits each token of a text costs a model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from bytemill.errors import RunConfigError
from bytemill.lm.generation.context_window import window_start
from bytemill.lm.generation.text_generation import start_id
from bytemill.lm.loss import puts_space_first, token_losses
from bytemill.lm.tensors import not_finite

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

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
    see `context_window.window_start`. Special tokens in the text are treated as text. Ids without a token keep the
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
