"""Nested dicts and lists with tensors in them, in one file that holds data and nothing that could be executed.

The layout is that of safetensors, so other programs can look into the file: the length of a header (8 bytes,
little-endian), the header as JSON (name -> dtype, shape, and where its bytes are), the bytes of all tensors. What is
not a tensor stands as JSON in the header's metadata, and beside it the sha256 of the whole file, taken with zeros in
its own place: a file that was cut short or has changed is found out, whatever the change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from torch import Tensor

from bytemill.errors import CheckpointError
from bytemill.system.atomic_files import open_bytes

_FORMAT = "bytemill-1"
_DTYPES = {
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
_DTYPE_OF = {name: dtype for dtype, name in _DTYPES.items()}
_NO_SHA256 = "0" * 64
_LONGEST_HEADER = 100_000_000
_ESCAPES = ("$tensor", "$tuple", "$items")


def write_state(out: str | os.PathLike[str] | BinaryIO, state: Mapping[str, Any]) -> None:
    """Writes `state`: dicts, lists, tuples, tensors, str, int, float, bool, None. A path is written atomically.

    A tensor that is there under several names is written once. Raises `OutputError` where a path cannot be written and
    TypeError for any other type of value.
    """
    tensors: dict[str, Tensor] = {}
    names: dict[tuple[Any, ...], str] = {}
    tree = _flatten(state, "", tensors, names)
    header: dict[str, Any] = {}
    place = 0
    for name, tensor in tensors.items():
        n_bytes = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [place, place + n_bytes],
        }
        place += n_bytes
    # The sha256 stands before anything that could look like it.
    metadata = {"format": _FORMAT, "sha256": _NO_SHA256, "state": json.dumps(tree)}
    encoded = json.dumps({"__metadata__": metadata, **header}, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # so that the tensors are aligned
    start = len(encoded).to_bytes(8, "little") + encoded
    digest = hashlib.sha256(start)
    for tensor in tensors.values():
        digest.update(_bytes_of(tensor))
    named = start.replace(_NO_SHA256.encode(), digest.hexdigest().encode(), 1)
    with _writable(out) as file:
        file.write(named)
        for tensor in tensors.values():
            file.write(_bytes_of(tensor))


def read_state(src: str | os.PathLike[str] | BinaryIO) -> dict[str, Any]:
    """What `write_state` has written, its tensors on the CPU; whoever changes one changes it under all its names.

    Raises `CheckpointError` for a file that is missing, cut short, changed, or none of these.
    """
    name = str(src) if isinstance(src, (str, os.PathLike)) else str(getattr(src, "name", "the checkpoint"))
    try:
        with _readable(src) as file:
            return _read(file, name)
    except OSError as error:
        raise CheckpointError(f"cannot read {name}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{name} is no checkpoint of bytemill, or it is damaged: {error}") from error


def _read(file: BinaryIO, name: str) -> dict[str, Any]:
    length = file.read(8)
    n_header = int.from_bytes(length, "little")
    if len(length) < 8 or n_header > _LONGEST_HEADER:
        raise CheckpointError(f"{name} is no checkpoint of bytemill, or it is damaged: it has no header")
    encoded = file.read(n_header)
    if len(encoded) < n_header:
        raise CheckpointError(f"{name} is cut short: it ends within its header")
    header = cast("dict[str, Any]", json.loads(encoded))
    metadata = header.pop("__metadata__", {})
    if metadata.get("format") != _FORMAT:
        raise CheckpointError(f"{name} is no checkpoint of bytemill: its header does not say so")
    sha256 = str(metadata["sha256"])
    digest = hashlib.sha256(length + encoded.replace(sha256.encode(), _NO_SHA256.encode(), 1))
    tensors: dict[str, Tensor] = {}
    place = 0
    for tensor_name, info in header.items():
        begin, end = info["data_offsets"]
        dtype, shape = _DTYPE_OF[info["dtype"]], [int(size) for size in info["shape"]]
        n_bytes = torch.Size(shape).numel() * dtype.itemsize
        if begin != place or end != begin + n_bytes or n_bytes < 0:
            raise CheckpointError(f"{name} is damaged: its header contradicts itself at {tensor_name}")
        data = _read_exactly(file, n_bytes)
        if len(data) < n_bytes:
            raise CheckpointError(f"{name} is cut short: it ends within {tensor_name}")
        digest.update(data)
        place = end
        tensors[tensor_name] = (
            torch.frombuffer(data, dtype=dtype).reshape(shape) if n_bytes else torch.empty(shape, dtype=dtype)
        )
    if file.read(1):
        raise CheckpointError(f"{name} is damaged: it goes on after its end")
    if digest.hexdigest() != sha256:
        raise CheckpointError(f"{name} is damaged: its sha256 is not the one that it names")
    return _restore(json.loads(metadata["state"]), tensors)


def _read_exactly(file: BinaryIO, n_bytes: int) -> bytearray:
    """Up to `n_bytes`, in steps: a header that lies must not make us ask for more memory than the file has bytes."""
    data = bytearray()
    while len(data) < n_bytes:
        piece = file.read(min(n_bytes - len(data), 1 << 26))
        if not piece:
            break
        data += piece
    return data


def _flatten(value: Any, path: str, tensors: dict[str, Tensor], names: dict[tuple[Any, ...], str]) -> Any:
    """`value` as JSON knows it, its tensors put aside under their paths."""
    if isinstance(value, Tensor):
        if value.dtype not in _DTYPES:
            raise TypeError(f"{path} is of {value.dtype}, which a checkpoint cannot hold")
        # Two names of one tensor have one storage and the same view of it.
        same = (value.device, value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if value.numel() == 0 or same not in names:
            names[same] = path
            tensors[path] = value.detach()
        return {"$tensor": names[same]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        flat = [_flatten(item, f"{path}/{number}", tensors, names) for number, item in enumerate(items)]
        return flat if isinstance(value, list) else {"$tuple": flat}
    if isinstance(value, Mapping):
        pairs = [
            (key, _flatten(item, f"{path}/{key}" if path else str(key), tensors, names))
            for key, item in cast("Mapping[Any, Any]", value).items()
        ]
        if all(isinstance(key, str) and key not in _ESCAPES for key, _ in pairs):
            return dict(pairs)
        if all(isinstance(key, (int, str)) for key, _ in pairs):
            return {"$items": [[key, item] for key, item in pairs]}
    raise TypeError(
        f"{path or 'the state'} is a {type(cast('Any', value)).__name__}, which a checkpoint cannot hold"
    )


def _restore(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_restore(item, tensors) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    if fields.keys() == {"$tensor"}:
        return tensors[fields["$tensor"]]
    if fields.keys() == {"$tuple"}:
        return tuple(_restore(item, tensors) for item in fields["$tuple"])
    if fields.keys() == {"$items"}:
        return {key: _restore(item, tensors) for key, item in fields["$items"]}
    return {key: _restore(item, tensors) for key, item in fields.items()}


def _bytes_of(tensor: Tensor) -> memoryview:
    """The bytes of a tensor in order, whatever device it is on."""
    flat = tensor.cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


@contextlib.contextmanager
def _writable(out: str | os.PathLike[str] | BinaryIO) -> Generator[BinaryIO]:
    if isinstance(out, (str, os.PathLike)):
        with open_bytes(out) as file:
            yield file
    else:
        yield out


@contextlib.contextmanager
def _readable(src: str | os.PathLike[str] | BinaryIO) -> Generator[BinaryIO]:
    if isinstance(src, (str, os.PathLike)):
        with Path(src).open("rb") as file:
            yield file
    else:
        yield src
