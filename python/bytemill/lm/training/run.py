"""The state of a run between two steps, with its detector of spikes and its scale of the loss."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# torch._foreach_… have no public names; torch's own optimizers use them.

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from torch import Tensor
    from torch.optim import Optimizer

    from bytemill.data.verification import BackgroundCheck
    from bytemill.lm.batches import JoinedShards, ShardBatches
    from bytemill.lm.evaluate.hellaswag import HellaSwagItem
    from bytemill.lm.loss import TokenBytes
    from bytemill.lm.model import TransformerLM
    from bytemill.lm.packing import DocumentMask
    from bytemill.lm.processes import Processes
    from bytemill.lm.training.batch_reader import BatchReader
    from bytemill.lm.training.config import OptimizerConfig, TrainConfig
    from bytemill.lm.training.run_checkpoint import CheckpointWrite, ShardHashes
    from bytemill.lm.training.run_folder import RunFolder
    from bytemill.lm.weight_average import WeightAverage
    from bytemill.tokenizer.tokenizer import Tokenizer


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
    optimizer: Optimizer
    shards: ShardHashes
    """sha256 of the training and validation shards, as their manifests say."""
    check: BackgroundCheck
    """Compares the shards with their manifests, in one process of each machine."""
    bos_id: int | None = None
    """Id of the special token at the start of every training document."""
    documents: DocumentMask | None = None
    """With training.document_mask."""
    hellaswag: list[HellaSwagItem] = field(default_factory=list["HellaSwagItem"])
    """With run.hellaswag."""
    scale: LossScale | None = None
    """With products in float16."""
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
