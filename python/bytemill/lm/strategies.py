"""The strategies of data parallelism by name. Importing this module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

OwnStrategyName = Literal["naive", "flat", "bucketed", "sharded_optimizer", "fully_sharded", "offload"]
StrategyName = Literal["ddp", "fsdp", OwnStrategyName]
"""All values of `training.strategy`: with torch's own."""


@dataclass(frozen=True)
class Strategy:
    """Where a strategy is, and where it applies."""

    code: str
    """`module:class` of a `parallel.base.DataParallel`."""
    runs_alone: bool = False
    """Has an effect in a single process, too."""
    compiles: bool = True
    """Trains blocks that torch.compile has compiled."""
    divides: tuple[str, ...] = ()
    """What is divided among the processes, by its names in `planning.TrainingMemory`."""
    keeps_on_host: tuple[str, ...] = ()
    """What is not in the memory of the device."""

    def load(self) -> Any:
        """Import the class."""
        module, _, name = self.code.partition(":")
        return getattr(import_module(f"bytemill.lm.parallel.{module}"), name)


DIVIDED_BY_FSDP = ("parameters", "gradients", "optimizer", "average")
"""What torch's `fsdp` and `fully_sharded` divide."""
STRATEGIES: dict[OwnStrategyName, Strategy] = {
    "naive": Strategy("naive:NaiveParallel"),
    "flat": Strategy("flat:FlatParallel"),
    "bucketed": Strategy("bucketed:BucketedParallel"),
    "sharded_optimizer": Strategy("sharded_optimizer:ShardedOptimizerParallel", divides=("optimizer",)),
    "fully_sharded": Strategy("fully_sharded:FullyShardedParallel", compiles=False, divides=DIVIDED_BY_FSDP),
    "offload": Strategy("offload:OffloadParallel", runs_alone=True, keeps_on_host=("optimizer",)),
}
