"""Reading shards from an object store with latency, beside shards on the disk.

    python benchmarks/object_store.py [--tokens 20000000] [--latency 0.05] [--steps 60] [--rounds 3] [--markdown]

The store is a web server in a process of its own that answers every request after `--latency` seconds. Rates are of
the batches alone, and of training a small model on the CPU; both read the same windows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

import bytemill as bm
from bytemill.lm.batches import ShardBatches
from bytemill.lm.model import ModelConfig, TransformerLM
from bytemill.shards import StoredTokens

if TYPE_CHECKING:
    from collections.abc import Callable

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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bytemill-store-") as name:
        folder = Path(name)
        _make_shards(folder / "shards", arguments.tokens)
        command = [sys.executable, "-c", _SERVER, str(folder), str(arguments.latency)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout
                url = f"http://127.0.0.1:{int(server.stdout.readline())}/shards"
                _print(_measure(folder, url, arguments.steps, arguments.rounds), markdown=arguments.markdown)
            finally:
                server.kill()


def _make_shards(folder: Path, n_tokens: int) -> None:
    tokenizer = bm.Tokenizer({i: bytes([i]) for i in range(256)}, [])
    text = np.random.default_rng(0).integers(32, 127, n_tokens, dtype=np.uint8).tobytes().decode()
    bm.encode_corpus(tokenizer, bm.Corpus.from_texts([text]), folder, shard_tokens=n_tokens // 10)


def _measure(folder: Path, url: str, steps: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return windows per second of every kind of loading, in turns."""
    places: dict[str, tuple[str, str]] = {
        "disk": (str(folder / "shards"), "0"),
        "store, no cache": (url, "0"),
        "store, cache": (url, str(1 << 40)),
    }
    kinds: dict[str, Callable[[ShardBatches, int], None]] = {"batches": _read, "training": _Training()}
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


def _read(batches: ShardBatches, steps: int) -> None:
    for _ in range(steps):
        batches.take(_BATCH)


class _Training:
    """Trains a model; the same one in every turn, so that its start is not measured."""

    def __init__(self) -> None:
        self._model = TransformerLM(
            ModelConfig(
                vocab_size=256, context_length=_CONTEXT, d_model=128, num_layers=4, num_heads=4, d_ff=512
            )
        )
        self._optimizer = torch.optim.AdamW(self._model.parameters(), 1e-4)

    def __call__(self, batches: ShardBatches, steps: int) -> None:
        for _ in range(steps):
            inputs, targets = batches.take(_BATCH)
            loss = torch.nn.functional.cross_entropy(self._model(inputs).flatten(0, 1), targets.flatten())
            self._optimizer.zero_grad()
            loss.backward()  # pyright: ignore[reportUnknownMemberType]
            self._optimizer.step()  # pyright: ignore[reportUnknownMemberType]


def _print(found: dict[str, dict[str, list[float]]], *, markdown: bool) -> None:
    if markdown:
        print("| | shards | windows/s | of the disk's |\n|---|---|---|---|")
    for kind, places in found.items():
        base = statistics.median(places["disk"])
        for place, rates in places.items():
            rate = statistics.median(rates)
            row = (kind, place, f"{rate:,.0f}", f"{rate / base:.2f}")
            print("| " + " | ".join(row) + " |" if markdown else "  ".join(f"{each:>16}" for each in row))


if __name__ == "__main__":
    main()
