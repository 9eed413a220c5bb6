"""Typed wrappers of tensor operations, and tensors of which each process holds a part.

The parameters, gradients and moments of a sharded model are divided over processes. A plain tensor passes through every
function for them unchanged, so that code written with them runs in one process too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch
import torch.distributed as dist

from bytemill.errors import NotFiniteError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.tensor import DTensor
    from torch.nn import Module


def widened(x: Tensor) -> Tensor:
    """Return `x` in float32, or unchanged if it is float32 or float64."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def narrowed(x: Tensor) -> Tensor:
    """Return `x` in the type of matrix products: that of the autocast context, or unchanged outside of one.

    Several products of one tensor then share the copy that is saved for their backward passes.
    """
    device = x.device.type
    # Not by `is_autocast_available`: torch before 2.15 does not compile functions that call it.
    if device == "meta" or not torch.is_autocast_enabled(device):
        return x
    return x.to(torch.get_autocast_dtype(device))


def not_finite(model: Module) -> NotFiniteError:
    """Return the error for a model that computes NaN or infinity; it names the first tensor of weights with them."""
    hint = "use an earlier checkpoint, or train or import the model again"
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return NotFiniteError(f"the weights are not finite: {name} has NaN or infinite values", hint=hint)
    return NotFiniteError("the logits are not finite, although all weights are", hint=hint)


def split(x: Tensor, n_rows: int) -> tuple[Tensor, ...]:
    """Split `x` into views of `n_rows` rows; the last one may have fewer."""
    return cast("tuple[Tensor, ...]", x.split(n_rows))  # pyright: ignore[reportUnknownMemberType]


def l2_norm(x: Tensor, dim: tuple[int, ...] | None = None) -> Tensor:
    """Return √Σ x², summed in float32 or wider: over all numbers, or over some dimensions, which keep the size 1."""
    norm: Any = cast("Any", torch.linalg).vector_norm
    return norm(x, dim=dim, keepdim=dim is not None, dtype=torch.promote_types(x.dtype, torch.float32))


def is_sharded(x: Tensor) -> TypeGuard[DTensor]:
    """Return True if `x` is distributed over processes."""
    return hasattr(x, "full_tensor")  # an import of DTensor takes seconds


def local(x: Tensor) -> Tensor:
    """Return the part that this process holds; it shares the memory of `x`."""
    return x.to_local() if is_sharded(x) else x


def first_row(x: DTensor) -> int:
    """Return the number of the first row that this process holds; FSDP2 divides rows as `torch.chunk` does."""
    n_rows = -(-x.shape[0] // x.device_mesh.size())
    return min(x.device_mesh.get_local_rank() * n_rows, x.shape[0])


def whole(x: Tensor) -> Tensor:
    """Return all of `x`; all processes must call this."""
    return x.full_tensor() if is_sharded(x) else x


def shard_like(x: Tensor, other: Tensor) -> Tensor:
    """Return `x`, which every process holds, sharded as `other` is."""
    if not is_sharded(other):
        return x
    from torch.distributed.tensor import distribute_tensor

    x = x.to(other.device)
    return distribute_tensor(x, other.device_mesh, other.placements, src_data_rank=None)


def joined(part: Tensor, other: Tensor) -> Tensor:
    """Return the tensor whose part in each process is `part`, sharded as `other` is, of the shape of `other`."""
    if not is_sharded(other):
        return part
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part, other.device_mesh, other.placements, run_check=False, shape=other.shape, stride=other.stride()
    )


def sum_over_shards(x: Tensor, sharded: DTensor) -> Tensor:
    """Return the sum of `x` over the processes that hold the parts of `sharded`."""
    dist.all_reduce(x, group=sharded.device_mesh.get_group())
    return x
