"""Shards as `.npy` files that grow without being held in memory."""

import hashlib
import io
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from bytemill.atomic import AtomicFile, output_error
from bytemill.errors import OutputError
from bytemill.shards.manifest import ShardInfo, shard_name


class ShardWriter:
    """Cuts a stream of token ids into shards of exactly `shard_tokens`, the last one excepted.

    A shard stands under its name only when it is whole. As a context manager it removes the shard that is
    under way when an exception leaves the block; the shards before it stay. Raises `OutputError` where
    writing fails.
    """

    def __init__(self, folder: Path, dtype: str, shard_tokens: int) -> None:
        self.shards: list[ShardInfo] = []
        """The shards that stand under their names."""
        self.n_tokens = 0
        """Tokens taken so far."""
        self._folder = folder
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._shard_tokens = shard_tokens
        self._growing: _GrowingShard | None = None

    def append(self, tokens: NDArray[Any]) -> None:
        """Write a one-dimensional array of ids."""
        start = 0
        while start < len(tokens):
            shard = self._growing
            if shard is None:
                path = self._folder / shard_name(len(self.shards))
                shard = self._growing = _GrowingShard(path, self._dtype, self._shard_tokens)
            piece = tokens[start : start + self._shard_tokens - shard.n_tokens]
            shard.append(piece)
            self.n_tokens += len(piece)
            start += len(piece)
            if shard.n_tokens == self._shard_tokens:
                self._close_shard(shard)

    def finish(self) -> tuple[ShardInfo, ...]:
        """Close the last shard, whatever it holds; all shards in order."""
        if self._growing is not None:
            self._close_shard(self._growing)
        return tuple(self.shards)

    def _close_shard(self, shard: "_GrowingShard") -> None:
        self.shards.append(shard.commit())
        self._growing = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._growing is not None:
            self._growing.discard()


class _GrowingShard:
    """One shard under its temporary name.

    The header goes first and says `capacity` tokens, which holds for every shard but the last, so the hash of
    the file is ready with its last byte. Only a shard that ends early gets its header patched and is hashed
    again.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], capacity: int) -> None:
        self.n_tokens = 0
        self._path = path
        self._dtype = dtype
        self._capacity = capacity
        self._hash = hashlib.sha256()
        self._file = AtomicFile(path)
        self._n_bytes = 0
        try:
            self._write(_header(dtype, capacity))
        except BaseException:
            self.discard()
            raise

    def append(self, tokens: NDArray[Any]) -> None:
        self._write(np.ascontiguousarray(tokens, dtype=self._dtype).data.cast("B"))
        self.n_tokens += len(tokens)

    def commit(self) -> ShardInfo:
        sha256 = self._hash.hexdigest() if self.n_tokens == self._capacity else self._patch_header()
        self._file.commit()
        return ShardInfo(self._path.name, self.n_tokens, self._n_bytes, sha256)

    def discard(self) -> None:
        self._file.discard()

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._n_bytes += len(data)

    def _patch_header(self) -> str:
        """Write the true number of tokens into the header; sha256 of the file as it is then."""
        reserved = len(_header(self._dtype, self._capacity))
        header = _header(self._dtype, self.n_tokens)
        if len(header) != reserved:
            raise OutputError(
                f"cannot write {self._path}: its header needs {len(header)} bytes, not {reserved}"
            )
        file = self._file.file
        try:
            file.seek(0)
            file.write(header)
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise output_error(error, self._path) from error


def _header(dtype: np.dtype[Any], n_tokens: int) -> bytes:
    """The `.npy` header (version 1.0) of a one-dimensional array, padded by numpy to fit any number."""
    stream = io.BytesIO()
    fields = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": (n_tokens,)}
    npy_format.write_array_header_1_0(stream, fields)
    return stream.getvalue()
