"""Initial values of weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.nn import Module


def truncated_normal(
    *shape: int, std: float, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Sample from a normal distribution of mean 0, truncated at ±3 standard deviations, with torch's generator.

    Inverse transform sampling: uniform between Φ(−3) and Φ(3), where 2Φ(x) − 1 = erf(x/√2).

    Args:
        shape: Shape of the result.
        std: Standard deviation before truncation.
        device: Device of the result.
        dtype: Type of the result; by default torch's default type.
    """
    numbers = torch.empty(shape, device=device, dtype=torch.float32)
    # On the device "meta" there are no values, and these operations would import torch's compiler (2 to 8 seconds).
    if not numbers.is_meta:
        edge = math.erf(3 / math.sqrt(2))
        numbers.uniform_(-edge, edge).erfinv_().mul_(math.sqrt(2) * std)
        # Rounding may exceed the bounds slightly.
        numbers.clamp_(-3 * std, 3 * std)
    return numbers.to(dtype or torch.get_default_dtype())


def initialize_as_gpt2(model: Module, num_layers: int) -> None:
    """Replace the matrices and embeddings of a model by those of GPT-2, normal with σ = 0.02 (Radford et al. 2019).

    The matrices whose results are added to the residual stream have σ = 0.02 / √(2 · num_layers), since there are two
    of them in a block. Biases stay 0 and the weights of norms 1. The distribution is not truncated. GPT-2's position
    embeddings have σ = 0.01 in its first code; here σ = 0.02, as in the later reimplementations.

    Args:
        model: A `TransformerLM`.
        num_layers: Number of its blocks.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2 or parameter.is_meta:
            continue
        is_output = name.endswith(("attn.output_proj.weight", "ffn.w2.weight"))
        parameter.detach().normal_(0, 0.02 / math.sqrt(2 * num_layers) if is_output else 0.02)
