"""Which parameters are treated alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from bytemill.lm.model import TransformerLM


def parameter_groups(model: TransformerLM, weight_decay: float = 0.1) -> list[dict[str, Any]]:
    """Two groups for AdamW: matrices, which decay, and vectors (norms, biases), which do not."""
    matrices, vectors = _by_dimension(list(model.parameters()))
    return _not_empty(
        {"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}
    )


def muon_groups(
    model: TransformerLM, lr: float = 0.02, adamw_lr: float = 3e-4, weight_decay: float = 0.1
) -> list[dict[str, Any]]:
    """Three groups for Muon: the blocks' matrices; embeddings and output layer; vectors. The last two go by AdamW.

    Rows of an embedding are looked up, not multiplied, so that there is no sense in making the matrix orthogonal.
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
