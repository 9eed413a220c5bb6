"""The state of a run between two steps: learning rates, averages, spikes, the scale of the loss, and speed."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# torch._foreach_… have no public names; torch's own optimizers use them.

from __future__ import annotations

import math
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch

from bytemill.lm.device import are_cores_shared, peak_memory
from bytemill.lm.optimizers import OPTIMIZERS
from bytemill.lm.processes import Processes
from bytemill.lm.schedule import constant, cosine_with_warmup, warmup_stable_decay
from bytemill.lm.tensors import local

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from pathlib import Path

    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

    from bytemill.data.verification import BackgroundCheck
    from bytemill.lm.batches import Documents, JoinedShards, ShardBatches
    from bytemill.lm.hellaswag import HellaSwagItem
    from bytemill.lm.loss import TokenBytes
    from bytemill.lm.model import TransformerLM
    from bytemill.lm.optim.base import StepByGroup
    from bytemill.lm.optimizers import OptimizerConfig
    from bytemill.lm.parallel.base import DataParallel
    from bytemill.lm.training.config import TrainConfig
    from bytemill.lm.training.data import BatchReader
    from bytemill.lm.training.run_checkpoint import CheckpointWrite, ShardHashes
    from bytemill.lm.training.run_folder import RunFolder
    from bytemill.tokenizer.tokenizer import Tokenizer


def make_optimizer(
    model: TransformerLM, config: TrainConfig, processes: Processes, parallel: DataParallel | None = None
) -> StepByGroup:
    """Build the optimizer over all weights; each parameter group stores its peak learning rate as `peak_lr`."""
    if parallel is not None and parallel.divides_steps:
        processes = Processes()
    optimizer: StepByGroup = OPTIMIZERS[config.optimizer.name].make(model, config.optimizer, processes)
    for group in optimizer.param_groups:
        group["peak_lr"] = group["lr"]
    return optimizer if parallel is None else parallel.wrap_optimizer(optimizer)


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


def set_rates(optimizer: StepByGroup, step: int, config: TrainConfig) -> None:
    """Set the learning rate of step `step` (from 0), and what else depends on the step, such as Muon's momentum."""
    share = rate_share(step, config)
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * share
    optimizer.begin_step(step)


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


class WeightAverage:
    """Average θ̄ ← d θ̄ + (1 − d) θ of the weights θ, updated after each step (Polyak & Juditsky 1992).

    At update t = 1, 2, …, d = min(decay, (1 + t) / (10 + t)), so that the initial weights are soon forgotten. This is
    the rule of TensorFlow's `ExponentialMovingAverage` with `num_updates`.

    Args:
        model: The model; its weights are the first average.
        decay: Largest decay d.
    """

    def __init__(self, model: Module, decay: float) -> None:
        self.model = model
        self.decay = decay
        self.n_updates = 0
        """Number of updates so far."""
        self.tensors = [weights.clone() for weights in self._weights()]
        """The average of each parameter; of a sharded one, the part of this process."""

    @torch.no_grad()
    def update(self) -> None:
        """Add the current weights to the average."""
        self.n_updates += 1
        decay = min(self.decay, (1 + self.n_updates) / (10 + self.n_updates))
        torch._foreach_lerp_(self.tensors, self._weights(), 1 - decay)

    @contextmanager
    def in_model(self) -> Generator[None]:
        """Put the average into the model inside the block, and the weights back at its end."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def restart(self, n_updates: int) -> None:
        """Take the current weights of the model as the average after `n_updates` updates."""
        self.n_updates = n_updates
        for tensor, weights in zip(self.tensors, self._weights(), strict=True):
            tensor.copy_(weights)

    @torch.no_grad()
    def _exchange(self) -> None:
        """Exchange average and weights, bit for bit; one tensor at a time, to need little memory."""
        for tensor, weights in zip(self.tensors, self._weights(), strict=True):
            copy = weights.clone()
            weights.copy_(tensor)
            tensor.copy_(copy)

    def _weights(self) -> list[Tensor]:
        return [local(parameter.detach()) for parameter in self.model.parameters()]


_LARGEST = 2.0**24


@dataclass
class LossScale:
    """A power of two that halves when a gradient overflows, and doubles after `growth_steps` finite steps."""

    value: float = 2.0**16
    n_finite: int = 0
    """Finite steps since the last change."""
    growth_steps: int = 2000

    @torch.no_grad()
    def unscale(self, parameters: Iterable[Tensor]) -> None:
        """Divide the gradients by the scale, in place."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, 1 / self.value)

    def update(self, *, is_finite: bool) -> bool:
        """Adapt the scale after a step.

        Returns:
            Whether the step was lost to the scale alone: the gradients may be finite with a smaller one.
        """
        if not is_finite:
            can_shrink = self.value > 1
            self.value, self.n_finite = max(1.0, self.value / 2), 0
            return can_shrink
        self.n_finite += 1
        if self.n_finite >= self.growth_steps:
            self.value, self.n_finite = min(2 * self.value, _LARGEST), 0
        return False


