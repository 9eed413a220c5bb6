"""Errors of the system while inputs are read and results are written: each names the file."""

import errno
import gzip
import io
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bytemill as bm
from bytemill.cli import output
from bytemill.cluster import encode_corpus
from bytemill.corpus import Corpus
from bytemill.corpus.columns import failures
from bytemill.corpus.ranges import divide
from bytemill.data.executors.encode import _new_file
from bytemill.data.stage import FolderStage
from bytemill.errors import BytemillError, ClusterError, CorpusError, OutputError
from bytemill.system import atomic_files
from tests.cluster.corpora import InlineExecutor

from .conftest import read


class Failing(io.RawIOBase):
    """A file whose disk fails, or is full."""

    name = "failing"

    def __init__(self, number: int) -> None:
        self._number = number

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, *_: int) -> int:
        return 0

    def readinto(self, _: Any, /) -> int:
        raise OSError(self._number, os.strerror(self._number))

    def write(self, _: Any, /) -> int:
        raise OSError(self._number, os.strerror(self._number))


def failing_pread(*_: object) -> bytes:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("name", ["a.txt", "a", "a.jsonl", "a.csv", "a.parquet", "a.wet"])
def test_a_disk_that_fails_while_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).write_bytes(b"text")
    monkeypatch.setattr(os, "pread", failing_pread)
    for use in (read, lambda corpus: bm.train(corpus, 300)):
        with pytest.raises(CorpusError, match=rf"cannot read .*/{name}: Input/output error"):
            use(Corpus(tmp_path / name))


def test_a_disk_that_fails_is_no_damage_of_a_table() -> None:
    with (
        pytest.raises(CorpusError, match=r"cannot read t\.parquet: Input/output error"),
        failures("t.parquet", pa),
    ):
        raise OSError(errno.EIO, "Input/output error")
    with pytest.raises(CorpusError, match="is damaged: Couldn't deserialize"), failures("t.parquet", pa):
        raise OSError("Couldn't deserialize thrift")


def test_a_disk_that_fails_while_a_corpus_is_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("line\n" * 100)
    corpus = Corpus(path, documents="line")
    monkeypatch.setattr(Path, "open", lambda *_: io.BufferedReader(Failing(errno.EIO)))
    with pytest.raises(CorpusError, match=r"cannot read .*/a\.txt: Input/output error"):
        divide(corpus, 10)


def test_a_full_disk_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": ["one"]}), file)
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(file.getvalue()))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Failing(errno.ENOSPC))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(BytemillError, match=f"cannot write {tmp_path}: no space is left on the device"):
        read(Corpus(tmp_path / "a.parquet.gz"))


def test_a_full_disk_in_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = bm.train_from_iterator(["some text"], 260)
    (tmp_path / "a.txt").write_text("some text " * 10_000)
    opened = Path.open

    def full(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if mode == "xb" and path.name.endswith(".ids"):
            return io.BufferedWriter(Failing(errno.ENOSPC))
        return opened(path, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", full)
    with InlineExecutor() as executor, pytest.raises(OutputError, match=r"cannot write .*: no space is left"):
        encode_corpus(executor, tokenizer, tmp_path / "a.txt", tmp_path / "shards")
    with (
        pytest.raises(OutputError, match=r"cannot write .*b\.ids: no space is left"),
        _new_file(tmp_path / "b.ids") as file,
    ):
        file.write(b"a little, which is written when the file is closed")


def test_results_of_tasks_that_cannot_be_read(tmp_path: Path) -> None:
    stage = FolderStage(tmp_path)
    for use in (lambda: stage.read("gone", 0, 1), lambda: stage.read_all("gone")):
        with pytest.raises(ClusterError, match=f"cannot read {tmp_path}/gone: No such file"):
            use()


def test_text_files_name_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        atomic_files, "_new_temporary", lambda path: (path, io.BufferedWriter(Failing(errno.EIO), 16))
    )
    path = tmp_path / "a.txt"
    for text in ("short", "long enough that it is not buffered " * 1000):
        with (
            pytest.raises(OutputError, match=f"cannot write {path}: Input/output error"),
            atomic_files.open_text(path) as file,
        ):
            file.write(text)


def test_standard_output_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sys.stdout", SimpleNamespace(write=full, flush=full))
    for use in (lambda: output.write_line("text"), output.flush, lambda: output.write_bytes(b"text")):
        with pytest.raises(OSError, match="No space left on device") as caught:
            use()
        assert caught.value.filename == "standard output"
