"""Read shards as arrays, or as one array."""

import os
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias, cast, overload

import numpy as np
from numpy.typing import NDArray

from bytemill.errors import ShardError
from bytemill.shards.layouts import layout_named
from bytemill.shards.manifest import Manifest, read_manifest
from bytemill.shards.stored_tokens import local_shards
from bytemill.shards.verification import documents_problem, open_shard, size_problems
from bytemill.storage import url_of

TokenArray: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32]


class TokenShards:
    """The ids of a shard folder as one array that stays on the disk.

    `len(tokens)`, `tokens[i]` and `tokens[start:stop]` work as for a NumPy array; a slice is a copy. `verify` checks
    the content of the shards. A pickled one holds the path and the manifest, and maps the files again where it is used,
    so the workers of a `torch.utils.data.DataLoader` share the pages of the disk cache.

    Args:
        folder: Folder that contains `manifest.json`. Shards in an object store are copied to the cache folder first;
            `StoredTokens` reads them as they are needed.

    Raises:
        ShardError: If a shard is missing or contradicts the manifest in size, dtype or number of tokens.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder) if (url := url_of(folder)) is None else local_shards(url)
        self.manifest = read_manifest(self.folder)
        self.dtype = np.dtype(self.manifest.dtype)
        self.n_tokens = self.manifest.n_tokens
        self._starts = [0, *accumulate(shard.n_tokens for shard in self.manifest.shards)]
        _ = self.arrays  # a damaged folder is an error now, not at the first read

    @cached_property
    def arrays(self) -> list[TokenArray]:
        """Ids of each shard, read-only."""
        return _open_arrays(self.folder, self.manifest)

    def __getstate__(self) -> dict[str, Any]:
        # A pickled mapping would contain the file. Another process may have another current folder.
        state = {name: value for name, value in self.__dict__.items() if name != "arrays"}
        return {**state, "folder": self.folder.absolute()}

    def __len__(self) -> int:
        return self.n_tokens

    def document_ends(self) -> NDArray[np.uint64] | None:
        """Map the document index, or return None if there is none.

        Returns:
            End of each document in tokens, ascending to `n_tokens`, read-only, shape (n_documents,).

        Raises:
            ShardError: If the index is damaged.
        """
        info = self.manifest.documents
        if info is None:
            return None
        if problem := documents_problem(self.folder, self.manifest):
            raise _damaged(self.folder, problem)
        path, npy = self.folder / info.file, layout_named("npy")
        return npy.open(path, "uint64", npy.inspect(path).n_tokens)

    def read(self, start: int, stop: int) -> TokenArray:
        """Return a copy of the ids from `start` to `stop` (exclusive), both from 0 to `n_tokens`.

        Raises:
            IndexError: If the range is not within the tokens.
        """
        if not 0 <= start <= stop <= self.n_tokens:
            raise IndexError(f"tokens {start} to {stop} of {self.n_tokens}")
        tokens = np.empty(stop - start, dtype=self.dtype)
        n_read = 0
        index = bisect_right(self._starts, start) - 1
        while n_read < len(tokens):
            offset = start + n_read - self._starts[index]
            chunk = self.arrays[index][offset : offset + len(tokens) - n_read]
            tokens[n_read : n_read + len(chunk)] = chunk
            n_read += len(chunk)
            index += 1
        return cast("TokenArray", tokens)

    def blocks(self, n_tokens: int = 1 << 20) -> Iterator[TokenArray]:
        """Yield all ids in order, in blocks of `n_tokens`; the last one may be shorter."""
        if n_tokens < 1:
            raise ValueError(f"n_tokens is {n_tokens}; it must be at least 1")
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
                raise ValueError(f"slices of token shards must have step 1, not {step}")
            return self.read(start, max(start, stop))
        position = index + self.n_tokens if index < 0 else index
        if not 0 <= position < self.n_tokens:
            raise IndexError(f"token {index} of {self.n_tokens}")
        return int(self.read(position, position + 1)[0])

    def __repr__(self) -> str:
        return f"TokenShards({str(self.folder)!r}, n_tokens={self.n_tokens}, dtype={self.dtype.name})"


def _open_arrays(folder: Path, manifest: Manifest) -> list[TokenArray]:
    if problems := size_problems(folder, manifest):
        raise _damaged(folder, problems[0])
    try:
        return [open_shard(folder, shard, manifest) for shard in manifest.shards]
    except ShardError as error:
        raise _damaged(folder, str(error)) from error


def _damaged(folder: Path, problem: str) -> ShardError:
    return ShardError(
        f"the shards in {folder} are damaged: {problem}",
        hint="restore the file from a copy, or encode the corpus again",
    )
