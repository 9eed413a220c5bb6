"""Mixture of experts: a router chooses a few feed-forward networks for each token.

No token is dropped: the rows of all tokens are sorted by expert, each expert computes its rows at once, and the results
are put back in order. The number of rows of an expert varies from batch to batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor
from torch.nn import Module, ModuleList, Parameter

from bytemill.lm.model import Linear, softmax
from bytemill.lm.model_config import FEED_FORWARDS
from bytemill.lm.tensors import narrowed, widened

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig, MoeConfig


def route(logits: Tensor, options: MoeConfig, bias: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Choose experts by the logits of a router.

    Args:
        logits: (n_tokens, n_experts).
        options: Scores, number of experts per token, and how the weights follow from their scores.
        bias: (n_experts,), added to the scores for the choice alone.

    Returns:
        The scores of all experts; and of the chosen ones the weights and the indices, (n_tokens, top_k).
    """
    wide = widened(logits)
    scores = softmax(wide, dim=-1) if options.scores == "softmax" else torch.sigmoid(wide)
    chosen = (scores if bias is None else scores + bias).topk(options.top_k, dim=-1).indices
    weights = scores.gather(-1, chosen)
    if options.normalized:
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-20)
    return scores, weights * options.scale, chosen


def balance_loss(scores: Tensor, counts: Tensor) -> Tensor:
    """Compute E · Σ fₑ Pₑ (Fedus et al. 2021): 1 if all experts get equal shares, up to E if one gets all.

    Args:
        scores: (n_tokens, E); Pₑ is the mean over tokens of the share of expert e in the scores of a token.
        counts: (E,), tokens of each expert; fₑ is its share in all of them, a constant.
    """
    shares = counts / counts.sum()
    probabilities = scores / scores.sum(-1, keepdim=True)
    return len(counts) * (shares * probabilities.mean(0)).sum()


class MixtureOfExperts(Module):
    """Σₖ wₖ Eₖ(x) over the experts Eₖ that a router chooses for a token (Shazeer et al. 2017, Jiang et al. 2024).

    Shared experts compute every token (Dai et al. 2024). Their width is that of `moe.shared` experts.

    Args:
        config: Shape of the model; its table `moe` has the options.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.options = options = config.moe
        place: dict[str, Any] = {"device": device, "dtype": dtype}

        def network(n: int = 1) -> Module:
            own = config.replace(feed_forward=options.expert, d_ff=n * config.d_ff, moe=type(options)())
            return FEED_FORWARDS[options.expert].load().of(own, **place)

        self.router = Linear(config.d_model, options.experts, config.bias, **place)
        if options.balance == "bias":
            self.router_bias = Parameter(torch.zeros(options.experts, **place), requires_grad=False)
        self.experts = ModuleList(network() for _ in range(options.experts))
        if options.shared:
            self.shared = network(options.shared)
        self.counts = torch.zeros(0)
        """(n_experts,), tokens of each expert in the last forward pass of training."""
        self.balance: Tensor | None = None
        """Balance loss of the last forward pass of training, where the options ask for one."""
        self.total_counts: Tensor | None = None
        """Sum of `counts` since it was last set to None."""

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the network of a model."""
        return cls(config, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        x = narrowed(x)
        rows = x.reshape(-1, x.shape[-1])
        bias = self.router_bias if self.options.balance == "bias" else None
        scores, weights, chosen = route(self.router(rows), self.options, bias)
        counts = chosen.flatten().bincount(minlength=len(self.experts))
        if self.training:
            self.counts = counts
            self.balance = balance_loss(scores, counts) if self.options.balance == "loss" else None
        mixed = self._mixed(rows, chosen, counts)
        mixed = (mixed * weights[..., None]).sum(1).to(mixed.dtype)
        if self.options.shared:
            mixed = mixed + self.shared(rows)
        return mixed.view(x.shape)

    def _mixed(self, rows: Tensor, chosen: Tensor, counts: Tensor) -> Tensor:
        """Return the result of each chosen expert for each token, (n_tokens, top_k, d_model)."""
        order = chosen.flatten().argsort(stable=True)
        sizes: list[int] = cast("Any", counts).tolist()
        sorted_rows = rows.index_select(0, order // chosen.shape[1])
        groups = cast("tuple[Tensor, ...]", sorted_rows.split(sizes))  # pyright: ignore[reportUnknownMemberType]
        # In training, experts without tokens have gradients of 0: processes then agree on which ones there are.
        results = [
            expert(group)
            for expert, group in zip(self.experts, groups, strict=True)
            if len(group) or torch.is_grad_enabled()
        ]
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return torch.cat(results).index_select(0, back).view(*chosen.shape, -1)

    def leave_out_of_compiled_code(self) -> None:
        """Run the experts as they are in compiled blocks: code for each number of rows would be compiled anew."""
        self._mixed = cast("Any", torch.compiler).disable(self._mixed)

    def extra_loss(self) -> Tensor | float:
        """Return what is added to the loss of the last forward pass, and add up its counts."""
        self.total_counts = self.counts if self.total_counts is None else self.total_counts + self.counts
        return 0.0 if self.balance is None else self.options.balance_weight * self.balance
