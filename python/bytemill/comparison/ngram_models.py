"""Bits per byte of n-gram models of the beginning of a group."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.analysis.comparison.ngram import ngram_scores, split_documents
from bytemill.comparison.counting import encode_units, unit_encoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bytemill.analysis.comparison.ngram import NgramScore
    from bytemill.comparison.counting import GroupCounts, Progress
    from bytemill.tokenizer.tokenizer import Tokenizer


class NgramModels:
    """N-gram models of the first blocks of a group, which hold `n_bytes`."""

    def __init__(
        self,
        counts: GroupCounts,
        group: str,
        n_bytes: int,
        *,
        seed: int,
        num_threads: int | None,
        progress: Progress | None,
    ) -> None:
        self._progress = progress
        self._group = group
        self._seed = seed
        self._num_threads = num_threads
        so_far = accumulate((len(data) for data, _ in counts.kept), initial=0)
        self._blocks = [block for block, before in zip(counts.kept, so_far, strict=False) if before < n_bytes]

    @property
    def n_units(self) -> int:
        """Number of units in the blocks."""
        return sum(len(ends) for _, ends in self._blocks)

    def scores(self, tokenizer: Tokenizer) -> dict[int, NgramScore]:
        """Return the score of each model by its order; empty for less than two units."""
        if self.n_units < 2:
            return {}
        if self._progress:
            self._progress(f"n-gram models of {self._group}", 0, None)
        encoder = unit_encoder(tokenizer, self._num_threads)
        ids: list[NDArray[Any]] = []
        ends: list[NDArray[np.int64]] = []
        for data, unit_ends in self._blocks:
            own, own_ends = encode_units(encoder, data, unit_ends)
            ends.append(own_ends + sum(map(len, ids)))
            ids.append(own)
        n_bytes = np.concatenate([np.diff(unit_ends, prepend=0) for _, unit_ends in self._blocks])
        held_out = split_documents(self.n_units, self._seed)
        scores = ngram_scores(
            np.concatenate(ids), np.concatenate(ends), n_bytes, tokenizer.n_vocab, held_out=held_out
        )
        return {score.order: score for score in scores}
