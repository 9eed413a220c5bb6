"""The state of an optimizer as named tensors, of which each process writes and reads its part.

The files are those of torch's distributed checkpoints in safetensors format: the header of each file holds the position
of its parts in the whole tensors, and `torch.distributed.checkpoint.HuggingFaceStorageReader` reads them. They are
written and read here, because importing that package takes seconds, its default format unpickles its metadata, and its
asynchronous writer needs a process group.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from bytemill.errors import CheckpointError
from bytemill.lm.checkpoint import TensorFile, open_tensors
from bytemill.lm.sharded_tensors import first_row, is_sharded, joined, local

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from pathlib import Path

    from torch.nn import Module
    from torch.optim import Optimizer

_SHARDING, _OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"
_OTHER_SHAPES = "bytemill_other_shapes"


@dataclass
class OptimizerPart:
    """What one process saves of the optimizer's state. A moment is named after its parameter: `ln1.weight.m`."""

    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    offsets: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """Position of each tensor in the whole one."""
    numbers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Name of a parameter -> what is no tensor, such as its number of steps; the same in every process."""
    other_shapes: list[str] = field(default_factory=list[str])
    """Tensors that do not have the shape of their parameter, such as the factors of a preconditioner."""

    def metadata(self) -> dict[str, str]:
        """Return the offsets and `other_shapes` as metadata of a safetensors file."""
        offsets = {name: {_OFFSETS: offset} for name, offset in self.offsets.items()}
        return {_SHARDING: json.dumps(offsets), _OTHER_SHAPES: json.dumps(self.other_shapes)}


def optimizer_part(
    model: Module, optimizer: Optimizer, *, is_first: bool, keep: Callable[[Tensor], Tensor]
) -> OptimizerPart:
    """Return the part of the optimizer's state that this process saves.

    Args:
        model: The model, for the names of its parameters.
        optimizer: The optimizer.
        is_first: Whether this is the first process, which saves the tensors that all processes hold.
        keep: Called with each tensor, to copy it.

    Raises:
        CheckpointError: The optimizer keeps something that could not be read again: names it.
    """
    part = OptimizerPart()
    for name, parameter in model.named_parameters():
        for moment, value in optimizer.state.get(parameter, {}).items():
            if not isinstance(value, Tensor):
                if value is not None and not isinstance(value, bool | int | float | str):
                    raise _cannot_be_saved(optimizer, name, moment, f"a {type(value).__name__}")
                part.numbers.setdefault(name, {})[moment] = value
                continue
            if value.ndim and value.shape == parameter.shape:
                if is_sharded(value) != is_sharded(parameter):
                    raise _cannot_be_saved(
                        optimizer, name, moment, "a tensor not divided as its parameter is"
                    )
            elif is_sharded(value):
                raise _cannot_be_saved(optimizer, name, moment, "a divided tensor of another shape")
            elif value.ndim and is_first:
                part.other_shapes.append(f"{name}.{moment}")
            if is_sharded(value) and local(value).numel():
                part.tensors[f"{name}.{moment}"] = keep(local(value))
                part.offsets[f"{name}.{moment}"] = [first_row(value), *[0] * (value.ndim - 1)]
            elif is_first and not is_sharded(value):
                part.tensors[f"{name}.{moment}"] = keep(value)
                part.offsets[f"{name}.{moment}"] = [0] * value.ndim
    return part


def _cannot_be_saved(optimizer: Optimizer, name: str, moment: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"a checkpoint cannot hold the state of {type(optimizer).__name__}: {moment} of {name} is {what}",
        hint="keep numbers, tensors of the parameter's shape that are divided as it is, or tensors that every process "
        "holds as a whole",
    )


def load_optimizer_part(
    model: Module, optimizer: Optimizer, files: Iterable[Path], numbers: Mapping[str, Mapping[str, Any]]
) -> None:
    """Load the state that any number of processes has saved, whole or what belongs to this process's parameters.

    Raises:
        CheckpointError: The files are damaged, or belong to another model.
    """
    parameters = dict(model.named_parameters())
    states: dict[str, dict[str, Any]] = {name: dict(own) for name, own in numbers.items()}
    with open_parts(files) as parts:
        for key in parts.names:
            name, _, moment = key.rpartition(".")
            parameter = parameters.get(name)
            fits = parameter is not None and parts.shape(key) in (tuple(parameter.shape), ())
            if parameter is None or not (fits or key in parts.other_shapes):
                shape = "is not there" if parameter is None else f"has shape {tuple(parameter.shape)}"
                raise CheckpointError(
                    f"the checkpoint's optimizer holds {moment} of shape {parts.shape(key)} for {name}, which {shape}"
                )
            states.setdefault(name, {})[moment] = _read_like(parameter, parts, key)
    order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    indices = {id(parameter): index for index, parameter in enumerate(order)}
    if unknown := states.keys() - parameters.keys():
        raise CheckpointError(f"the checkpoint's optimizer holds {min(unknown)}, which is not in the model")
    own_groups = optimizer.state_dict()["param_groups"]
    by_index = {indices[id(parameters[name])]: state for name, state in states.items()}
    optimizer.load_state_dict({"state": by_index, "param_groups": own_groups})


def _read_like(parameter: Tensor, parts: Parts, key: str) -> Tensor:
    """Read the part of a moment that belongs to `parameter`, or all of one that is not divided."""
    shape = parts.shape(key)
    if shape == ():
        return parts.scalar(key)
    if key in parts.other_shapes or not is_sharded(parameter):
        return parts.rows(key, 0, shape[0])
    start = first_row(parameter)
    rows = parts.rows(key, start, start + local(parameter).shape[0])
    return joined(rows.to(parameter.device), parameter)


class _Part(NamedTuple):
    file: TensorFile
    first: int
    """First row of the whole tensor."""
    shape: tuple[int, ...]


class Parts:
    """Tensors whose rows are spread over several safetensors files."""

    def __init__(self, files: Iterable[TensorFile]) -> None:
        self._parts: dict[str, list[_Part]] = {}
        self.other_shapes: set[str] = set()
        """Tensors that do not have the shape of their parameter."""
        for file in files:
            self.other_shapes.update(json.loads(file.metadata.get(_OTHER_SHAPES, "[]")))
            sharding = json.loads(file.metadata[_SHARDING])
            for name in file.names:
                first = (sharding[name][_OFFSETS] or [0])[0]
                self._parts.setdefault(name, []).append(_Part(file, first, file.shape(name)))

    @property
    def names(self) -> list[str]:
        """Names of all tensors."""
        return list(self._parts)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of the whole tensor."""
        first = self._parts[name][0]
        if not first.shape:
            return ()
        n_rows = max(part.first + part.shape[0] for part in self._parts[name])
        return (n_rows, *first.shape[1:])

    def scalar(self, name: str) -> Tensor:
        """Return a copy of a tensor without dimensions."""
        return self._parts[name][0].file.tensor(name).clone()

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return a copy of the rows from `start` to `stop`. Raises CheckpointError if some are in no file."""
        parts = self._parts[name]
        dtype = parts[0].file.dtype(name)
        rows = torch.empty((stop - start, *parts[0].shape[1:]), dtype=dtype)
        n_found = 0
        for file, first, shape in parts:
            low, high = max(start, first), min(stop, first + shape[0])
            if low < high:
                rows[low - start : high - start] = file.rows(name, low - first, high - first)
                n_found += high - low
        if n_found != stop - start:
            raise CheckpointError(f"the checkpoint holds {n_found} of the rows {start} to {stop} of {name}")
        return rows


@contextmanager
def open_parts(paths: Iterable[Path]) -> Generator[Parts]:
    """Open the files of `OptimizerPart`s. Raises CheckpointError if they are damaged."""
    with ExitStack() as stack:
        files = [stack.enter_context(open_tensors(path)) for path in paths]
        try:
            parts = Parts(files)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise CheckpointError(
                f"the optimizer's files lack the positions of their tensors: {error!r}"
            ) from error
        yield parts
