"""Tensors of which each process holds a part: the parameters, gradients and moments of a sharded model.

A plain tensor passes through every function unchanged, so that code written with them runs in one process too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import torch.distributed as dist

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.tensor import DTensor


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