_WINDOW, _MINIMUM = 100, 20


@dataclass
class SpikeDetector:
    """Losses and gradient norms of the last 100 steps, from which their medians are computed.

    Spikes enter the medians too, so a lasting change is no longer a spike after half a window.
    """

    losses: list[float] = field(default_factory=list[float])
    norms: list[float] = field(default_factory=list[float])

    def add(self, loss: float, norm: float, options: OptimizerConfig) -> dict[str, float] | None:
        """Add a step whose loss and gradient norm are finite.

        Returns:
            The values of a spike and the medians of the steps before it; None if there is no spike, or fewer than 20
            steps before this one.
        """
        spike = None
        if len(self.losses) >= _MINIMUM:
            usual_loss, usual_norm = median(self.losses), median(self.norms)
            if (options.spike_loss and loss > options.spike_loss * usual_loss) or (
                options.spike_norm and norm > options.spike_norm * usual_norm
            ):
                spike = {
                    "loss": loss,
                    "median_loss": usual_loss,
                    "grad_norm": norm,
                    "median_grad_norm": usual_norm,
                }
        self.losses = [*self.losses[1 - _WINDOW :], loss]
        self.norms = [*self.norms[1 - _WINDOW :], norm]
        return spike


@dataclass
class RecentSteps:
    """Sums over the steps since the last record."""

    loss: float = 0.0
    nats: float = 0.0
    norm: float = 0.0
    n_bytes: int = 0
    n_tokens: int = 0
    n_steps: int = 0

    def add(self, loss: float, norm: float, n_bytes: int, n_tokens: int) -> None:
        self.loss += loss
        self.nats += loss * n_tokens
        self.norm += norm
        self.n_bytes += n_bytes
        self.n_tokens += n_tokens
        self.n_steps += 1

    def take(self) -> dict[str, float | None]:
        """Return the means and reset; unlike in validation, bits per byte include the loss of special tokens."""
        bits = self.nats / math.log(2) / self.n_bytes if self.n_bytes else None
        means: dict[str, float | None] = {
            "loss": self.loss / self.n_steps,
            "bits_per_byte": bits,
            "grad_norm": self.norm / self.n_steps,
        }
        self.__init__()
        return means


_SLOW, _RECOVERED = 0.5, 0.75
"""Shares of the fastest rate: below the first a run is reported to be slow, above the second it is no longer."""
_LEAST_SECONDS = 1.0
"""Rates over less time than this are not compared: they vary."""


class Speed:
    """Training speed, measured over the steps alone: without validation, samples and checkpoints.

    Args:
        device: The device.
        flops_per_token: FLOPs of a training step per token.
        peak: FLOPs per second that the devices of all processes can do; None if unknown.
        n_tokens: Tokens that the run has trained on so far.
    """

    def __init__(
        self,
        device: torch.device,
        flops_per_token: float,
        peak: float | None,
        *,
        n_tokens: int,
    ) -> None:
        self._device = device
        self._flops_per_token = flops_per_token
        self._peak = peak
        self._seconds = 0.0
        self._n_tokens = 0
        self._started = 0.0
        self._first = n_tokens
        self._done = n_tokens
        self._begun = time.perf_counter()
        self._rate = 0.0
        self._best_rate = 0.0
        self._was_slow = False

    def start(self) -> None:
        """Mark the start of a step."""
        self._started = time.perf_counter()

    def stop(self, n_tokens: int) -> None:
        """Mark the end of a step on `n_tokens` tokens."""
        self._seconds += time.perf_counter() - self._started
        self._n_tokens += n_tokens
        self._done += n_tokens

    def take(self, waited: float, n_left: float) -> dict[str, Any]:
        """Return speed, use of the device and memory since the last call, and the time left.

        Args:
            waited: Seconds of these steps that passed waiting for batches.
            n_left: Tokens of the steps to come.

        Returns:
            `tokens_per_second`; `flops_per_second`; `flop_utilization`, their share of the peak, None if that is
            unknown; `data_wait`, the share of the time spent waiting for batches; `memory_bytes`, the peak so far;
            `seconds_left`, estimated by tokens and including validation and checkpoints, since the number of tokens
            per step may grow.
        """
        rate = self._n_tokens / self._seconds if self._seconds else 0.0
        if self._seconds >= _LEAST_SECONDS:
            self._rate, self._best_rate = rate, max(rate, self._best_rate)
        flops = rate * self._flops_per_token
        per_token = (time.perf_counter() - self._begun) / max(1, self._done - self._first)
        record: dict[str, Any] = {
            "tokens_per_second": rate,
            "flops_per_second": flops,
            "flop_utilization": flops / self._peak if self._peak else None,
            "data_wait": waited / self._seconds if self._seconds else 0.0,
            "memory_bytes": peak_memory(self._device),
            "seconds_left": per_token * n_left,
        }
        self._seconds, self._n_tokens = 0.0, 0
        return record

    def slowdown(self) -> str | None:
        """Return a note if the rate that `take` has measured is newly far below the fastest so far."""
        is_slow = self._rate < (_RECOVERED if self._was_slow else _SLOW) * self._best_rate
        is_new, self._was_slow = is_slow and not self._was_slow, is_slow
        if not is_new:
            return None
        cause = "other programs use the cores" if are_cores_shared() else "the device has slowed down"
        return (
            f"{cause}: {self._rate:,.0f} tokens/s, {self._rate / self._best_rate:.0%} of the fastest so far"
        )


