"""Two data sets on a loopback server: `sample` on its hub, `plain` at a URL."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import pytest

from bytemill.datasets.catalogue import DATASETS, Dataset, HubFile

from .file_server import CONTENT, REVISION, FileServer, running


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with running() as server:
        yield server


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: FileServer) -> Path:
    """The folder of downloads that do not come from the hub."""
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "cache"))
    point_hub_at(server.url, tmp_path, monkeypatch)
    sample = Dataset(
        "sample",
        "a text for tests",
        "CC0-1.0",
        "https://example.org/sample",
        "sample.txt",
        len(CONTENT),
        hashlib.sha256(CONTENT).hexdigest(),
        HubFile("somebody/sample", REVISION, "folder/sample.txt"),
    )
    plain = replace(sample, name="plain", file_name="plain.txt", source=f"{server.url}/{REVISION}/plain.txt")
    monkeypatch.setitem(DATASETS, "sample", sample)
    monkeypatch.setitem(DATASETS, "plain", plain)
    return tmp_path / "cache" / "datasets"


def point_hub_at(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what HF_ENDPOINT and HF_HUB_CACHE do when huggingface_hub is imported."""
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
