"""Single files that are here or in an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.errors import OutputError
from bytemill.storage.location import shown, split_url, url_of
from bytemill.storage.store import StoreFolder
from bytemill.system.atomic_files import write_bytes

if TYPE_CHECKING:
    import os


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
