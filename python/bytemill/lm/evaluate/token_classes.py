"""Loss by class of token: where in the text a model is uncertain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch

if TYPE_CHECKING:
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
    """Sums of losses by class of the predicted token.

    Args:
        tokenizer: The tokenizer.
        n_ids: Ids of the model, which may exceed those of the tokenizer.
        device: Device of the losses.
    """

    def __init__(self, tokenizer: Tokenizer, n_ids: int, device: torch.device | str = "cpu") -> None:
        classes = torch.full((n_ids,), CLASSES.index("special"))
        for token, token_bytes in tokenizer.vocab.items():
            if not tokenizer.is_special_token(token):
                classes[token] = CLASSES.index(token_class(token_bytes))
        self._classes = classes.to(device)
        self._sums = torch.zeros(3, len(CLASSES), dtype=torch.float64)

    def add(self, losses: Tensor, targets: Tensor, n_bytes: Tensor) -> None:
        """Add the losses of tokens.

        Args:
            losses: Losses in nats.
            targets: Ids, of the same shape.
            n_bytes: Bytes of each token.
        """
        index = self._classes[targets.long()].flatten()
        values = torch.stack([torch.ones_like(losses), losses, n_bytes]).double().flatten(1)
        sums = torch.zeros(3, len(CLASSES), dtype=torch.float64, device=index.device)
        self._sums += sums.index_add_(1, index, values).cpu()

    @property
    def sums(self) -> list[float]:
        """Tokens of each class, then nats, then bytes; can be set, to those of several processes."""
        return cast("Any", self._sums.flatten()).tolist()

    @sums.setter
    def sums(self, sums: list[float]) -> None:
        self._sums = torch.tensor(sums, dtype=torch.float64).view_as(self._sums)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return tokens, bytes, mean loss (nats), bits per byte and share of the total loss, by class that occurs."""
        rows: list[tuple[float, float, float]] = cast("Any", self._sums.T).tolist()
        total = sum(nats for _, nats, _ in rows)
        return {
            name: {
                "n_tokens": int(n_tokens),
                "n_bytes": int(n_bytes),
                "loss": nats / n_tokens,
                "bits_per_byte": nats / math.log(2) / n_bytes if n_bytes else None,
                "loss_share": nats / total if total else None,
            }
            for name, (n_tokens, nats, n_bytes) in zip(CLASSES, rows, strict=True)
            if n_tokens
        }
