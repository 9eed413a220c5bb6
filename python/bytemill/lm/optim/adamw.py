"""The AdamW optimizer."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# torch._fused_adamw_ has no public name; it is what `torch.optim.AdamW(fused=True)` calls.
# torch._foreach_… have no public names; torch's own optimizers use them.

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bytemill.lm.optim.base import StepByGroup, blocks, check_below_one, check_not_negative, parameter_groups
from bytemill.lm.tensors import local

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from bytemill.lm.model import TransformerLM
    from bytemill.lm.optimizers import OptimizerConfig
    from bytemill.lm.processes import Processes


class AdamW(StepByGroup):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019), with the same roundings as `torch.optim.AdamW`.

    At step t = 1, 2, …, with the gradient g:

        θ ← θ − α λ θ
        m ← β₁ m + (1 − β₁) g
        v ← β₂ v + (1 − β₂) g²
        m̂ = m / (1 − β₁ᵗ),  v̂ = v / (1 − β₂ᵗ)
        θ ← θ − α m̂ / (√v̂ + ε)

    This is the algorithm in the documentation of `torch.optim.AdamW`, and algorithm 2 of the paper with a weight decay
    of α λ. Moments of weights in half precision are float32.

    Args:
        params: Parameters, or parameter groups.
        lr: Learning rate α.
        betas: Decay rates β₁ and β₂ of the moments.
        eps: Term ε added to √v̂.
        weight_decay: Weight decay λ.
        fused: Update each tensor in one pass, with the function of `torch.optim.AdamW(fused=True)`.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        fused: bool = False,
    ) -> None:
        check_not_negative(lr=lr, eps=eps, weight_decay=weight_decay)
        check_below_one(beta_1=betas[0], beta_2=betas[1])
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay})

        self.fused = fused

    def step_group(self, group: dict[str, Any]) -> None:
        adamw_step(group, self.state, fused=self.fused)


def make_adamw(model: TransformerLM, options: OptimizerConfig, _processes: Processes) -> AdamW:
    """Build the optimizer of a run over all weights."""
    return AdamW(
        parameter_groups(model, options.weight_decay),
        options.learning_rate,
        betas=(options.beta1, options.beta2),
        eps=options.eps,
        fused=model.kernels.fused_adamw,
    )


def adamw_step(group: dict[str, Any], states: dict[Tensor, Any], *, fused: bool = False) -> None:
    """Update the parameters of a group that have a gradient."""
    beta_1, beta_2 = group["betas"]
    by_step: dict[int, list[tuple[Tensor, ...]]] = {}
    for parameter in group["params"]:
        if parameter.grad is None:
            continue
        state = states[parameter]
        if not state:
            state["t"] = 0
            dtype = torch.promote_types(parameter.dtype, torch.float32)
            for name in ("m", "v"):
                state[name] = torch.zeros_like(parameter, dtype=dtype)
        state["t"] += 1
        gradient = parameter.grad.to(state["m"].dtype)
        tensors = (parameter, gradient, state["m"], state["v"])
        by_step.setdefault(state["t"], []).append(tuple(map(local, tensors)))
    for t, tensors in by_step.items():
        if fused:
            fused_adamw_update(tensors, t, group)
            continue
        for block in blocks(tensors):
            _update(
                *block,
                beta_1=beta_1,
                beta_2=beta_2,
                eps=group["eps"],
                rate=group["lr"] / (1 - beta_1**t),
                root=math.sqrt(1 - beta_2**t),
                decay=group["lr"] * group["weight_decay"],
            )


def _update(
    parameters: list[Tensor],
    gradients: list[Tensor],
    m: list[Tensor],
    v: list[Tensor],
    *,
    beta_1: float,
    beta_2: float,
    eps: float,
    rate: float,
    root: float,
    decay: float,
) -> None:
    """Update many tensors at once; all operations but the square root are in place.

    Args:
        rate: α / (1 − β₁ᵗ).
        root: √(1 − β₂ᵗ).
        decay: α λ.
    """
    if decay:
        torch._foreach_mul_(parameters, 1 - decay)
    torch._foreach_lerp_(m, gradients, 1 - beta_1)
    torch._foreach_mul_(v, beta_2)
    torch._foreach_addcmul_(v, gradients, gradients, 1 - beta_2)
    denominators = torch._foreach_sqrt(v)
    torch._foreach_div_(denominators, root)
    torch._foreach_add_(denominators, eps)
    torch._foreach_addcdiv_(parameters, m, denominators, -rate)


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
