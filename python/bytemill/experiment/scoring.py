"""Scores that can be compared between tokenizers: every byte once, none for free, with a context measured in bytes.

A document is encoded as a whole and scored in windows. A window scores the tokens that start in a range of bytes, after
at least `context_bytes` bytes of context; the next window scores the range after it. The first window starts with
`<|endoftext|>`, so that the first token is predicted too. Ranges and contexts are the same bytes for every tokenizer,
except where the context of a model, which is a number of tokens, holds fewer. The end of a document is not predicted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from bytemill.lm.device import autocast
from bytemill.lm.loss import token_losses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from bytemill.experiment.documents import StoredText
    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Context:
    """Bytes of text that a model saw before the bytes that it was scored on."""

    least: int | None
    """Before any byte, except where the document starts later; None if all documents were seen from their start."""
    mean: float
    """Over all bytes."""


@dataclass(frozen=True)
class DocumentScores:
    """Losses of a text."""

    bits: NDArray[np.float64]
    """Bits of each document."""
    unigram_bits: NDArray[np.float64]
    """Bits of each document under the unigram distribution."""
    n_bytes: NDArray[np.int64]
    """Bytes of each document."""
    n_tokens: int
    """Tokens of all documents."""
    context: Context

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of all documents together."""
        return float(self.bits.sum() / self.n_bytes.sum())

    @property
    def unigram_bits_per_byte(self) -> float:
        """Bits per byte of all documents together under the unigram distribution."""
        return float(self.unigram_bits.sum() / self.n_bytes.sum())


@dataclass(frozen=True)
class Window:
    """A range of the ids of a document, the first of which is `<|endoftext|>`: what a model sees and predicts at once.

    The model reads the ids from `begin` to `stop` − 2, and is scored on those from `first` to `stop` − 1.
    """

    begin: int
    first: int
    stop: int


def windows(starts: NDArray[np.int64], context_bytes: int, context_length: int) -> Iterator[Window]:
    """Divide a document into windows that score every token once.

    Ranges have `context_bytes` bytes (the first one two times as many), or fewer where the context of the model ends.

    Args:
        starts: Offset in bytes of each id, the first of which is `<|endoftext|>` with the offset 0.
        context_bytes: Bytes of context before a range, if they are at most half of the model's context.
        context_length: Context of the model, in tokens.

    >>> list(windows(np.array([0, 0, 1, 2, 3, 4, 5]), 2, 4))
    [Window(begin=0, first=1, stop=5), Window(begin=3, first=5, stop=7)]
    """
    first, end = 1, 2 * context_bytes
    while first < len(starts):
        start = int(starts[first])
        end = max(end, (start // context_bytes + 1) * context_bytes)
        wanted = int(np.searchsorted(starts, start - context_bytes, "right")) - 1
        wanted = int(np.searchsorted(starts, int(starts[max(wanted, 0)])))
        begin = max(wanted, first - max(1, context_length // 2), 0)
        stop = min(int(np.searchsorted(starts, end)), begin + context_length + 1)
        yield Window(begin, first, stop)
        first = stop


def common_context(texts: Iterable[StoredText], tokenizers: Iterable[Tokenizer], context_length: int) -> int:
    """Return the most bytes of context that half of the models' context holds everywhere, for every tokenizer.

    Args:
        texts: The texts that are scored.
        tokenizers: The tokenizers.
        context_length: The shortest context of the models, in tokens.
    """
    half = max(1, context_length // 2)
    least, longest = math.inf, 1
    for text in texts:
        for document in text.documents():
            longest = max(longest, len(document))
            for tokenizer in tokenizers:
                _, starts = _encoded(tokenizer, document)
                if len(starts) > half + 1:
                    least = min(least, int((starts[half + 1 :] - starts[1:-half]).min()))
    return max(1, min(longest, int(least) if least < math.inf else longest))


@torch.inference_mode()
def score_documents(
    model: TransformerLM,
    tokenizer: Tokenizer,
    text: StoredText,
    context_bytes: int,
    unigram_bits: NDArray[np.float64],
    *,
    batch_size: int = 16,
    dtype: torch.dtype = torch.float32,
) -> DocumentScores:
    """Score a model on every byte of a text, each once.

    Args:
        model: The model; it is set to evaluation mode.
        tokenizer: Its tokenizer.
        text: The text.
        context_bytes: Bytes of context before every byte, as far as the context of the model allows.
        unigram_bits: Bits of each id under the unigram distribution.
        batch_size: Windows per batch.
        dtype: Type of matrix products.
    """
    model.eval()
    numbers: list[int] = []
    rows: list[tuple[NDArray[np.int64], int]] = []
    n_bytes: list[int] = []
    unigram: list[float] = []
    n_tokens, least, total = 0, math.inf, 0.0
    for number, document in enumerate(text.documents()):
        ids, starts = _encoded(tokenizer, document)
        ends = np.append(starts[1:], len(document))
        for window in windows(starts, context_bytes, model.config.context_length):
            numbers.append(number)
            rows.append((ids[window.begin : window.stop], window.stop - window.first))
            seen = starts[window.first : window.stop] - starts[window.begin]
            total += float((seen * (ends - starts)[window.first : window.stop]).sum())
            least = min(least, int(seen[0]) if window.begin else math.inf)
        n_bytes.append(len(document))
        n_tokens += len(ids) - 1
        unigram.append(float(unigram_bits[ids[1:]].sum()))
    bits = np.zeros(len(n_bytes))
    order = sorted(range(len(rows)), key=lambda index: len(rows[index][0]))  # little padding
    for first in range(0, len(order), batch_size):
        batch = order[first : first + batch_size]
        nats = _nats(model, [rows[index] for index in batch], dtype)
        for index, own in zip(batch, nats, strict=True):
            bits[numbers[index]] += own / math.log(2)
    context = Context(None if least == math.inf else int(least), total / sum(n_bytes))
    return DocumentScores(bits, np.array(unigram), np.array(n_bytes), n_tokens, context)


def _encoded(tokenizer: Tokenizer, document: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ids of a document after `<|endoftext|>`, and the offset of each in bytes."""
    encoded = tokenizer.encode_with_offsets(document.decode(), allowed_special="none")
    ids = np.array([tokenizer.eot_token, *encoded.ids], np.int64)
    starts = np.append(0, encoded.byte_offsets[:, 0]) if len(encoded.ids) else np.zeros(1, np.int64)
    return ids, np.maximum.accumulate(starts)  # a normalizer may give equal offsets


def _nats(
    model: TransformerLM, rows: Sequence[tuple[NDArray[np.int64], int]], dtype: torch.dtype
) -> list[float]:
    """Return the loss of the last tokens of each row, whose number is beside the row."""
    device = next(model.parameters()).device
    length = max(len(ids) for ids, _ in rows)
    ids = torch.zeros((len(rows), length), dtype=torch.int64)
    is_scored = torch.zeros((len(rows), length - 1), dtype=torch.bool)
    for row, (own, n_scored) in enumerate(rows):
        ids[row, : len(own)] = torch.tensor(own)
        is_scored[row, len(own) - 1 - n_scored : len(own) - 1] = True
    ids, is_scored = ids.to(device), is_scored.to(device)
    with autocast(device, dtype):
        logits = model.logits(model.hidden(ids[:, :-1])[is_scored])
    losses = token_losses(logits, ids[:, 1:][is_scored]).cpu().double().numpy()
    ends = np.cumsum([n_scored for _, n_scored in rows])
    return [float(own.sum()) for own in np.split(losses, ends[:-1])]
