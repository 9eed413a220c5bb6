"""The tensors of a model under the names and in the layout of another format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bytemill.errors import NotFiniteError
from bytemill.lm.device import memory_errors
from bytemill.lm.interchange.architectures import with_zero_biases
from bytemill.lm.interchange.tensor_map import Entry, Layout, entries, tensor_shapes
from bytemill.lm.model import TransformerLM
from bytemill.lm.tensors import not_finite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.lm.interchange.exported_tokenizer import Ends
    from bytemill.lm.training.saved_model import SavedModel
    from bytemill.tokenizer.tokenizer import Tokenizer


OnProgress = Callable[[int, int], None]
"""Called with the bytes of weights that are written, and their total."""


def no_progress(_done: int, _total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class ModelToExport:
    """Weights, read to the CPU, and the tokenizer."""

    saved: SavedModel
    state: Mapping[str, Tensor]
    tokenizer: Tokenizer | None
    ends: Ends

    def entries(self, layout: Layout, architecture: str) -> list[Entry]:
        """Return an entry for each tensor of the other format."""
        return entries(layout, with_zero_biases(self.saved.config.model, architecture))

    def tensor(self, entry: Entry) -> Tensor:
        """Return a tensor of the other format. Biases that this model does not have are zero."""
        state = dict(self.state)
        for name in entry.ours:
            if name not in state:  # a bias has the width of the rows of its weight
                state[name] = torch.zeros(len(state[name.replace(".bias", ".weight")]))
        return entry.to_theirs(state)

    def shapes(self, architecture: str) -> dict[str, tuple[int, ...]]:
        """Return this package's shapes, with the biases that the architecture has."""
        return tensor_shapes(with_zero_biases(self.saved.config.model, architecture))


def read_model(
    saved: SavedModel, tokenizer: Tokenizer | None, ends: Ends, dtype: torch.dtype
) -> ModelToExport:
    """Read the weights of a trained or imported model.

    Args:
        saved: The model.
        tokenizer: Its tokenizer.
        ends: The tokens around a text.
        dtype: Type that the weights are to be stored in.

    Raises:
        NotFiniteError: The weights are not finite, or not in this type.
        CheckpointError: The weights are damaged.
        NotEnoughMemoryError: The weights do not fit into memory.
    """
    with memory_errors("close other programs"):
        # Without initial values, which take longer to sample than the weights to read.
        model = TransformerLM(saved.config.model, device="meta").to_empty(device="cpu")
        if saved.config.model.tied_embeddings:
            model.lm_head.weight = model.token_embeddings.weight
        saved.load_weights(model)
        for name, parameter in model.named_parameters():
            values = parameter.detach()
            if not bool(torch.isfinite(values).all()):
                raise not_finite(model)
            if not bool(torch.isfinite(values.to(dtype)).all()):
                raise NotFiniteError(
                    f"{name} has values up to {float(values.abs().max()):g}, which "
                    f"{str(dtype).removeprefix('torch.')} cannot hold",
                    hint="choose --precision bfloat16 or float32",
                )
    return ModelToExport(saved, dict(model.named_parameters()), tokenizer, ends)
