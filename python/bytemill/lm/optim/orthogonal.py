"""The nearest orthogonal matrix, by iterations that use matrix products alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from bytemill.lm.tensors import l2_norm

if TYPE_CHECKING:
    from torch import Tensor

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
        matrix: Matrix, (rows, columns).
        n_iterations: Number of iterations.
        method: Coefficients: "newton_schulz" (Jordan et al. 2024) or "polar_express" (Amsel et al. 2025).
        eps: Lower bound of the norm that the matrix is divided by.
    """
    x = matrix if matrix.device.type == "cpu" else matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    if tall:  # the product x xᵀ is then smaller
        x = x.mT
    norm = l2_norm(x) * (_SAFETY if method == "polar_express" else 1.0)
    x = x / norm.clamp_min(eps).to(x.dtype)
    for a, b, c in coefficients(method, n_iterations):
        square = x @ x.mT
        polynomial = torch.addmm(square, square, square, beta=b, alpha=c)
        x = torch.addmm(x, polynomial, x, beta=a)
    return (x.mT if tall else x).to(matrix.dtype)
