"""The same documents in every format, and the invariants of batches."""

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zstandard

from bytemill.corpus import Corpus, DocumentBatch, Position, documents

END = "<|endoftext|>"

DOCUMENTS = [
    "It's a small world.", "naïve größer 日本語のテキスト 😀", "two\nlines, and\r\nthree",
    '"quoted" \\ back\u2028slashed\t', "x" * 300, "日本語" * 40, "the end",
] * 3  # fmt: skip
"""No empty ones, so that plain text can represent them."""


def zstd(data: bytes) -> bytes:
    return zstandard.compress(data)


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": zstd,
}


def members(compress: Callable[[bytes], bytes], data: bytes) -> bytes:
    """Compress the data in several members or frames."""
    third = len(data) // 3
    return b"".join(map(compress, (data[:third], data[third : 2 * third], b"", data[2 * third :])))


def json_lines(texts: Iterable[str]) -> bytes:
    """Make JSON lines of several shapes: with other fields, escaped or not."""
    lines = [
        json.dumps({"id": i, "text": text, "meta": {"text": text[::-1]}}, ensure_ascii=i % 2 == 0)
        for i, text in enumerate(texts)
    ]
    return "\r\n \n".join(lines).encode()


def table(texts: Iterable[str], delimiter: str = ",") -> bytes:
    """Make a table with another column before and after the texts."""
    file = io.StringIO(newline="")
    rows = ((number, text, len(text)) for number, text in enumerate(texts))
    csv.writer(file, delimiter=delimiter).writerows([("id", "text", 'the "length"'), *rows])
    return file.getvalue().encode()


def warc_record(kind: str, content: bytes) -> bytes:
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: https://example.org/\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
        f"WARC-Record-ID: <urn:uuid:0>\r\nContent-Type: text/plain\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content + b"\r\n\r\n"


def wet(texts: Iterable[str]) -> bytes:
    records = [warc_record("conversion", text.encode()) for text in texts]
    return warc_record("warcinfo", b"software: a test\r\n") + b"".join(records)


def write_inputs(folder: Path, texts: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Write the texts in every format; yield the inputs and their options."""

    def put(name: str, data: bytes) -> str:
        (folder / name).write_bytes(data)
        return str(folder / name)

    separated = "".join(text + END for text in texts).encode()
    yield put("separated.txt", separated), {"documents": END}
    for suffix, compress in COMPRESSIONS.items():
        yield put(f"separated.txt.{suffix}", members(compress, separated)), {"documents": END}
        yield put(f"lines.jsonl.{suffix}", members(compress, json_lines(texts))), {}
    yield put("lines.jsonl", json_lines(texts)), {}
    yield put("lines.ndjson", b"\xef\xbb\xbf" + json_lines(texts) + b"\n\n"), {"field": "text"}
    yield put("unnamed", json_lines(texts)), {"format": "jsonl"}
    yield put("table.csv", table(texts)), {}
    yield put("table.csv.bz2", members(bz2.compress, table(texts))), {}
    yield put("table.tsv", b"\xef\xbb\xbf" + table(texts, "\t")), {}
    yield put("unnamed-table", table(texts)), {"format": "csv"}
    yield put("pages.wet", wet(texts)), {}
    yield put("pages.wet.gz", members(gzip.compress, wet(texts))), {}
    yield put("unknown", wet(texts)), {}
    yield from write_columns(folder, texts)


def write_columns(folder: Path, texts: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    table = pa.table(
        {
            "text": texts,
            "large": pa.array(texts, pa.large_string()),
            "coded": pa.array(texts).dictionary_encode(),
            "binary": pa.array([text.encode() for text in texts], pa.binary()),
            "view": pa.array(texts, pa.string_view()),
            "meta": pa.array([{"n": 1, "deep": {"text": text}} for text in texts]),
            "a.b": texts,
        }
    )
    for column in ("text", "large", "coded", "binary", "meta.deep.text", "a.b"):
        path = folder / f"{column}.parquet"
        pq.write_table(
            table.drop_columns(["view"]),
            path,
            row_group_size=4,
            compression="none" if "." in column else "zstd",
        )
        yield str(path), {"field": column}
    one_group = folder / "one-group"
    pq.write_table(table.select(["text"]), one_group, compression="gzip")
    yield str(one_group), {}
    for column in ("text", "large", "coded", "view", "meta.deep.text"):
        path = folder / f"{column}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.unify_dictionaries(), max_chunksize=5)
        yield str(path), {"field": column}
    with (
        pa.OSFile(str(folder / "stream.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as writer,
    ):
        writer.write_table(table.unify_dictionaries(), max_chunksize=8)
    yield str(folder / "stream.arrow"), {}
    stream = (folder / "stream.arrow").read_bytes()
    (folder / "stream.bin.zst").write_bytes(zstd(stream))
    yield str(folder / "stream.bin.zst"), {}
    pyarrow.feather.write_feather(
        table.select(["text"]), str(folder / "table.feather"), compression="lz4", chunksize=3
    )
    yield str(folder / "table.feather"), {}
    (folder / "text.parquet.gz").write_bytes(gzip.compress((folder / "text.parquet").read_bytes()))
    yield str(folder / "text.parquet.gz"), {}


def read(corpus: Corpus, start: Position | None = None) -> list[DocumentBatch]:
    """Read all batches and check the invariants of each."""
    batches = list(corpus.read(start))
    counts = start.counts if start else Position().counts
    is_open, n_read = False, 0
    for batch in batches:
        bytes(batch.data).decode()
        ends = batch.ends.tolist()
        assert ends == sorted(ends)
        assert ends[-1] == len(batch.data)
        assert min(ends) >= 0
        for end in ends:
            bytes(batch.data[:end]).decode()
        counts = replace(
            counts,
            n_documents=counts.n_documents + len(ends) - batch.is_open,
            n_bytes=counts.n_bytes + len(batch.data),
        )
        assert batch.after.counts.n_documents == counts.n_documents
        assert batch.after.counts.n_bytes == counts.n_bytes
        assert batch.n_bytes_read >= n_read
        assert json.loads(json.dumps(batch.after.state)) == batch.after.state
        is_open, n_read = batch.is_open, batch.n_bytes_read
    assert not is_open
    if corpus.total_bytes is not None and batches:
        assert n_read <= corpus.total_bytes
    return batches


def texts_of(batches: Iterable[DocumentBatch]) -> list[str]:
    """Return the documents of batches."""
    texts: list[str] = []
    begun = b""
    for batch in batches:
        start = 0
        for place, end in enumerate(batch.ends.tolist()):
            begun += bytes(batch.data[start:end])
            start = end
            if place < len(batch.ends) - 1 or not batch.is_open:
                texts.append(begun.decode())
                begun = b""
    return texts


@pytest.fixture
def tiny_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 64 bytes, so that small inputs have many and documents span several."""
    monkeypatch.setattr(documents, "BATCH_BYTES", 64)
