"""A study in an object store: what a report needs, so that another machine shows it or runs what is missing.

Texts and shards are made again from the study's inputs, and a model that is not finished is trained again: their files
stay on the machine that made them. The result of a cell is uploaded after the files that it belongs to.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import StorageError
from bytemill.storage import StoreFolder, split_url, url_of
from bytemill.storage.store import RequestPool
from bytemill.system.atomic_files import make_folder
from bytemill.system.paths import cache_folder, relative_name

if TYPE_CHECKING:
    import os

_REQUESTS_AT_ONCE = 8
_LAST = ("result.json", "results.jsonl", "report.html")
"""Files that are uploaded after the others, in this order."""


class StoredStudy:
    """The copy of a study in an object store.

    Args:
        url: URL of the study.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.path = (
            cache_folder("studies") / hashlib.sha256(url.encode()).hexdigest()[:24] / split_url(url)[1]
        )
        """The folder of the study on this machine."""
        self._store = StoreFolder(url)
        self._uploaded: dict[str, tuple[int, int]] = {}

    def fetch(self) -> None:
        """Download the files that are not on this machine. Raises StorageError or OutputError."""
        missing = [
            name
            for name in map(self._inside, self._store.list())
            if _is_kept(name) and not (self.path / name).exists()
        ]
        # A cell counts as finished as soon as its result is here.
        for names in ([name for name in missing if _rank(name) == rank] for rank in range(-1, len(_LAST))):
            with RequestPool(self._download, _REQUESTS_AT_ONCE) as pool:
                list(pool.in_order(names, len(names)))

    def push(self) -> None:
        """Upload the files that are new or have changed. Raises StorageError."""
        files = [path for path in self.path.rglob("*") if path.is_file()]
        names = [name for path in files if _is_kept(name := path.relative_to(self.path).as_posix())]
        for name in sorted(names, key=lambda each: (_rank(each), each)):
            status = (self.path / name).stat()
            state = (status.st_mtime_ns, status.st_size)
            if self._uploaded.get(name) != state:
                self._store.upload(name, self.path / name)
                self._uploaded[name] = state

    def _inside(self, name: str) -> str:
        try:
            return relative_name(name)
        except ValueError as error:
            raise StorageError(
                f"{self.url} has an object {name!r:.80}, which is no file of a study: {error}",
                hint="remove it",
            ) from error

    def _download(self, name: str) -> None:
        path = self.path / name
        make_folder(path.parent)
        self._store.download(name, path)
        status = path.stat()
        self._uploaded[name] = (status.st_mtime_ns, status.st_size)


def local_study(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a study on this machine: the path, or a copy of what a URL names.

    Raises:
        StorageError: The store cannot be read.
    """
    url = url_of(path)
    if url is None:
        return Path(path)
    stored = StoredStudy(url)
    stored.fetch()
    return stored.path


def _is_kept(name: str) -> bool:
    parts = name.split("/")
    is_made_again = parts[0] in ("text", "shards") or ("run" in parts[:-1] and parts[-1] != "metrics.jsonl")
    return not is_made_again and not any(part.startswith(".") for part in parts) and parts[-1] != "study.lock"


def _rank(name: str) -> int:
    base = name.rpartition("/")[2]
    return _LAST.index(base) if base in _LAST else -1
