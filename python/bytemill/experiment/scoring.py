"""Scores that can be compared between tokenizers: the same bytes, in pieces of the same bytes, none for free.

Documents are divided into pieces of a fixed number of bytes. Each piece is scored by itself, after `<|endoftext|>`, so
that its first token is predicted too, and that no model sees more text before a byte than another, however long its
tokens are. The end of a document is not predicted. The loss of a document is the sum over its pieces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bytemill.errors import RunConfigError
from bytemill.experiment.documents import segments
from bytemill.lm.device import autocast
from bytemill.lm.loss import token_losses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bytemill.experiment.documents import StoredText
    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer

_SHARES = (4.0, 3.5, 3.0, 2.5, 2.0, 1.5, 1.0)
"""Bytes per position of the context that pieces may have; one always fits, since no token is empty."""


@dataclass(frozen=True)
class DocumentScores:
    """Losses of a text."""

    bits: NDArray[np.float64]
    """Bits of each document."""
    n_bytes: NDArray[np.int64]
    """Bytes of each document."""

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of all documents together."""
        return float(self.bits.sum() / self.n_bytes.sum())


def segment_length(
    texts: Sequence[StoredText], tokenizers: dict[str, Tokenizer], context_length: int, chosen: int | None
) -> int:
    """Return the number of bytes of a piece: `chosen`, or the longest of a few that fits the context everywhere.

    Raises:
        RunConfigError: A piece of `chosen` bytes does not fit.
    """
    sizes = [chosen] if chosen is not None else [int(share * context_length) for share in _SHARES]
    name, most = "", 0
    for size in sizes:
        name, most = "", 0
        for own, tokenizer in tokenizers.items():
            longest = max(_longest(text, tokenizer, size) for text in texts)
            name, most = (own, longest) if longest > most else (name, most)
        if most <= context_length:
            return size
    raise RunConfigError(
        f"text.segment_bytes is {chosen}, but {name} divides a piece into {most} tokens, and the context is "
        f"{context_length}",
        hint="lower text.segment_bytes, or leave it out",
    )


def _longest(text: StoredText, tokenizer: Tokenizer, size: int) -> int:
    pieces = [piece for document in text.documents() for piece in segments(document, size)]
    return max(map(len, tokenizer.encode_ordinary_batch(pieces)))


@torch.inference_mode()
def score_documents(
    model: TransformerLM,
    tokenizer: Tokenizer,
    text: StoredText,
    segment_bytes: int,
    *,
    batch_size: int = 16,
    dtype: torch.dtype = torch.float32,
) -> DocumentScores:
    """Score a model on every byte of a text, each once.

    Args:
        model: The model; it is set to evaluation mode.
        tokenizer: Its tokenizer.
        text: The text.
        segment_bytes: Bytes of a piece.
        batch_size: Pieces per batch.
        dtype: Type of matrix products.
    """
    model.eval()
    numbers: list[int] = []
    pieces: list[str] = []
    n_bytes: list[int] = []
    for number, document in enumerate(text.documents()):
        own = list(segments(document, segment_bytes))
        numbers += [number] * len(own)
        pieces += own
        n_bytes.append(len(document))
    rows = tokenizer.encode_ordinary_batch(pieces)
    bits = np.zeros(len(n_bytes))
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))  # little padding
    for first in range(0, len(order), batch_size):
        batch = order[first : first + batch_size]
        nats = _nats(model, [rows[index] for index in batch], tokenizer.eot_token, dtype)
        for index, loss in zip(batch, nats, strict=True):
            bits[numbers[index]] += loss / math.log(2)
    return DocumentScores(bits, np.array(n_bytes))


def _nats(model: TransformerLM, rows: Sequence[Sequence[int]], start: int, dtype: torch.dtype) -> list[float]:
    """Return the loss of all tokens of each row after `start`."""
    device = next(model.parameters()).device
    length = max(map(len, rows))
    ids = torch.full((len(rows), length + 1), start)
    for row, own in enumerate(rows):
        ids[row, 1 : len(own) + 1] = torch.tensor(own)
    ids = ids.to(device)
    with autocast(device, dtype):
        logits = model(ids[:, :-1])
    losses = token_losses(logits, ids[:, 1:]).double()
    is_token = (
        torch.arange(length, device=device) < torch.tensor([len(own) for own in rows], device=device)[:, None]
    )
    sums: Any = (losses * is_token).sum(1)
    return sums.tolist()
