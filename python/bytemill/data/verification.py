"""Compare shards with their manifest: at once, or in a thread while they are used."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from bytemill.data.layouts import layout_named
from bytemill.data.manifest import FileInfo, Manifest, ShardInfo, files_of, read_manifest, shard_files
from bytemill.errors import ShardError
from bytemill.storage import StoreFolder, url_of
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from numpy.typing import NDArray


def verify(folder: str | os.PathLike[str]) -> list[str]:
    """Verify every file of a shard folder against the manifest, in constant memory.

    Args:
        folder: Folder of shards, also the URL of one in an object store.

    Returns:
        One sentence per problem; empty if the shards are intact.

    Raises:
        ShardError: If the manifest cannot be read.
        StorageError: If the object store cannot be read.
    """
    if (url := url_of(folder)) is not None:
        return _stored_problems(StoreFolder(url), read_manifest(url))
    root = Path(folder)
    manifest = read_manifest(root)
    problems = size_problems(root, manifest)
    layout = layout_named(manifest.layout)
    for shard in manifest.shards:
        broken = [problem for info in (shard, *shard.sidecars) if (problem := _content_problem(root, info))]
        problems.extend(broken)
        path = root / shard.file
        if not path.exists():
            continue  # reported by size_problems
        try:
            open_shard(root, shard, manifest)
            layout.document_ends(path, manifest.dtype, shard.n_tokens)
        except ShardError as error:
            problems.append(str(error))
    if manifest.documents is not None:
        found = (_content_problem(root, manifest.documents), documents_problem(root, manifest))
        problems.extend(problem for problem in found if problem)
    listed = {info.file for info in files_of(manifest)}
    problems.extend(f"{name} is not in the manifest" for name in shard_files(root) if name not in listed)
    return problems


def _stored_problems(folder: StoreFolder, manifest: Manifest) -> list[str]:
    problems: list[str] = []
    for info in files_of(manifest):
        if folder.size(info.file) is None:
            problems.append(f"{info.file} is missing")
        elif (found := folder.sha256(info.file)) != info.sha256:
            problems.append(f"{info.file} has sha256 {found}, the manifest says {info.sha256}")
    return problems


def require_intact(folder: str | os.PathLike[str], manifest: Manifest) -> None:
    """Check that every file of a shard folder matches its recorded sha256.

    Args:
        folder: Folder of shards.
        manifest: Manifest of that folder.

    Raises:
        ShardError: If a file is missing or its content differs; names the first such file.
    """
    root = Path(folder)
    problems = size_problems(root, manifest)
    if not problems:
        checked = (_content_problem(root, info) for info in files_of(manifest))
        problems = [problem for problem in checked if problem][:1]
    if problems:
        raise ShardError(
            f"the shards in {folder} are damaged: {problems[0]}",
            hint="restore the file from a copy, or skip the check with --no-verify (verify=False)",
        )


def size_problems(folder: Path, manifest: Manifest) -> list[str]:
    """Return files that are missing or have the wrong size, without opening them."""
    problems = (_size_problem(folder, info) for info in files_of(manifest))
    return [problem for problem in problems if problem]


def file_problem(folder: Path, info: ShardInfo | FileInfo) -> str | None:
    """Return how a file contradicts what is recorded of it, or None. Reads the whole file."""
    return _size_problem(folder, info) or _content_problem(folder, info)


def _size_problem(folder: Path, info: ShardInfo | FileInfo) -> str | None:
    try:
        n_bytes = (folder / info.file).stat().st_size
    except OSError:
        return f"{info.file} is missing"
    if n_bytes != info.n_bytes:
        return f"{info.file} has {n_bytes:,} bytes, the manifest says {info.n_bytes:,}"
    return None


def open_shard(folder: Path, shard: ShardInfo, manifest: Manifest) -> NDArray[Any]:
    """Map the ids of a shard. Raises `ShardError` if the file contradicts the manifest."""
    try:
        return layout_named(manifest.layout).open(folder / shard.file, manifest.dtype, shard.n_tokens)
    except ShardError as error:
        raise ShardError(
            f"{error} (the manifest says {shard.n_tokens:,} tokens of {manifest.dtype})"
        ) from error


def documents_problem(folder: Path, manifest: Manifest) -> str | None:
    """Return how the document index contradicts the manifest, or None."""
    info = manifest.documents
    if info is None or not (folder / info.file).exists():
        return None
    npy = layout_named("npy")
    try:
        summary = npy.inspect(folder / info.file, "uint64")
        ends = npy.open(folder / info.file, "uint64", summary.n_tokens)
    except ShardError as error:
        return str(error)
    last = int(ends[-1]) if len(ends) else 0
    if last != manifest.n_tokens:
        return f"{info.file} ends at token {last:,}, the manifest says {manifest.n_tokens:,} tokens"
    for start in range(0, len(ends), _BLOCK_ITEMS):
        block = ends[start : start + _BLOCK_ITEMS + 1]
        if np.any(block[1:] < block[:-1]):
            return f"the ends of documents in {info.file} do not ascend"
    return None


_BLOCK_ITEMS = 1 << 20


def _content_problem(folder: Path, info: ShardInfo | FileInfo) -> str | None:
    """Return how a file contradicts its sha256, or None; `size_problems` reports missing files."""
    try:
        with (folder / info.file).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{info.file} cannot be read: {error.strerror or error}"
    if digest != info.sha256:
        return f"{info.file} has sha256 {digest}, the manifest says {info.sha256}"
    return None


_READ_BYTES = 1 << 20
_HINT = "restore the file from a copy, or encode the corpus again"


class BackgroundCheck:
    """A thread that compares the files of shard folders with the sha256 in their manifests.

    A file that was found intact is not read again until its size, inode or times change, also by later processes:
    the cache folder keeps these. On Linux the thread has the lowest priority. It runs in the block of a
    `with` statement.

    Args:
        folders: Shard folders of this machine.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = list(dict.fromkeys(folders))
        self._error: Exception | None = None
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="verify shards", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Compare no more files."""
        self._is_closed.set()
        self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether files remain to be compared."""
        return self._thread.is_alive()

    def raise_damage(self) -> None:
        """Raise ShardError if a file that was compared so far differs or cannot be read."""
        if self._error is not None:
            raise self._error

    def wait(self) -> Exception | None:
        """Wait until all files are compared, and return the error that ended the comparison, if any."""
        self._thread.join()
        return self._error

    def _run(self) -> None:
        if sys.platform == "linux":  # where each thread has a priority
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        try:
            for folder in self._folders:
                self._check(folder)
        except Exception as error:  # raised in the thread that uses the shards
            self._error = error

    def _check(self, folder: Path) -> None:
        known = _read_known(folder)
        before = dict(known)
        try:
            for info in files_of(read_manifest(folder)):
                if self._is_closed.is_set():
                    return
                stamp = [*_stamp(folder / info.file), info.sha256]
                if known.get(info.file) != stamp and self._is_intact(folder, info):
                    known[info.file] = stamp
        finally:
            if known != before:
                _write_known(folder, known)

    def _is_intact(self, folder: Path, info: ShardInfo | FileInfo) -> bool:
        """Compare a file; return False if this was cut short. Raises `ShardError` if the file differs."""
        digest = hashlib.sha256()
        try:
            with (folder / info.file).open("rb") as file:
                while block := file.read(_READ_BYTES):
                    if self._is_closed.is_set():
                        return False
                    digest.update(block)
        except OSError as error:
            raise _unreadable(folder / info.file, error) from error
        if digest.hexdigest() != info.sha256:
            raise ShardError(
                f"{folder / info.file} has other content than when it was encoded: its sha256 is "
                f"{digest.hexdigest()}, the manifest says {info.sha256}",
                hint=_HINT,
            )
        return True


def _stamp(path: Path) -> list[int]:
    """Return what changes when a file is written or replaced: also with its old time, since ctime cannot be set."""
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def _unreadable(path: Path, error: OSError) -> ShardError:
    return ShardError(f"cannot read {path}: {error.strerror or error}", hint=_HINT)


def _known_path(folder: Path) -> Path:
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:24]
    return cache_folder("verified") / f"{name}.json"


def _read_known(folder: Path) -> dict[str, list[Any]]:
    """Return the stamp and the sha256 of each file that was found intact."""
    try:
        document: object = json.loads(_known_path(folder).read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, list[Any]]", document) if isinstance(document, dict) else {}


def _write_known(folder: Path, known: dict[str, list[Any]]) -> None:
    path = _known_path(folder)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # Without it the files are compared again, so it is neither synced nor required.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(known), encoding="utf-8")
        temporary.replace(path)
