"""Weights in 8 or 4 bits, by groups: the numbers of llama.cpp's q8_0 and q4_0.

A group is 32 consecutive weights of a row. A weight is stored as a small integer, its code, and a group has one scale
s in float16, so that w ≈ s · code:

    8 bits   code = round(w / s), −127 … 127        s = max|w| / 127                  1.0625 bytes per weight
    4 bits   code = ⌊w / s + 8.5⌋ − 8, −8 … 7       s = (the w of largest |w|) / −8   0.5625 bytes per weight

Codes are computed with the scale before it is rounded to float16. The scale of 4 bits may be negative, so that the
largest magnitude has the code −8 whatever its sign.

Matrices and token embeddings are quantized. Norms, biases and position embeddings stay float32. A forward pass computes
a matrix in float32 just before it is used; `CoreDecoder` reads the codes themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from bytemill.errors import ModelConfigError
from bytemill.lm.model import Embedding, Linear, TransformerLM, sinusoids

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.model_config import ModelConfig


Bits = Literal[4, 8]
GROUP = 32
"""Weights that share a scale."""


def quantize(weight: Tensor, bits: Bits) -> tuple[Tensor, Tensor]:
    """Quantize the rows of a float32 matrix.

    Args:
        weight: (n_rows, width) of finite numbers; the width is a multiple of 32.
        bits: 8 or 4.

    Returns:
        The codes, int8 (n_rows, width), or uint8 (n_rows, width / 2) with two codes of 4 bits in a byte; and the
        scales, float16 (n_rows, width / 32).

    Raises:
        ModelConfigError: The width is not a multiple of 32.
    """
    _check_width("the matrix", weight)
    groups = _grouped(weight.detach().float(), GROUP)
    scale = _largest_scale(groups, bits)
    codes = _codes(groups, scale, bits)
    scale = scale.half().squeeze(-1)
    if bits == 8:
        return codes.to(torch.int8).flatten(-2), scale
    low, high = (codes + 8).to(torch.uint8).chunk(2, dim=-1)
    return (low | high << 4).flatten(-2), scale


def dequantize(codes: Tensor, scales: Tensor) -> Tensor:
    """Return scale · code for each weight in float32: the inverse of `quantize` but for rounding."""
    if codes.dtype == torch.int8:
        groups = _grouped(codes, GROUP)
    else:
        packed = _grouped(codes, GROUP // 2)
        groups = torch.cat((packed & 15, packed >> 4), dim=-1).to(torch.int8) - 8
    return (groups * scales.float()[..., None]).flatten(-2)


def _grouped(x: Tensor, n: int) -> Tensor:
    return x.reshape(*x.shape[:-1], -1, n)


def _largest_scale(groups: Tensor, bits: Bits) -> Tensor:
    if bits == 8:
        return groups.abs().amax(-1, keepdim=True) / 127
    return groups.gather(-1, groups.abs().argmax(-1, keepdim=True)) / -8


def _codes(groups: Tensor, scale: Tensor, bits: Bits) -> Tensor:
    inverse = torch.where(scale == 0, 0, 1 / scale)
    # The reciprocal of a tiny scale is infinite, and its codes are those of 0, as its float16 is 0.
    quotients = groups * torch.where(inverse.isfinite(), inverse, 0)
    if bits == 8:
        # Halves are rounded away from 0, as in C.
        magnitudes = quotients.abs()
        floors = magnitudes.floor()
        return quotients.sign() * (floors + (2 * (magnitudes - floors)).floor())
    return (quotients + 8.5).trunc().clamp(0, 15) - 8


def _check_width(name: str, weight: Tensor) -> None:
    if weight.shape[-1] % GROUP:
        raise ModelConfigError(
            f"{name} has rows of {weight.shape[-1]} weights, and quantized groups have {GROUP}",
            hint="quantize a model whose widths (d_model, d_ff, heads) are multiples of 32",
        )


class QuantizedWeight(Module):
    """Codes and scales of a matrix (n_rows, width); layers with tied weights share it.

    `TransformerLM.n_parameters` counts its weights, though they are buffers.

    Args:
        codes: Result of `quantize`.
        scales: Result of `quantize`.
    """

    codes: Tensor
    scales: Tensor

    def __init__(self, codes: Tensor, scales: Tensor) -> None:
        super().__init__()
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)

    @property
    def n_weights(self) -> int:
        """Number of weights of the matrix."""
        return self.scales.numel() * GROUP

    def rows(self, ids: Tensor | None = None) -> Tensor:
        """Return the matrix in float32, or some of its rows."""
        if ids is None:
            return dequantize(self.codes, self.scales)
        return dequantize(self.codes.index_select(0, ids), self.scales.index_select(0, ids))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> QuantizedWeight:
        scales = self.scales
        super()._apply(fn, recurse)  # pyright: ignore[reportUnknownMemberType]
        if self.scales.dtype != scales.dtype:  # a cast of the model would round them
            self.scales = scales.to(self.scales.device)
        return self


class QuantizedLinear(Linear):
    """`Linear` with quantized weights and a bias in float32."""

    def __init__(self, quantized: QuantizedWeight, bias: Parameter | None) -> None:
        Module.__init__(self)
        self.quantized, self.bias = quantized, bias

    @property
    def weight(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The matrix in float32, computed anew."""
        return self.quantized.rows()


