"""The AdamW optimizer."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# torch._fused_adamw_ has no public name; it is what `torch.optim.AdamW(fused=True)` calls.
# torch._foreach_… have no public names; torch's own optimizers use them.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bytemill.lm.optim.base import (
    StepByGroup,
    blocks,
    check_below_one,
    check_not_negative,
    decay_weights,
    parameter_groups,
)
from bytemill.lm.tensors import local

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from bytemill.lm.model import TransformerLM
    from bytemill.lm.optimizers import OptimizerConfig
    from bytemill.lm.processes import Processes


@dataclass(frozen=True)
class _Skip:
    """Scalars on the device, with which it skips a step before this program knows of it."""

    now: Tensor
    """1 if this step is skipped, else 0."""
    n_unknown: Tensor
    """Skipped steps that the counts in the states still include."""


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
        cautious: Decay only the weights that the update makes smaller; see `base.decay_weights`. Such updates are not
            fused.

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
        cautious: bool = False,
    ) -> None:
        check_not_negative(lr=lr, eps=eps, weight_decay=weight_decay)
        check_below_one(beta_1=betas[0], beta_2=betas[1])
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "cautious": cautious})

        self.fused = fused and not cautious
        self._skip: _Skip | None = None

    @property
    def can_skip(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True for the fused update on CUDA devices."""
        return self.fused and all(
            parameter.device.type == "cuda" for group in self.param_groups for parameter in group["params"]
        )

    def step_if_finite(self, norm: Tensor) -> None:
        if self._skip is None:
            self._skip = _Skip(torch.zeros_like(norm), torch.zeros_like(norm))
        skip = self._skip
        skip.now.copy_(torch.isfinite(norm).logical_not())
        self.step()
        self.zero_grad(set_to_none=True)
        skip.n_unknown.add_(skip.now)
        skip.now.zero_()

    def forget_step(self) -> None:
        for state in self.state.values():
            state["t"] -= 1
        if self._skip is not None:
            self._skip.n_unknown.sub_(1)

    def step_group(self, group: dict[str, Any]) -> None:
        adamw_step(group, self.state, fused=self.fused, skip=self._skip)


def make_adamw(model: TransformerLM, options: OptimizerConfig, _processes: Processes) -> AdamW:
    """Build the optimizer of a run over all weights."""
    return AdamW(
        parameter_groups(model, options.weight_decay),
        options.learning_rate,
        betas=(options.beta1, options.beta2),
        eps=options.eps,
        fused=model.kernels.fused_adamw,
        cautious=options.cautious_decay,
    )


def adamw_step(
    group: dict[str, Any],
    states: dict[Tensor, Any],
    *,
    fused: bool = False,
    skip: _Skip | None = None,
) -> None:
    """Update the parameters of a group that have a gradient.

    Args:
        group: The group.
        states: Moments of each parameter.
        fused: See `AdamW`.
        skip: Whether the device skips the step, in which nothing but its count changes; only if fused.
    """
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
        cautious = group.get("cautious", False)
        if fused and not cautious:
            fused_adamw_update(tensors, t, group, skip)
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
                cautious=cautious,
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
    cautious: bool,
) -> None:
    """Update many tensors at once; all operations but the square root are in place.

    Args:
        rate: α / (1 − β₁ᵗ).
        root: √(1 − β₂ᵗ).
        decay: α λ.
        cautious: See `AdamW`.
    """
    if decay and not cautious:
        torch._foreach_mul_(parameters, 1 - decay)
    torch._foreach_lerp_(m, gradients, 1 - beta_1)
    if decay and cautious:  # the update has the sign of m
        for parameter, mean in zip(parameters, m, strict=True):
            decay_weights(parameter, mean, decay, cautious=True)
    torch._foreach_mul_(v, beta_2)
    torch._foreach_addcmul_(v, gradients, gradients, 1 - beta_2)
    denominators = torch._foreach_sqrt(v)
    torch._foreach_div_(denominators, root)
    torch._foreach_add_(denominators, eps)
    torch._foreach_addcdiv_(parameters, m, denominators, -rate)


def fused_adamw_update(
    tensors: Sequence[tuple[Tensor, ...]], t: int, group: dict[str, Any], skip: _Skip | None = None
) -> None:
    """Update parameters by torch's formula of AdamW.

    Args:
        tensors: For each parameter the parameter, its gradient, and its moments m and v.
        t: Number of the step, from 1.
        group: Parameter group with the settings.
        skip: See `adamw_step`.
    """
    beta_1, beta_2 = group["betas"]
    by_type: dict[Any, list[tuple[Tensor, ...]]] = {}
    for row in tensors:
        by_type.setdefault((row[0].device, row[0].dtype), []).append(row)
    for rows in by_type.values():
        parameters, gradients, m, v = (list(column) for column in zip(*rows, strict=True))
        step = torch.full((), float(t), device=parameters[0].device)
        if skip is not None:
            step -= skip.n_unknown
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
            found_inf=None if skip is None else skip.now,
        )
