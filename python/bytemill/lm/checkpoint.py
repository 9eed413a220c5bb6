"""Checkpoints: a model, its optimizer and how far they have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, cast

from torch import Tensor

from bytemill.errors import CheckpointError
from bytemill.lm.tensor_file import read_state, write_state

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from torch.nn import Module
    from torch.optim import Optimizer


def save_checkpoint(
    model: Module, optimizer: Optimizer, iteration: int, out: str | os.PathLike[str] | BinaryIO
) -> None:
    """Writes the model's and the optimizer's state and `iteration` to a path (atomically) or a binary file.

    Raises `OutputError` where a path cannot be written.
    """
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iteration": iteration}
    write_state(out, state)


def load_checkpoint(src: str | os.PathLike[str] | BinaryIO, model: Module, optimizer: Optimizer) -> int:
    """Puts what `save_checkpoint` has written into `model` and `optimizer`, and gives the iteration.

    Nothing in the file is executed. Raises `CheckpointError` for a file that is damaged or belongs to another model or
    optimizer; both are as they were then.
    """
    state = read_state(src)
    try:
        parts = state["model"], state["optimizer"], int(state["iteration"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint is not of a model with its optimizer: {error}") from error
    check_model_state(model, parts[0])
    load_optimizer_state(optimizer, parts[1])
    load_model_state(model, parts[0])
    return parts[2]


def load_model_state(model: Module, state: Mapping[str, Any]) -> None:
    """Puts the tensors of `state` into `model`. Raises `CheckpointError` where they are not its own, before any."""
    check_model_state(model, state)
    model.load_state_dict(state)


def check_model_state(model: Module, state: Mapping[str, Any]) -> None:
    """Raises `CheckpointError` with the first name, shape or type in which `state` is not that of `model`."""
    own = cast("dict[str, Tensor]", model.state_dict())
    for name, tensor in own.items():
        if name not in state:
            raise _another("the checkpoint has no", name)
        found = state[name]
        if not isinstance(found, Tensor) or found.shape != tensor.shape:
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise _another(f"the checkpoint has {shape} where the model has {tuple(tensor.shape)}:", name)
        if found.dtype != tensor.dtype:
            raise _another(f"the checkpoint has {found.dtype} where the model has {tensor.dtype}:", name)
    if more := [name for name in state if name not in own]:
        raise _another("the model has no", more[0])


def load_optimizer_state(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Puts `state` into `optimizer`. Raises `CheckpointError` where its parameters are grouped in another way."""
    try:
        own = [len(group["params"]) for group in optimizer.state_dict()["param_groups"]]
        found = [len(group["params"]) for group in state["param_groups"]]
        if own != found:
            raise CheckpointError(
                f"the checkpoint's optimizer has groups of {found} parameters, this one of {own}",
                hint="load it into an optimizer of the same kind over the same model",
            )
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for number, moments in state["state"].items():
            for name, moment in moments.items():
                is_moment = isinstance(moment, Tensor) and moment.dim() > 0
                if is_moment and moment.shape != parameters[number].shape:
                    raise CheckpointError(
                        f"the checkpoint's optimizer holds {name} of shape {tuple(moment.shape)} for parameter "
                        f"{number} of shape {tuple(parameters[number].shape)}"
                    )
        optimizer.load_state_dict(dict(state))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise CheckpointError(f"the checkpoint holds no optimizer's state: {error!r}") from error


def _another(what: str, name: str) -> CheckpointError:
    return CheckpointError(f"{what} {name}", hint="the checkpoint is of a model with another configuration")