class QuantizedEmbedding(Embedding):
    """`Embedding` with quantized weights; only the rows that are looked up are computed."""

    def __init__(self, quantized: QuantizedWeight) -> None:
        Module.__init__(self)
        self.quantized = quantized

    @property
    def weight(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The matrix in float32, computed anew."""
        return self.quantized.rows()

    def forward(self, ids: Tensor) -> Tensor:
        return self.quantized.rows(ids.reshape(-1)).view(*ids.shape, -1)


def quantize_model(model: TransformerLM, bits: Bits) -> TransformerLM:
    """Quantize the matrices and token embeddings of a model in place; it cannot be trained any more.

    The quantized weights are buffers, and no parameters of the model.

    Args:
        model: A float32 model, on the CPU or another device.
        bits: 8 or 4.

    Returns:
        The model, in evaluation mode.

    Raises:
        ModelConfigError: A row is not a multiple of 32 wide; nothing is changed.
    """
    return _replaced(model, lambda weight: QuantizedWeight(*quantize(weight, bits)))


def empty_quantized_model(config: ModelConfig, bits: Bits, device: str = "cpu") -> TransformerLM:
    """Return a quantized model whose numbers are to be loaded; no float32 matrix is allocated.

    Raises:
        ModelConfigError: A row is not a multiple of 32 wide.
    """

    def empty(weight: Tensor) -> QuantizedWeight:
        n_rows, width = weight.shape
        dtype = torch.int8 if bits == 8 else torch.uint8
        codes = torch.empty(n_rows, width * bits // 8, dtype=dtype, device="meta")
        return QuantizedWeight(codes, torch.empty(n_rows, width // GROUP, dtype=torch.float16, device="meta"))

    model = _replaced(TransformerLM(config, device="meta"), empty).to_empty(device=device)
    if config.position == "sinusoidal" and device != "meta":
        cast("Tensor", model.sinusoids).copy_(sinusoids(config.context_length, config.d_model))
    return model


def quantized_weights(model: Module) -> dict[str, QuantizedWeight]:
    """Return the quantized weights by the name that the float32 matrix has; a shared one is listed once."""
    found: dict[str, QuantizedWeight] = {}
    for name, module in _named_modules(model):
        if isinstance(module, QuantizedWeight):
            found[f"{name.removesuffix('quantized')}weight"] = module
    return found


def model_tensors(model: Module) -> dict[str, Tensor]:
    """Return what a model folder stores: the parameters, and codes and scales of quantized weights."""
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    for name, quantized in quantized_weights(model).items():
        tensors |= {f"{name}.codes": quantized.codes, f"{name}.scales": quantized.scales}
    return tensors


def _named_modules(model: Module) -> list[tuple[str, Module]]:
    return list(model.named_modules())  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportUnknownArgumentType]


def _replaced(model: TransformerLM, make: Callable[[Tensor], QuantizedWeight]) -> TransformerLM:
    kept = getattr(model, "position_embeddings", None)
    layers: dict[str, Any] = {
        name: module
        for name, module in _named_modules(model)
        if type(module) in (Linear, Embedding) and module is not kept
    }
    for name, layer in layers.items():
        _check_width(f"{name}.weight", layer.weight)
    made: dict[int, QuantizedWeight] = {}
    weights = [layer.weight for layer in layers.values()]  # keeps their ids theirs
    for (name, layer), weight in zip(layers.items(), weights, strict=True):
        quantized = made[id(weight)] = made.get(id(weight)) or make(weight)
        is_linear = isinstance(layer, Linear)
        new = QuantizedLinear(quantized, layer.bias) if is_linear else QuantizedEmbedding(quantized)
        new.kernels = layer.kernels
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, new)
    return model.eval()
