"""Parameter groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from bytemill.lm.model import TransformerLM


def parameter_groups(model: TransformerLM, weight_decay: float = 0.1) -> list[dict[str, Any]]:
    """Return two groups for AdamW: matrices with weight decay, and vectors (norms, biases) without."""
    matrices, vectors = _by_dimension(list(model.parameters()))
    return _not_empty(
        {"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}
    )


def muon_groups(
    model: TransformerLM, lr: float = 0.02, adamw_lr: float = 3e-4, weight_decay: float = 0.1
) -> list[dict[str, Any]]:
    """Return groups for Muon: matrices of the blocks with Muon; embeddings, output layer and vectors with AdamW.

    Rows of an embedding are looked up, not multiplied, so making the matrix orthogonal has no purpose.

    Args:
        model: The model.
        lr: Learning rate of Muon.
        adamw_lr: Learning rate of AdamW.
        weight_decay: Weight decay; vectors do not decay.
    """
    inner = {id(parameter) for parameter in model.layers.parameters() if parameter.ndim == 2}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in inner]
    outer, vectors = _by_dimension(rest)
    matrices = [parameter for parameter in model.parameters() if id(parameter) in inner]
    return _not_empty(
        {"params": matrices, "algorithm": "muon", "lr": lr, "weight_decay": weight_decay},
        {"params": outer, "algorithm": "adamw", "lr": adamw_lr, "weight_decay": weight_decay},
        {"params": vectors, "algorithm": "adamw", "lr": adamw_lr, "weight_decay": 0.0},
    )


def _by_dimension(parameters: list[Any]) -> tuple[list[Tensor], list[Tensor]]:
    return [p for p in parameters if p.ndim >= 2], [p for p in parameters if p.ndim < 2]


def _not_empty(*groups: dict[str, Any]) -> list[dict[str, Any]]:
    return [group for group in groups if group["params"]]
