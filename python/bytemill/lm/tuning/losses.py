"""Losses of supervised tuning and of preferences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from bytemill.errors import RunConfigError
from bytemill.lm.tuning.responses import ALPACA, ids_of, masked_mean, masked_sum, response_log_probs

if TYPE_CHECKING:
    from torch import Tensor


def sft_loss(
    log_probs: Tensor, response_mask: Tensor, mean: Literal["token", "sequence"] = "token"
) -> Tensor:
    """Compute the cross-entropy of responses: the mean over all their tokens, or over each response and then over all.

    Args:
        log_probs: Log-probabilities of labels, (B, T).
        response_mask: True for labels of responses, (B, T).
        mean: Which mean.
    """
    if mean == "token":
        return -masked_mean(log_probs, response_mask)
    return -masked_mean(log_probs, response_mask, 1).mean()


class DpoResult(NamedTuple):
    """Losses of pairs, and the rewards that the policy implies; each of shape (B,)."""

    losses: Tensor
    chosen_rewards: Tensor
    """β log π(chosen) / π_ref(chosen), without gradient."""
    rejected_rewards: Tensor


def dpo_losses(
    policy_chosen: Tensor,
    policy_rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
) -> DpoResult:
    """Compute the loss of direct preference optimization (Rafailov et al. 2023) of each pair.

    With the margin m = β (log π(chosen)/π_ref(chosen) − log π(rejected)/π_ref(rejected)) the loss is
    −(1 − s) log σ(m) − s log σ(−m), for a share s of labels that are the wrong way round (Mitchell 2023).

    Args:
        policy_chosen: log π of the chosen response, the sum over its tokens, (B,).
        policy_rejected: The same of the rejected response.
        reference_chosen: log π_ref of the chosen response, from the model that tuning began with.
        reference_rejected: The same of the rejected response.
        beta: Strength β of the tie to the reference.
        label_smoothing: s, at least 0 and below 0.5.

    Raises:
        RunConfigError: β is not positive, or s out of range.
    """
    if beta <= 0:
        raise RunConfigError(f"beta is {beta:g}, but must be positive", hint="0.1 is usual")
    if not 0 <= label_smoothing < 0.5:
        raise RunConfigError(f"label_smoothing is {label_smoothing:g}, but must be from 0 to below 0.5")
    chosen = beta * (policy_chosen - reference_chosen)
    rejected = beta * (policy_rejected - reference_rejected)
    margin = chosen - rejected
    losses = -_log_sigmoid(margin) * (1 - label_smoothing) - _log_sigmoid(-margin) * label_smoothing
    return DpoResult(losses, chosen.detach(), rejected.detach())


def _log_sigmoid(x: Tensor) -> Tensor:
    """Compute log σ(x) = −log(exp(0) + exp(−x)), which does not overflow.

    A form with |x| has slope 0 at x = 0, where every run begins.
    """
    return -torch.logaddexp(torch.zeros_like(x), -x)


def pair_dpo_loss(  # noqa: PLR0917 - two models, and the parts of a pair in their usual order
    model: Any,
    reference: Any,
    tokenizer: Any,
    prompt: str,
    chosen: str,
    rejected: str,
    *,
    beta: float = 0.1,
    template: str = ALPACA,
) -> Tensor:
    """Compute the DPO loss of one pair of texts; the end token follows each response.

    The prompt's log-probability is the same in both responses, so that it cancels out of the loss.

    Args:
        model: Model in training, of bytemill or transformers.
        reference: Model that training began with; may be on another device.
        tokenizer: Tokenizer of both, with an end token.
        prompt: Instruction.
        chosen: Response that was preferred.
        rejected: The other response.
        beta: See `dpo_losses`.
        template: Text of an example, with `{prompt}` and `{response}`.

    Returns:
        Scalar on the device of `model`.
    """
    texts = [template.format(prompt=prompt, response=response) for response in (chosen, rejected)]
    rows = [torch.tensor([*ids_of(text, tokenizer), tokenizer.eos_token_id]) for text in texts]
    own = [_log_prob(model, row) for row in rows]
    with torch.no_grad():
        others = [_log_prob(reference, row).to(own[0].device) for row in rows]
    return dpo_losses(own[0], own[1], others[0], others[1], beta=beta).losses


def _log_prob(model: Any, ids: Tensor) -> Tensor:
    """Return log p of ids after the first one, a scalar."""
    row = ids[None].to(next(model.parameters()).device)
    return masked_sum(
        response_log_probs(model, row[:, :-1], row[:, 1:]).log_probs, torch.ones_like(row[:, 1:])
    )
