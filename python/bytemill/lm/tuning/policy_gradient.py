"""Learning from rewards: advantages within groups of responses, and losses whose gradient is a policy gradient.

The gradient of the expected reward of responses y to a prompt x is E[A(x, y) ∇ log π(y | x)] (Williams 1992), for
A the reward less any baseline that does not depend on y. GRPO (Shao et al. 2024) samples G responses to each prompt,
the *group*, and takes the mean reward of the group as the baseline. Its relatives differ in four choices, which
`PolicyGradient` names; `PRESETS` has the published ones.

Shapes: B responses, the groups one after the other, of T labels each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from bytemill.errors import RunConfigError
from bytemill.lm.optim import clip_gradients
from bytemill.lm.tensors import split
from bytemill.lm.tuning.responses import ResponseBatch, masked_mean, masked_sum, response_log_probs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

Baseline = Literal["none", "mean", "leave-one-out"]
Normalizer = Literal["none", "std", "mean"]
Ratio = Literal["none", "no-clip", "grpo", "gspo"]
Aggregation = Literal["sequence", "constant", "token"]


@dataclass(frozen=True)
class PolicyGradient:
    """The choices in which the algorithms differ."""

    baseline: Baseline = "mean"
    """What is subtracted from a reward: nothing, the mean of its group, or the mean of the others of its group."""
    normalizer: Normalizer = "std"
    """What the difference is divided by: nothing, or the standard deviation or the mean of the group's rewards."""
    ratio: Ratio = "grpo"
    """Correction for responses that older weights have sampled: none; the ratio of the probabilities of each token
    (no-clip), clipped as in PPO (grpo); or the clipped geometric mean of a response's ratios (gspo)."""
    aggregation: Aggregation = "sequence"
    """How the losses of tokens become one: the mean over each response and then over responses; the sum divided by a
    constant; or the mean over all tokens."""
    clip_low: float = 0.2
    """Ratios below 1 − clip_low have no gradient where that would lower them further."""
    clip_high: float = 0.2
    """Ratios above 1 + clip_high have no gradient where that would raise them further."""
    epsilon: float = 1e-6
    """Added to the divisor of the advantage."""

    @property
    def compares(self) -> bool:
        """Whether an advantage depends on the other responses of its group."""
        return self.baseline != "none" or self.normalizer == "std"


PRESETS: Mapping[str, PolicyGradient] = {
    "grpo": PolicyGradient(),
    "dr-grpo": PolicyGradient(normalizer="none", aggregation="constant"),
    "rft": PolicyGradient(baseline="none", normalizer="none", ratio="none", aggregation="constant"),
    "maxrl": PolicyGradient(normalizer="mean", ratio="none", aggregation="constant"),
    "gspo": PolicyGradient(ratio="gspo", clip_low=3e-4, clip_high=4e-4),
}
"""GRPO (Shao et al. 2024), Dr. GRPO (Liu et al. 2025), rejection fine-tuning (Yuan et al. 2023), MaxRL (Tajwar et al.
2026) with a constant divisor, and GSPO (Zheng et al. 2025) with the clip range of its paper."""


def rollout_rewards(
    reward: Callable[[str, Any], Mapping[str, float]], responses: Sequence[str], answers: Sequence[Any]
) -> tuple[Tensor, dict[str, float]]:
    """Compute the reward of each response.

    Args:
        reward: Called with a response and its answer; returns `reward`, and further parts of it by name.
        responses: B texts.
        answers: The right answer of each.

    Returns:
        Rewards, float32 of shape (B,), and the mean of each part by name.
    """
    found = [reward(response, answer) for response, answer in zip(responses, answers, strict=True)]
    means = {name: sum(each[name] for each in found) / len(found) for name in found[0]}
    return torch.tensor([each["reward"] for each in found], dtype=torch.float32), means


def group_advantages(rewards: Tensor, group_size: int, how: PolicyGradient = PRESETS["grpo"]) -> Tensor:
    """Compute A = (r − baseline) / (normalizer + ε) within each group.

    The standard deviation is that of a sample, with the divisor G − 1.

    Args:
        rewards: (B,), the groups one after the other.
        group_size: Responses per group, G.
        how: `baseline`, `normalizer` and `epsilon`.

    Returns:
        (B,).

    Raises:
        RunConfigError: The groups are of one response and the choice compares responses, or do not divide the batch.
    """
    if group_size < 1 or rewards.numel() % group_size:
        raise RunConfigError(f"{rewards.numel()} responses cannot be divided into groups of {group_size}")
    if group_size == 1 and how.compares:
        raise RunConfigError(
            "a group of one response has nothing to be compared with",
            hint="sample more responses per prompt, or choose baseline none and normalizer none",
        )
    groups = rewards.view(-1, group_size)
    means = groups.mean(1, keepdim=True)
    match how.baseline:
        case "none":
            differences = groups
        case "mean":
            differences = groups - means
        case "leave-one-out":
            differences = (groups - means) * (group_size / (group_size - 1))
    match how.normalizer:
        case "none":
            pass
        case "std":
            differences = differences / (groups.std(1, keepdim=True) + how.epsilon)
        case "mean":
            differences = differences / (means + how.epsilon)
    if how.baseline != "none":
        # The mean of equal numbers may differ from them in the last bit, which a deviation near 0 makes large.
        differences = differences.masked_fill((groups == groups[:, :1]).all(1, keepdim=True), 0.0)
    return differences.reshape(-1)


class TokenLosses(NamedTuple):
    """Losses of tokens, and how many were clipped."""

    losses: Tensor
    """(B, T); only those of the responses mean something."""
    clipped: Tensor
    """Booleans (B, T): the clipping leaves no gradient."""


