"""The optimizer and the learning rate that the settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.lm.optim import SGD, AdamW, Muon, muon_groups, parameter_groups
from bytemill.lm.schedule import constant, cosine_with_warmup, warmup_stable_decay

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bytemill.lm.model import TransformerLM
    from bytemill.lm.training.config import TrainConfig


def make_optimizer(model: TransformerLM, config: TrainConfig) -> Optimizer:
    """The optimizer over all weights; each group keeps its highest learning rate as `peak_lr`."""
    wanted = config.optimizer
    betas = (wanted.beta1, wanted.beta2)
    match wanted.name:
        case "adamw":
            optimizer = AdamW(
                parameter_groups(model, wanted.weight_decay),
                wanted.learning_rate,
                betas=betas,
                eps=wanted.eps,
            )
        case "muon":
            groups = muon_groups(
                model,
                lr=wanted.muon_learning_rate,
                adamw_lr=wanted.learning_rate,
                weight_decay=wanted.weight_decay,
            )
            optimizer = Muon(groups, wanted.muon_learning_rate, betas=betas, eps=wanted.eps)
        case "sgd":
            # The schedule alone decides how the rate goes.
            optimizer = SGD(model.parameters(), wanted.learning_rate, decay=False)
    for group in optimizer.param_groups:
        group["peak_lr"] = group["lr"]
    return optimizer


def rate_share(step: int, config: TrainConfig) -> float:
    """The learning rate of the step number `step` (from 0) as a share of the highest one.

    The schedules begin at 0 with t = 0; a step without effect would be a waste, so the first one has t = 1.
    """
    wanted, n_steps, t = config.schedule, config.training.steps, step + 1
    match wanted.name:
        case "cosine":
            return cosine_with_warmup(
                t, 1.0, wanted.min_share, config.n_warmup_steps, wanted.decay_steps or n_steps
            )
        case "wsd":
            n_decay = wanted.decay_steps or max(1, n_steps // 5)
            return warmup_stable_decay(
                t,
                1.0,
                wanted.min_share,
                warmup_steps=config.n_warmup_steps,
                decay_steps=n_decay,
                total_steps=n_steps,
            )
        case "constant":
            return constant(t, 1.0, config.n_warmup_steps)
