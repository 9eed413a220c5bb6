"""The SOAP optimizer for matrices, with AdamW for all other parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from bytemill.errors import RunConfigError
from bytemill.lm.optim.adamw import adamw_step
from bytemill.lm.optim.base import (
    StepByGroup,
    check_below_one,
    check_not_negative,
    decay_weights,
    muon_groups,
    with_algorithms,
)
from bytemill.lm.tensors import is_sharded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bytemill.lm.model import TransformerLM
    from bytemill.lm.model_config import ModelConfig
    from bytemill.lm.optimizers import OptimizerConfig
    from bytemill.lm.processes import Processes

_SIDES = ("left", "right")
_linalg = cast("Any", torch.linalg)


class SOAP(StepByGroup):
    """Adam in the slowly changing eigenbasis of Shampoo's preconditioner (Vyas et al. 2024, algorithm 3).

    At step t = 1, 2, … with the gradient G (rows × columns) of a matrix W:

        G' = Qₗᵀ G Qᵣ
        M ← β₁ M + (1 − β₁) G
        V ← β₂ V + (1 − β₂) G'²
        N = (Qₗᵀ M Qᵣ) / (1 − β₁ᵗ) / (√(V / (1 − β₂ᵗ)) + ε)
        W ← W − α Qₗ N Qᵣᵀ
        W ← (1 − α λ) W
        L ← β L + (1 − β) G Gᵀ,  R ← β R + (1 − β) Gᵀ G
        every `every` steps: Qₗ, Qᵣ ← the orthogonal factors of L Qₗ and R Qᵣ

    The last line is a step of power iteration towards the eigenvectors, sorted by their eigenvalues, with V in the same
    order. As in the authors' program, the first gradient only starts L and R, whose eigenvectors are then computed
    exactly, and ε is added to √V / √(1 − β₂ᵗ).

    Args:
        params: Parameter groups with `algorithm` "soap" or "adamw"; or parameters, of which matrices use SOAP and all
            others AdamW.
        lr: Learning rate α.
        betas: Decay rates β₁ and β₂; those of AdamW too.
        preconditioner_beta: Decay rate β.
        eps: Term ε.
        weight_decay: Weight decay λ.
        every: Steps between changes of the basis.
        max_dim: A side longer than this is not rotated.
        cautious: Decay only the weights that the update makes smaller; see `decay_weights`.
        fused: Update the tensors of AdamW in one pass each; see `AdamW`.

    Raises:
        ValueError: An argument is out of range, or a group for SOAP contains a vector.
        RunConfigError: A matrix is divided among processes.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        *,
        preconditioner_beta: float = 0.95,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        every: int = 10,
        max_dim: int = 10_000,
        cautious: bool = False,
        fused: bool = False,
    ) -> None:
        check_not_negative(lr=lr, eps=eps, weight_decay=weight_decay)
        check_below_one(beta_1=betas[0], beta_2=betas[1], preconditioner_beta=preconditioner_beta)
        if every < 1:
            raise ValueError(f"every is {every}; it must be at least 1")
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "preconditioner_beta": preconditioner_beta,
            "eps": eps,
            "weight_decay": weight_decay,
            "every": every,
            "max_dim": max_dim,
            "cautious": cautious,
            "algorithm": "soap",
        }
        super().__init__(with_algorithms(list(params), "soap"), defaults)
        self.fused = fused
        divided = [p for group in self._own_groups() for p in group["params"] if is_sharded(p)]
        if divided:
            raise RunConfigError(
                "SOAP needs whole matrices, but these are divided among processes",
                hint="choose --training.strategy ddp, or another optimizer",
            )

    def _own_groups(self) -> list[dict[str, Any]]:
        return [group for group in self.param_groups if group["algorithm"] == "soap"]

    def step_group(self, group: dict[str, Any]) -> None:
        if group["algorithm"] == "adamw":
            adamw_step(group, self.state, fused=self.fused)
            return
        for parameter in group["params"]:
            if parameter.grad is not None:
                self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        gradient = cast("Tensor", parameter.grad).to(torch.promote_types(parameter.dtype, torch.float32))
        if not state:
            _start(state, gradient, group)
            return
        state["t"] += 1
        t, (beta_1, beta_2) = state["t"], group["betas"]
        state["m"].lerp_(gradient, 1 - beta_1)
        rotated = _rotated(gradient, state)
        state["v"].mul_(beta_2).addcmul_(rotated, rotated, value=1 - beta_2)
        denominator = (state["v"] / (1 - beta_2**t)).sqrt_().add_(group["eps"] / math.sqrt(1 - beta_2**t))
        update = _rotated_back(_rotated(state["m"], state) / denominator, state)
        parameter.sub_(update.to(parameter.dtype), alpha=group["lr"] / (1 - beta_1**t))
        decay_weights(parameter, update, group["lr"] * group["weight_decay"], cautious=group["cautious"])
        _add_gradient(state, gradient, group)
        if t % group["every"] == 0:
            _turn(state)


