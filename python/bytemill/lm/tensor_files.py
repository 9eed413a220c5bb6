"""Write and read safetensors files, one tensor at a time.

`safetensors.torch.save_file` first copies all tensors to bytes. Here one tensor at a time is copied from its device,
and the hash of the file is computed while it is written.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import torch
from safetensors import SafetensorError, safe_open

from bytemill.errors import BytemillError, CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from torch import Tensor

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


class TensorFile:
    """An open safetensors file; tensors are read when they are used."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.names: list[str] = list(file.keys())
        self.metadata: dict[str, str] = file.metadata() or {}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(self._file.get_slice(name).get_shape())

    def dtype(self, name: str) -> torch.dtype:
        """Return the type of a tensor."""
        return _BY_NAME[self._file.get_slice(name).get_dtype()]

    def tensor(self, name: str) -> Tensor:
        """Return a tensor, whose memory belongs to the file."""
        return self._file.get_tensor(name)

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return rows of a tensor of at least one dimension."""
        return self._file.get_slice(name)[start:stop]


@contextmanager
def open_tensors(path: Path) -> Generator[TensorFile]:
    """Open a safetensors file, on the CPU. No code in it is executed.

    Raises:
        CheckpointError: It cannot be read, or it is damaged; also for such errors in the block.
    """
    try:
        with cast("Any", safe_open(path, framework="pt")) as file:
            yield TensorFile(file)
    except BytemillError:  # of the block, such as one of writing, which is an OSError too
        raise
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a safetensors file, or it is damaged: {error}") from error


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file. Raises CheckpointError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
