"""Pruning: set the weights of least magnitude in the matrices of the blocks to zero.

`lm train --init-from PRUNED --training.keep-zeros` trains the others further.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bytemill.errors import ModelConfigError
from bytemill.lm.model import TransformerLM
from bytemill.lm.training.saved_model import (
    check_output,
    find_saved_model,
    locked_output,
    write_model_folder,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from bytemill.lm.training.saved_model import ModelFolder, WeightsName

_STRUCTURE = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True)
class Sparsity:
    """Which weights are pruned: a share of each matrix, or of each group of consecutive inputs of an output.

    >>> Sparsity.parse("0.3"), Sparsity.parse("2:4")
    (Sparsity(share=0.3, group=None), Sparsity(share=0.5, group=4))
    """

    share: float
    """Share of the weights that become zero."""
    group: int | None = None
    """Weights per group; None: the whole matrix is one group. Some GPUs multiply 2:4 matrices faster."""

    @classmethod
    def parse(cls, text: str) -> Sparsity:
        """Read a share such as 0.5, or N:M, where N of M weights stay.

        Raises:
            ModelConfigError: It is neither.
        """
        hint = (
            "write a share between 0 and 1, such as 0.5, or the weights that stay in each group, such as 2:4"
        )
        if match := _STRUCTURE.fullmatch(text):
            kept, group = int(match[1]), int(match[2])
            if not 0 < kept < group:
                raise ModelConfigError(f"{text} prunes nothing or everything", hint=hint)
            return cls((group - kept) / group, group)
        try:
            share = float(text)
        except ValueError:
            raise ModelConfigError(f"{text!r} is not a sparsity", hint=hint) from None
        if not 0 < share < 1:
            raise ModelConfigError(f"{text} prunes nothing or everything", hint=hint)
        return cls(share)


def kept_weights(weight: Tensor, sparsity: Sparsity) -> Tensor:
    """Return a mask of the weights that stay, of the shape of a matrix.

    Of equal magnitudes, the first ones stay.

    Args:
        weight: (rows, columns).
        sparsity: What to prune.

    Raises:
        ModelConfigError: The columns do not divide into groups.
    """
    size = weight.numel() if sparsity.group is None else sparsity.group
    if sparsity.group is not None and weight.shape[1] % sparsity.group:
        raise ModelConfigError(
            f"a matrix with {weight.shape[1]} inputs does not divide into groups of {sparsity.group}",
            hint="choose a group that divides all widths of the model, or a share",
        )
    groups = weight.detach().abs().reshape(-1, size)
    n_kept = size - round(sparsity.share * size)
    order = groups.argsort(dim=1, descending=True, stable=True)[:, :n_kept]
    return torch.zeros_like(groups, dtype=torch.bool).scatter_(1, order, value=True).view_as(weight)


@torch.no_grad()
def prune(model: TransformerLM, sparsity: Sparsity) -> int:
    """Prune the matrices of the blocks, in place; embeddings and the output layer stay.

    Returns:
        The number of weights that are zero then.

    Raises:
        ModelConfigError: The columns of a matrix do not divide into groups.
    """
    matrices = model.block_matrices()
    masks = [kept_weights(matrix, sparsity) for matrix in matrices]  # all before the first changes
    for matrix, mask in zip(matrices, masks, strict=True):
        matrix.mul_(mask)
    return sum(int((matrix == 0).sum()) for matrix in matrices)


def prune_saved_model(
    source: str | Path,
    destination: Path,
    sparsity: Sparsity,
    *,
    weights: WeightsName = "auto",
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[ModelFolder, int]:
    """Write a pruned copy of a model as a folder that `lm generate`, `lm eval` and `lm train --init-from` read.

    Args:
        source: Run folder, checkpoint or imported model.
        destination: The folder.
        sparsity: What to prune.
        weights: Which weights of a run.
        overwrite: Replace a model in the folder.
        progress: Called with the bytes of weights that are written, and their total.

    Returns:
        The folder, and the number of weights that are zero.

    Raises:
        CheckpointError: There is no model in `source`.
        ModelConfigError: The model cannot be pruned so.
        OutputError: `destination` holds other files or cannot be written.
    """
    check_output(destination, overwrite=overwrite)
    saved = find_saved_model(source)
    model = TransformerLM(saved.config.model, seed=0)
    saved.load_weights(model, weights)
    n_zeros = prune(model, sparsity)
    tokenizer = None if saved.fingerprint is None else saved.tokenizer()
    tensors = {name: tensor.detach() for name, tensor in model.named_parameters()}
    with locked_output(destination):
        folder = write_model_folder(
            destination,
            saved.config.model,
            tensors,
            tokenizer,
            source=f"{source}, pruned to {sparsity.share:.0%}",
            bos_id=saved.bos_id,
            progress=progress,
        )
    return folder, n_zeros
