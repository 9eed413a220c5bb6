"""Losses of tuning against those of TRL."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bytemill.lm.tuning.policy_gradient import PolicyGradient, aggregate_losses, policy_gradient_losses

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

MOST_TOKENS = 9


@pytest.mark.parametrize(
    ("loss_type", "level", "how"),
    [
        ("grpo", "token", PolicyGradient(ratio="grpo", aggregation="sequence")),
        ("bnpo", "token", PolicyGradient(ratio="grpo", aggregation="token")),
        ("dr_grpo", "token", PolicyGradient(ratio="grpo", aggregation="constant")),
        ("grpo", "sequence", PolicyGradient(ratio="gspo", aggregation="sequence")),
    ],
)
def test_policy_gradient_losses_are_those_of_trl(loss_type: str, level: str, how: PolicyGradient) -> None:
    from trl.trainer.grpo_trainer import GRPOTrainer

    generator = torch.Generator().manual_seed(3)
    n, length = 6, 7
    log_probs = (-3 * torch.rand(n, length, generator=generator)).requires_grad_()
    old = log_probs.detach() + 0.4 * torch.randn(n, length, generator=generator)
    mask = (torch.arange(length) < torch.tensor([7, 1, 3, 5, 2, 7])[:, None]).long()
    advantages = torch.randn(n, generator=generator)
    accelerator = SimpleNamespace(
        gather=lambda x: x,
        reduce=lambda x, reduction: x,  # noqa: ARG005
        num_processes=1,
        sync_gradients=True,
    )
    trainer = SimpleNamespace(
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=level,
        beta=0.0,
        loss_type=loss_type,
        use_vllm=False,
        epsilon_low=0.2,
        epsilon_high=0.2,
        args=SimpleNamespace(delta=None),
        current_gradient_accumulation_steps=1,
        max_completion_length=MOST_TOKENS,
        _entropy_bonus_enabled=False,
        accelerator=accelerator,
        model=SimpleNamespace(training=True),
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (log_probs, torch.ones(n, length), None),
    )
    inputs = {
        "prompt_ids": torch.zeros(n, 2).long(),
        "prompt_mask": torch.ones(n, 2).long(),
        "completion_ids": torch.zeros(n, length).long(),
        "completion_mask": mask,
        "advantages": advantages,
        "old_per_token_logps": old,
    }
    compute: Any = GRPOTrainer._compute_loss
    theirs = compute(trainer, None, inputs)
    (their_gradient,) = torch.autograd.grad(theirs, log_probs)
    losses, _ = policy_gradient_losses(advantages, log_probs, old, mask, how)
    ours = aggregate_losses(losses, mask, how.aggregation, n * MOST_TOKENS)
    (our_gradient,) = torch.autograd.grad(ours, log_probs)
    assert float(ours) == pytest.approx(float(theirs), abs=1e-6)
    torch.testing.assert_close(our_gradient, their_gradient, rtol=1e-5, atol=1e-7)
