"""Checkpoints: model, optimizer and iteration in one file, or weights as safetensors, one tensor at a time.

`safetensors.torch.save_file` first copies all tensors to bytes. Here one tensor at a time is copied from its device,
and the hash of the file is computed while it is written. The library also maps files that it reads into memory: another
program that truncates such a file kills the process with SIGBUS. Here files are read, and a short read is an error.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import torch
from torch import Tensor

from bytemill.errors import BytemillError, CheckpointError
from bytemill.lm.tensors import shard_like
from bytemill.system.atomic_files import write_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from torch.nn import Module
    from torch.optim import Optimizer


_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_BY_NAME = {name: dtype for dtype, name in _TYPES.items()}
_MAX_HEADER_BYTES = 100_000_000
"""As in the library."""
_CHUNK = 1 << 24
"""Bytes per write: the interpreter is free for training while they are hashed and written."""


def write_tensors(
    file: BinaryIO,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> str:
    """Write a safetensors file, and return its sha256.

    The file is the length of the header (8 bytes, little endian), the header (JSON) and the tensors' bytes. Wide types
    come first, so that every tensor is aligned.

    Args:
        file: An open binary file.
        tensors: Tensors by name, on any device.
        metadata: Text by key, stored in the header.
        progress: Called with the number of bytes of each write.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    end = 0
    for name in order:
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    for data in (len(text).to_bytes(8, "little"), text):
        digest.update(data)
        file.write(data)
    for name in order:
        values = tensors[name].detach().cpu().contiguous().reshape(-1)
        if not values.numel():
            continue
        data = values.view(torch.uint8).numpy().data
        for start in range(0, len(data), _CHUNK):
            chunk = data[start : start + _CHUNK]
            digest.update(chunk)
            file.write(chunk)
            if progress is not None:
                progress(len(chunk))
    return digest.hexdigest()


