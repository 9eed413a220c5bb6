"""The implementation of each part of a model: textbook, this package's kernels, torch's, Triton's.

`choose_kernels` is the one place that decides. A `Kernels` object holds its decision, `TransformerLM.use_kernels` gives
it to the modules, and each module asks its own. None stands for the textbook.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn import functional

from bytemill.errors import RunConfigError
from bytemill.lm.kernels import decoding
from bytemill.lm.kernels.attention import causal_attention, flex_mask, sdpa, windowed_attention
from bytemill.lm.kernels.common_order import with_common_order
from bytemill.lm.kernels.layers import (
    gated_silu,
    gelu_by_sigmoid,
    gelu_erf,
    gelu_tanh,
    joined_linear,
    linear,
    linear_losses,
    normalized,
    prefers_onednn,
    product,
    rotate_pairs,
    squared_relu,
    torch_norm,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from torch import Tensor

    from bytemill.lm.model_config import KernelName


class AttentionKernel(Protocol):
    """Attention over all tokens: the arguments of `kernels.attention.causal_attention`."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        window: int | None = None,
        document_starts: Any = None,
    ) -> Tensor: ...


@dataclass(frozen=True)
class Kernels:
    """Functions that replace parts of the textbook; None: the textbook itself."""

    name: KernelName = "scratch"
    linear: Callable[[Tensor, Tensor, Tensor | None], Tensor] | None = None
    """(x, weight, bias) -> x weightᵀ + bias."""
    joined: Callable[[Tensor, Sequence[Any]], tuple[Tensor, ...]] | None = None
    """(x, layers of one shape) -> the result of each."""
    embedding: Callable[[Tensor, Tensor], Tensor] | None = None
    """(weight, ids) -> weight[ids]."""
    norm: Callable[..., Tensor] | None = None
    """(x, weight, bias, eps, *, centred) -> `layers.layer_norm` if centred, else `layers.rms_norm`."""
    gated: Callable[[Tensor, Tensor], Tensor] | None = None
    """(gate, x) -> silu(gate) ⊙ x."""
    activations: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict[str, Any])
    """By the name in `ModelConfig.feed_forward`."""
    rotary: Callable[[Tensor, Tensor], Tensor] | None = None
    """(x, rotations) -> x rotated."""
    attention: AttentionKernel | None = None
    """Causal attention of training and of prompts."""
    document_mask: Callable[[Tensor, int | None], Any] | None = None
    """(document_starts, window) -> what `attention` takes in place of the starts, made once for all layers."""
    masked_attention: Callable[..., Tensor] | None = None
    """Attention under any mask: (q, k, v, mask, dropout)."""
    losses: Callable[..., tuple[Tensor, Tensor]] | None = None
    """(x, weight, targets, z_loss, *, soft_cap) -> `loss.mean_losses` of the logits x weightᵀ, capped if it is set."""
    fused_adamw: bool = False
    """Update weights with the function of `torch.optim.AdamW(fused=True)`."""
    core_decoding: bool = False
    """Generate with the core where it can: single tokens in float32 on the CPU; see `CoreDecoder`."""
    decoding: ModuleType | None = None
    """The operations of `GraphDecoder`, those of `kernels.decoding`; None: generate with the model's forward pass."""


def cpu_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int | None = None, document_starts: Tensor | None = None
) -> Tensor:
    """Compute causal attention with torch's kernel, or blockwise where that one would copy keys or compute in vain."""
    if window is None and document_starts is None and q.shape[1] == k.shape[1]:
        return sdpa(q, k, v, causal=True)
    return causal_attention(q, k, v, window, document_starts)


SCRATCH = Kernels()
BLOCKWISE: dict[str, Any] = {
    "embedding": torch.embedding,
    "norm": normalized,
    "gated": gated_silu,
    "activations": {"gelu": gelu_tanh, "gelu_exact": gelu_erf, "relu2": squared_relu},
    "rotary": rotate_pairs,
    "attention": cpu_attention,
    "masked_attention": sdpa,
    "losses": linear_losses,
    "fused_adamw": True,
    "core_decoding": True,
}
"""This package's kernels, which read and write memory less often than the textbook."""
TORCH: dict[str, Any] = {
    "linear": functional.linear,  # adds the bias within the product
    "embedding": torch.embedding,
    "norm": torch_norm,
    "activations": {"gelu": partial(functional.gelu, approximate="tanh"), "gelu_exact": functional.gelu},
    "attention": windowed_attention,
    "masked_attention": sdpa,
    "losses": linear_losses,
    "fused_adamw": True,
    "decoding": decoding,
}
"""torch's kernels; RMSNorm, gates and rotations stay the textbook's, which torch.compile fuses."""


def choose_kernels(name: KernelName, device: torch.device, *, compiled: bool = False) -> Kernels:
    """Choose the implementation of each part.

    "auto" on the CPU is oneDNN for products, this package's blockwise kernels, and torch's attention where it measured
    faster. On NVIDIA GPUs it is torch's kernels with Triton's loss if Triton is installed, on other devices "torch".

    Args:
        name: "auto", "torch", "triton", or "scratch" (the textbook in every part).
        device: Device of the model.
        compiled: The blocks are compiled, and the compiler fuses norms, activations and rotations of the textbook.

    Raises:
        RunConfigError: "triton" without Triton or without a GPU.
    """
    if name == "scratch":
        return SCRATCH
    if name == "triton":
        _check_triton(device)
        return triton_kernels()
    if name == "torch" or device.type != "cpu":
        of_cuda: dict[str, Any] = {"document_mask": flex_mask}
        of_gpu: dict[str, Any] = TORCH | (of_cuda if device.type == "cuda" else {"decoding": None})
        if compiled:
            activations = {**TORCH["activations"], "gelu": gelu_by_sigmoid}
            of_gpu = of_gpu | {"activations": activations, "joined": joined_linear}
        if name == "auto" and device.type == "cuda" and _runs_triton(device):
            own = triton_kernels()
            of_gpu = of_gpu | {"losses": own.losses, "decoding": own.decoding}
        return Kernels(name, **of_gpu)
    parts: dict[str, Any] = BLOCKWISE
    if compiled:
        # Blockwise kernels cannot be traced, and the compiler fuses the textbook's.
        parts = {part: parts[part] for part in ("embedding", "losses", "masked_attention", "fused_adamw")} | {
            "attention": windowed_attention
        }
    if prefers_onednn():
        parts = parts | {"linear": linear, "losses": partial(linear_losses, product=product)}
    return Kernels(name, **(parts if compiled else with_common_order(parts)))


def triton_kernels() -> Kernels:
    """Return Triton's norms, attention and loss, and torch's kernels for the other parts."""
    # Needs Triton, which is not installed with torch everywhere.
    from bytemill.lm.kernels import triton

    parts: dict[str, Any] = TORCH | {
        "norm": triton.normalized,
        "attention": triton.causal_attention,
        "losses": triton.linear_losses,
        "decoding": triton.decoding,
    }
    return Kernels("triton", **parts)


def _runs_triton(device: torch.device) -> bool:
    """Return True if Triton is installed and supports the GPU."""
    if find_spec("triton") is None or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability(device) >= (7, 0)


def _check_triton(device: torch.device) -> None:
    if find_spec("triton") is None:
        raise RunConfigError(
            "kernels triton need the package triton, which is not installed",
            hint="choose --training.kernels auto; torch installs triton on Linux",
        )
    if device.type != "cuda":
        raise RunConfigError(
            f"kernels triton need a GPU, and the device is {device}",
            hint="choose --training.kernels auto, or --training.device cuda",
        )
