"""What the strategies share: equal weights at the start, and when gradients are exchanged."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch.distributed as dist
from torch.nn import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Self

    import torch
    from torch import Tensor

    from bytemill.lm.model import TransformerLM
    from bytemill.lm.optim.base import StepByGroup


class DataParallel(Module):
    """A module that several processes train together, each on its share of a batch.

    The processes are those of torch's default group; without one, this process trains alone. All weights and buffers
    are those of the first process.

    Args:
        module: The module to train, on its device.
    """

    divides_steps = False
    """Each process steps some of the parameters, so that an optimizer must not divide its work among processes."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.module = module
        is_alone = not dist.is_initialized()
        self.rank, self.count = (0, 1) if is_alone else (dist.get_rank(), dist.get_world_size())
        self.is_exchanging = True
        """Backward passes exchange gradients; otherwise they accumulate in this process."""
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        """Parameters that have gradients, each once."""
        if self.count > 1:
            for tensor in cast("dict[str, Tensor]", module.state_dict()).values():
                dist.broadcast(tensor, 0)

    @classmethod
    def of_model(cls, model: TransformerLM, *, bucket_mb: float, dtype: torch.dtype) -> Self:
        """Wrap the model of a run.

        Args:
            model: The model.
            bucket_mb: Setting `training.bucket_mb`.
            dtype: Type of matrix products.
        """
        del bucket_mb, dtype
        return cls(model)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Call the module."""
        return self.call(self.module, *inputs, **options)

    def call(self, function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        """Call a function that uses the weights of the module."""
        return function(*inputs, **options)

    def finish(self) -> None:
        """Complete the gradients after the backward pass; each is then the mean over the processes.

        All processes must call this. A gradient that a process lacks counts as 0.
        """
        raise NotImplementedError

    @contextmanager
    def exchanged(self, *, now: bool) -> Generator[None]:
        """Exchange gradients after the backward pass in the block, or only accumulate them in this process."""
        self.is_exchanging = now
        try:
            yield
            if now:
                self.finish()
        finally:
            self.is_exchanging = True

    def wrap_optimizer(self, optimizer: StepByGroup) -> StepByGroup:
        """Return the optimizer as this strategy steps it."""
        return optimizer
