"""Muon for matrices, AdamW for the rest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bytemill.lm.optim.adamw import adamw_step
from bytemill.lm.optim.base import StepByGroup
from bytemill.lm.optim.checks import check_below_one, check_not_negative
from bytemill.lm.tensors import l2_norm

if TYPE_CHECKING:
    from collections.abc import Iterable

# Of the quintic x ↦ a x + b x³ + c x⁵, chosen for a steep start: five turns bring singular values from 0.01 … 1 to
# about 0.7 … 1.2, near enough to 1 (Jordan et al. 2024).
_A, _B, _C = 3.4445, -4.7750, 2.0315


class Muon(StepByGroup):
    """Momentum whose matrices are replaced by the nearest orthogonal ones (Jordan et al. 2024).

    At each step, with the gradient G (rows × columns) of a matrix W:

        M ← μ M + (1 − μ) G
        U = (1 − μ) G + μ M        (Nesterov; without, U = M)
        W ← (1 − α λ) W
        W ← W − α √max(1, rows / columns) · orthogonal(U)

    Groups with `algorithm` "adamw" are treated by AdamW with `betas` and `eps`; `muon_groups(model)` makes groups as
    the authors advise. Parameters given without groups are divided by their shape: matrices and others.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 0.02,
        momentum: float = 0.95,
        *,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        n_iterations: int = 5,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
    ) -> None:
        check_not_negative(lr=lr, weight_decay=weight_decay, eps=eps)
        check_below_one(momentum=momentum, beta_1=betas[0], beta_2=betas[1])
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": weight_decay,
            "n_iterations": n_iterations,
            "betas": tuple(betas),
            "eps": eps,
            "algorithm": "muon",
        }
        super().__init__(_divided(list(params)), defaults)
        for group in self.param_groups:
            wrong = [p for p in group["params"] if group["algorithm"] == "muon" and p.ndim != 2]
            if wrong or group["algorithm"] not in ("muon", "adamw"):
                raise ValueError(
                    f"a group has a parameter of shape {tuple(wrong[0].shape)}: Muon is for matrices"
                    if wrong
                    else f"algorithm is {group['algorithm']!r}: choose 'muon' or 'adamw'"
                )

    def step_group(self, group: dict[str, Any]) -> None:
        if group["algorithm"] == "adamw":
            adamw_step(group, self.state)
        else:
            self._step_of_matrices(group)

    def _step_of_matrices(self, group: dict[str, Any]) -> None:
        mu: float = group["momentum"]
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter, dtype=torch.float32)
            momentum: Tensor = state["momentum"]
            gradient = parameter.grad.float()
            momentum.lerp_(gradient, 1 - mu)
            update = orthogonal(
                gradient.lerp(momentum, mu) if group["nesterov"] else momentum, group["n_iterations"]
            )
            rows, columns = parameter.shape
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.sub_(update, alpha=group["lr"] * math.sqrt(max(1, rows / columns)))


def orthogonal(matrix: Tensor, n_iterations: int = 5, eps: float = 1e-7) -> Tensor:
    """Nearly U Vᵀ of the singular value decomposition U S Vᵀ, by a Newton–Schulz iteration of odd polynomials.

    Of the type of `matrix`; computed in bfloat16 where that is quicker, on accelerators.
    """
    x = matrix if matrix.device.type == "cpu" else matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    if tall:  # the smaller product x xᵀ
        x = x.mT
    x = x / l2_norm(x).clamp_min(eps).to(x.dtype)
    for _ in range(n_iterations):
        square = x @ x.mT
        polynomial = torch.addmm(square, square, square, beta=_B, alpha=_C)
        x = torch.addmm(x, polynomial, x, beta=_A)
    return (x.mT if tall else x).to(matrix.dtype)


def _divided(params: list[Any]) -> list[dict[str, Any]]:
    """Groups as they are, and single parameters by their shape."""
    if params and isinstance(params[0], dict):
        return params
    matrices = [p for p in params if p.ndim == 2]
    others = [p for p in params if p.ndim != 2]
    groups = [{"params": matrices, "algorithm": "muon"}, {"params": others, "algorithm": "adamw"}]
    return [group for group in groups if group["params"]]
