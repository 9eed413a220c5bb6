"""From corpora to batches: the cases `inputs`, `shards` and `object-store`."""

import argparse
import bz2
import gzip
import hashlib
import json
import lzma
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

import bytemill
from benchmarks import harness
from benchmarks.harness import option
from bytemill.corpus import Corpus

SEPARATOR = "<|endoftext|>"
DOCUMENT_BYTES = 3_000
SHARD_TOKENS = 10_000_000
SHARD_FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("whole.txt", {}),
    "text, separators": ("separated.txt", {"documents": SEPARATOR}),
    "JSON lines": ("lines.jsonl", {}),
    "Parquet": ("table.parquet", {}),
}


@harness.case(
    option("file", type=Path, help="a text file in UTF-8"),
    option("--megabytes", type=float, default=100),
    option("--repeat", type=int, default=5),
    option("--only", default="", help="formats whose names hold this"),
    option("--json", action="store_true"),
)
def inputs(options: argparse.Namespace) -> None:
    """Time how fast a corpus is read into batches, by format: reading, decompression and parsing, nothing else.

        python -m benchmarks inputs ~/texts/english.txt
        python -m benchmarks inputs english.txt --megabytes 200 --repeat 5 --json

    The text is cut into documents of about 3 kB at line ends and written in every format to a temporary folder.
    Before any time counts, each format must give the same text as the plain file. "wall" is MB of text a second by
    the clock, while the caller counts documents and the reading thread works; "a core" is MB of text for each
    second that a processor worked, in whatever thread; "file" is MB of the file for such a second, by which
    parsers are compared. Each figure is the median of the runs. Of the slowest two compressions only a tenth of
    the text is read.
    """
    with options.file.open("rb") as file:
        text = file.read(int(options.megabytes * 1e6)).decode("utf-8", "ignore")
    documents = documents_of(text)
    rows: list[dict[str, float | str]] = []
    with tempfile.TemporaryDirectory() as name:
        whole = None
        formats = list(_write_formats(Path(name), documents))
        for title, path, settings in formats:
            if path.suffix not in (".xz", ".bz2"):  # these hold a part
                whole = whole or digest(path, settings)
                assert digest(path, settings) == whole, title
        for title, path, settings in formats:
            if options.only.lower() not in title.lower():
                continue
            runs = [_read(path, settings) for _ in range(options.repeat)]
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
    if options.json:
        print(json.dumps(rows))
        return
    cells = [[str(row["format"]), *(f"{row[key]:.0f}" for key in ("wall", "a core", "file"))] for row in rows]
    print(harness.format_table(["MB/s", "wall", "a core", "file"], cells))


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


def _write_formats(folder: Path, documents: list[str]) -> Iterator[tuple[str, Path, dict[str, str]]]:
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


def _read(path: Path, options: dict[str, str]) -> tuple[int, int, float, float]:
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
    corpus = Corpus(str(path), **options)  # pyright: ignore[reportArgumentType]
    text = b"".join(bytes(batch.data) for batch in corpus.read()).replace(SEPARATOR.encode(), b"")
    return hashlib.sha256(text.replace(b"\n", b"").replace(b"\r", b"")).hexdigest()


@harness.case(
    option("--tokenizer", required=True),
    option("--texts", nargs="+", required=True, type=Path),
    option("--megabytes", type=float, default=100),
    option("--threads", nargs="+", type=int, default=[1, 2]),
    option("--repeat", type=int, default=3),
    option("--folder", type=Path, help="Where files are written; memory (/dev/shm) takes the disk out."),
)
def shards(options: argparse.Namespace) -> None:
    """Time how fast files become shards, beside encoding the same text that is in memory already.

        python -m benchmarks shards --tokenizer ../shared/data/gpt2_vocab.json --texts english.txt code.txt
        python -m benchmarks shards --tokenizer tokenizer.json --texts english.txt --threads 1 2 --repeat 5

    The text is written as a plain file, as a file of documents of about 3 kB with a separator between them, as
    JSON lines and as Parquet. Every measurement is a process of its own with empty caches, after the file was read
    once. "memory" is `encode_to_numpy` of the whole text as a str: it reads no file and writes none. Shards are of
    ten million ids, so that 100 MB of text give some; the last one, which is hashed twice, is a part of them as in
    a larger corpus.

    "wall" is MB of text a second by the clock; "a core" is MB of text for each second that a processor worked, in
    whatever thread of the process; "of memory" is that beside the text in memory. Medians of the runs; before any
    time counts, the shards must hold the ids of their documents.
    """
    rows: list[list[str]] = []
    for path in options.texts:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            folder = Path(name)
            text = path.read_bytes()[: int(options.megabytes * 1e6)].decode("utf-8", "ignore")
            documents = documents_of(text)
            (folder / "whole.txt").write_bytes(text.encode())
            separated = "".join(document + SEPARATOR for document in documents)
            (folder / "separated.txt").write_bytes(separated.encode())
            with (folder / "lines.jsonl").open("w", encoding="utf-8") as file:
                file.writelines(
                    json.dumps({"text": document}, ensure_ascii=False) + "\n" for document in documents
                )
            pq.write_table(pa.table({"text": documents}), folder / "table.parquet", compression="none")
            for threads in options.threads:
                request = {"folder": name, "tokenizer": options.tokenizer, "threads": threads}
                rows += _shard_rows(path.stem, request, options.repeat)
    print(harness.format_table(("text", "threads", "from", "wall", "a core", "of memory"), rows))


def _shard_rows(text: str, request: dict[str, Any], repeat: int) -> list[list[str]]:
    """Rows of the table; the kinds take turns."""
    taken: dict[str | None, list[harness.Outcome]] = {kind: [] for kind in (None, *SHARD_FORMATS)}
    for turn in range(repeat):
        for kind, outcomes in taken.items():
            asked = request | {"format": kind, "check": turn == 0}
            outcomes.append(harness.measure_in_process(make_shards, asked, threads=request["threads"]))
            if outcomes[-1].reason:
                raise SystemExit(f"{kind}: {outcomes[-1].reason}")
    n_bytes = (Path(request["folder"]) / "whole.txt").stat().st_size
    median = {
        kind: {key: harness.median_of(outcomes, key) for key in ("seconds", "cpu")}
        for kind, outcomes in taken.items()
    }
    return [
        [
            text,
            str(request["threads"]),
            kind or "memory",
            f"{n_bytes / 1e6 / found['seconds']:.0f} MB/s",
            f"{n_bytes / 1e6 / found['cpu']:.0f} MB/s",
            f"{median[None]['cpu'] / found['cpu']:.2f} a core, "
            f"{median[None]['seconds'] / found['seconds']:.2f} wall",
        ]
        for kind, found in median.items()
    ]


def make_shards(request: dict[str, Any]) -> dict[str, Any]:
    """One measurement: `format` None is the text in memory."""
    from bytemill.shards import TokenShards, encode_corpus
    from bytemill.tokenizer import open_tokenizer

    tokenizer = open_tokenizer(request["tokenizer"])
    folder, threads = Path(request["folder"]), request["threads"]
    text = (folder / "whole.txt").read_bytes().decode() if request["format"] is None else ""
    if request["format"] is None:
        started, cpu = time.perf_counter(), time.process_time()
        tokenizer.encode_to_numpy(text, num_threads=threads)
        return {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    name, options = SHARD_FORMATS[request["format"]]
    # The file is in the system's memory then, and what reads it is imported; the tokenizer's caches are empty.
    for _ in Corpus([str(folder / name)], **options).read():
        pass
    out = folder / "out"
    started, cpu = time.perf_counter(), time.process_time()
    encode_corpus(
        tokenizer,
        Corpus([str(folder / name)], **options),
        out,
        num_threads=threads,
        shard_tokens=SHARD_TOKENS,
        separators=False,
    )
    taken = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    if request["check"]:
        tokens = TokenShards(out)
        separator = tokenizer.special_tokens.get(SEPARATOR)
        documents = documents_of((folder / "whole.txt").read_bytes().decode())
        if name == "whole.txt":
            documents = ["".join(documents)]
        expected = np.concatenate([tokenizer.encode_to_numpy(document) for document in documents])
        found = tokens[:]
        if options:
            found = found[found != separator]
        if not np.array_equal(found, expected):
            raise SystemExit(f"the shards of {name} hold other ids")
    shutil.rmtree(out)
    return taken


_CONTEXT, _BATCH = 256, 16
_SERVER = """
import sys, time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def log_message(self, *_): ...
    def do_GET(self):
        time.sleep(float(sys.argv[2]))
        path = self.translate_path(self.path)
        try:
            file = open(path, "rb")
        except OSError:
            self.send_error(404)
            return
        with file:
            size = file.seek(0, 2)
            start, stop, wanted = 0, size, self.headers.get("Range")
            if wanted:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                start, stop = int(first), min(size, int(last) + 1) if last else size
            file.seek(start)
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Length", str(stop - start))
            self.send_header("Last-Modified", "Thu, 26 Nov 2026 00:00:00 GMT")
            self.send_header("ETag", f'"{size}"')
            if wanted:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(file.read(stop - start))
    do_HEAD = do_GET
import os
os.chdir(sys.argv[1])
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@harness.case(
    option("--tokens", type=int, default=20_000_000),
    option("--latency", type=float, default=0.05),
    option("--steps", type=int, default=60),
    harness.ROUNDS,
    harness.MARKDOWN,
)
def object_store(options: argparse.Namespace) -> None:
    """Read shards from an object store with latency, beside shards on the disk.

        python -m benchmarks object-store [--tokens 20000000] [--latency 0.05] [--steps 60] [--rounds 3] [--markdown]

    The store is a web server in a process of its own that answers every request after `--latency` seconds. Rates are of
    the batches alone, and of training a small model on the CPU; both read the same windows.
    """
    with tempfile.TemporaryDirectory(prefix="bytemill-store-") as name:
        folder = Path(name)
        tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [])
        letters = np.random.default_rng(0).integers(32, 127, options.tokens, dtype=np.uint8)
        corpus = Corpus.from_texts([letters.tobytes().decode()])
        bytemill.encode_corpus(tokenizer, corpus, folder / "shards", shard_tokens=options.tokens // 10)
        command = [sys.executable, "-c", _SERVER, str(folder), str(options.latency)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout
                url = f"http://127.0.0.1:{int(server.stdout.readline())}/shards"
                found = _measure_stores(folder, url, options.steps, options.rounds)
            finally:
                server.kill()
    rows: list[tuple[str, ...]] = []
    for kind, places in found.items():
        base = statistics.median(places["disk"])
        for place, rates in places.items():
            rate = statistics.median(rates)
            rows.append((kind, place, f"{rate:,.0f}", f"{rate / base:.2f}"))
    header = ("", "shards", "windows/s", "of the disk's")
    print(harness.format_table(header, rows, markdown=options.markdown))


def _measure_stores(folder: Path, url: str, steps: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return windows per second of every kind of loading, in turns."""
    import torch

    from bytemill.lm.batches import ShardBatches
    from bytemill.shards import StoredTokens

    places: dict[str, tuple[str, str]] = {
        "disk": (str(folder / "shards"), "0"),
        "store, no cache": (url, "0"),
        "store, cache": (url, str(1 << 40)),
    }
    kinds: dict[str, Callable[[Any, int], None]] = {"batches": _take_batches, "training": _training()}
    found: dict[str, dict[str, list[float]]] = {kind: {place: [] for place in places} for kind in kinds}
    for number in range(rounds):
        for kind, run in kinds.items():
            expected = None
            for place, (path, limit) in places.items():
                os.environ["BYTEMILL_SHARD_CACHE"] = limit
                os.environ["BYTEMILL_CACHE"] = str(folder / f"cache{number}{kind}")
                batches = ShardBatches([path], _CONTEXT, seed=number)
                first = batches.take(_BATCH)[0]
                assert expected is None or torch.equal(first, expected)
                expected = first
                started = time.perf_counter()
                run(batches, steps)
                found[kind][place].append(steps * _BATCH / (time.perf_counter() - started))
                for part in batches.tokens.parts:
                    if isinstance(part, StoredTokens):
                        part.close()
    return found


def _take_batches(batches: Any, steps: int) -> None:
    for _ in range(steps):
        batches.take(_BATCH)


def _training() -> Callable[[Any, int], None]:
    """Return what trains a model: the same one in every turn, so that its start is not measured."""
    import torch

    from bytemill.lm.model import ModelConfig, TransformerLM

    config = ModelConfig(
        vocab_size=256, context_length=_CONTEXT, d_model=128, num_layers=4, num_heads=4, d_ff=512
    )
    model = TransformerLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def train(batches: Any, steps: int) -> None:
        for _ in range(steps):
            inputs, targets = batches.take(_BATCH)
            loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()  # pyright: ignore[reportUnknownMemberType]
            optimizer.step()  # pyright: ignore[reportUnknownMemberType]

    return train
