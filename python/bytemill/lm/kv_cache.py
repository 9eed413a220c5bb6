"""Cache of keys and values, so that each new token costs one row of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig


class KVCache:
    """Keys and values of all layers, for a batch of sequences that grow together.

    Rows of different length are padded on the left. Positions count from the first real token of a row. With a sliding
    window, only the positions that later tokens attend to are kept.

    Args:
        config: Shape of the model.
        batch_size: Number of sequences.
        device: Device of the cache.
        dtype: Type of the cache.
        n_padding: (batch_size,), number of padding positions at the start of each row; by default 0.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        n_padding: Tensor | None = None,
    ) -> None:
        self.batch_size = batch_size
        window, capacity = config.sliding_window, config.context_length
        self._window_capacity = None if window is None or window > capacity else window - 1
        if self._window_capacity is None:
            kind = LayerCache
        else:
            kind, capacity = WindowCache, self._window_capacity
        shape = (batch_size, config.n_kv_heads, capacity, config.d_head)
        self.layers = [kind(shape, device, dtype) for _ in range(config.num_layers)]
        self.n_padding: Tensor | None = None
        self.n_positions = 0
        """Number of cached positions, including padding."""
        self.reset(n_padding)

    def reset(self, n_padding: Tensor | None = None) -> None:
        """Clear the cache for new sequences.

        Args:
            n_padding: See `KVCache`.

        Raises:
            ValueError: `n_padding` has another shape than (batch_size,).
        """
        if n_padding is not None and n_padding.shape != (self.batch_size,):
            raise ValueError(
                f"n_padding has shape {tuple(n_padding.shape)}, but the batch size is {self.batch_size}"
            )
        self.n_padding = n_padding
        self.advance_to(0)

    @property
    def n_dropped(self) -> int:
        """Number of positions that are no longer kept."""
        return 0 if self._window_capacity is None else max(0, self.n_positions - self._window_capacity)

    def advance_to(self, n_positions: int) -> None:
        """Set the number of cached positions; the next ones are written after them."""
        self.n_positions = n_positions
        for layer in self.layers:
            layer.n_positions = n_positions


class LayerCache:
    """Keys and values of one layer, each of shape (batch_size, n_kv_heads, capacity, d_head)."""

    def __init__(
        self, shape: tuple[int, int, int, int], device: torch.device | str | None, dtype: torch.dtype
    ) -> None:
        self.keys = torch.empty(shape, device=device, dtype=dtype)  # read up to `n_positions` only
        self.values = torch.empty(shape, device=device, dtype=dtype)
        self.n_positions = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of new positions, and return those of all kept ones, in the type of the new ones."""
        end = self.n_positions + keys.shape[-2]
        self.keys[:, :, self.n_positions : end] = keys
        self.values[:, :, self.n_positions : end] = values
        return self.keys[:, :, :end].to(keys.dtype), self.values[:, :, :end].to(values.dtype)


class WindowCache(LayerCache):
    """Keys and values of the last positions of one layer, which are all that a sliding window needs."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of new positions, and return them with the kept ones before them."""
        return self._append(self.keys, keys), self._append(self.values, values)

    def _append(self, cached: Tensor, new: Tensor) -> Tensor:
        capacity = cached.shape[2]
        joined = torch.cat((cached[:, :, : min(self.n_positions, capacity)].to(new.dtype), new), dim=2)
        n_kept = min(joined.shape[2], capacity)
        cached[:, :, :n_kept] = joined[:, :, joined.shape[2] - n_kept :]
        return joined
