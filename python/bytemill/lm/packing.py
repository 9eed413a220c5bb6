"""Whole documents in a window: how many fit, the padding, and the mask that keeps their tokens apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bytemill.errors import ShardError
from bytemill.lm.batches import JoinedShards, ShardBatches, key_of, permuted

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor


PADDING = ~0
"""Id after the last document of a window; see `batches.inputs_and_targets` for negative ids."""

_SCANNED = 1 << 24
_GROUP = 1 << 14
"""Documents that are packed together. More would hardly save padding, and windows of documents of similar length
would become more frequent."""


def document_ends(tokens: JoinedShards, documents: DocumentMask) -> NDArray[np.int64]:
    """Return the offset at which each document ends; the last one may lack its separator."""
    found: list[NDArray[np.int64]] = []
    for start in range(0, len(tokens), _SCANNED):
        block: NDArray[Any] = tokens[start : start + _SCANNED]
        found.append(start + np.flatnonzero(block == documents.separator))
    offsets = np.concatenate(found) + (not documents.separator_first)
    return np.unique(np.append(offsets[offsets > 0], len(tokens)))


def cut_documents(
    ends: NDArray[np.int64], capacity: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the starts and lengths of the pieces of documents, of at most `capacity` ids, and which continue another.

    Pieces of a document share one id, the last target of one and the first input of the next, so that every id of a
    document but the first is a target once.
    """
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    lengths = ends - starts
    n_pieces = np.maximum(1, -(-(lengths - 1) // (capacity - 1)))
    firsts = np.cumsum(n_pieces) - n_pieces
    offsets: NDArray[np.int64] = (np.arange(int(n_pieces.sum())) - np.repeat(firsts, n_pieces)) * (
        capacity - 1
    )
    return (
        np.repeat(starts, n_pieces) + offsets,
        np.minimum(capacity, np.repeat(lengths, n_pieces) - offsets),
        offsets > 0,
    )


def best_fit(lengths: NDArray[np.int64], capacity: int) -> list[list[int]]:
    """Pack items into bins: the longest first, each into the bin with the least room that suffices.

    Best-fit decreasing needs at most 11/9 of the fewest possible bins, and a constant more (Johnson et al. 1974).

    Args:
        lengths: Sizes of the items, at most `capacity`.
        capacity: Size of a bin.

    Returns:
        The items of each bin.

    >>> best_fit(np.array([5, 3, 7, 2, 3]), 10)
    [[2, 1], [0, 4, 3]]
    """
    bins: list[list[int]] = []
    by_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0  # bit r is set if a bin has room for r ids
    for item in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[item])
        larger = rooms >> length
        if larger:
            room = length + (larger & -larger).bit_length() - 1
            number = by_room[room].pop()
            if not by_room[room]:
                rooms ^= 1 << room
            bins[number].append(item)
        else:
            room, number = capacity, len(bins)
            bins.append([item])
        left = room - length
        if left:
            by_room[left].append(number)
            rooms |= 1 << left
    return bins


class PackedBatches(ShardBatches):
    """Windows of whole documents in shard folders, in an order that depends only on `seed`.

    Documents are packed into windows by best fit, in random groups; one that is longer than a window is cut. What
    precedes a piece in its window never predicts its first id, which is a target elsewhere: it is negative (see
    `batches.inputs_and_targets`). If separators start documents, one takes the place of that id, so that every piece is
    a document of its own in a document mask.

    Every epoch reads the same windows in another order. The ends of documents are found when the object is made, which
    reads all ids once.

    Args:
        folders: Shard folders.
        context_length: Ids per window.
        documents: How documents are divided.
        seed: Seed of the order.
        fingerprint: Fingerprint of the tokenizer; by default that of the first folder.
        rank: Rank of this process.
        n_processes: Number of processes.

    Raises:
        ShardError: A folder is of another tokenizer, or there are too few ids for a window.
    """

    def __init__(
        self,
        folders: Sequence[str | os.PathLike[str]],
        context_length: int,
        documents: DocumentMask,
        *,
        seed: int = 0,
        fingerprint: str | None = None,
        rank: int = 0,
        n_processes: int = 1,
    ) -> None:
        super().__init__(
            folders, context_length, seed=seed, fingerprint=fingerprint, rank=rank, n_processes=n_processes
        )
        self._separator = documents.separator if documents.separator_first else None
        ends = document_ends(self.tokens, documents)
        starts, lengths, continues = cut_documents(ends, context_length + 1)
        order = permuted(np.arange(len(starts)), len(starts), key_of(seed, 0))
        groups = (order[first : first + _GROUP] for first in range(0, len(order), _GROUP))
        windows = [
            # In the order of the corpus: the first document may lack a separator in front, the last one at its end.
            np.sort(group[items])
            for group in groups
            for items in best_fit(lengths[group], context_length + 1)
            if lengths[group[items]].sum() > 1
        ]
        if not windows:
            raise ShardError("every document is a single token: nothing to predict", hint="encode more text")
        self._starts, self._lengths, self._continues = starts, lengths, continues
        self._pieces = np.concatenate(windows)
        self._bounds = np.cumsum([0, *map(len, windows)])
        firsts = self._bounds[:-1]
        self._n_targets = np.add.reduceat((lengths - continues)[self._pieces], firsts)
        self._n_targets -= ~continues[self._pieces[firsts]]
        self.n_windows = len(windows)
        self.padding_share = 1 - float(self._n_targets.sum()) / (self.n_windows * context_length)

    def windows(self, position: int, n: int) -> Tensor:
        """Return windows `position` to `position + n - 1` of the run, with `PADDING` after the last document."""
        self._read_ahead(position, n)
        windows = np.full((n, self.context_length + 1), PADDING, dtype=np.int64)
        for row, pieces in enumerate(self._pieces_of(position, n)):
            ends = np.cumsum([0, *self._lengths[pieces]]).tolist()
            for piece, (start, end) in zip(pieces.tolist(), pairwise(ends), strict=True):
                offset = int(self._starts[piece])
                windows[row, start:end] = self.tokens[offset : offset + end - start]
                if self._continues[piece]:
                    windows[row, start] = ~(
                        windows[row, start] if self._separator is None else self._separator
                    )
        return torch.from_numpy(windows)  # pyright: ignore[reportUnknownMemberType]

    def _ranges(self, position: int, n: int) -> list[tuple[int, int]]:
        pieces = np.concatenate(self._pieces_of(position, n))
        starts = self._starts[pieces]
        return list(zip(starts.tolist(), (starts + self._lengths[pieces]).tolist(), strict=True))

    def starts(self, position: int, n: int) -> list[int]:
        """Return the offsets of the first ids of windows `position` to `position + n - 1` of the run."""
        return [int(self._starts[pieces[0]]) for pieces in self._pieces_of(position, n)]

    def n_targets(self, position: int, n_windows: int) -> int:
        """Return the number of targets of windows `position` to `position + n_windows - 1` of the run."""
        return int(self._n_targets[self._windows_at(position, n_windows)].sum())

    def _pieces_of(self, position: int, n: int) -> list[NDArray[np.int64]]:
        numbers = self._windows_at(position, n).tolist()
        return [self._pieces[self._bounds[number] : self._bounds[number + 1]] for number in numbers]

    def _windows_at(self, position: int, n: int) -> NDArray[np.int64]:
        epochs, indices = np.divmod(np.arange(position, position + n, dtype=np.int64), self.n_windows)
        windows = np.empty(n, dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            in_epoch = epochs == epoch
            windows[in_epoch] = permuted(indices[in_epoch], self.n_windows, key_of(self.seed, epoch + 1))
        return windows


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
