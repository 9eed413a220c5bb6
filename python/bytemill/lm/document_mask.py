"""Documents within a window: tokens attend to their own document alone, and positions may restart in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DocumentMask:
    """How a window divides into documents.

    Every token keeps its target: the token that ends a document is followed by the first token of the next one, which
    it predicts without having seen that document, as at the start of generated text.
    """

    separator: int
    """Id of the token between documents."""
    separator_first: bool = False
    """The separator starts its document; by default it ends it."""
    reset_positions: bool = False
    """Positions count from the start of the document, not of the window."""

    def starts(self, ids: Tensor) -> Tensor:
        """Return the position of the first token of each token's document, int64 of the shape (..., n_tokens) of `ids`.

        >>> DocumentMask(0).starts(torch.tensor([5, 0, 7, 8, 0, 9])).tolist()
        [0, 0, 2, 2, 2, 5]
        """
        positions = torch.arange(ids.shape[-1], device=ids.device)
        is_separator = ids == self.separator
        is_first = is_separator if self.separator_first else is_separator.roll(1, -1)
        return (positions * (is_first & (positions > 0))).cummax(-1).values
