"""The ids of a shard folder as one array, mapped from the disk or read from an object store."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

import numpy as np
from numpy.typing import NDArray

from bytemill.data.layouts import layout_named, map_array
from bytemill.data.manifest import MANIFEST_NAME, Manifest, files_of, read_manifest
from bytemill.data.verification import documents_problem, open_shard, size_problems
from bytemill.errors import BytemillError, ShardError
from bytemill.storage import StoreFolder, url_of
from bytemill.storage.store import RequestPool
from bytemill.system.atomic_files import make_folder
from bytemill.system.locks import try_lock
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from bytemill.data.manifest import FileInfo


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

    def mask(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return True for each id from `start` to `stop` (exclusive) that is a target of a conversation.

        Raises:
            IndexError: If the range is not within the tokens.
            ShardError: If the shards are not of conversations, or a mask is damaged.
        """
        return self._masks.read(start, stop)

    @property
    def n_targets(self) -> int:
        """The number of ids that are targets. Raises as `mask`."""
        return self._masks.n_targets

    @cached_property
    def _masks(self) -> _Masks:
        return _Masks(self.manifest, lambda info: self.folder / info.file)

    @cached_property
    def arrays(self) -> list[TokenArray]:
        """Ids of each shard, read-only."""
        return _open_arrays(self.folder, self.manifest)

    def __getstate__(self) -> dict[str, Any]:
        # A pickled mapping would contain the file. Another process may have another current folder.
        state = {name: value for name, value in self.__dict__.items() if name not in ("arrays", "_masks")}
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


