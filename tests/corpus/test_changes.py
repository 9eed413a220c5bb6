"""Inputs that are cut, written or replaced while they are read: each is an error that names the file."""

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bytemill as bm
from bytemill.cluster import count_corpus, encode_corpus
from bytemill.corpus import Corpus, read_blocks, resolve_inputs
from bytemill.data.token_source import open_tokens
from bytemill.errors import BytemillError, CorpusError
from bytemill.shards import ShardCorpus, convert_shards
from bytemill.system.file_stamp import FileStamp
from bytemill.training.counting import CountingSettings
from tests.cluster.corpora import InlineExecutor

from .conftest import DOCUMENTS, json_lines, read, wet

TEXT = "".join(f"line {number} of a text\n" for number in range(1000))


def replace(path: Path) -> None:
    """Put a copy with the same size and time in the place of a file."""
    status = path.stat()
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    copy.replace(path)


def write_again(path: Path) -> None:
    """Write other bytes of the same size over a file, which is never shorter meanwhile."""
    data = path.read_bytes()[::-1]
    with path.open("r+b") as file:
        file.write(data)


CHANGES: dict[str, Callable[[Path], Any]] = {
    "had": lambda path: os.truncate(path, path.stat().st_size // 2),
    "written again": write_again,
    "replaced": replace,
    "No such file": Path.unlink,
}


def write_corpus(folder: Path, name: str) -> Path:
    path = folder / name
    if name == "a.parquet":
        pq.write_table(pa.table({"text": DOCUMENTS * 3}), path, row_group_size=5)
        return path
    data = {"a.txt": TEXT.encode(), "a.jsonl": json_lines(DOCUMENTS * 3), "a.wet": wet(DOCUMENTS * 3)}
    path.write_bytes(data[name.removesuffix(".gz")])
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.usefixtures("tiny_batches")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.parquet", "a.wet"])
def test_a_file_that_changes_while_its_documents_are_read(tmp_path: Path, name: str, change: str) -> None:
    path = write_corpus(tmp_path, name)
    batches = Corpus(path).read()
    next(batches)
    CHANGES[change](path)
    with pytest.raises(CorpusError, match=rf"{name}.*: .*{change}"):
        list(batches)


@pytest.mark.parametrize("change", ["had", "written again", "replaced"])
def test_plain_text_that_changes_before_or_while_it_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path = write_corpus(tmp_path, "a.txt")
    corpus = Corpus(path)
    CHANGES[change](path)
    with pytest.raises(CorpusError, match=rf"a\.txt changed while it was read: .*{change}"):
        bm.train(corpus, 300)
    corpus = Corpus(path)
    counter = "bytemill.training.counting.PretokenCounter"
    monkeypatch.setattr(counter, counter_that_first(lambda: CHANGES[change](path)))
    with pytest.raises(CorpusError, match=rf"a\.txt changed while it was read: .*{change}"):
        bm.train(corpus, 300)


def counter_that_first(work: Callable[[], Any]) -> Callable[..., Any]:
    """Make a counter that does something when it is about to read a file."""
    from bytemill._core import PretokenCounter

    class Counter:
        def __init__(self, *arguments: Any) -> None:
            self._counter = PretokenCounter(*arguments)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._counter, name)

        def add_file(self, *arguments: Any) -> Any:
            work()
            return self._counter.add_file(*arguments)

    return Counter


@pytest.mark.parametrize(
    ("documents", "change"), [("file", "had"), ("file", "replaced"), ("line", "written again")]
)
def test_a_file_that_changes_between_the_units_of_an_executor(
    tmp_path: Path, documents: str, change: str
) -> None:
    tokenizer = bm.train_from_iterator([TEXT], 300)

    class Changing(InlineExecutor):
        def wait(self, seconds: float) -> list[Any]:
            done = super().wait(seconds)
            if len(done) and path.exists() and path.stat().st_size == len(TEXT):
                CHANGES[change](path)
            return done

    for work in (
        lambda corpus, executor: count_corpus(
            executor, corpus, CountingSettings(num_threads=1), tmp_path / "work", unit_bytes=9000
        ),
        lambda corpus, executor: encode_corpus(
            executor, tokenizer, corpus, tmp_path / "shards", unit_bytes=9000
        ),
    ):
        path = write_corpus(tmp_path, "a.txt")
        with Changing() as executor, pytest.raises(CorpusError, match=rf"a\.txt.*: .*{change}"):
            work(Corpus(path, documents=documents), executor)
    assert not (tmp_path / "shards" / "manifest.json").exists()


