"""Reading token shards as if they were one long array."""

import os
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias, cast, overload

import numpy as np
from numpy.typing import NDArray

from bytemill.errors import ShardError
from bytemill.shards.layouts import layout_named
from bytemill.shards.manifest import Manifest, read_manifest
from bytemill.shards.verify import documents_problem, layout_problem, size_problems

TokenArray: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32]


def open_shards(folder: str | os.PathLike[str]) -> list[TokenArray]:
    """The shards of `folder` in order, as read-only arrays mapped from the disk.

    Raises `ShardError` where a shard is missing or contradicts the manifest in size, dtype or number of
    tokens. (Whether its content is intact only `verify` tells.)
    """
    place = Path(folder)
    return _open_checked(place, read_manifest(place))


class TokenShards:
    """The tokens of a folder of shards, addressed as one array of ids that stays on the disk.

    `len(tokens)`, `tokens[i]` and `tokens[start:stop]` do what they do for a numpy array; a slice is a copy.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open `folder`. Raises `ShardError` as `open_shards` does."""
        self.folder = Path(folder)
        self.manifest = read_manifest(folder)
        self.dtype = np.dtype(self.manifest.dtype)
        self.n_tokens = self.manifest.n_tokens
        self._shards = _open_checked(self.folder, self.manifest)
        self._starts = [0, *accumulate(len(shard) for shard in self._shards)]

    def __len__(self) -> int:
        return self.n_tokens

    def document_ends(self) -> NDArray[np.uint64] | None:
        """Where each document ends, in tokens from the beginning, read-only and mapped from the disk; None where the
        folder has no document index. Shape (n_documents,), ascending to `n_tokens`.

        Raises `ShardError` where the index is damaged.
        """
        info = self.manifest.documents
        if info is None:
            return None
        if problem := documents_problem(self.folder, self.manifest):
            raise _damaged(self.folder, problem)
        path, npy = self.folder / info.file, layout_named("npy")
        return npy.open(path, "uint64", npy.inspect(path).n_tokens)

    def read(self, start: int, stop: int) -> TokenArray:
        """A copy of the ids from `start` up to and without `stop`, both from 0 to `n_tokens`.

        Raises `IndexError` for a range that is not within the tokens.
        """
        if not 0 <= start <= stop <= self.n_tokens:
            raise IndexError(f"tokens {start} to {stop} of {self.n_tokens}")
        tokens = np.empty(stop - start, dtype=self.dtype)
        n_read = 0
        index = bisect_right(self._starts, start) - 1
        while n_read < len(tokens):
            offset = start + n_read - self._starts[index]
            piece = self._shards[index][offset : offset + len(tokens) - n_read]
            tokens[n_read : n_read + len(piece)] = piece
            n_read += len(piece)
            index += 1
        return cast("TokenArray", tokens)

    def blocks(self, n_tokens: int = 1 << 20) -> Iterator[TokenArray]:
        """All ids in order, `n_tokens` at a time (the last block may be shorter)."""
        if n_tokens < 1:
            raise ValueError(f"a block of {n_tokens} tokens")
        for start in range(0, self.n_tokens, n_tokens):
            yield self.read(start, min(start + n_tokens, self.n_tokens))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> TokenArray: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(self.n_tokens)
            if step != 1:
                raise ValueError(f"a slice of token shards has step 1, not {step}")
            return self.read(start, max(start, stop))
        place = index + self.n_tokens if index < 0 else index
        if not 0 <= place < self.n_tokens:
            raise IndexError(f"token {index} of {self.n_tokens}")
        return int(self.read(place, place + 1)[0])

    def __repr__(self) -> str:
        return f"TokenShards({str(self.folder)!r}, n_tokens={self.n_tokens}, dtype={self.dtype.name})"


def _open_checked(folder: Path, manifest: Manifest) -> list[TokenArray]:
    problems = size_problems(folder, manifest)
    for shard in manifest.shards:
        if not problems and (problem := layout_problem(folder / shard.file, shard, manifest)):
            problems = [problem]
    if problems:
        raise _damaged(folder, problems[0])
    layout = layout_named(manifest.layout)
    arrays = [layout.open(folder / shard.file, manifest.dtype, shard.n_tokens) for shard in manifest.shards]
    return cast("list[TokenArray]", arrays)


def _damaged(folder: Path, problem: str) -> ShardError:
    return ShardError(
        f"the shards in {folder} are damaged: {problem}",
        hint="restore the file from a copy, or encode the corpus again",
    )