@dataclass(frozen=True)
class _Entry:
    """What the header says of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    """Offset in the file."""
    n_bytes: int


class TensorFile:
    """An open safetensors file; tensors are read when they are used."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._entries, self.metadata = _read_header(file)
        self.names: list[str] = list(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self._entries[name].shape

    def dtype(self, name: str) -> torch.dtype:
        """Return the type of a tensor. Raises CheckpointError if torch has none of that name."""
        own = self._entries[name].dtype
        if own not in _BY_NAME:
            raise CheckpointError(
                f"{name} in {self._file.name} has the type {own}, which bytemill does not read"
            )
        return _BY_NAME[own]

    def tensor(self, name: str) -> Tensor:
        """Return a tensor."""
        entry = self._entries[name]
        return self._read(name, entry.start, entry.n_bytes, entry.shape)

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return rows of a tensor of at least one dimension."""
        entry = self._entries[name]
        n_bytes = entry.n_bytes // max(1, entry.shape[0])
        shape = (stop - start, *entry.shape[1:])
        return self._read(name, entry.start + start * n_bytes, (stop - start) * n_bytes, shape)

    def _read(self, name: str, start: int, n_bytes: int, shape: tuple[int, ...]) -> Tensor:
        dtype = self.dtype(name)
        data = torch.empty(n_bytes, dtype=torch.uint8)
        self._file.seek(start)
        view, n_read = memoryview(cast("Any", data.numpy())), 0
        while n_read < n_bytes:
            n_new = cast("Any", self._file).readinto(view[n_read:])
            if not n_new:
                raise CheckpointError(f"{self._file.name} was cut off while it was read")
            n_read += n_new
        return data.view(dtype).view(shape)


@contextmanager
def open_tensors(path: Path) -> Generator[TensorFile]:
    """Open a safetensors file, on the CPU. No code in it is executed.

    Raises:
        CheckpointError: It cannot be read, or it is damaged; also for such errors in the block.
    """
    try:
        with path.open("rb", buffering=0) as file:
            try:
                tensors = TensorFile(cast("BinaryIO", file))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise CheckpointError(
                    f"{path} is not a safetensors file, or it is damaged: {error}"
                ) from error
            yield tensors
    except BytemillError:  # of the block, such as one of writing, which is an OSError too
        raise
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


def _read_header(file: BinaryIO) -> tuple[dict[str, _Entry], dict[str, str]]:
    """Return the tensors by name, in the order of their bytes, and the metadata.

    Raises:
        ValueError: The header is damaged, or does not describe the bytes of the file.
    """
    end = file.seek(0, 2)
    file.seek(0)
    first = 8 + int.from_bytes(file.read(8), "little")
    if not 8 < first <= min(end, 8 + _MAX_HEADER_BYTES):
        raise ValueError("the length of its header is wrong")
    document = cast("dict[str, Any]", json.loads(file.read(first - 8)))
    metadata = {str(key): str(value) for key, value in document.pop("__metadata__", {}).items()}
    entries: dict[str, _Entry] = {}
    offset = first
    for name, own in sorted(document.items(), key=lambda item: tuple(item[1]["data_offsets"])):
        start, stop = own["data_offsets"]
        shape = tuple(int(size) for size in own["shape"])
        entry = _Entry(str(own["dtype"]), shape, first + start, stop - start)
        item_bytes = _BY_NAME[entry.dtype].itemsize if entry.dtype in _BY_NAME else None
        if (
            entry.start != offset
            or min(shape, default=0) < 0
            or (item_bytes is not None and math.prod(shape) * item_bytes != entry.n_bytes)
        ):
            raise ValueError(f"the header is wrong about {name}")
        offset += entry.n_bytes
        entries[name] = entry
    if offset != end:
        raise ValueError(f"it has {end:,} bytes, but its header says {offset:,}")
    return entries, metadata


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file. Raises CheckpointError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


_MOST_SHOWN = 5


def save_checkpoint(
    model: Module, optimizer: Optimizer, iteration: int, out: str | os.PathLike[str] | BinaryIO
) -> None:
    """Write the state of a model and its optimizer.

    Args:
        model: Model whose state dict is saved.
        optimizer: Optimizer whose state dict is saved.
        iteration: Number of completed iterations.
        out: Path, which is written atomically, or a binary file.

    Raises:
        OutputError: The path cannot be written.
    """
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "parameter_shapes": _parameter_shapes(optimizer),
        "iteration": iteration,
    }
    data = state_bytes(state)
    if isinstance(out, (str, os.PathLike)):
        write_bytes(out, data)
    else:
        out.write(data)


def load_checkpoint(src: str | os.PathLike[str] | BinaryIO, model: Module, optimizer: Optimizer) -> int:
    """Load the result of `save_checkpoint` into `model` and `optimizer`, and return the iteration.

    Loading executes no code from the file.

    Raises:
        CheckpointError: The file is damaged or of another model or optimizer; both remain unchanged.
    """
    name = str(src) if isinstance(src, (str, os.PathLike)) else str(getattr(src, "name", "the checkpoint"))
    try:
        data = Path(src).read_bytes() if isinstance(src, (str, os.PathLike)) else src.read()
    except OSError as error:
        raise CheckpointError(f"cannot read {name}: {error.strerror or error}") from error
    state = parse_state(data, name)
    try:
        parts = state["model"], state["optimizer"], int(state["iteration"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{name} does not hold a model with its optimizer: {error}") from error
    check_model_state(model, parts[0])
    load_optimizer_state(optimizer, parts[1], state.get("parameter_shapes"))
    load_model_state(model, parts[0])
    return parts[2]


def state_bytes(state: Mapping[str, Any]) -> bytes:
    """Serialize tensors, numbers, str, lists, tuples and dicts in the format of `torch.save`."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    return buffer.getvalue()


def parse_state(data: bytes, name: str) -> dict[str, Any]:
    """Read the result of `state_bytes` without executing code.

    Raises:
        CheckpointError: The data is damaged or contains other objects; the message names `name`.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            damaged = archive.testzip()  # torch verifies no checksums
        if damaged is None:
            state: object = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            if isinstance(state, dict):
                return cast("dict[str, Any]", state)
    except Exception as error:  # the parsers raise many types of exception
        raise CheckpointError(f"{name} is not a checkpoint, or it is damaged: {error}") from error
    raise CheckpointError(f"{name} is not a checkpoint, or it is damaged")


def distinct(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict in which a tensor with several names has the first of them alone."""
    first = _first_names(weights)
    return {name: tensor for name, tensor in weights.items() if first[name] == name}


def load_weights(model: Module, path: Path) -> None:
    """Load the weights of a safetensors file into `model`.

    Raises:
        CheckpointError: The file is damaged or of another model.
    """
    own = cast("dict[str, Tensor]", model.state_dict())
    with open_tensors(path) as file, torch.no_grad():
        shapes = {
            name: torch.empty(file.shape(name), dtype=file.dtype(name), device="meta") for name in file.names
        }
        for alias, original in _first_names(own).items():
            if alias not in shapes and original in shapes:
                shapes[alias] = shapes[original]
        check_model_state(model, shapes)
        for name in file.names:  # one at a time: the file may be larger than the memory that is left
            own[name].copy_(shard_like(file.tensor(name), own[name]))


def _first_names(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Map each name to the first name of the same tensor."""
    seen: dict[tuple[Any, ...], str] = {}
    return {
        name: seen.setdefault((t.device, t.data_ptr(), t.shape, t.stride()) if t.numel() else (name,), name)
        for name, t in state.items()
    }


def load_model_state(model: Module, state: Mapping[str, Any]) -> None:
    """Load `state` into `model`. Raises CheckpointError, before any change, if it belongs to another model.

    Whole tensors are loaded into sharded parameters too.
    """
    check_model_state(model, state)
    own = cast("dict[str, Tensor]", model.state_dict())
    model.load_state_dict({name: shard_like(tensor, own[name]) for name, tensor in state.items()})


def check_model_state(model: Module, state: Mapping[str, Any]) -> None:
    """Raise CheckpointError if names, shapes or types of `state` differ from those of `model`; it names up to five."""
    own = cast("dict[str, Tensor]", model.state_dict())
    problems = [problem for name, tensor in own.items() if (problem := _difference(name, tensor, state))]
    problems += [f"{name} is not in the model" for name in state if name not in own]
    if problems:
        shown, n_more = problems[:_MOST_SHOWN], len(problems) - _MOST_SHOWN
        raise CheckpointError(
            f"the checkpoint is of another model: {'; '.join(shown)}"
            + (f"; and {n_more:,} other{'s'[: n_more != 1]}" if n_more > 0 else ""),
            hint="load a checkpoint of a model with the same configuration",
        )


def _difference(name: str, tensor: Tensor, state: Mapping[str, Any]) -> str | None:
    """Describe how a tensor of a model differs from that of a checkpoint."""
    if name not in state:
        return f"{name} is missing"
    found = state[name]
    if not isinstance(found, Tensor):
        return f"{name} is of type {type(found).__name__}"
    if found.shape != tensor.shape:
        return f"{name} has shape {tuple(found.shape)}, but the model's has {tuple(tensor.shape)}"
    if found.dtype != tensor.dtype:
        return f"{name} has type {_type_name(found)}, but the model's has {_type_name(tensor)}"
    return None


def _type_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def load_optimizer_state(
    optimizer: Optimizer, state: Mapping[str, Any], parameter_shapes: object = None
) -> None:
    """Load `state` into `optimizer`.

    Args:
        optimizer: The optimizer.
        state: Its state dict.
        parameter_shapes: Shapes of the parameters that the state belongs to, in the order of the optimizer. If they are
            unknown, every tensor of the state must have the shape of its parameter.

    Raises:
        CheckpointError: The state is of other parameters, or of another number of groups.
    """
    try:
        own = [len(group["params"]) for group in optimizer.state_dict()["param_groups"]]
        found = [len(group["params"]) for group in state["param_groups"]]
        if own != found:
            raise CheckpointError(
                f"the checkpoint's optimizer has groups of {found} parameters, and this one of {own}",
                hint="load it into an optimizer of the same kind over the same model",
            )
        shapes = _parameter_shapes(optimizer)
        if parameter_shapes is not None and parameter_shapes != shapes:
            raise CheckpointError(
                "the checkpoint's optimizer is of other parameters, or of these in another order",
                hint="load it into an optimizer of the same kind over the same model",
            )
        moments_of = cast(
            "dict[int, dict[str, object]]", {} if parameter_shapes is not None else state["state"]
        )
        for number, moments in moments_of.items():
            shape = shapes[number]
            for name, moment in moments.items():
                if isinstance(moment, Tensor) and moment.ndim and list(moment.size()) != shape:
                    raise CheckpointError(
                        f"the checkpoint's optimizer holds {name} of shape {tuple(moment.size())} for parameter "
                        f"{number} of shape {tuple(shape)}"
                    )
        optimizer.load_state_dict(dict(state))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise CheckpointError(f"the checkpoint holds no optimizer state: {error!r}") from error


def _parameter_shapes(optimizer: Optimizer) -> list[list[int]]:
    parameters = cast("list[Tensor]", [p for group in optimizer.param_groups for p in group["params"]])
    return [list(parameter.size()) for parameter in parameters]