class _Masks:
    """The masks of the shards of a folder, mapped from the disk.

    Args:
        manifest: Manifest of the folder.
        path_of: Returns the path of a file on this machine.
    """

    def __init__(self, manifest: Manifest, path_of: Callable[[FileInfo], Path]) -> None:
        if manifest.settings.conversations is None:
            raise ShardError(
                "the shards have no masks",
                hint="encode conversations: bytemill data encode TOKENIZER --conversations FILE --output DIR",
            )
        self._n_tokens = manifest.n_tokens
        self._starts = [0, *accumulate(shard.n_tokens for shard in manifest.shards)]
        masks = [shard.mask for shard in manifest.shards if shard.mask is not None]
        self._bits = [map_array(path_of(mask), "uint8", mask.n_bytes) for mask in masks]

    @property
    def n_targets(self) -> int:
        """The number of bits that are set."""
        n_set = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1)
        return sum(int(np.bincount(bits, minlength=256) @ n_set) for bits in self._bits)

    def read(self, start: int, stop: int) -> NDArray[np.bool_]:
        """See `TokenShards.mask`."""
        if not 0 <= start <= stop <= self._n_tokens:
            raise IndexError(f"tokens {start} to {stop} of {self._n_tokens}")
        found = [np.empty(0, np.bool_)]
        for bits, first, end in zip(self._bits, self._starts, self._starts[1:], strict=False):
            low, high = max(start, first) - first, min(stop, end) - first
            if low < high:
                unpacked = np.unpackbits(bits[low // 8 : -(-high // 8)], bitorder="little")
                found.append(unpacked[low % 8 :][: high - low].astype(np.bool_))
        return np.concatenate(found)


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


CACHE_VARIABLE = "BYTEMILL_SHARD_CACHE"
CACHE_BYTES = 64 << 30
"""Limit of all shards in the cache folder, unless the environment variable says another one."""
_REQUESTS_AT_ONCE = 64
_MAX_AHEAD = 1 << 16
"""Ranges that are kept until they are read."""


class StoredTokens:
    """The ids of a shard folder in an object store as one array; slices are copies, as of `TokenShards`.

    A range is read by a request of its own, unless its shard is on this machine. A thread copies the shards to the
    cache folder one after the other, as long as they fit within its limit. Training reads windows in random order, so
    any shards that fit are as good as others, and none is ever replaced by another of the same folder. `prefetch` reads
    the ranges that are needed next, many at the same time.

    Args:
        url: URL of the folder.
        cache_bytes: Limit of the cache folder for all shards; by default 64 GiB, or `$BYTEMILL_SHARD_CACHE` bytes. With
            0 there is no cache.

    Raises:
        ShardError: The folder has no manifest, or a file contradicts it. Raised by `read` too.
        StorageError: The store cannot be read. Raised by `read` too.
    """

    def __init__(self, url: str, *, cache_bytes: int | None = None) -> None:
        self.folder = url
        self._cache_bytes = cache_bytes
        self.manifest: Manifest = read_manifest(url)
        self.dtype = np.dtype(self.manifest.dtype)
        self.n_tokens = self.manifest.n_tokens
        self._store = StoreFolder(url)
        layout = layout_named(self.manifest.layout)
        self._shards = [
            _Shard(shard.file, len(layout.header(self.manifest.dtype, shard.n_tokens)), shard.n_tokens)
            for shard in self.manifest.shards
        ]
        self._starts = [0, *accumulate(shard.n_tokens for shard in self._shards)]
        self._cache = _Cache(self._store, self.manifest, _limit() if cache_bytes is None else cache_bytes)
        self._pool: RequestPool[tuple[int, int, int], bytes] = RequestPool(self._request, _REQUESTS_AT_ONCE)
        self._ahead: OrderedDict[tuple[int, int], list[Future[bytes] | NDArray[Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(StoredTokens, cache_bytes=self._cache_bytes), (self.folder,)

    def __len__(self) -> int:
        return self.n_tokens

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return a copy of the ids from `start` to `stop` (exclusive), both from 0 to `n_tokens`."""
        if not 0 <= start <= stop <= self.n_tokens:
            raise IndexError(f"tokens {start} to {stop} of {self.n_tokens}")
        with self._lock:
            parts = self._ahead.pop((start, stop), None)
        if parts is None:
            parts = self._begin(start, stop)
        found = [
            part if isinstance(part, np.ndarray) else np.frombuffer(part.result(), self._item)
            for part in parts
        ]
        return np.concatenate([*found, np.empty(0, self.dtype)]).astype(self.dtype)

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Begin to read ranges that `read` will be asked for, unless that has begun."""
        for start, stop in ranges:
            with self._lock:
                is_known = (start, stop) in self._ahead
            if is_known or not 0 <= start <= stop <= self.n_tokens:
                continue
            parts = self._begin(start, stop)
            with self._lock:
                self._ahead[start, stop] = parts
                while len(self._ahead) > _MAX_AHEAD:
                    self._ahead.popitem(last=False)

    def document_ends(self) -> NDArray[np.uint64] | None:
        """Return the document index, or None if there is none; see `TokenShards.document_ends`."""
        info = self.manifest.documents
        if info is None:
            return None
        path = self._cache.fetch(info.file, info.sha256)
        npy = layout_named("npy")
        return npy.open(path, "uint64", npy.inspect(path).n_tokens)

    def mask(self, start: int, stop: int) -> NDArray[np.bool_]:
        """See `TokenShards.mask`. The masks are copied to the cache folder first."""
        return self._masks.read(start, stop)

    @property
    def n_targets(self) -> int:
        """See `TokenShards.n_targets`."""
        return self._masks.n_targets

    @cached_property
    def _masks(self) -> _Masks:
        return _Masks(self.manifest, lambda info: self._cache.fetch(info.file, info.sha256))

    def close(self) -> None:
        """Stop copying and reading ahead."""
        self._cache.close()
        self._pool.close()

    def __repr__(self) -> str:
        return f"StoredTokens({self.folder!r}, n_tokens={self.n_tokens}, dtype={self.dtype.name})"

    @property
    def _item(self) -> np.dtype[Any]:
        return self.dtype.newbyteorder("<")

    def _begin(self, start: int, stop: int) -> list[Future[bytes] | NDArray[Any]]:
        """Return the parts of a range: ids of shards that are here, and requests for others."""
        parts: list[Future[bytes] | NDArray[Any]] = []
        number = bisect_right(self._starts, start) - 1
        while start < stop:
            first = start - self._starts[number]
            n = min(stop, self._starts[number + 1]) - start
            if n > 0:
                shard = self._shards[number]
                path = self._cache.path(shard.file)
                ids = None if path is None else self._read_here(path, shard, first, n)
                parts.append(self._pool.submit((number, first, n)) if ids is None else ids)
            start += n
            number += 1
        return parts

    def _read_here(self, path: Path, shard: _Shard, first: int, n: int) -> NDArray[Any] | None:
        try:
            ids = np.fromfile(path, self._item, n, offset=shard.offset + first * self._item.itemsize)
        except OSError:  # another process has made room
            self._cache.forget(shard.file)
            return None
        return ids if len(ids) == n else None

    def _request(self, item: tuple[int, int, int]) -> bytes:
        number, first, n = item
        shard, size = self._shards[number], self._item.itemsize
        return self._store.read(shard.file, shard.offset + first * size, n * size)


@dataclass(frozen=True)
class _Shard:
    file: str
    offset: int
    """First byte of the ids."""
    n_tokens: int


def local_shards(url: str, *, cache_bytes: int | None = None) -> Path:
    """Copy a shard folder to the cache folder, as far as it is not there, and return the copy.

    Raises:
        ShardError: The folder has no manifest, or is larger than the limit of the cache folder.
        StorageError: The store cannot be read, or a file has another content than the manifest says.
        OutputError: The copy cannot be written.
    """
    manifest, limit = read_manifest(url), _limit() if cache_bytes is None else cache_bytes
    n_bytes = sum(info.n_bytes for info in files_of(manifest))
    if n_bytes > limit:
        raise ShardError(
            f"the shards in {url} have {n_bytes:,} bytes, more than the {limit:,} of the cache folder",
            hint=f"set {CACHE_VARIABLE} to more bytes, or copy the folder with the store's own tool",
        )
    cache = _Cache(StoreFolder(url), manifest, limit, copies=False)
    for info in files_of(manifest):
        cache.fetch(info.file, info.sha256)
    cache.write_manifest()
    return cache.folder


def _limit() -> int:
    text = os.environ.get(CACHE_VARIABLE, "")
    if not text:
        return CACHE_BYTES
    if not text.isdecimal():
        raise ShardError(f"{CACHE_VARIABLE} is {text!r}", hint="set it to a number of bytes")
    return int(text)


class _Cache:
    """The files of a shard folder in the cache folder."""

    def __init__(self, store: StoreFolder, manifest: Manifest, limit: int, *, copies: bool = True) -> None:
        self._store = store
        self._manifest = manifest
        self._limit = limit
        self._root = cache_folder("shards")
        self.folder = self._root / _name(store.url, manifest)
        self._present: set[str] = set()
        self._is_closed = threading.Event()
        if copies and limit:
            threading.Thread(target=self._copy_all, name="copy shards", daemon=True).start()

    def path(self, file: str) -> Path | None:
        """Return the path of a file that is here and whole, or None."""
        if file not in self._present:
            if not (self.folder / file).exists():  # under its name it is whole
                return None
            self._present.add(file)
        return self.folder / file

    def forget(self, file: str) -> None:
        """Take note that a file is not here any more."""
        self._present.discard(file)

    def fetch(self, file: str, sha256: str) -> Path:
        """Return the path of a file, and copy it first if it is not here."""
        if (path := self.path(file)) is not None:
            return path
        make_folder(self.folder)
        self._make_room(next(info.n_bytes for info in files_of(self._manifest) if info.file == file))
        self._store.download(file, self.folder / file, sha256)
        return self.folder / file

    def write_manifest(self) -> None:
        """Copy the manifest, which makes the copy a shard folder."""
        self._store.download(MANIFEST_NAME, self.folder / MANIFEST_NAME)

    def close(self) -> None:
        """Start no more copies."""
        self._is_closed.set()

    def _copy_all(self) -> None:
        # Reading goes on by requests if this ends.
        with contextlib.suppress(BytemillError, OSError):
            make_folder(self.folder)
            lock = try_lock(self.folder / ".lock")
            if lock is None:  # another process copies
                return
            with lock:
                for shard in self._manifest.shards:
                    if self._is_closed.is_set():
                        return
                    if self.path(shard.file) is None and self._make_room(shard.n_bytes):
                        self._store.download(shard.file, self.folder / shard.file, shard.sha256)

    def _make_room(self, n_bytes: int) -> bool:
        """Remove copies of other folders, the oldest first, until a file fits; return whether it does."""
        sizes = {folder: _size_of(folder) for folder in self._root.iterdir() if folder.is_dir()}
        others = sorted(
            (folder for folder in sizes if folder != self.folder), key=lambda each: each.stat().st_mtime
        )
        used = sum(sizes.values())
        while used + n_bytes > self._limit and others:
            oldest = others.pop(0)
            lock = try_lock(oldest / ".lock")
            if lock is None:
                continue
            with lock:
                shutil.rmtree(oldest, ignore_errors=True)
            used -= sizes[oldest]
        return used + n_bytes <= self._limit


def _size_of(folder: Path) -> int:
    total = 0
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def _name(url: str, manifest: Manifest) -> str:
    files = [[info.file, info.sha256] for info in files_of(manifest)]
    return hashlib.sha256(json.dumps([url, files]).encode()).hexdigest()[:24]
