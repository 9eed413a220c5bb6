"""Bits per byte of a model before and after it was moved to another tokenizer, on the same parts of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bytemill.errors import CorpusError
from bytemill.lm.evaluate import evaluate_text
from bytemill.lm.generation.text_generation import start_id
from bytemill.lm.loss import token_byte_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bytemill.lm.training.saved_model import TrainedModel

N_PARTS = 20
"""Parts of a text whose scores give the interval."""


@dataclass(frozen=True)
class PartScores:
    """Scores of a model on the parts of a text."""

    bits_per_byte: list[float]
    n_tokens: int
    n_bytes: int

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text per predicted token."""
        return self.n_bytes / self.n_tokens


def parts_of(texts: Sequence[str], n_parts: int = N_PARTS) -> list[str]:
    """Divide texts into parts of about the same size, at line ends where there are any.

    Raises:
        CorpusError: There is no text.

    >>> parts_of(["one\\ntwo\\n", "three"], 3)
    ['one\\n', 'two\\n', 'three']
    """
    pieces = [piece for text in texts for piece in _pieces(text, max(1, sum(map(len, texts)) // n_parts))]
    if not pieces:
        raise CorpusError("the texts to score are empty", hint="name a file with text")
    return pieces


def _pieces(text: str, size: int) -> list[str]:
    pieces: list[str] = []
    start = 0
    while start < len(text):
        end = text.find("\n", start + size - 1) + 1
        if not 0 < end < start + 4 * size:
            end = start + size
        if len(text) - end < size // 2:
            end = len(text)
        pieces.append(text[start:end])
        start = end
    return pieces


def score_parts(
    trained: TrainedModel, parts: Sequence[str], *, progress: Callable[[int, int], None] | None = None
) -> PartScores:
    """Score a model on each part alone, after the token that begins texts.

    Args:
        trained: The model with its tokenizer.
        parts: See `parts_of`.
        progress: Called with the number of parts that are scored, and of all.

    Raises:
        NotFiniteError: The weights or the logits are not finite.
    """
    tokenizer = trained.tokenizer
    counts = token_byte_counts(tokenizer)
    start = start_id(tokenizer, trained.bos_id)
    bits: list[float] = []
    n_tokens = n_bytes = 0
    for number, part in enumerate(parts):
        ids = tokenizer.encode_to_numpy(part)
        if start is not None:
            ids = np.concatenate([np.array([start], dtype=ids.dtype), ids])
        if len(ids) < 2:
            continue
        score = evaluate_text(trained.model, ids, counts)
        bits.append(score.bits_per_byte)
        n_tokens += score.n_tokens
        n_bytes += score.n_bytes
        if progress is not None:
            progress(number + 1, len(parts))
    return PartScores(bits, n_tokens, n_bytes)
