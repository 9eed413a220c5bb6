"""Continuous batching: the logits after several texts, in rows that other texts take over when these have ended.

A text keeps its row of the cache while it grows, and each step of the model adds one id to all rows. The rows end at
the same column, and a text that is shorter than the longest one begins with padding. New texts, and those whose context
is full (`window_start`), are read in a batch of their own, whose keys, values and states are then put into their rows.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import torch

from bytemill.lm.device import autocast
from bytemill.lm.generation.core_decoder import CoreDecoder
from bytemill.lm.generation.window import window_start
from bytemill.lm.model import KVCache, TransformerLM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor


class RowDecoder:
    """Computes the logits of the next id of texts that change from step to step.

    Args:
        model: The model, in evaluation mode.
        dtype: Type of matrix products; None: that of the weights.
        use_cache: Cache keys and values; otherwise each step reads all ids.
    """

    def __init__(
        self, model: TransformerLM, dtype: torch.dtype | None = None, *, use_cache: bool = True
    ) -> None:
        self._model = model
        self._context_length = model.config.context_length
        weight = model.lm_head.weight
        self._device, self._cache_dtype = weight.device, weight.dtype
        self._autocast: Callable[[], AbstractContextManager[object]] | None = None
        if dtype not in (None, torch.float32, weight.dtype):
            self._autocast = partial(autocast, self._device, dtype)
        self._use_cache = use_cache
        self._cache: KVCache | None = None
        self._decoder: CoreDecoder | None = None
        self._texts: list[int | None] = []
        """The text in each row."""
        self._read: dict[int, tuple[int, int]] = {}
        """Of each text that has a row, its first id in the cache and the number of ids up to its last one there."""

    @torch.inference_mode()
    def logits_after(self, texts: Mapping[int, Sequence[int]]) -> Tensor:
        """Return the logits of the next id of each text, (n_texts, vocab_size) on the CPU.

        Args:
            texts: All ids by the number of a text. The first call sets the number of rows, and later ones have no more
                texts. A text that is left out loses its row.
        """
        starts = {number: window_start(len(ids), self._context_length) for number, ids in texts.items()}
        if not self._use_cache:
            return self._logits_without_cache([ids[starts[number] :] for number, ids in texts.items()])
        cache = self._give_rows(list(texts))
        grown = {
            number: texts[number]
            for number in texts
            if self._read.get(number) == (starts[number], len(texts[number]) - 1)
        }
        new = {number: texts[number][starts[number] :] for number in texts if number not in grown}
        self._read = {number: (starts[number], len(ids)) for number, ids in texts.items()}
        found: dict[int, Tensor] = {}
        if grown:
            if cache.n_positions == self._context_length:  # but all texts are shorter
                cache.align(max(len(ids) - starts[number] for number, ids in grown.items()) - 1)
            logits = self._next_logits([0 if own is None else texts[own][-1] for own in self._texts])
            found = {number: logits[self._texts.index(number)] for number in grown}
        if new:
            longest = max(len(ids) - starts[number] for number, ids in texts.items())
            if not grown or longest > cache.n_positions or 4 * longest < 3 * cache.n_positions:
                cache.align(longest)
            # Padding at most doubles a text.
            ordered = sorted(new, key=lambda number: len(new[number]))
            for _, group in groupby(ordered, key=lambda number: len(new[number]).bit_length()):
                found |= self._read_texts(cache, {number: new[number] for number in group})
        return torch.stack([found[number] for number in texts])

    def _give_rows(self, numbers: list[int]) -> KVCache:
        """Give each text a row, and drop rows once half of them are free."""
        if self._cache is None:
            self._texts = [None] * len(numbers)
            self._cache = KVCache(self._model.config, len(numbers), self._device, self._cache_dtype)
            kernels = self._model.kernels
            if (
                kernels.core_decoding
                and self._autocast is None
                and CoreDecoder.supports(self._model, self._cache)
            ):
                self._decoder = CoreDecoder(self._model, self._cache)
        if len(numbers) > len(self._texts):
            raise ValueError(f"{len(numbers)} texts for {len(self._texts)} rows")
        wanted, held = set(numbers), set(self._texts)
        self._texts = [number if number in wanted else None for number in self._texts]
        waiting = [number for number in numbers if number not in held]
        if 2 * len(numbers) <= len(self._texts):
            free = [row for row, number in enumerate(self._texts) if number is None]
            dropped = set(free[len(waiting) :])
            kept = [row for row in range(len(self._texts)) if row not in dropped]
            self._cache.keep_rows(kept)
            self._texts = [self._texts[row] for row in kept]
        for number in waiting:
            self._texts[self._texts.index(None)] = number
        return self._cache

    def _next_logits(self, ids: list[int]) -> Tensor:
        """Add an id to each row."""
        if self._decoder is not None:
            return self._decoder.logits_after(ids[0])[None]
        return self._forward(torch.tensor(ids)[:, None], self._cache)

    def _read_texts(self, into: KVCache, texts: dict[int, Sequence[int]]) -> dict[int, Tensor]:
        """Read texts into their rows; equal ones are computed once."""
        different = list(dict.fromkeys(map(tuple, texts.values())))
        longest = max(map(len, different))
        padding = [longest - len(ids) for ids in different]
        cache = KVCache(
            self._model.config,
            len(different),
            self._device,
            self._cache_dtype,
            torch.tensor(padding) if any(padding) else None,
        )
        ids = torch.tensor([[0] * n + list(own) for n, own in zip(padding, different, strict=True)])
        logits = self._forward(ids, cache)
        index = {own: row for row, own in enumerate(different)}
        sources = [index[tuple(own)] for own in texts.values()]
        cache.keep_rows(sources)
        into.put([self._texts.index(number) for number in texts], cache)
        return {number: logits[row] for number, row in zip(texts, sources, strict=True)}

    def _forward(self, ids: Tensor, cache: KVCache | None) -> Tensor:
        with (self._autocast or nullcontext)():
            return self._model(ids.to(self._device), cache, last_only=True)[:, -1].float().cpu()

    def _logits_without_cache(self, texts: list[Sequence[int]]) -> Tensor:
        """Read whole texts; ids of padding follow those of a text, which do not see them."""
        longest = max(map(len, texts))
        ids = torch.tensor([[*own, *[0] * (longest - len(own))] for own in texts], device=self._device)
        with (self._autocast or nullcontext)():
            hidden = self._model.hidden(ids)
            last = torch.tensor([len(own) - 1 for own in texts], device=self._device)
            return self._model.logits(hidden[torch.arange(len(texts)), last]).float().cpu()
