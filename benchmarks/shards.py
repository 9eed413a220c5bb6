"""How fast files become shards, beside encoding the same text that is in memory already.

    python benchmarks/shards.py --tokenizer ../shared/data/gpt2_vocab.json --texts english.txt code.txt
    python benchmarks/shards.py --tokenizer tokenizer.json --texts english.txt --threads 1 2 --repeat 5

The text is written as a plain file, as a file of documents of about 3 kB with a separator between them, as JSON lines
and as Parquet. Every measurement is a process of its own with empty caches, after the file was read once. "memory" is
`encode_to_numpy` of the whole text as a str: it reads no file and writes none. Shards are of ten million ids, so that
100 MB of text give some; the last one, which is hashed twice, is a part of them as in a larger corpus.

"wall" is MB of text a second by the clock; "a core" is MB of text for each second that a processor worked, in whatever
thread of the process; "of memory" is that beside the text in memory. Medians of the runs; before any time counts, the
shards must hold the ids of their documents.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness import format_table, measure_in_process, worker_main
from inputs import SEPARATOR, documents_of

SHARD_TOKENS = 10_000_000

FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("whole.txt", {}),
    "text, separators": ("separated.txt", {"documents": SEPARATOR}),
    "JSON lines": ("lines.jsonl", {}),
    "Parquet": ("table.parquet", {}),
}


def write_formats(folder: Path, text: str) -> None:
    """The text in every format."""
    documents = documents_of(text)
    (folder / "whole.txt").write_bytes(text.encode())
    (folder / "separated.txt").write_bytes("".join(document + SEPARATOR for document in documents).encode())
    with (folder / "lines.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": document}, ensure_ascii=False) + "\n" for document in documents)
    pq.write_table(pa.table({"text": documents}), folder / "table.parquet", compression="none")


def work(request: dict[str, Any]) -> dict[str, Any]:
    """One measurement: `format` None is the text in memory."""
    from bytemill import Corpus
    from bytemill.shards import TokenShards, encode_corpus
    from bytemill.tokenizer import open_tokenizer

    tokenizer = open_tokenizer(request["tokenizer"])
    folder, threads = Path(request["folder"]), request["threads"]
    text = (folder / "whole.txt").read_bytes().decode() if request["format"] is None else ""
    if request["format"] is None:
        started, cpu = time.perf_counter(), time.process_time()
        tokenizer.encode_to_numpy(text, num_threads=threads)
        return {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    name, options = FORMATS[request["format"]]
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


def main() -> int:
    if sys.argv[1:2] == ["worker"]:
        return worker_main(work, sys.argv[2])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--texts", nargs="+", required=True, type=Path)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, help="Where files are written; memory (/dev/shm) takes the disk out."
    )
    given = parser.parse_args()
    rows: list[list[str]] = []
    for path in given.texts:
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            folder = Path(name)
            data = path.read_bytes()[: int(given.megabytes * 1e6)]
            write_formats(folder, data.decode("utf-8", "ignore"))
            n_bytes = (folder / "whole.txt").stat().st_size
            for threads in given.threads:
                rows += measure(
                    path.stem,
                    folder,
                    n_bytes,
                    tokenizer=given.tokenizer,
                    threads=threads,
                    repeat=given.repeat,
                )
    print(format_table(("text", "threads", "from", "wall", "a core", "of memory"), rows))
    return 0


def measure(
    text: str, folder: Path, n_bytes: int, *, tokenizer: str, threads: int, repeat: int
) -> list[list[str]]:
    """Rows of the table; the kinds take turns, so that a slow minute of the machine hits all of them."""
    taken: dict[str | None, list[dict[str, float]]] = {kind: [] for kind in (None, *FORMATS)}
    for turn in range(repeat):
        for kind, times in taken.items():
            request = {
                "format": kind,
                "folder": str(folder),
                "tokenizer": os.fspath(tokenizer),
                "threads": threads,
                "check": turn == 0,
            }
            outcome = measure_in_process(__file__, request, threads=threads)
            if outcome.reason:
                raise SystemExit(f"{kind}: {outcome.reason}")
            times.append(outcome.values)
    median = {
        kind: {key: statistics.median(run[key] for run in times) for key in ("seconds", "cpu")}
        for kind, times in taken.items()
    }
    return [
        [
            text,
            str(threads),
            kind or "memory",
            f"{n_bytes / 1e6 / found['seconds']:.0f} MB/s",
            f"{n_bytes / 1e6 / found['cpu']:.0f} MB/s",
            f"{median[None]['cpu'] / found['cpu']:.2f} a core, "
            f"{median[None]['seconds'] / found['seconds']:.2f} wall",
        ]
        for kind, found in median.items()
    ]


if __name__ == "__main__":
    raise SystemExit(main())
