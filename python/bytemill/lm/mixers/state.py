"""What the recurrent mixers share: the cache of a state, short convolutions, and the mask of real tokens."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from bytemill.lm.model import LayerCache, move_positions
from bytemill.lm.tensors import narrowed, widened

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from bytemill.lm.model import RotaryEmbedding
    from bytemill.lm.model_config import ModelConfig


class StateCache(LayerCache):
    """The state of a recurrent layer after its last token, in place of keys and values.

    Args:
        batch_size: Number of sequences.
        shapes: Shape of each tensor of the state, without the batch.
        device: Device of the state.
        dtype: Type of the weights; the state is float32 or wider.
        by_position: Names of tensors (n_positions, width), with a place for each position, that are 0 for padding.
    """

    def __init__(  # pyright: ignore[reportMissingSuperCall]
        self,
        batch_size: int,
        shapes: Mapping[str, tuple[int, ...]],
        device: torch.device | str | None,
        dtype: torch.dtype,
        by_position: Collection[str] = (),
    ) -> None:
        dtype = torch.promote_types(dtype, torch.float32)
        self._states = {
            name: torch.zeros(batch_size, *shape, device=device, dtype=dtype)
            for name, shape in shapes.items()
        }
        self.constants: dict[str, Tensor] = {}
        """What a layer computes once for many tokens, until the cache is cleared."""
        self._by_position = by_position
        self._n_positions = 0

    @property
    def n_positions(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of tokens that the state has seen."""
        return self._n_positions

    @n_positions.setter
    def n_positions(self, value: int) -> None:
        if value == 0:
            self.constants = {}
            self._states = {name: torch.zeros_like(state) for name, state in self._states.items()}
        elif value < self._n_positions:
            raise ValueError(f"a recurrent state cannot go back from {self._n_positions} to {value} tokens")
        self._n_positions = value

    @property
    def n_dropped(self) -> int:
        """Always 0: padding is counted from the first token."""
        return 0

    def __getitem__(self, name: str) -> Tensor:
        return self._states[name]

    def __setitem__(self, name: str, state: Tensor) -> None:
        self._states[name] = state.to(self._states[name].dtype)

    def n_bytes(self) -> int:
        """Return the bytes of the state of all sequences."""
        return sum(state.nbytes for state in self._states.values())

    def keep_rows(self, rows: list[int]) -> None:
        """Keep only these sequences, in this order."""
        self._states = {name: state[rows] for name, state in self._states.items()}

    @property
    def by_position(self) -> list[Tensor]:
        return [self._states[name] for name in self._by_position]

    def align(self, n_positions: int) -> None:
        move_positions(self.by_position, self._n_positions, n_positions)
        self._n_positions = n_positions  # the states of all sequences stay what they are

    def put(self, rows: list[int], source: LayerCache) -> None:
        super().put(rows, source)
        for name, state in self._states.items():
            if name not in self._by_position:
                state[rows] = cast("StateCache", source)[name]


def is_real(mask: Tensor | None, n_tokens: int) -> Tensor | None:
    """Return (batch, n_tokens), False for padding, from the causal mask of a cache; None if there is none.

    The last token of a row is real, and attends to all that are.
    """
    return None if mask is None or mask.ndim < 4 else mask[:, 0, -1, -n_tokens:]


def without_padding(x: Tensor, real: Tensor | None) -> Tensor:
    """Set (batch, n_tokens, width) to 0 where a token is padding."""
    return x if real is None else x.masked_fill(~real[..., None], 0)


def in_full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Leave the autocast context: sums over many tokens are float32."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def divided(x: Tensor, widths: Sequence[int]) -> tuple[Tensor, ...]:
    """Divide the last dimension into parts of these widths."""
    return cast("tuple[Tensor, ...]", x.split(list(widths), dim=-1))  # pyright: ignore[reportUnknownMemberType]


def in_heads(x: Tensor, n_heads: int) -> Tensor:
    """(batch, n_tokens, n_heads · d) -> (batch, n_heads, n_tokens, d)."""
    return x.reshape(*x.shape[:-1], n_heads, -1).transpose(1, 2)


def softplus(x: Tensor) -> Tensor:
    """Compute log(1 + exp(x))."""
    return torch.logaddexp(x, x.new_zeros(()))


def chunks(n_tokens: int, size: int) -> Iterator[slice]:
    """Yield consecutive ranges of `size` tokens; the last one may be shorter."""
    for start in range(0, n_tokens, size):
        yield slice(start, min(start + size, n_tokens))


