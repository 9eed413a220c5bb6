"""How fast a corpus is read into batches, by format: reading, decompression and parsing, nothing else.

    python benchmarks/inputs.py ~/texts/english.txt
    python benchmarks/inputs.py english.txt --megabytes 200 --repeat 5 --json

The text is cut into documents of about 3 kB at line ends and written in every format to a temporary folder. Before any
time counts, each format must give the same text as the plain file. "wall" is MB of text a second by the clock, while
the caller counts documents and the reading thread works; "a core" is MB of text for each second that a processor
worked, in whatever thread; "file" is MB of the file for such a second, by which parsers are compared. Each figure is
the median of the runs. Of the slowest two compressions only a tenth of the text is read.
"""

import argparse
import bz2
import gzip
import hashlib
import json
import lzma
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from bytemill.corpus import Corpus

SEPARATOR = "<|endoftext|>"
DOCUMENT_BYTES = 3_000


def documents_of(text: str) -> list[str]:
    """The text in pieces of about `DOCUMENT_BYTES` that end with a line.

    >>> [len(document) for document in documents_of("line\\n" * 1000)]
    [3000, 2000]
    """
    documents: list[str] = []
    lines: list[str] = []
    n_bytes = 0
    for line in text.splitlines(keepends=True):
        lines.append(line)
        n_bytes += len(line)
        if n_bytes >= DOCUMENT_BYTES:
            documents.append("".join(lines))
            lines, n_bytes = [], 0
    return [*documents, "".join(lines)] if lines else documents


def write_formats(folder: Path, documents: list[str]) -> Iterator[tuple[str, Path, dict[str, str]]]:
    """(format, file, options) for every format."""

    def put(name: str, data: bytes) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    text = "".join(documents).encode()
    separated = "".join(document + SEPARATOR for document in documents).encode()
    lines = "".join(
        json.dumps({"text": document, "id": i}) + "\n" for i, document in enumerate(documents)
    ).encode()
    raw_lines = "".join(
        json.dumps({"text": document, "id": i}, ensure_ascii=False) + "\n"
        for i, document in enumerate(documents)
    ).encode()
    yield "text, whole", put("whole.txt", text), {}
    yield "text, separators", put("separated.txt", separated), {"documents": SEPARATOR}
    yield "text, lines", put("lines.txt", text), {"documents": "line"}
    yield "JSON lines", put("raw.jsonl", raw_lines), {}
    yield "JSON lines, ASCII", put("ascii.jsonl", lines), {}
    yield "JSON lines, zstd", put("lines.jsonl.zst", zstandard.compress(raw_lines, 3)), {}
    yield "JSON lines, gzip", put("lines.jsonl.gz", gzip.compress(raw_lines, 6)), {}
    tenth = b"".join(raw_lines.splitlines(keepends=True)[: len(documents) // 10])
    yield "JSON lines, bzip2", put("lines.jsonl.bz2", bz2.compress(tenth)), {}
    yield "JSON lines, xz", put("lines.jsonl.xz", lzma.compress(tenth, preset=1)), {}
    table = pa.table({"text": documents, "id": list(range(len(documents)))})
    for codec in ("none", "snappy", "zstd"):
        path = folder / f"{codec}.parquet"
        pq.write_table(table, path, compression=codec, row_group_size=20_000)
        yield f"Parquet, {codec}", path, {}
    with pa.OSFile(str(folder / "file.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1_000)
    yield "Arrow", folder / "file.arrow", {}
    records = (
        f"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
        + b"\r\n\r\n"
        for data in (document.encode() for document in documents)
    )
    yield "WET", put("pages.wet", b"".join(records)), {}


def read(path: Path, options: dict[str, str]) -> tuple[int, int, float, float]:
    """(documents, bytes of text, seconds by the clock, seconds of all threads)."""
    corpus = Corpus(str(path), **options)  # pyright: ignore[reportArgumentType]
    started, worked = time.perf_counter(), time.process_time()
    n_documents = n_bytes = 0
    for batch in corpus.read():
        n_documents += len(batch.ends) - batch.is_open
        n_bytes += len(batch.data)
    return n_documents, n_bytes, time.perf_counter() - started, time.process_time() - worked


def digest(path: Path, options: dict[str, str]) -> str:
    """Of the text of all documents, without separators and line ends."""
    sha = hashlib.sha256()
    text = b"".join(bytes(batch.data) for batch in Corpus(str(path), **options).read())  # pyright: ignore[reportArgumentType]
    sha.update(text.replace(SEPARATOR.encode(), b"").replace(b"\n", b"").replace(b"\r", b""))
    return sha.hexdigest()


def main() -> None:
    """Measures every format, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, help="a text file in UTF-8")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default="", help="formats whose names hold this")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with arguments.file.open("rb") as file:
        text = file.read(int(arguments.megabytes * 1e6)).decode("utf-8", "ignore")
    documents = documents_of(text)
    rows: list[dict[str, float | str]] = []
    with tempfile.TemporaryDirectory() as name:
        whole = None
        formats = list(write_formats(Path(name), documents))
        for title, path, options in formats:
            if path.suffix not in (".xz", ".bz2"):  # these hold a part
                whole = whole or digest(path, options)
                assert digest(path, options) == whole, title
        for title, path, options in formats:
            if arguments.only.lower() not in title.lower():
                continue
            runs = [read(path, options) for _ in range(arguments.repeat)]
            n_bytes = runs[0][1]
            wall = statistics.median(seconds for _, _, seconds, _ in runs)
            worked = statistics.median(seconds for _, _, _, seconds in runs)
            rows.append(
                {
                    "format": title,
                    "wall": n_bytes / wall / 1e6,
                    "a core": n_bytes / worked / 1e6,
                    "file": path.stat().st_size / worked / 1e6,
                }
            )
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"{'MB/s':20}{'wall':>10}{'a core':>10}{'file':>10}")
    for row in rows:
        print(f"{row['format']:20}{row['wall']:10.0f}{row['a core']:10.0f}{row['file']:10.0f}")


if __name__ == "__main__":
    main()
