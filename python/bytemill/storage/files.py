"""Files that are here or in an object store, and copies on this machine for code that reads and writes only those."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import OutputError, StorageError
from bytemill.storage.location import shown, split_url, url_of
from bytemill.storage.store import RequestPool, StoreFolder
from bytemill.system.atomic_files import make_folder, write_bytes
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Generator, Sequence

_REQUESTS_AT_ONCE = 8
MAX_FOLDER_BYTES = 64 << 30
"""A folder of a model or tokenizer is not larger; one that is was named by mistake."""


def exists(path: str | os.PathLike[str]) -> bool:
    """Check whether there is a file or an object of this name."""
    url = url_of(path)
    if url is None:
        return Path(path).exists()
    folder, name = split_url(url)
    return StoreFolder(folder).size(name) is not None


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file of this machine atomically, or an object.

    Raises:
        StorageError: The store cannot be written.
        OutputError: The file cannot be written.
    """
    url = url_of(path)
    if url is None:
        write_bytes(path, data)
        return
    folder, name = split_url(url)
    StoreFolder(folder).put(name, data)


def check_output_object(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Check that a store can be written and has no object of this name.

    Args:
        path: A URL.
        overwrite: Accept an object.

    Raises:
        OutputError: There is one.
        StorageError: The store cannot be written.
    """
    folder, name = split_url(shown(path))
    store = StoreFolder(folder)
    store.require_writable()
    if not overwrite and store.size(name) is not None:
        raise OutputError(
            f"{folder}/{name} already exists",
            hint="choose another name, or replace it with --overwrite (overwrite=True)",
        )


def local_input(path: str | os.PathLike[str], siblings: Sequence[str] = ()) -> Path:
    """Return a path of this machine for a file or folder: the path itself, or of a copy of what a URL names.

    Copies are in the cache folder. One is used again as long as the object has the same version.

    Args:
        path: A path, or a URL.
        siblings: Names of files beside the file that are copied too, if they are there.

    Raises:
        StorageError: There is no such object, or the store cannot be read.
        OutputError: The copy cannot be written.
    """
    url = url_of(path)
    if url is None:
        return Path(path)
    folder, name = split_url(url)
    store, parent = StoreFolder(folder), _copies_of(url)
    version = store.version(name)
    if version is None:
        return _folder_copy(url, parent)
    others = [sibling for sibling in siblings if sibling != name]
    found = zip(others, _versions(store, others), strict=True)
    versions = [(name, version), *((other, each) for other, each in found if each is not None)]
    return _copy(store, versions, parent) / name


@contextlib.contextmanager
def local_output(path: str | os.PathLike[str], last: str = "") -> Generator[Path]:
    """Provide a path of this machine for an output: the path itself, or a temporary one for a URL.

    What the block has written under the temporary path, a file or a folder, is uploaded at its end.

    Args:
        path: A path, or a URL.
        last: Name of the file without which no reader opens the folder. It is uploaded last, and the one that is there
            is removed first.

    Raises:
        StorageError: The store cannot be written.
    """
    url = url_of(path)
    if url is None:
        yield Path(path)
        return
    folder, name = split_url(url)
    store = StoreFolder(folder)
    store.require_writable()
    with tempfile.TemporaryDirectory(prefix="bytemill-") as temporary:
        yield Path(temporary) / name
        upload_folder(Path(temporary), store, last)


def uploaded(file: Path, local: Path, path: str | os.PathLike[str]) -> Path:
    """Return where a file in `local` appears, the path that `local_output` has provided for `path`.

    >>> uploaded(Path("/tmp/x/t.json"), Path("/tmp/x/t.json"), "s3://b/t.json").as_posix()
    's3:/b/t.json'
    """
    url = url_of(path)
    return file if url is None else Path(split_url(url)[0]) / file.relative_to(local.parent)


def upload_folder(folder: Path, store: StoreFolder, last: str = "") -> None:
    """Upload all files of a folder, except hidden ones; those named `last` at the end (`local_output`)."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.name.startswith(".")]
    files.sort(key=lambda file: file.name == last)
    names = [file.relative_to(folder).as_posix() for file in files]
    store.delete(name for file, name in zip(files, names, strict=True) if file.name == last)
    for file, name in zip(files, names, strict=True):
        store.upload(name, file)


def working_path(url: str) -> Path:
    """Return a path of this machine, the same for the same URL, for an output and what is kept beside it.

    Raises:
        OutputError: Its folder cannot be made.
    """
    path = cache_folder("outputs") / _digest(url) / split_url(url)[1]
    make_folder(path.parent)
    return path


def _folder_copy(url: str, parent: Path) -> Path:
    store = StoreFolder(url)
    sizes = {name: n for name, n in store.list().items() if not name.startswith(".") and "/." not in name}
    if not sizes:
        raise StorageError(f"there is no {url}", hint="check the URL")
    if sum(sizes.values()) > MAX_FOLDER_BYTES:
        raise StorageError(f"{url} has {sum(sizes.values()):,} bytes", hint="name a folder within it")
    versions = [(name, each or "") for name, each in zip(sizes, _versions(store, list(sizes)), strict=True)]
    return _copy(store, versions, parent)


def _versions(store: StoreFolder, names: list[str]) -> list[str | None]:
    with RequestPool(store.version, _REQUESTS_AT_ONCE) as pool:
        return list(pool.in_order(names, len(names)))


def _copy(store: StoreFolder, versions: list[tuple[str, str]], parent: Path) -> Path:
    """Copy objects to a folder that belongs to their versions, and remove the copies of other versions."""
    final = parent / _digest(repr(sorted(versions)))
    if final.is_dir():
        return final
    make_folder(parent)
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=parent))
    try:
        for name, _ in versions:
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            store.download(name, temporary / name)
        with contextlib.suppress(FileExistsError, OSError):  # another process was first
            temporary.rename(final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if not final.is_dir():
        raise OutputError(f"cannot write {final}", hint="check the cache folder (BYTEMILL_CACHE)")
    for other in parent.iterdir():
        if other != final and not other.name.startswith("."):
            shutil.rmtree(other, ignore_errors=True)
    return final


def _copies_of(url: str) -> Path:
    return cache_folder("copies") / _digest(url)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
