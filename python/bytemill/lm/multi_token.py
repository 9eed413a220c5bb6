"""Multi-token prediction: in training, a further block also predicts the token after the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module

from bytemill.lm.loss import mean_losses
from bytemill.lm.model import Linear, TransformerBlock
from bytemill.lm.model_config import NORMS

if TYPE_CHECKING:
    from bytemill.lm.batches import Documents
    from bytemill.lm.model import RotaryEmbedding, TransformerLM
    from bytemill.lm.model_config import ModelConfig


class MultiTokenHead(Module):
    """One module of DeepSeek-V3's multi-token prediction (2024): norm(block(W [norm(hₜ); norm(e(idₜ₊₁))])).

    hₜ is the input of the output layer, which the head and the model share, like the token embeddings e. Text is
    generated without the head.

    Args:
        config: Shape of the model.
        rope: Rotary embedding of the last block.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    def __init__(
        self,
        config: ModelConfig,
        rope: RotaryEmbedding | None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        norm, place = NORMS[config.norm].load(), {"device": device, "dtype": dtype}
        self.norm_hidden, self.norm_embedding = norm.of(config, **place), norm.of(config, **place)
        self.projection = Linear(2 * config.d_model, config.d_model, config.bias, device=device, dtype=dtype)
        self.block = TransformerBlock(config.layers[-1].config, rope, device, dtype)
        self.norm = norm.of(config, **place)

    def forward(self, hidden: Tensor, embeddings: Tensor, **options: Any) -> Tensor:
        """Return the input of the output layer for the token after the next one.

        Args:
            hidden: (..., n_tokens, d_model), of the model.
            embeddings: Those of the next tokens, of the same shape.
            options: Further arguments of `TransformerBlock.forward`.
        """
        joined = torch.cat((self.norm_hidden(hidden), self.norm_embedding(embeddings)), dim=-1)
        return self.norm(self.block(self.projection(joined), **options))


def multi_token_loss(
    model: TransformerLM, hidden: Tensor, ids: Tensor, targets: Tensor, documents: Documents | None
) -> Tensor:
    """Return the mean cross-entropy of the tokens after the next ones, where those are in the batch.

    Args:
        model: A model with the head.
        hidden: Its result for `ids`, (..., n_tokens, d_model).
        ids: (..., n_tokens).
        targets: The next tokens; negative where a position has none.
        documents: Tokens attend to their own document alone.
    """
    head: Any = model.multi_token
    following, after = targets[..., :-1], targets[..., 1:]
    is_counted = (following >= 0) & (after >= 0)
    if not bool(is_counted.any()):
        # Gradients of 0: processes agree on which ones there are.
        return 0 * (hidden.sum() + sum(parameter.sum() for parameter in head.parameters()))
    embeddings = model.token_embeddings(following.clamp_min(0)) * (model.config.embedding_scale or 1.0)
    options: dict[str, Any] = {}
    if documents is not None:
        starts = documents.starts(ids)[..., :-1]
        positions = torch.arange(starts.shape[-1], device=ids.device)
        positions = positions - starts if documents.reset_positions else positions
        options = {"token_positions": positions, "document_starts": starts}
    if head.block.takes_ids:
        options["ids"] = following.clamp_min(0)
    x, wanted = head(hidden[..., :-1, :], embeddings, **options)[is_counted], after[is_counted]
    losses, cap = model.kernels.losses, model.config.logit_soft_cap
    if losses is not None:
        return losses(x, model.lm_head.weight, wanted, 0.0, soft_cap=cap)[0]
    return mean_losses(model.logits(x), wanted, 0.0)[0]
