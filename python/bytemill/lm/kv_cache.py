"""Cache of keys and values, so that each new token costs one row of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig


class KVCache:
    """Keys and values of all layers, for a batch of sequences that grow together.

    Rows of different length are padded on the left. Positions count from the first real token of a row.

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
        shape = (batch_size, config.n_kv_heads, config.context_length, config.d_head)
        self.layers = [LayerCache(shape, device, dtype) for _ in range(config.num_layers)]
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

    def advance_to(self, n_positions: int) -> None:
        """Set the number of cached positions; the next ones are written after them."""
        self.n_positions = n_positions
        for layer in self.layers:
            layer.n_positions = n_positions


class LayerCache:
    """Keys and values of one layer, each (batch_size, n_kv_heads, context_length, d_head)."""

    def __init__(
        self, shape: tuple[int, int, int, int], device: torch.device | str | None, dtype: torch.dtype
    ) -> None:
        self.keys = torch.empty(shape, device=device, dtype=dtype)  # read up to `n_positions` only
        self.values = torch.empty(shape, device=device, dtype=dtype)
        self.n_positions = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of new positions, and return those of all positions, in the type of the new ones."""
        end = self.n_positions + keys.shape[-2]
        self.keys[:, :, self.n_positions : end] = keys
        self.values[:, :, self.n_positions : end] = values
        return self.keys[:, :, :end].to(keys.dtype), self.values[:, :, :end].to(values.dtype)
