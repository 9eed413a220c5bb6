"""AdamW in one pass over each tensor."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# torch._fused_adamw_ has no public name; it is what `torch.optim.AdamW(fused=True)` calls.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def fused_adamw_update(tensors: Sequence[tuple[Tensor, ...]], t: int, group: dict[str, Any]) -> None:
    """Update parameters by torch's formula of AdamW.

    Args:
        tensors: For each parameter the parameter, its gradient, and its moments m and v.
        t: Number of the step, from 1.
        group: Parameter group with the settings.
    """
    beta_1, beta_2 = group["betas"]
    by_type: dict[Any, list[tuple[Tensor, ...]]] = {}
    for row in tensors:
        by_type.setdefault((row[0].device, row[0].dtype), []).append(row)
    for rows in by_type.values():
        parameters, gradients, m, v = (list(column) for column in zip(*rows, strict=True))
        step = torch.full((), float(t), device=parameters[0].device)
        torch._fused_adamw_(
            parameters,
            gradients,
            m,
            v,
            [],
            [step] * len(parameters),
            lr=group["lr"],
            beta1=beta_1,
            beta2=beta_2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=None,
            found_inf=None,
        )
