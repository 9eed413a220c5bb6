"""The Muon optimizer for matrices, with AdamW for all other parameters."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# torch._foreach_… have no public names; torch's own optimizers use them.

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import torch
from torch import Tensor

from bytemill.lm.optim.adamw import adamw_step
from bytemill.lm.optim.base import (
    StepByGroup,
    check_below_one,
    check_not_negative,
    decay_weights,
    muon_groups,
    with_algorithms,
)
from bytemill.lm.processes import Processes
from bytemill.lm.tensors import joined, l2_norm, local, shard_like, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bytemill.lm.model import TransformerLM
    from bytemill.lm.optimizers import OptimizerConfig


Method = Literal["newton_schulz", "polar_express"]

# Coefficients of x ↦ a x + b x³ + c x⁵, chosen for a steep slope at 0: five iterations bring singular values in
# 0.01 … 1 to about 0.7 … 1.2 (Jordan et al. 2024).
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)

# The same polynomial with coefficients of its own for each iteration: each minimizes the largest error |1 − p(x)| over
# the interval that contains the singular values after the iterations before it, which starts as 0.001 … 1 (Amsel et
# al. 2025, "The Polar Express", algorithm 1). The iterations after the last repeat it.
_POLAR_EXPRESS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    (1.875, -1.25, 0.375),
)
# Roundings can push a singular value above the interval, where the polynomials grow; the paper shrinks the argument of
# all but the last by 1 %.
_SAFETY = 1.01


def coefficients(method: Method, n_iterations: int) -> list[tuple[float, float, float]]:
    """Return a, b and c of each iteration x ↦ a x + b x³ + c x⁵."""
    if method == "newton_schulz":
        return [_NEWTON_SCHULZ] * n_iterations
    shrunk = [(a / _SAFETY, b / _SAFETY**3, c / _SAFETY**5) for a, b, c in _POLAR_EXPRESS[:-1]]
    every = [*shrunk, *[_POLAR_EXPRESS[-1]] * max(0, n_iterations - len(shrunk))]
    return every[:n_iterations]


def orthogonal(
    matrix: Tensor, n_iterations: int = 5, method: Method = "newton_schulz", eps: float = 1e-7
) -> Tensor:
    """Approximate U Vᵀ of the singular value decomposition U S Vᵀ.

    An odd polynomial of a matrix acts on its singular values: with X = U S Vᵀ, a X + b X Xᵀ X + c (X Xᵀ)² X is
    U (a S + b S³ + c S⁵) Vᵀ. The iterations bring all singular values close to 1. Computed in bfloat16 on
    accelerators; the result has the type of `matrix`.

    Args:
        matrix: Matrix (rows, columns), or several of one shape (n, rows, columns).
        n_iterations: Number of iterations.
        method: Coefficients: "newton_schulz" (Jordan et al. 2024) or "polar_express" (Amsel et al. 2025).
        eps: Lower bound of the norm that the matrix is divided by.
    """
    x = matrix if matrix.device.type == "cpu" else matrix.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:  # the product x xᵀ is then smaller
        x = x.mT
    norm = l2_norm(x, (-2, -1)) * (_SAFETY if method == "polar_express" else 1.0)
    x = x / norm.clamp_min(eps).to(x.dtype)
    add_product = torch.addmm if x.ndim == 2 else torch.baddbmm
    for a, b, c in coefficients(method, n_iterations):
        square = x @ x.mT
        polynomial = add_product(square, square, square, beta=b, alpha=c)
        x = add_product(x, polynomial, x, beta=a)
    return (x.mT if tall else x).to(matrix.dtype)


Scaling = Literal["original", "match_adamw"]


class Muon(StepByGroup):
    """Momentum with orthogonalized updates of matrices (Jordan et al. 2024).

    At each step, with the gradient G (rows × columns) of a matrix W:

        M ← μ M + (1 − μ) G
        U = (1 − μ) G + μ M        (Nesterov; without, U = M)
        W ← (1 − α λ) W
        W ← W − α s(rows, columns) · orthogonal(U)

    s is √max(1, rows / columns) with scaling "original" (Jordan et al. 2024), and 0.2 √max(rows, columns) with
    "match_adamw" (Liu et al. 2025, "Muon is scalable for LLM training"). The second gives updates the root mean square
    of AdamW's, about 0.2, so learning rate and weight decay of AdamW fit Muon too.

    With `variance_beta`, `balanced` scales the rows of the orthogonal matrix (or the columns, of a wide one) by their
    usual size.

    Args:
        params: Parameter groups with `algorithm` "muon" or "adamw", such as those of `muon_groups`; or parameters, of
            which matrices use Muon and all others AdamW.
        lr: Learning rate α.
        momentum: Decay rate μ.
        momentum_warmup: Steps in which `begin_step` raises μ from 0.85 to its value.
        nesterov: Use Nesterov momentum.
        weight_decay: Weight decay λ.
        n_iterations: Iterations of `orthogonal`.
        method: Iteration of `orthogonal`: "newton_schulz" or "polar_express".
        scaling: Learning rate by shape: "original" or "match_adamw".
        variance_beta: Decay rate of the variances of `balanced`; 0: no scaling.
        cautious: Decay only the weights that the update makes smaller; see `decay_weights`.
        betas: Decay rates of AdamW.
        eps: Term ε of AdamW.
        fused: Update the tensors of AdamW in one pass each; see `AdamW`.
        processes: The processes that train the model; each orthogonalizes a share of the matrices.

    Raises:
        ValueError: An argument is out of range, or a group for Muon contains a vector.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 0.02,
        momentum: float = 0.95,
        *,
        momentum_warmup: int = 0,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        n_iterations: int = 5,
        method: Method = "newton_schulz",
        scaling: Scaling = "original",
        variance_beta: float = 0.0,
        cautious: bool = False,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        fused: bool = False,
        processes: Processes | None = None,
    ) -> None:
        check_not_negative(lr=lr, weight_decay=weight_decay, eps=eps)
        check_below_one(momentum=momentum, variance_beta=variance_beta, beta_1=betas[0], beta_2=betas[1])
        for name, value, kind in (("method", method, Method), ("scaling", scaling, Scaling)):
            if value not in get_args(kind):
                raise ValueError(f"{name} is {value!r}: choose {' or '.join(map(repr, get_args(kind)))}")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": weight_decay,
            "n_iterations": n_iterations,
            "method": method,
            "scaling": scaling,
            "variance_beta": variance_beta,
            "cautious": cautious,
            "betas": tuple(betas),
            "eps": eps,
            "algorithm": "muon",
        }
        super().__init__(with_algorithms(list(params), "muon"), defaults)
        self.processes = processes or Processes()
        self.fused = fused
        self.momentum, self.momentum_warmup = momentum, momentum_warmup

    def begin_step(self, step: int) -> None:
        for group in self.param_groups:
            group["momentum"] = warm_momentum(step, self.momentum, self.momentum_warmup)

    def n_moments(self, group: dict[str, Any]) -> int:
        return 1 if group["algorithm"] == "muon" else 2

    def step_group(self, group: dict[str, Any]) -> None:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        if group["algorithm"] == "adamw":
            adamw_step(group, self.state, fused=self.fused)
        elif self.processes.count == 1 and parameters and parameters[0].device.type != "cpu":
            self._update_stacks(parameters, group)
        else:
            self._update_matrices(parameters, group)

    def _update_stacks(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Update all matrices of one shape together: few large products fill a GPU, many small ones do not."""
        by_shape: dict[torch.Size, list[Tensor]] = {}
        for parameter in parameters:
            by_shape.setdefault(parameter.shape, []).append(parameter)
        for (rows, columns), own in by_shape.items():
            gradients = [cast("Tensor", parameter.grad).float() for parameter in own]
            momenta = [self._momentum(parameter) for parameter in own]
            torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
            updates = (
                torch._foreach_lerp(gradients, momenta, group["momentum"]) if group["nesterov"] else momenta
            )
            stack = orthogonal(torch.stack(list(updates)), group["n_iterations"], group["method"])
            if group["variance_beta"]:
                variances = [self._variance(parameter) for parameter in own]
                new = torch.stack(variances)
                stack = balanced(stack, new, group["variance_beta"])
                torch._foreach_copy_(variances, list(new.unbind()))
            rate = group["lr"] * shape_scale(rows, columns, group["scaling"])
            decay = group["lr"] * group["weight_decay"]
            if group["cautious"]:
                for parameter, update in zip(own, stack.unbind(), strict=True):
                    decay_weights(parameter, update, decay, cautious=True)
            else:
                torch._foreach_mul_(own, 1 - decay)
            torch._foreach_add_(own, list(stack.unbind()), alpha=-rate)

    def _update_matrices(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        n = self.processes.count
        for first in range(0, len(parameters), n):
            some = parameters[first : first + n]
            updates = [self._update(parameter, group) for parameter in some]
            matrices = orthogonal_by_turns(updates, group["n_iterations"], group["method"], self.processes)
            if group["variance_beta"]:
                matrices = [
                    balanced(matrix, self._variance(parameter), group["variance_beta"])
                    for matrix, parameter in zip(matrices, some, strict=True)
                ]
            for parameter, like, matrix in zip(some, updates, matrices, strict=True):
                rows, columns = parameter.shape
                weights, update = local(parameter), local(shard_like(matrix, like))
                decay = group["lr"] * group["weight_decay"]
                decay_weights(weights, update, decay, cautious=group["cautious"])
                weights.sub_(update, alpha=group["lr"] * shape_scale(rows, columns, group["scaling"]))

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> Tensor:
        """Update the momentum of a matrix, and return U; sharded as the matrix is."""
        mu: float = group["momentum"]
        momentum = local(self._momentum(parameter))
        gradient = local(cast("Tensor", parameter.grad)).float()
        momentum.lerp_(gradient, 1 - mu)
        return joined(gradient.lerp(momentum, mu) if group["nesterov"] else momentum, parameter)

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter, dtype=torch.float32)
        return state["momentum"]

    def _variance(self, parameter: Tensor) -> Tensor:
        """Return the variances of a matrix's rows, (rows, 1), or of a wide one's columns; whole in every process."""
        state = self.state[parameter]
        if "variance" not in state:
            rows, columns = parameter.shape
            shape = (rows, 1) if rows >= columns else (1, columns)
            state["variance"] = torch.zeros(shape, device=parameter.device)
        return state["variance"]


def balanced(update: Tensor, variance: Tensor, beta: float) -> Tensor:
    """Divide the rows of an update by their usual size, and keep the norm of the whole (NorMuon, Li et al. 2025).

    nanochat does so too, along the shorter side of a matrix.

    Args:
        update: (..., rows, columns).
        variance: Moving average of the mean squares of the rows, (..., rows, 1), or of the columns, (..., 1, columns);
            updated in place.
        beta: Decay rate of the average.
    """
    wide = update.float()
    over = -1 if variance.shape[-1] == 1 else -2
    size = wide.shape[over]
    squares = wide.square().mean(over, keepdim=True)
    variance.lerp_(squares, 1 - beta)
    scale = variance.clamp_min(1e-10).rsqrt()
    before, after = (
        (each * size).sum((-2, -1), keepdim=True) for each in (squares, squares * scale.square())
    )
    return (wide * scale * (before / after.clamp_min(1e-20)).sqrt()).to(update.dtype)


def make_muon(model: TransformerLM, options: OptimizerConfig, processes: Processes) -> Muon:
    """Build the optimizer of a run over all weights."""
    groups = muon_groups(
        model,
        lr=options.muon_learning_rate,
        adamw_lr=options.learning_rate,
        weight_decay=options.weight_decay,
    )
    return Muon(
        groups,
        options.muon_learning_rate,
        options.muon_momentum,
        momentum_warmup=options.muon_momentum_warmup,
        nesterov=options.muon_nesterov,
        method=options.muon_method,
        scaling=options.muon_scaling,
        variance_beta=options.muon_variance_beta,
        cautious=options.cautious_decay,
        betas=(options.beta1, options.beta2),
        eps=options.eps,
        fused=model.kernels.fused_adamw,
        processes=processes,
    )


def orthogonal_by_turns(
    updates: Sequence[Tensor], n_iterations: int, method: Method, processes: Processes
) -> list[Tensor]:
    """Compute `orthogonal` of each matrix in one process, and send the whole result to the others.

    Args:
        updates: The same matrices in every process, or sharded; at most one per process.
        n_iterations: Number of iterations.
        method: Coefficients; see `orthogonal`.
        processes: The processes that call this.
    """
    if processes.count == 1:
        return [orthogonal(update, n_iterations, method) for update in updates]
    matrices = [
        orthogonal(matrix, n_iterations, method).contiguous()
        if rank == processes.rank
        else torch.empty_like(matrix)
        for rank, matrix in enumerate([whole(update) for update in updates])
    ]
    for rank, matrix in enumerate(matrices):
        processes.send_tensor(matrix, rank)
    return matrices


def shape_scale(rows: int, columns: int, scaling: Scaling) -> float:
    """Return the factor s of the learning rate.

    >>> shape_scale(400, 100, "original"), shape_scale(100, 400, "original"), shape_scale(100, 400, "match_adamw")
    (2.0, 1.0, 4.0)
    """
    if scaling == "match_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))


def warm_momentum(step: int, momentum: float, warmup_steps: int, start: float = 0.85) -> float:
    """Return the momentum of step `step` (from 0): linear from `start` to `momentum` (Jordan et al. 2024).

    >>> [round(warm_momentum(step, 0.95, warmup_steps=300), 3) for step in (0, 150, 300, 1000)]
    [0.85, 0.9, 0.95, 0.95]
    """
    start = min(start, momentum)
    return momentum if step >= warmup_steps else start + (momentum - start) * step / warmup_steps