def rewritten_unseen(path: Path) -> None:
    """Write other text into a file, with its size and time."""
    status = path.stat()
    with path.open("r+b") as file:
        file.write(b"LINE")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_with_verify_input_the_content_is_compared(tmp_path: Path) -> None:
    tokenizer = bm.train_from_iterator([TEXT], 300)

    def one_process(corpus: Corpus) -> object:
        return read(corpus)

    def training(corpus: Corpus) -> object:
        return bm.train(corpus, 300)

    def executor(corpus: Corpus) -> object:
        with InlineExecutor() as inline:
            return encode_corpus(inline, tokenizer, corpus, tmp_path / f"shards-{corpus is seen}")

    def counting(corpus: Corpus) -> object:
        with InlineExecutor() as inline:
            folder = tmp_path / f"work-{corpus is seen}"
            return count_corpus(inline, corpus, CountingSettings(num_threads=1), folder)

    path = write_corpus(tmp_path, "a.txt")
    for use in (one_process, training, executor, counting):
        unseen, seen = Corpus(path), Corpus(path, verify_input=True)
        rewritten_unseen(path)
        with pytest.raises(CorpusError, match=r"a\.txt changed while it was read: its content has another"):
            use(seen)
        use(unseen)
        path.write_text(TEXT)


def test_verify_input_does_not_make_other_shards_or_counts(tmp_path: Path) -> None:
    path = write_corpus(tmp_path, "a.txt")
    tokenizer = bm.train_from_iterator([TEXT], 300)
    first = bm.encode_corpus(tokenizer, Corpus(path, verify_input=True), tmp_path / "shards")
    assert bm.encode_corpus(tokenizer, Corpus(path), tmp_path / "shards") == first
    assert Corpus(path, verify_input=True).description["sha256"] != Corpus(path).description.get("sha256")


def test_what_can_be_read_once_cannot_be_verified() -> None:
    with pytest.raises(CorpusError, match="can be read only once, so its content cannot be verified"):
        Corpus("-", verify_input=True)


def test_a_file_that_changes_while_its_bytes_are_read(tmp_path: Path) -> None:
    path = write_corpus(tmp_path, "a.txt")
    (source,) = resolve_inputs(path)
    blocks: Iterator[bytes] = read_blocks(source, 100)
    next(blocks)
    CHANGES["had"](path)
    with pytest.raises(CorpusError, match="changed while it was read"):
        list(blocks)


def test_shards_that_change_while_they_are_read(tmp_path: Path) -> None:
    path = write_corpus(tmp_path, "a.txt")
    tokenizer = bm.train_from_iterator([TEXT], 300)
    bm.encode_corpus(tokenizer, Corpus(path, documents="line"), tmp_path / "s", document_index=True)
    shard = tmp_path / "s" / "shard_00000.npy"
    tokens = open_tokens(tmp_path / "s")
    corpus = ShardCorpus(tokens, tokenizer, {})
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-2] + whole[:2])
    with pytest.raises(BytemillError, match=r"shard_00000\.npy changed while it was read: it was written"):
        list(corpus.read())

    def change(_: object) -> None:
        replace(shard)

    shard.write_bytes(whole)
    with pytest.raises(BytemillError, match=r"shard_00000\.npy changed while it was read: it was replaced"):
        convert_shards(tmp_path / "s", tmp_path / "bin", layout="bin", progress=change)


def test_inodes_of_file_systems_that_make_them_up_are_not_compared(tmp_path: Path) -> None:
    path = write_corpus(tmp_path, "a.txt")
    status = path.stat()
    stamp = FileStamp(status.st_size, status.st_mtime_ns, None)
    replace(path)
    assert stamp.change(path) is None
    assert FileStamp(status.st_size, status.st_mtime_ns, status.st_ino).change(path)


@pytest.mark.usefixtures("tiny_batches")
def test_an_object_that_is_written_again_while_it_is_read() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe("/changes/a.txt", TEXT.encode())
    corpus = Corpus("memory://changes/a.txt")
    assert b"".join(bytes(batch.data) for batch in corpus.read()) == TEXT.encode()
    batches = corpus.read()
    next(batches)
    fs.pipe("/changes/a.txt", TEXT[::-1].encode())
    with pytest.raises(CorpusError, match=r"a\.txt changed while it was read: the store has another version"):
        list(batches)
    fs.rm("/changes", recursive=True)
