"""Shards are compared with their manifests once, and again when they change in any way."""

import os
from pathlib import Path
from typing import Any

import pytest

from bytemill import Corpus
from bytemill.data.verification import BackgroundCheck
from bytemill.errors import ShardError
from bytemill.shards import encode_corpus

from .packed_documents import TOKENIZER


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "cache"))
    encode_corpus(TOKENIZER, Corpus.from_texts(["abcd" * 50]), tmp_path / "shards", shard_tokens=60)
    return tmp_path / "shards"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that checks read."""
    names: list[str] = []
    real = BackgroundCheck._is_intact

    def is_intact(self: BackgroundCheck, folder: Path, info: Any) -> bool:
        names.append(info.file)
        return real(self, folder, info)

    monkeypatch.setattr(BackgroundCheck, "_is_intact", is_intact)
    return names


def check(*folders: Path) -> Exception | None:
    with BackgroundCheck(folders) as running:
        error = running.wait()
        assert not running.is_running
        if error is not None:
            with pytest.raises(ShardError):
                running.raise_damage()
        return error


def test_intact_files_are_read_once(shards: Path, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"shard_0000{number}.npy" for number in range(4)]
    assert check(shards) is None
    assert read == names
    monkeypatch.chdir(shards.parent)
    assert check(Path("shards"), shards) is None  # by whatever name
    assert read == names
    (shards / "shard_00002.npy").touch()
    assert check(shards) is None
    assert read == [*names, "shard_00002.npy"]


@pytest.mark.parametrize("name", ["shard_00001.npy", "another"])
def test_content_that_was_replaced_with_its_times_is_named(shards: Path, read: list[str], name: str) -> None:
    """In place, or by renaming another file."""
    assert check(shards) is None
    path = shards / "shard_00001.npy"
    before = path.stat()
    (shards / name).write_bytes(path.read_bytes()[:-2] + b"x\0")
    (shards / name).replace(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for _ in range(2):
        error = check(shards)
        assert isinstance(error, ShardError)
        assert f"{path} has other content than when it was encoded" in str(error)
    assert read[4:] == ["shard_00001.npy"] * 2


def test_a_file_that_is_gone_is_named_and_without_a_cache_folder_every_check_reads(
    shards: Path, read: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        assert check(shards) is None
    assert len(read) == 8
    (shards / "shard_00003.npy").unlink()
    assert "cannot read" in str(check(shards))
