"""Where tasks leave their results, shared by all workers: a folder, or an object store.

A result is a small JSON file that names its data files, with their sizes and hashes and a digest of itself. A task
writes the data under names of its own attempt and then the JSON under the name of the result, which succeeds for the
first attempt only. So a result is whole or absent, and of two copies of a task one counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from bytemill.errors import ClusterError
from bytemill.storage.store import RequestPool
from bytemill.system.atomic_files import make_folder, output_errors
from bytemill.system.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from types import TracebackType

    from bytemill.storage import StoreFolder


_SUFFIX = ".json"
_REQUESTS_AT_ONCE = 32


class Stage(Protocol):
    """Results of tasks. It is pickled for the workers."""

    def create(self) -> None:
        """Prepare the place. Raises OutputError or StorageError, as all methods do."""
        ...

    def remove(self) -> None:
        """Remove all results."""
        ...

    def result(self, name: str) -> dict[str, Any] | None:
        """Return the record of a result, or None if it is absent or damaged."""
        ...

    def results(self, names: Iterable[str]) -> dict[int, dict[str, Any]]:
        """Return the records of the results that are there, by the index of their name."""
        ...

    def attempt(self, name: str) -> Attempt:
        """Begin an attempt at a result."""
        ...

    def sweep(self) -> list[str]:
        """Remove what belongs to no result: the files of attempts that were killed, and damaged results.

        Returns:
            The names of damaged results: in a folder, those whose files have other content than was written. An object
            store keeps checksums itself, so there the sizes are compared.
        """
        ...

    def read(self, file: str, start: int, n_bytes: int) -> bytes:
        """Return a range of a data file. Raises ClusterError if the file is shorter."""
        ...

    def read_all(self, file: str) -> bytes:
        """Return a data file."""
        ...

    def range_as_file(
        self, file: str, start: int, stop: int
    ) -> contextlib.AbstractContextManager[tuple[Path, int, int]]:
        """Provide a range of a data file on this machine, as the path of a file and a range of it."""
        ...


class Attempt:
    """The files of one attempt, in a folder of this machine until they are published.

    As a context manager it removes them, unless they were published.
    """

    def __init__(self, stage: _Publisher, name: str, folder: Path, *, removes_folder: bool) -> None:
        self.name = name
        self.tag = os.urandom(6).hex()
        self.files: dict[str, Path] = {}
        self.is_published = False
        self._stage = stage
        self._folder = folder
        self._removes_folder = removes_folder

    def file(self, label: str) -> Path:
        """Return the path for a data file."""
        self.files[label] = path = self._folder / f"{self.name}.{self.tag}.{label}"
        return path

    def folder(self) -> Path:
        """Return a new folder for temporary files, removed at the end of the block."""
        path = self._folder / f"{self.name}.{self.tag}.tmp"
        with output_errors(path):
            path.mkdir()
        return path

    def publish(self, record: dict[str, Any]) -> dict[str, Any]:
        """Make the files the result, unless there is one, and return the record of the result.

        Raises:
            OutputError: A file cannot be written.
            StorageError: The store cannot be written.
        """
        document = self._stage.publish(self, record)
        result = self._stage.result(self.name)
        return document if result is None else result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            shutil.rmtree(self._folder / f"{self.name}.{self.tag}.tmp", ignore_errors=True)
            if not self.is_published:
                for path in self.files.values():
                    path.unlink(missing_ok=True)
        if self._removes_folder:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Publisher(Protocol):
    def publish(self, attempt: Attempt, record: dict[str, Any]) -> dict[str, Any]: ...
    def result(self, name: str) -> dict[str, Any] | None: ...


@dataclass(frozen=True)
class FolderStage:
    """A folder that all workers see under the same name."""

    folder: Path

    def create(self) -> None:
        """See `Stage`."""
        make_folder(self.folder)

    def remove(self) -> None:
        """See `Stage`."""
        with output_errors(self.folder), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder)

    def result(self, name: str) -> dict[str, Any] | None:
        """See `Stage`."""
        try:
            document = _parsed((self.folder / (name + _SUFFIX)).read_bytes())
            sizes = {file: (self.folder / file).stat().st_size for file in _names_of(document)}
        except OSError:
            return None
        return document if document and _is_whole(document, sizes) else None

    def results(self, names: Iterable[str]) -> dict[int, dict[str, Any]]:
        """See `Stage`."""
        found = ((index, self.result(name)) for index, name in enumerate(names))
        return {index: result for index, result in found if result is not None}

    def attempt(self, name: str) -> Attempt:
        """See `Stage`."""
        return Attempt(self, name, self.folder, removes_folder=False)

    def sweep(self) -> list[str]:
        """See `Stage`."""
        paths = list(self.folder.iterdir())
        names = [path.stem for path in paths if path.suffix == _SUFFIX]
        with ThreadPoolExecutor() as pool:
            intact = dict(zip(names, pool.map(self._intact, names), strict=True))
        kept = {
            file
            for name, document in intact.items()
            if document
            for file in (name + _SUFFIX, *_names_of(document))
        }
        for path in paths:
            if path.name not in kept:
                with contextlib.suppress(OSError):
                    if path.is_dir():
                        shutil.rmtree(path)
                    else:
                        path.unlink()
        return [name for name, document in intact.items() if document is None]

    def _intact(self, name: str) -> dict[str, Any] | None:
        """Return the record of a result whose files have the content that was written, else None."""
        document = self.result(name)
        if document is None:
            return None
        try:
            hashes = [_sha256(self.folder / file) for file in _names_of(document)]
        except OSError:
            return None
        return document if hashes == document["sha256"] else None

    def read(self, file: str, start: int, n_bytes: int) -> bytes:
        """See `Stage`."""
        with _read_errors(self.folder / file), (self.folder / file).open("rb") as opened:
            opened.seek(start)
            data = opened.read(n_bytes)
        if len(data) != n_bytes:
            raise ClusterError(
                f"{self.folder / file} is shorter than when it was written", hint="run the command again"
            )
        return data

    def read_all(self, file: str) -> bytes:
        """See `Stage`."""
        with _read_errors(self.folder / file):
            return (self.folder / file).read_bytes()

    @contextlib.contextmanager
    def range_as_file(self, file: str, start: int, stop: int) -> Generator[tuple[Path, int, int]]:
        """See `Stage`."""
        yield self.folder / file, start, stop

    def publish(self, attempt: Attempt, record: dict[str, Any]) -> dict[str, Any]:
        """Make the files of an attempt the result, unless there is one."""
        final = self.folder / (attempt.name + _SUFFIX)
        with output_errors(final):
            files = {label: [path.name, _synced_size(path)] for label, path in attempt.files.items()}
            document = _signed(record, files, [_sha256(path) for path in attempt.files.values()])
            temporary = self.folder / f"{attempt.name}.{attempt.tag}{_SUFFIX}"
            with temporary.open("xb") as file:
                file.write(json.dumps(document).encode())
                file.flush()
                os.fsync(file.fileno())
            try:
                if self.result(attempt.name) is None:
                    _first(temporary, final, is_damaged=final.exists())
                    attempt.is_published = True
            except FileExistsError:
                pass
            finally:
                temporary.unlink(missing_ok=True)
        return document


@dataclass(frozen=True)
class StoreStage:
    """A folder in an object store. Tasks write to the temporary folder of their machine, and upload what is whole."""

    store: StoreFolder

    def create(self) -> None:
        """See `Stage`."""

    def remove(self) -> None:
        """See `Stage`."""
        self.store.delete(self.store.list())

    def result(self, name: str) -> dict[str, Any] | None:
        """See `Stage`."""
        document = self._document(name)
        sizes = {file: self.store.size(file) for file in _names_of(document)}
        return document if document and _is_whole(document, sizes) else None

    def results(self, names: Iterable[str]) -> dict[int, dict[str, Any]]:
        """See `Stage`."""
        sizes, indices = self.store.list(), {name: index for index, name in enumerate(names)}
        return {indices[name]: document for name, document in self._whole(sizes).items() if name in indices}

    def attempt(self, name: str) -> Attempt:
        """See `Stage`."""
        folder = Path(tempfile.mkdtemp(prefix="bytemill-"))
        return Attempt(self, name, folder, removes_folder=True)

    def sweep(self) -> list[str]:
        """See `Stage`."""
        sizes = self.store.list()
        whole = self._whole(sizes)
        kept = {file for name, document in whole.items() for file in (name + _SUFFIX, *_names_of(document))}
        self.store.delete(name for name in sizes if name not in kept)
        names = (name.removesuffix(_SUFFIX) for name in sizes if name.endswith(_SUFFIX))
        return [name for name in names if name not in whole]

    def read(self, file: str, start: int, n_bytes: int) -> bytes:
        """See `Stage`."""
        return self.store.read(file, start, n_bytes)

    def read_all(self, file: str) -> bytes:
        """See `Stage`."""
        found = self.store.get(file)
        if found is None:
            raise ClusterError(f"{self.store}/{file} is gone", hint="run the command again")
        return found.data

    @contextlib.contextmanager
    def range_as_file(self, file: str, start: int, stop: int) -> Generator[tuple[Path, int, int]]:
        """See `Stage`."""
        with tempfile.TemporaryDirectory(prefix="bytemill-") as folder:
            path = Path(folder) / "range"
            with output_errors(path):
                path.write_bytes(self.store.read(file, start, stop - start))
            yield path, 0, stop - start

    def publish(self, attempt: Attempt, record: dict[str, Any]) -> dict[str, Any]:
        """Upload the files of an attempt and make them the result, unless there is one."""
        files: dict[str, list[Any]] = {}
        for label, path in attempt.files.items():
            with output_errors(path):
                files[label] = [path.name, path.stat().st_size]
            self.store.upload(path.name, path)
        document = _signed(record, files, [])
        data, final = json.dumps(document).encode(), attempt.name + _SUFFIX
        is_first = self.store.create(final, data)
        if not is_first and self.result(attempt.name) is None:
            damaged = self.store.get(final)
            is_first = self.store.replace(final, data, damaged.version if damaged else None)
        if not is_first:
            self.store.delete(file for file, _ in files.values())
        return document

    def _document(self, name: str) -> dict[str, Any] | None:
        found = self.store.get(name + _SUFFIX)
        return None if found is None else _parsed(found.data)

    def _whole(self, sizes: dict[str, int]) -> dict[str, dict[str, Any]]:
        """Return the records of the results whose files have the sizes that they say, by name."""
        names = [name.removesuffix(_SUFFIX) for name in sizes if name.endswith(_SUFFIX)]
        with RequestPool(self._document, _REQUESTS_AT_ONCE) as pool:
            documents = dict(zip(names, pool.in_order(names, 2 * _REQUESTS_AT_ONCE), strict=True))
        return {
            name: document for name, document in documents.items() if document and _is_whole(document, sizes)
        }


def _signed(record: dict[str, Any], files: dict[str, list[Any]], hashes: list[str]) -> dict[str, Any]:
    """Return the document of a result: the record, the files by label with the hash of each, and a digest of all."""
    document = {**record, "files": files, "sha256": hashes}
    return {**document, "digest": digest(document)}


def _parsed(data: bytes) -> dict[str, Any] | None:
    """Return the document of a result, or None if it is damaged."""
    try:
        document: Any = json.loads(data)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    found = cast("dict[str, Any]", document)
    content = {key: value for key, value in found.items() if key != "digest"}
    return found if found.get("digest") == digest(content) else None


def _names_of(document: dict[str, Any] | None) -> list[str]:
    """Return the names of the data files of a result."""
    return [] if document is None else [file for file, _ in document["files"].values()]


def _is_whole(document: dict[str, Any], sizes: Mapping[str, int | None]) -> bool:
    return all(sizes.get(file) == n_bytes for file, n_bytes in document["files"].values())


def _first(temporary: Path, final: Path, *, is_damaged: bool) -> None:
    """Give a file its final name; raises FileExistsError if another one has it, unless that one is damaged."""
    if is_damaged:
        temporary.replace(final)
        return
    try:
        os.link(temporary, final)
    except FileExistsError:
        raise
    except OSError:
        # File systems without links; of two attempts the later one counts, which has the same content.
        temporary.replace(final)


@contextlib.contextmanager
def _read_errors(path: Path) -> Generator[None]:
    """Convert an `OSError` of the block to a `ClusterError` that names `path`."""
    try:
        yield
    except OSError as error:
        raise ClusterError(
            f"cannot read {path}: {error.strerror or error}", hint="check permissions and disk"
        ) from error


def _synced_size(path: Path) -> int:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return file.seek(0, os.SEEK_END)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def note_damage(note: Callable[[str], None] | None, what: str, damaged: list[str]) -> None:
    """Tell that results of an interrupted run are damaged and are made again.

    Args:
        note: Called with a sentence.
        what: What one of them is.
        damaged: Their names, or what is wrong with them.
    """
    if damaged and note is not None:
        note(f"damaged since the interruption, and made again: {plural(len(damaged), what)} ({damaged[0]})")


def digest(*parts: Any) -> str:
    """Return a name for what JSON values determine."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
