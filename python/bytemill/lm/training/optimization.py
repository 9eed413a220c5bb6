"""Optimizer and learning rate of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.lm.optim import SGD, AdamW, Muon, muon_groups, parameter_groups
from bytemill.lm.schedule import constant, cosine_with_warmup, warmup_stable_decay

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bytemill.lm.model import TransformerLM
    from bytemill.lm.processes import Processes
    from bytemill.lm.training.config import TrainConfig


def make_optimizer(model: TransformerLM, config: TrainConfig, processes: Processes) -> Optimizer:
    """Build the optimizer over all weights; each parameter group stores its peak learning rate as `peak_lr`."""
    options = config.optimizer
    betas = (options.beta1, options.beta2)
    match options.name:
        case "adamw":
            optimizer = AdamW(
                parameter_groups(model, options.weight_decay),
                options.learning_rate,
                betas=betas,
                eps=options.eps,
                fused=model.kernels.fused_adamw,
            )
        case "muon":
            groups = muon_groups(
                model,
                lr=options.muon_learning_rate,
                adamw_lr=options.learning_rate,
                weight_decay=options.weight_decay,
            )
            optimizer = Muon(
                groups, options.muon_learning_rate, betas=betas, eps=options.eps, processes=processes
            )
        case "sgd":
            # The schedule alone changes the learning rate.
            optimizer = SGD(model.parameters(), options.learning_rate, decay=False)
    for group in optimizer.param_groups:
        group["peak_lr"] = group["lr"]
    return optimizer


def rate_share(step: int, config: TrainConfig) -> float:
    """Return the learning rate of step `step` (from 0) as a share of the peak.

    Schedules start with a rate of 0 at t = 0. The first step has t = 1, because a step at rate 0 has no effect.
    """
    options, n_steps, t = config.schedule, config.training.steps, step + 1
    match options.name:
        case "cosine":
            return cosine_with_warmup(
                t, 1.0, options.min_share, config.n_warmup_steps, options.decay_steps or n_steps
            )
        case "wsd":
            n_decay = options.decay_steps or max(1, n_steps // 5)
            return warmup_stable_decay(
                t,
                1.0,
                options.min_share,
                warmup_steps=config.n_warmup_steps,
                decay_steps=n_decay,
                total_steps=n_steps,
            )
        case "constant":
            return constant(t, 1.0, config.n_warmup_steps)
