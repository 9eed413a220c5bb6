"""A data set that a server on this machine has."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bytemill.datasets.catalogue import DATASETS, Dataset

from .file_server import CONTENT, PATH, FileServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server that has `CONTENT`, and to which no proxy stands in the way."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.go_on.set()
        server.shutdown()
        thread.join()


def sample_dataset() -> Dataset:
    """What the server has, as an entry of the table."""
    return Dataset(
        "sample",
        "a text for tests",
        "CC0-1.0",
        "https://example.org/sample",
        "sample.txt",
        len(CONTENT),
        hashlib.sha256(CONTENT).hexdigest(),
        "https://example.org",
        PATH,
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: FileServer) -> Path:
    """The folder of fetched data sets, empty; `sample` is a data set and the server its mirror."""
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BYTEMILL_DATA_URL", server.url)
    monkeypatch.setitem(DATASETS, "sample", sample_dataset())
    return tmp_path / "cache" / "datasets"
