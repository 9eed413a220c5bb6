"""Files are recognised by their content under every name; what is no text is refused, unless text is asked for."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import bytemill as bm
from bytemill.cluster import count_corpus
from bytemill.corpus import Corpus
from bytemill.errors import CorpusError
from bytemill.training.counting import CountingSettings
from tests.cluster.corpora import InlineExecutor

from .conftest import json_lines, read, texts_of, wet


def tar(kind: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as archive:
        for name in ("one.txt", "two.txt"):
            info = tarfile.TarInfo(name)
            info.size = 19
            archive.addfile(info, io.BytesIO(b"a text of 19 bytes\n"))
    return file.getvalue()


def old_tar() -> bytes:
    """An archive of the first tar, whose header has no magic."""
    data = bytearray(tar())
    data[257:265] = bytes(8)
    checksum = sum(data[:148]) + 8 * 32 + sum(data[156:512])
    data[148:156] = b"%06o\0 " % checksum
    return bytes(data)


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("one.txt", "a text")
    return file.getvalue()


def database() -> bytes:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("create table t (text)")
        data = connection.serialize()
    connection.close()
    return data


def array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(100, dtype=np.uint16))
    return file.getvalue()


def tensors() -> bytes:
    header = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    return len(header).to_bytes(8, "little") + header + b"abcd"


def parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": ["one"]}), file)
    return file.getvalue()


LINES = b'{"text": "one"}\n{"text": "two"}\n'
PDF = b"%PDF-1.4\n1 0 obj << /Type /Catalog >> endobj\n%%EOF\n"

REFUSED: dict[str, bytes] = {
    "a tar archive": tar(),
    "a tar archive (pax)": tar(tarfile.PAX_FORMAT),
    "a tar archive (old)": old_tar(),
    "a ZIP archive": zipped(),
    "a PDF document": PDF,
    "a PNG image": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "a JPEG image": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "a GIF image": b"GIF89a and nothing but letters",
    "an SQLite database": database(),
    "a NumPy array": array(),
    "a safetensors file": tensors(),
    "a GGUF model": b"GGUF\3\0\0\0",
    "a Python pickle": pickle.dumps({"a": 1}),
    "parquet data": parquet(),
    "warc data": wet(["one"]),
    "gzip data": gzip.compress(gzip.compress(b"twice")),
    "JSON lines": LINES,
    "JSON lines (long)": b'{"text": "' + b"x" * 9000 + b'"}\n',
    "a JSON list": b'[{"text": "one"},\n {"text": "two"}]',
    "a JSON list (of strings)": b'["one", "two"]',
    "a JSON object over several lines": b'{\n  "text": "one",\n  "id": 1\n}\n',
    "binary data": np.arange(300, dtype=np.uint16).tobytes()[200:],
}

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


@pytest.mark.parametrize("content", REFUSED)
def test_what_is_no_text_is_refused_as_text(tmp_path: Path, content: str) -> None:
    """As documents, and by the readers of training in one process and in several."""
    path = tmp_path / "a.txt"
    path.write_bytes(REFUSED[content])
    content_name = content.partition(" (")[0]

    def counting(corpus: Corpus) -> object:
        with InlineExecutor() as executor:
            return count_corpus(executor, corpus, CountingSettings(num_threads=1), tmp_path / "work")

    for use in (read, lambda corpus: bm.train(corpus, 300), counting):
        with pytest.raises(CorpusError, match=rf"a\.txt is {content_name}.*, not text") as caught:
            use(Corpus(path, errors="replace"))
        assert "--format text" in str(caught.value.hint)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", ["a.tar", "a.tgz", "a.txt", "a", "a.jsonl", "a.csv"])
def test_archives_are_refused_under_every_name_and_compression(
    tmp_path: Path, name: str, suffix: str
) -> None:
    path = tmp_path / (name + suffix)
    path.write_bytes(COMPRESS[suffix](tar()))
    with pytest.raises(CorpusError, match="is a tar archive, not") as caught:
        read(Corpus(path))
    assert "tar -xf" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["RC_2019-04", "data", "part-00000.json.1", "RC_2019-04.zst", "noname.gz"])
def test_json_lines_are_read_under_a_name_that_says_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    data = json_lines(["one", "two"])
    path.write_bytes(COMPRESS[path.suffix](data) if path.suffix in COMPRESS else data)
    assert texts_of(read(Corpus(path))) == ["one", "two"]
    assert bm.train(path, 257).n_vocab == 257


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_text_is_read_under_a_name_that_says_nothing(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "data").write_bytes(COMPRESS[suffix](b"one text\n"))
    assert texts_of(read(Corpus(tmp_path / "data"))) == ["one text\n"]


@pytest.mark.parametrize("content", ["a PDF document", "a tar archive", "JSON lines", "a JSON list"])
@pytest.mark.parametrize("name", ["a.txt", "a", "a.jsonl", "a.csv"])
def test_anything_in_utf8_is_text_if_text_is_asked_for(tmp_path: Path, content: str, name: str) -> None:
    (tmp_path / name).write_bytes(REFUSED[content])
    corpus = Corpus(tmp_path / name, format="text")
    assert texts_of(read(corpus)) == [REFUSED[content].decode()]
    assert bm.train(corpus, 260).n_vocab == 260


@pytest.mark.parametrize("content", ["a PDF document", "a ZIP archive", "a JSON list", "a JSON object"])
def test_json_lines_that_are_something_else_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(
        next(data for what, data in REFUSED.items() if what.startswith(content))
    )
    for format_name in ("auto", "jsonl"):
        with pytest.raises(CorpusError, match=rf"a\.jsonl is {content}.*, not JSON lines"):
            read(Corpus(tmp_path / "a.jsonl", on_error="skip", format=format_name))


@pytest.mark.parametrize(
    "text",
    [
        "{curly} braces", '{"quoted"} braces', '{"a": b} is no JSON', "[[Category:Wiki]]",
        '["he said", and left', "PKzip and %PDF in a line", "ORC is a people, GGUF a word", "%!",
        "1234ftyp, no zero bytes", "<html>a page</html>", "größer", "", "BZh is no number",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["a.txt", "a"])
def test_text_that_looks_a_little_like_something_else_is_text(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "other.txt").write_text("other")
    corpus = Corpus([str(tmp_path / name), str(tmp_path / "other.txt")])
    assert texts_of(read(corpus)) == [text, "other"]


def test_a_pipe_is_recognised_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO()

    monkeypatch.setattr("sys.stdin", Stdin)
    Stdin.buffer = io.BytesIO(LINES)
    assert texts_of(read(Corpus("-"))) == ["one", "two"]
    Stdin.buffer = io.BytesIO(LINES)
    with pytest.raises(CorpusError, match="<stdin> is JSON lines, not text") as caught:
        bm.train(Corpus("-"), 300)
    assert "--format jsonl" in str(caught.value.hint)
    Stdin.buffer = io.BytesIO(PDF)
    assert bm.train(Corpus("-", format="text"), 260).n_vocab == 260