class ShortConvolution(Module):
    """Causal convolution of each channel: yₜ = Σᵢ wᵢ xₜ₋ᵢ (+ b), over a few tokens: (batch, n_tokens, n_channels).

    Args:
        n_channels: Number of channels.
        size: Number of tokens that it sees.
        bias: Add a bias.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    def __init__(
        self,
        n_channels: int,
        size: int,
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        weight = torch.empty(size, 1, n_channels, device=device, dtype=dtype)
        if not weight.is_meta:
            weight.uniform_(-1 / math.sqrt(size), 1 / math.sqrt(size))
        self.weight = Parameter(weight)
        """(size, 1, n_channels); the first row is that of the token itself. Optimizers do not take it for a matrix."""
        self.bias = Parameter(torch.zeros(n_channels, device=device, dtype=dtype)) if bias else None

    def forward(
        self, x: Tensor, document_starts: Tensor | None = None, cache: StateCache | None = None
    ) -> Tensor:
        """Convolve.

        Args:
            x: (batch, n_tokens, n_channels).
            document_starts: (batch, n_tokens); a token sees none before the start of its document.
            cache: Holds the last inputs under the name "convolution".
        """
        x, n_tokens, n_before = widened(x), x.shape[1], self.size - 1
        before = x.new_zeros(x.shape[0], n_before, x.shape[2]) if cache is None else cache["convolution"]
        joined = torch.cat((before, x), dim=1)
        if cache is not None:
            cache["convolution"] = joined[:, n_tokens:]
        y = x * self.weight[0]
        for distance in range(1, self.size):
            part = joined[:, n_before - distance :][:, :n_tokens] * self.weight[distance]
            if document_starts is not None:
                positions = torch.arange(n_tokens, device=x.device)
                part = without_padding(part, positions - distance >= document_starts)
            y = y + part
        return y if self.bias is None else y + self.bias


class RecurrentMixer(Module):
    """Base of mixers with a `StateCache`: what its argument and its cache are, and defaults of its counts."""

    def forward(
        self,
        x: Tensor,
        token_positions: Tensor | None = None,  # noqa: ARG002
        *,
        mask: Tensor | None = None,
        cache: StateCache | None = None,
        document_starts: Tensor | None = None,
    ) -> Tensor:
        """Mix the tokens: (..., n_tokens, d_model) -> the same shape.

        Args:
            x: (..., n_tokens, d_model).
            token_positions: Not read.
            mask: The causal mask of a cache; only its padding is read.
            cache: The state after earlier tokens; it becomes that after `x`.
            document_starts: (..., n_tokens), position of the first token of each token's document; the state is empty
                before it.
        """
        *batch, n_tokens, d_model = x.shape
        x = narrowed(x.reshape(math.prod(batch), n_tokens, d_model))
        if document_starts is not None:
            document_starts = document_starts.expand(*batch, n_tokens).reshape(-1, n_tokens)
        mixed = self.mix(x, is_real(mask, n_tokens), cache, document_starts)
        return mixed.reshape(*batch, n_tokens, d_model)

    def mix(
        self, x: Tensor, real: Tensor | None, cache: StateCache | None, document_starts: Tensor | None
    ) -> Tensor:
        """Mix the tokens of (batch, n_tokens, d_model); `real` is False for padding."""
        raise NotImplementedError

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        rope: RotaryEmbedding | None = None,  # noqa: ARG003
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the mixer of a model; without a use for the rotary embedding."""
        return cast("Any", cls)(config, device=device, dtype=dtype)

    @staticmethod
    def check(config: ModelConfig) -> None:
        """Raise ModelConfigError if the mixer cannot have these settings."""

    @classmethod
    def saved(cls, config: ModelConfig) -> int:
        """Return the numbers per token that the forward pass saves."""
        return saved_numbers(cls.of(config, device="meta"), config)


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


def saved_numbers(layer: Module, config: ModelConfig) -> int:
    """Return the numbers of 4 bytes per token that a layer saves for the backward pass, beside its input.

    They are counted on the device "meta", which computes shapes alone, at the context length of the model.

    Args:
        layer: A mixer on the device "meta".
        config: Shape of its model.
    """
    x = torch.zeros(1, config.context_length, config.d_model, device="meta", requires_grad=True)
    known: dict[int, Any] = {}  # keeps the storages, so that no other one gets the address of one
    for tensor in (x, *layer.parameters(), *layer.buffers()):
        storage: Any = tensor.untyped_storage()
        known[storage._cdata] = storage
    n_bytes = 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal n_bytes
        storage: Any = tensor.untyped_storage()
        if storage._cdata not in known:
            known[storage._cdata] = storage
            n_bytes += storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, _unchanged):
        layer(x)
    return -(-n_bytes // (4 * config.context_length))