def _start(state: dict[str, Any], gradient: Tensor, group: dict[str, Any]) -> None:
    """Begin with the eigenvectors of the first gradient's products."""
    state["t"] = 0
    state["m"], state["v"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
    for side, size in zip(_SIDES, gradient.shape, strict=True):
        if size <= group["max_dim"]:
            state[side] = gradient.new_zeros(size, size)
    _add_gradient(state, gradient, group)
    for side in _SIDES:
        if side in state:
            matrix = state[side]
            # Rounding errors of the product would be amplified where the gradient has no part.
            _, vectors = _linalg.eigh(matrix + 1e-30 * torch.eye(len(matrix), device=matrix.device))
            state[f"{side}_basis"] = vectors.flip(1)


def _add_gradient(state: dict[str, Any], gradient: Tensor, group: dict[str, Any]) -> None:
    beta = group["preconditioner_beta"]
    for side, own in zip(_SIDES, (gradient, gradient.mT), strict=True):
        if side in state:
            state[side].lerp_(own @ own.mT, 1 - beta)


def _rotated(x: Tensor, state: dict[str, Any]) -> Tensor:
    """Compute Qₗᵀ x Qᵣ, without the sides that are not rotated."""
    x = state["left_basis"].mT @ x if "left_basis" in state else x
    return x @ state["right_basis"] if "right_basis" in state else x


def _rotated_back(x: Tensor, state: dict[str, Any]) -> Tensor:
    """Compute Qₗ x Qᵣᵀ, the inverse of `_rotated`."""
    x = state["left_basis"] @ x if "left_basis" in state else x
    return x @ state["right_basis"].mT if "right_basis" in state else x


def _turn(state: dict[str, Any]) -> None:
    """Take a step of power iteration on both bases."""
    for dim, side in enumerate(_SIDES):
        if side not in state:
            continue
        matrix, basis = state[side], state[f"{side}_basis"]
        order = (basis * (matrix @ basis)).sum(0).argsort(descending=True)  # by estimated eigenvalues
        state["v"] = state["v"].index_select(dim, order)
        state[f"{side}_basis"] = _linalg.qr(matrix @ basis[:, order])[0]


def state_bytes(config: ModelConfig, n_parameters: int, _n_matrices: int, max_dim: int = 10_000) -> int:
    """Return the bytes of the state for a model: Adam's moments, and per side of a matrix two square ones."""
    from bytemill.lm.model import TransformerLM

    matrices = TransformerLM(config, device="meta").block_matrices()
    squares = sum(size**2 for each in matrices for size in each.shape if size <= max_dim)
    return 8 * n_parameters + 8 * squares


def make_soap(model: TransformerLM, options: OptimizerConfig, _processes: Processes) -> SOAP:
    """Build the optimizer of a run: SOAP for the matrices of the blocks, AdamW for all other weights."""
    groups = muon_groups(
        model,
        lr=options.soap_learning_rate,
        adamw_lr=options.learning_rate,
        weight_decay=options.weight_decay,
        algorithm="soap",
    )
    return SOAP(
        groups,
        options.soap_learning_rate,
        (options.beta1, options.beta2),
        preconditioner_beta=options.soap_beta,
        eps=options.eps,
        every=options.soap_every,
        cautious=options.cautious_decay,
        fused=model.kernels.fused_adamw,
    )