def policy_gradient_losses(
    advantages: Tensor,
    log_probs: Tensor,
    old_log_probs: Tensor | None = None,
    response_mask: Tensor | None = None,
    how: PolicyGradient = PRESETS["grpo"],
) -> TokenLosses:
    """Compute the loss of each token; its gradient is that of the policy, with the sign turned.

    With the ratio w = π(token) / π_old(token), or for `gspo` its geometric mean over the response, the loss is
    −A log π (none), −A w (no-clip) or −min(A w, A clip(w, 1 − clip_low, 1 + clip_high)).

    Args:
        advantages: (B,) or (B, 1).
        log_probs: Log-probabilities of the labels under the weights in training, (B, T).
        old_log_probs: The same under the weights that sampled, (B, T); by default `log_probs` without gradient, for
            responses that these weights have sampled.
        response_mask: True for labels of the response, (B, T); needed for `gspo`.
        how: `ratio` and the clip range.

    Raises:
        ValueError: `gspo` without `response_mask`.
    """
    advantages = advantages.reshape(-1, 1)
    if how.ratio == "none":
        return TokenLosses(-advantages * log_probs, torch.zeros_like(log_probs, dtype=torch.bool))
    old = log_probs.detach() if old_log_probs is None else old_log_probs
    log_ratios = log_probs - old
    if how.ratio == "gspo":
        if response_mask is None:
            raise ValueError("gspo needs the mask of the responses")
        log_ratios = masked_mean(log_ratios, response_mask, 1)[:, None].expand_as(log_probs)
    ratios = log_ratios.exp()
    gain = advantages * ratios
    if how.ratio == "no-clip":
        return TokenLosses(-gain, torch.zeros_like(ratios, dtype=torch.bool))
    clipped_gain = advantages * ratios.clamp(1 - how.clip_low, 1 + how.clip_high)
    return TokenLosses(-torch.minimum(gain, clipped_gain), clipped_gain < gain)


def aggregate_losses(
    losses: Tensor, response_mask: Tensor, aggregation: Aggregation = "sequence", divisor: float | None = None
) -> Tensor:
    """Combine the losses of tokens into one; tokens outside of responses count neither above nor below the line.

    Args:
        losses: (B, T).
        response_mask: True for labels of responses, (B, T).
        aggregation: See `PolicyGradient.aggregation`.
        divisor: Divisor of the sum for `constant`.

    Raises:
        ValueError: `constant` without a divisor.
    """
    match aggregation:
        case "sequence":
            return masked_mean(losses, response_mask, 1).mean()
        case "token":
            return masked_mean(losses, response_mask)
        case "constant":
            if divisor is None:
                raise ValueError("aggregation constant needs a divisor")
            return masked_sum(losses, response_mask, divisor=divisor)


class StepResult(NamedTuple):
    """What `policy_gradient_step` has done."""

    loss: Tensor
    """Loss of the whole batch, without gradient."""
    values: dict[str, float]
    """`gradient_norm` before clipping, `entropy` of the response's tokens in nats, `clip_share` of them, and the
    `used_share` of the responses whose advantage is not 0."""


def policy_gradient_step(
    model: Any,
    optimizer: torch.optim.Optimizer,
    batch: ResponseBatch,
    advantages: Tensor,
    how: PolicyGradient = PRESETS["grpo"],
    *,
    old_log_probs: Tensor | None = None,
    n_passes: int = 1,
    max_gradient_norm: float | None = None,
    divisor: float | None = None,
) -> StepResult:
    """Take one optimizer step on a batch of responses.

    Responses whose advantage is 0 have no gradient and are not computed; they count in the divisor of the mean.

    Args:
        model: Model of bytemill or transformers.
        optimizer: Optimizer over its parameters.
        batch: Prompts with B responses.
        advantages: (B,); see `group_advantages`.
        how: The algorithm.
        old_log_probs: See `policy_gradient_losses`.
        n_passes: Forward and backward passes, whose gradients add up to those of the batch.
        max_gradient_norm: Scale the gradients down to this norm.
        divisor: Divisor of the sum for aggregation `constant`.

    Returns:
        The loss and what is worth recording. Gradients are cleared.
    """
    device = next(model.parameters()).device
    used: Tensor = torch.nonzero(advantages).view(-1).cpu()
    total = torch.zeros((), device=device)
    sums = {"entropy": 0.0, "clip_share": 0.0}
    n_tokens = 0
    optimizer.zero_grad(set_to_none=True)
    n_all, n_all_tokens = len(advantages), int(batch.response_mask.sum())
    parts = split(used, max(1, -(-n_all // n_passes))) if len(used) else ()
    for rows in parts:
        inputs, labels, mask = (part[rows].to(device) for part in batch)
        found = response_log_probs(model, inputs, labels, with_entropy=True)
        old = None if old_log_probs is None else old_log_probs[rows].to(device)
        losses, clipped = policy_gradient_losses(advantages[rows].to(device), found.log_probs, old, mask, how)
        loss = aggregate_losses(losses, mask, how.aggregation, divisor)
        if how.aggregation == "sequence":
            loss = loss * (len(rows) / n_all)
        elif how.aggregation == "token":
            loss = loss * (mask.sum() / n_all_tokens)
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        total += loss.detach()
        n_tokens += int(mask.sum())
        if found.token_entropy is not None:
            sums["entropy"] += float(masked_sum(found.token_entropy, mask))
        sums["clip_share"] += float(masked_sum(clipped.float(), mask))
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    norm = float(clip_gradients(parameters, max_gradient_norm or float("inf"))) if parameters else 0.0
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    means = {name: value / max(1, n_tokens) for name, value in sums.items()}
    return StepResult(total, {"gradient_norm": norm, "used_share": len(used) / n_all, **means})
