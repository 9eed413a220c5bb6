"""Functions of the weights of a run, whose gradients the processes exchange by `training.strategy`."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import torch

from bytemill.lm.processes import average_gradients, gradients_exchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from bytemill.lm.training.run import Run

    Arguments = ParamSpec("Arguments")
    Result = TypeVar("Result")


def in_parallel(run: Run, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a function of the weights whose gradients are averaged over the processes.

    All processes must call the result equally often. A run has one such function, since DDP watches the weights.
    """
    if run.parallel is not None:
        return cast("Any", partial(run.parallel.call, function))
    if run.processes.count > 1 and run.config.training.strategy == "ddp":
        return average_gradients(run.model, function, run.device)
    return function


def exchanged(run: Run, function: Callable[..., Any], *, now: bool = True) -> AbstractContextManager[None]:
    """Exchange gradients of a result of `in_parallel` after the backward pass in the block, or only accumulate them."""
    if run.parallel is not None:
        return run.parallel.exchanged(now=now)
    return gradients_exchanged(run.model, function, now=now)


@contextmanager
def without_gradients(run: Run) -> Generator[None]:
    """Call results of `in_parallel` in the block with no backward pass after them."""
    with torch.no_grad():
        yield
    if hasattr(run.model, "reshard"):  # with fsdp, some weights stay whole until the end of a backward pass
        cast("Any", run.model).reshard()
