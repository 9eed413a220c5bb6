"""Bits per byte of n-gram models of the beginning of a group."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.analysis.comparison.bootstrap import interval, sampled_sums
from bytemill.analysis.comparison.ngram import ngram_scores, split_documents
from bytemill.comparison.counting import encode_units, unit_encoder
from bytemill.comparison.values import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bytemill.comparison.counting import GroupCounts
    from bytemill.comparison.data import Progress
    from bytemill.comparison.estimates import Samples
    from bytemill.tokenizer.tokenizer import Tokenizer

NGRAMS = {"bigram_bits_per_byte": 2, "trigram_bits_per_byte": 3}


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

    def values(self, tokenizer: Tokenizer) -> tuple[dict[str, Value], Samples]:
        """Return the bits per byte of both models, and their values in the samples."""
        n_units = sum(len(ends) for _, ends in self._blocks)
        if n_units < 2:
            note = "a single document" if n_units else "not computed"
            return dict.fromkeys(NGRAMS, Value(None, note=note)), {}
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
        held_out = split_documents(n_units, self._seed)
        scores = ngram_scores(
            np.concatenate(ids), np.concatenate(ends), n_bytes, tokenizer.n_vocab, held_out=held_out
        )
        values: dict[str, Value] = {}
        drawn: Samples = {}
        for name, score in zip(NGRAMS, scores, strict=True):
            ends_ = None
            if len(score.bits) > 1:
                sums = sampled_sums(np.stack([score.bits, score.n_bytes], axis=1), self._seed)
                drawn[name] = sums[:, 0] / sums[:, 1]
                ends_ = interval(drawn[name])
            values[name] = Value(score.bits_per_byte, *(ends_ or (None, None)))
        return values, drawn