class Record(Protocol):
    """Stores and shows a record, as `metrics_log.Recorder` does."""

    def __call__(self, kind: str, step: int, **values: Any) -> None:
        """Store and show a record."""
        ...


Accumulated: TypeAlias = "tuple[Tensor, int, Tensor]"
"""Of the gradients of a step in this process: the loss, of which the mean over the processes is that of the step, the
number of tokens, and that of their bytes. The first and the last are on the device."""


class Task(Protocol):
    """What a run learns from, if not from the next id of text."""

    def open_batches(
        self, config: TrainConfig, tokenizer: Tokenizer, processes: Processes, bos_id: int | None
    ) -> ShardBatches:
        """Open the data, and check it before the model is made."""
        ...

    def data_hashes(self) -> list[tuple[str, dict[str, str]]]:
        """Return the sha256 of each file of the data, in the form of `ShardHashes`."""
        ...

    def begin(self, run: Run) -> None:
        """Prepare what is needed before the first step, after the run was started or resumed."""
        ...

    def accumulate(self, run: Run, record: Record) -> Accumulated:
        """Accumulate the gradients of a step; see `trainer.accumulate_gradients`."""
        ...


@dataclass
class Run:
    """State of a run between two steps."""

    config: TrainConfig
    processes: Processes
    folder: RunFolder
    tokenizer: Tokenizer
    byte_counts: TokenBytes
    """(vocab_size,) on the device: bytes of each token, 0 for special tokens."""
    device: torch.device
    dtype: torch.dtype
    batches: ShardBatches
    reader: BatchReader
    validation: dict[str, JoinedShards]
    """Validation sets by name."""
    model: TransformerLM
    optimizer: StepByGroup
    shards: ShardHashes
    """sha256 of the training and validation shards, as their manifests say."""
    check: BackgroundCheck
    """Compares the shards with their manifests, in one process of each machine."""
    bos_id: int | None = None
    """Id of the special token at the start of every training document."""
    separator: int | None = None
    """Id of the token between documents."""
    initial: str | None = None
    """sha256 of the weights of `training.init_from` that the run began with."""
    task: Task | None = None
    """What a run that tunes learns from."""
    documents: Documents | None = None
    """With training.document_mask."""
    hellaswag: list[HellaSwagItem] = field(default_factory=list["HellaSwagItem"])
    """With run.hellaswag."""
    scale: LossScale | None = None
    """With products in float16."""
    parallel: DataParallel | None = None
    """With a strategy of `lm.parallel`."""
    step: int = 0
    """Number of completed steps."""
    n_tokens: int = 0
    """Number of tokens trained on."""
    n_bad: int = 0
    """Number of consecutive steps, up to this one, whose loss or gradient was not finite."""
    recent: RecentSteps = field(default_factory=RecentSteps)
    spikes: SpikeDetector = field(default_factory=SpikeDetector)
    average: WeightAverage | None = None
    """With optimizer.ema_decay."""
    refused: list[str] = field(default_factory=list[str])
    """Newer checkpoints that are damaged, one message each."""
    notes: list[str] = field(default_factory=list[str])
    """What to know about a resumed run."""
    saved: Path | None = None
    """The newest checkpoint."""
    writing: CheckpointWrite | None = None
    """The checkpoint that is being written."""


def saves_in_background(run: Run) -> bool:
    """Whether checkpoints are written while training continues; on the CPU the copy takes as long as the write."""
    setting = run.config.run.async_checkpoints
    return setting == "always" or (setting == "auto" and run.device.type != "cpu")


def is_due(run: Run, every: int) -> bool:
    """Return True every `every` steps and after the last step; never if `every` is 0."""
    return every > 0 and (run.step % every == 0 or run.step == run.config.training.steps)


def is_checkpoint_due(run: Run) -> bool:
    """Return True at the last step, and where `run.checkpoint_every`, `keep_every` or a validation says so."""
    is_last = run.step == run.config.training.steps
    every = (run.config.run.checkpoint_every, run.config.run.keep_every)
    return is_last or is_validation_due(run) or any(is_due(run, each) for each in every)


def is_validation_due(run: Run) -> bool:
    return bool(run.validation) and is_due(run, run.config.run.validate_every)
