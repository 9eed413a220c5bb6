"""Optimizer and learning rate of a run."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from bytemill.lm.optim import SGD, AdamW, Muon, muon_groups, parameter_groups, warm_momentum
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
                groups,
                options.muon_learning_rate,
                options.muon_momentum,
                nesterov=options.muon_nesterov,
                method=options.muon_method,
                scaling=options.muon_scaling,
                betas=betas,
                eps=options.eps,
                processes=processes,
            )
        case "sgd":
            # The schedule alone changes the learning rate.
            optimizer = SGD(model.parameters(), options.learning_rate, decay=False)
    for group in optimizer.param_groups:
        group["peak_lr"] = group["lr"]
    return optimizer


def describe_groups(optimizer: Optimizer, model: TransformerLM) -> list[dict[str, Any]]:
    """Return the algorithm, weight decay and parameters of each group; names of layers have `*` for the number."""
    names = {id(parameter): re.sub(r"\b\d+\b", "*", name) for name, parameter in model.named_parameters()}
    return [
        {
            "algorithm": group.get("algorithm", type(optimizer).__name__.lower()),
            "learning_rate": group["peak_lr"],
            "weight_decay": group.get("weight_decay", 0.0),
            "n_parameters": sum(parameter.numel() for parameter in group["params"]),
            "names": list(dict.fromkeys(names[id(parameter)] for parameter in group["params"])),
        }
        for group in optimizer.param_groups
    ]


def set_rates(optimizer: Optimizer, step: int, config: TrainConfig) -> None:
    """Set the learning rate, and the momentum of Muon, of step `step` (from 0)."""
    options, share = config.optimizer, rate_share(step, config)
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * share
        if isinstance(optimizer, Muon):
            group["momentum"] = warm_momentum(step, options.muon_momentum, options.muon_momentum_warmup)


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
                decay_shape=options.decay_shape,
            )
        case "constant":
            return constant(t, 1.0, config.n_warmup_steps)


def rate_change(before: TrainConfig, after: TrainConfig, step: int, peak: float) -> str | None:
    """Describe the change of the learning rate where a resumed run has another schedule; None if it is below 1 %.

    Args:
        before: Settings of the checkpoint.
        after: Settings of the run that resumes from it.
        step: Completed steps, at least one.
        peak: Peak learning rate.
    """
    old, new = rate_share(step, before), rate_share(step, after)
    if step >= after.training.steps or math.isclose(old, new, rel_tol=0.01):
        return None
    note = (
        f"the learning rate goes from {peak * rate_share(step - 1, before):.2e} in step {step:,} to "
        f"{peak * new:.2e} in step {step + 1:,}: the schedule of {after.training.steps:,} steps is not that of the "
        f"checkpoint, of {before.training.steps:,} steps"
    )
    if after.schedule.name == "cosine":
        n_steps = before.schedule.decay_steps or before.training.steps
        note += (
            f"; for the rates of that one: --schedule.decay-steps {n_steps} "
            f"--schedule.warmup-steps {before.n_warmup_steps}"
        )
    return note
