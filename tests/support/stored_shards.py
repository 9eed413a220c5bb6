"""Shards in an object store, compared with those on this machine."""

import json
import re
from pathlib import Path
from typing import Any

from bytemill.shards import verify
from bytemill.storage import StoreFolder

_TAG = re.compile(r"\.[0-9a-f]{12}(?=\.)")


def copy_of(url: str, folder: Path) -> Path:
    """Copy all objects, as a store's own tool does."""
    store = StoreFolder(url)
    for name in store.list():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        store.download(name, folder / name)
    return folder


def contents(folder: Path) -> dict[str, Any]:
    """The content of every file, without tags."""
    found: dict[str, Any] = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.endswith(".lock"):
            name = _TAG.sub("", path.relative_to(folder).as_posix())
            assert name not in found, path
            data = path.read_bytes()
            found[name] = json.loads(_TAG.sub("", data.decode())) if name.endswith("manifest.json") else data
    return found


def assert_stored(url: str, folder: Path, expected: Path) -> None:
    """Check that a store has the shards of a folder, and nothing else."""
    copy = copy_of(url, folder)
    for manifest in copy.rglob("manifest.json"):
        assert verify(manifest.parent) == []
    assert contents(copy) == contents(expected)
