"""The state of a training run between two steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bytemill.lm.training.spikes import SpikeDetector

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch.optim import Optimizer

    from bytemill.lm.batches import JoinedShards, ShardBatches
    from bytemill.lm.document_mask import DocumentMask
    from bytemill.lm.evaluate.items import HellaSwagItem
    from bytemill.lm.loss import TokenBytes
    from bytemill.lm.model import TransformerLM
    from bytemill.lm.processes import Processes
    from bytemill.lm.training.batch_reader import BatchReader
    from bytemill.lm.training.checkpoint_write import CheckpointWrite
    from bytemill.lm.training.config import TrainConfig
    from bytemill.lm.training.loss_scale import LossScale
    from bytemill.lm.training.run_checkpoint import ShardHashes
    from bytemill.lm.training.run_folder import RunFolder
    from bytemill.lm.weight_average import WeightAverage
    from bytemill.shards.background_check import BackgroundCheck
    from bytemill.tokenizer.tokenizer import Tokenizer


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
