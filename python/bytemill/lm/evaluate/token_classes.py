"""Loss by class of token: where in the text a model is uncertain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from bytemill.tokenizer.tokenizer import Tokenizer

CLASSES = (
    "word after a space",
    "word without a space",
    "digits",
    "punctuation",
    "spaces",
    "line breaks",
    "part of a character",
    "special",
)
"""A word has a letter, and begins with a space or not; the second class holds both the starts of lines and the later
tokens of words. Digits and punctuation may follow a space. Line breaks may be joined by other white space."""


def token_class(token: bytes) -> str:
    """Return the class of a token that is not special.

    >>> [token_class(token) for token in (b" the", b"ing", b" 12", b"\\xe2\\x80")]
    ['word after a space', 'word without a space', 'digits', 'part of a character']
    >>> [token_class(token) for token in (b"),", b"  ", b" \\n")]
    ['punctuation', 'spaces', 'line breaks']
    """
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "part of a character"
    body = text.strip()
    if not body:
        return "line breaks" if "\n" in text or "\r" in text else "spaces"
    if any(character.isalpha() for character in body):
        return "word after a space" if text[0] == " " else "word without a space"
    return "digits" if any(character.isdigit() for character in body) else "punctuation"


class LossByClass:
    """Sums of losses by predicted token, and their means by class of token and by frequency.

    Args:
        tokenizer: The tokenizer.
        n_ids: Ids of the model, which may exceed those of the tokenizer.
        device: Device of the losses.
    """

    def __init__(self, tokenizer: Tokenizer, n_ids: int, device: torch.device | str = "cpu") -> None:
        classes = np.full(n_ids, CLASSES.index("special"))
        for token, token_bytes in tokenizer.vocab.items():
            if not tokenizer.is_special_token(token):
                classes[token] = CLASSES.index(token_class(token_bytes))
        self._classes = classes
        self._device = device
        self._sums = np.zeros((3, n_ids))

    def add(self, losses: Tensor, targets: Tensor, n_bytes: Tensor) -> None:
        """Add the losses of tokens.

        Args:
            losses: Losses in nats.
            targets: Ids, of the same shape.
            n_bytes: Bytes of each token.
        """
        values = torch.stack([torch.ones_like(losses), losses, n_bytes]).double().flatten(1)
        sums = torch.zeros(self._sums.shape, dtype=torch.float64, device=self._device)
        self._sums += sums.index_add_(1, targets.long().flatten(), values).cpu().numpy()

    @property
    def sums(self) -> list[float]:
        """Uses of each id, then nats, then bytes; can be set, to those of several processes."""
        return self._sums.flatten().tolist()

    @sums.setter
    def sums(self, sums: list[float]) -> None:
        self._sums = np.array(sums).reshape(self._sums.shape)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return by class that occurs: tokens, bytes, mean loss (nats), bits per byte, shares of tokens and of loss."""
        rows = self._rows(self._classes, len(CLASSES))
        return {name: row for name, row in zip(CLASSES, rows, strict=True) if row["n_tokens"]}

    def by_frequency(self) -> list[dict[str, Any]]:
        """Return the values of `to_dict` for each tenth of the predicted tokens, the most frequent ids first.

        Frequency is that in the evaluated text. An id belongs to the tenth that holds the middle of its uses, so that
        one of more than a tenth leaves the next ones empty. Special tokens are left out. `n_ids` is the number of ids.
        """
        uses = np.where(self._classes == CLASSES.index("special"), 0, self._sums[0])
        order = np.argsort(-uses, kind="stable")
        middles = uses[order].cumsum() - uses[order] / 2
        tenths = np.full(len(uses), 10)  # the last row is dropped
        if uses.any():
            in_order = np.minimum(9, 10 * middles / uses.sum()).astype(np.int64)
            tenths[order] = np.where(uses[order] > 0, in_order, 10)
        counts = np.bincount(tenths, minlength=11).tolist()
        rows = self._rows(tenths, 11)[:10]
        return [{"n_ids": n, **row} for n, row in zip(counts, rows, strict=False)]

    def _rows(self, groups: NDArray[np.int64], n_groups: int) -> list[dict[str, Any]]:
        sums = [np.bincount(groups, weights, n_groups).tolist() for weights in self._sums]
        n_all, total = self._sums[0].sum(), self._sums[1].sum()
        return [
            {
                "n_tokens": int(n_tokens),
                "n_bytes": int(n_bytes),
                "loss": nats / n_tokens if n_tokens else None,
                "bits_per_byte": nats / math.log(2) / n_bytes if n_bytes else None,
                "token_share": float(n_tokens / n_all) if n_all else None,
                "loss_share": float(nats / total) if total else None,
            }
            for n_tokens, nats, n_bytes in zip(*sums, strict=True)
        ]
