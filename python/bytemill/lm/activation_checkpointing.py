"""Activation checkpointing: compute activations again in the backward pass instead of saving them (Chen et al. 2016).

A block that is checkpointed saves its input. Just before its backward pass, its forward pass runs once more:
completely ("full"), or without the matrix products and the attention, whose results are saved too ("selective";
Korthikanti et al. 2022).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from torch.nn import Module
from torch.utils import checkpoint as torch_checkpoint
from torch.utils.checkpoint import CheckpointPolicy

if TYPE_CHECKING:
    from torch import Tensor

    from bytemill.lm.planning.formulas import CheckpointingName

_torch = cast("Any", torch_checkpoint)
_SAVED = {
    "aten::mm",
    "aten::addmm",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "bytemill::product",
    "mkldnn::_linear_pointwise",
}
"""The linear layers and torch's attention. Blockwise attention consists of many small products that are overwritten, so
it is computed again."""


class Checkpointed(Module):
    """A block that saves less of itself for the backward pass; results and gradients are those of the block.

    Args:
        block: The block. Its parameters are not parameters of this module.
        name: What to save.
        has_dropout: Restore the state of the random generators when the block is computed again.
    """

    def __init__(self, block: Module, name: CheckpointingName, *, has_dropout: bool) -> None:
        super().__init__()
        self._block = (block,)  # a tuple hides it from `parameters`
        self._options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": has_dropout}
        if name == "selective":
            self._options["context_fn"] = partial(_torch.create_selective_checkpoint_contexts, _policy)

    def forward(
        self, x: Tensor, token_positions: Tensor | None = None, *, document_starts: Tensor | None = None
    ) -> Tensor:
        return _torch.checkpoint(
            self._block[0], x, token_positions, document_starts=document_starts, **self._options
        )


def _policy(_context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    is_saved = operation.name().partition(".")[0] in _SAVED
    return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE
