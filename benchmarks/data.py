"""From corpora to batches: the cases `shards` and `object-store`."""

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

import bytemill
from benchmarks import harness
from benchmarks.harness import Stopwatch, option
from bytemill.corpus import Corpus

SEPARATOR = "<|endoftext|>"
DOCUMENT_BYTES = 3_000
SHARD_TOKENS = 10_000_000
FORMATS = {
    "text": "whole.txt",
    "text, separators": "separated.txt",
    "JSON lines": "lines.jsonl",
    "JSON lines, gzip": "lines.jsonl.gz",
    "JSON lines, zstd": "lines.jsonl.zst",
    "Parquet": "none.parquet",
    "Parquet, zstd": "zstd.parquet",
    "Arrow": "file.arrow",
    "WET": "pages.wet",
}
"""Format -> its file."""


@harness.case(
    option("--tokenizer", required=True),
    harness.TEXTS,
    harness.megabytes(100.0),
    harness.several("--formats", FORMATS),
    option("--threads", nargs="+", type=int, default=[1, 2], help="numbers of threads (1 2)"),
    option("--repeat", type=int, default=3, help="processes a figure (%(default)s)"),
    option("--folder", type=Path, help="where files are written; memory (/dev/shm) takes the disk out"),
)
def shards(options: argparse.Namespace) -> None:
    """Time how fast files of each format are read and become shards, beside encoding the same text in memory.

        python -m benchmarks shards --tokenizer ../shared/data/gpt2_vocab.json --text english.txt --text code.txt
        python -m benchmarks shards --tokenizer tokenizer.json --text english.txt --threads 1 --formats Parquet,WET

    The text is written as a plain file, and in documents of about 3 kB in the other formats. Every measurement is a
    process of its own with empty caches, after the file was read once. "memory" is `encode_to_numpy` of the whole text
    as a str: it reads no file and writes none. Shards are of ten million ids, so that 100 MB of text give some; the
    last one, which is hashed twice, is a part of them as in a larger corpus. Of a row:

        read       MB of text a second by the clock, read into batches: reading, decompression and parsing alone
        wall       MB of text a second by the clock, from the file to shards
        a core     MB of text for each second that a processor worked, in whatever thread of the process
        of memory  "a core" and "wall" beside the text in memory

    Medians of the runs. Before any time counts, the shards must hold the ids of their documents.
    """
    rows: list[list[str]] = []
    for path in harness.chosen_texts(options.text):
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            text = harness.read_text(path, int(options.megabytes * 1e6) or None)
            write_formats(Path(name), documents_of(text))
            for threads in options.threads:
                request = {"folder": name, "tokenizer": options.tokenizer, "threads": threads}
                rows += _shard_rows(path.stem, request, options)
    print(harness.format_table(("text", "threads", "from", "read", "wall", "a core", "of memory"), rows))


def documents_of(text: str) -> list[str]:
    """The text in pieces of about `DOCUMENT_BYTES` that end with a line.

    >>> [len(document) for document in documents_of("line\n" * 1000)]
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


def write_formats(folder: Path, documents: list[str]) -> None:
    """Write the documents in every format."""
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in documents).encode()
    records = (
        f"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
        + b"\r\n\r\n"
        for data in (document.encode() for document in documents)
    )
    contents = {
        "whole.txt": "".join(documents).encode(),
        "separated.txt": "".join(document + SEPARATOR for document in documents).encode(),
        "lines.jsonl": lines,
        "lines.jsonl.gz": gzip.compress(lines, 6),
        "lines.jsonl.zst": zstandard.compress(lines, 3),
        "pages.wet": b"".join(records),
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    table = pa.table({"text": documents})
    for codec in ("none", "zstd"):
        pq.write_table(table, folder / f"{codec}.parquet", compression=codec, row_group_size=20_000)
    with pa.OSFile(str(folder / "file.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1_000)


def _shard_rows(text: str, request: dict[str, Any], options: argparse.Namespace) -> list[list[str]]:
    """Rows of the table; the formats take turns."""
    checked: set[str] = set()

    def measured(kind: str) -> harness.Outcome:
        asked = request | {"format": kind, "check": kind not in checked}
        checked.add(kind)
        return harness.measure_in_process(make_shards, asked, threads=request["threads"])

    runs, _ = harness.in_turns(["memory", *options.formats], options.repeat, measured, needed=True)
    megabytes = (Path(request["folder"]) / "whole.txt").stat().st_size / 1e6
    memory = {key: harness.median_of(runs["memory"], key) for key in ("wall", "cpu")}
    rows: list[list[str]] = []
    for kind, outcomes in runs.items():
        wall, cpu, read = (harness.median_of(outcomes, key) for key in ("wall", "cpu", "read"))
        rates = [f"{megabytes / seconds:.0f}" if seconds else "" for seconds in (read, wall, cpu)]
        rows.append([text, str(request["threads"]), kind, *rates])
        rows[-1].append(f"{memory['cpu'] / cpu:.2f} a core, {memory['wall'] / wall:.2f} wall")
    return rows


def make_shards(request: dict[str, Any]) -> dict[str, Any]:
    """One measurement: seconds of reading the file, and of encoding it."""
    from bytemill.shards import encode_corpus
    from bytemill.tokenizer import open_tokenizer

    tokenizer = open_tokenizer(request["tokenizer"])
    folder, threads = Path(request["folder"]), request["threads"]
    if request["format"] == "memory":
        text = (folder / "whole.txt").read_bytes().decode()
        with Stopwatch() as encoding:
            tokenizer.encode_to_numpy(text, num_threads=threads)
        return {"wall": encoding.wall, "cpu": encoding.cpu, "read": 0}
    name = FORMATS[request["format"]]
    settings: dict[str, Any] = {"documents": SEPARATOR} if name == "separated.txt" else {}
    corpus = Corpus([str(folder / name)], **settings)
    # The first time, the file comes into the system's memory, and what reads it is imported.
    sum(1 for _ in corpus.read())
    with Stopwatch() as reading:
        sum(1 for _ in corpus.read())
    with Stopwatch() as encoding:
        encode_corpus(
            tokenizer,
            corpus,
            folder / "out",
            num_threads=threads,
            shard_tokens=SHARD_TOKENS,
            separators=False,
        )
    if request["check"]:
        check_shards(tokenizer, folder, name)
    shutil.rmtree(folder / "out")
    return {"wall": encoding.wall, "cpu": encoding.cpu, "read": reading.wall}


def check_shards(tokenizer: bytemill.Tokenizer, folder: Path, name: str) -> None:
    """Exit if the shards hold other ids than their documents."""
    from bytemill.shards import TokenShards

    documents = documents_of((folder / "whole.txt").read_bytes().decode())
    if name == "whole.txt":
        documents = ["".join(documents)]
    expected = np.concatenate([tokenizer.encode_to_numpy(document) for document in documents])
    found = TokenShards(folder / "out")[:]
    if name == "separated.txt":
        found = found[found != tokenizer.special_tokens.get(SEPARATOR)]
    if not np.array_equal(found, expected):
        raise SystemExit(f"the shards of {name} hold other ids")


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
