"""Near duplicates beside other tools, their memory, and what they find: the cases `near` and `near-pairs`."""

import argparse
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.data import documents_of
from benchmarks.harness import Stopwatch, option
from bytemill.curation import NearIndex, NearSettings, detection_probability, find_near_duplicates
from bytemill.reference import jaccard, shingles

N = 5
THRESHOLD = 0.8
TOOLS = ("bytemill", "rensa", "datasketch")
_WORD = re.compile(r"\w+")


@harness.case(
    harness.TEXTS,
    harness.megabytes(20.0),
    harness.several("--tools", TOOLS),
    harness.ROUNDS,
    option(
        "--memory-documents", type=int, default=200_000, help="documents of the measured memory (%(default)s)"
    ),
)
def near(options: argparse.Namespace) -> None:
    """Time how fast near duplicates are found by one thread, from texts to the documents to remove.

        python -m benchmarks near --text english.txt

    The text is divided into documents of about 3 kB, and every tenth one comes again with a changed end. All tools use
    word 5-grams, sketches of 128 numbers and the threshold 0.8. rensa and datasketch take n-grams that Python made, as
    their documentation does; rensa its quickest interface, a matrix of sketches. Only bytemill compares the sets. Of a
    row:

        MB/s     of text, from documents in memory, for each second of processor time
        sketch   the same without the search for pairs
        removed  documents; rensa's flags name both documents of a pair

    Every figure is a process of its own, and tools take turns. The second table is the memory of bytemill's search with
    20 words a document: what the process has allocated at most, without files that are mapped, for each document more,
    and how much of it bands take.
    """
    rows: list[list[str]] = []
    for path in harness.chosen_texts(options.text):
        request = {"text": str(path), "bytes": int(options.megabytes * 1e6) or None}
        runs, reasons = harness.in_turns(
            options.tools,
            options.rounds,
            lambda tool: harness.measure_in_process(find, {"tool": tool, **request}, threads=1),  # noqa: B023
            to_and_fro=True,
        )
        for tool in options.tools:
            if tool in reasons:
                rows.append([path.stem, tool, reasons[tool], "", ""])
                continue
            own = runs[tool]
            n_bytes, n_removed = (int(own[0].values[key]) for key in ("bytes", "removed"))
            rates = [f"{n_bytes / 1e6 / harness.median_of(own, key):.1f}" for key in ("whole", "sketch")]
            rows.append([path.stem, tool, *rates, str(n_removed)])
    print(harness.format_table(("text", "tool", "MB/s", "sketch", "removed"), rows))
    sizes = (options.memory_documents // 4, options.memory_documents)
    few, many = (harness.measure_in_process(memory, {"documents": n}, threads=1).values for n in sizes)
    each = (many["bytes"] - few["bytes"]) / (sizes[1] - sizes[0])
    print(
        harness.format_table(
            ("documents", "bytes a document"), [[f"{sizes[0]:,} to {sizes[1]:,}", f"{each:.0f}"]]
        )
    )


def with_copies(documents: list[str]) -> list[str]:
    """Documents, and every tenth one again with its last twentieth replaced."""
    copies = [
        f"{text[: len(text) * 19 // 20]} another end of the {k}th" for k, text in enumerate(documents[::10])
    ]
    return documents + copies


def find(request: dict[str, Any]) -> dict[str, Any]:
    """Find near duplicates with one tool."""
    documents = with_copies(documents_of(harness.read_text(request["text"], request["bytes"])))
    n_bytes = sum(len(document.encode()) for document in documents)
    sketched, removed = {"bytemill": _bytemill, "rensa": _rensa, "datasketch": _datasketch}[request["tool"]]()
    with Stopwatch() as whole:
        with Stopwatch() as sketch:
            sketches = sketched(documents)
        n_removed = removed(sketches)
    return {"bytes": n_bytes, "whole": whole.cpu, "sketch": sketch.cpu, "removed": n_removed}


def _bytemill() -> tuple[Any, Any]:
    def sketched(documents: list[str]) -> NearIndex:
        index = NearIndex(NearSettings(threshold=THRESHOLD, n=N), num_threads=1)
        index.add(documents)
        return index

    return sketched, lambda index: index.find().n_removed


def _shingles(documents: list[str]) -> Iterator[set[str]]:
    for document in documents:
        words = _WORD.findall(document.lower())
        yield {" ".join(words[k : k + N]) for k in range(max(1, len(words) - N + 1))}


def _rensa() -> tuple[Any, Any]:
    rensa = harness.require("rensa")
    return (
        lambda documents: rensa.RMinHash.digest_matrix_from_token_sets(
            [list(grams) for grams in _shingles(documents)], 128, 42
        ),
        lambda matrix: sum(
            rensa.RMinHashLSH(THRESHOLD, 128, 8).insert_matrix_and_query_duplicate_flags(matrix)
        ),
    )


def _datasketch() -> tuple[Any, Any]:
    datasketch = harness.require("datasketch")

    def sketched(documents: list[str]) -> list[Any]:
        sketches: list[Any] = []
        for grams in _shingles(documents):
            sketches.append(datasketch.MinHash(num_perm=128))
            sketches[-1].update_batch([gram.encode() for gram in grams])
        return sketches

    def removed(sketches: list[Any]) -> int:
        index, n_removed = datasketch.MinHashLSH(threshold=THRESHOLD, num_perm=128), 0
        for number, sketch in enumerate(sketches):
            n_removed += bool(index.query(sketch))
            index.insert(number, sketch)
        return n_removed

    return sketched, removed


def memory(request: dict[str, Any]) -> dict[str, Any]:
    """Measure the memory that the search for pairs allocates at most."""
    source = random.Random(1)  # noqa: S311
    vocabulary = [f"word{k}" for k in range(5000)]
    with NearIndex(num_threads=1) as index:
        for start in range(0, request["documents"], 10_000):
            n = min(10_000, request["documents"] - start)
            index.add(" ".join(source.choices(vocabulary, k=20)) for _ in range(n))
        before, most, is_done = _allocated_bytes(), 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not is_done.is_set():
                most = max(most, _allocated_bytes())
                time.sleep(0.002)

        watcher = threading.Thread(target=watch)
        watcher.start()
        index.find()
        is_done.set()
        watcher.join()
    return {"bytes": most - before}


def _allocated_bytes() -> int:
    """Memory of this process without files that are mapped."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError as error:
        raise harness.UnavailableError("no /proc") from error
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


@harness.case(
    option("--pairs", type=int, default=5000, help="pairs of each similarity (%(default)s)"),
    option("--seed", type=int, default=0, help="seed of the documents (%(default)s)"),
)
def near_pairs(options: argparse.Namespace) -> None:
    """Measure what is found of planted pairs, at the threshold 0.8.

        python -m benchmarks near-pairs

    Documents of 100 to 400 random words, each with a copy whose end is changed until the similarity is the stated one
    or up to 0.02 above. Pairs below the threshold must not be found, and no others than the planted ones. "expected" is
    the probability that the bands propose a pair of this similarity.
    """
    settings = NearSettings(threshold=THRESHOLD)
    rows: list[list[str]] = []
    for similarity in (0.7, 0.78, 0.8, 0.85, 0.9, 0.95):
        n = options.pairs
        texts = planted(similarity, n, options.seed)
        found = find_near_duplicates(texts, settings, max_removed=1)
        removed = np.flatnonzero(found.is_removed)
        right = int((found.first[removed] == removed - n).sum()) if len(removed) else 0
        is_duplicate = [jaccard(shingles(texts[k]), shingles(texts[n + k])) >= THRESHOLD for k in range(n)]
        n_planted = sum(is_duplicate)
        precision = f"{right / len(removed):.3f}" if len(removed) else "–"
        recall = f"{right / n_planted:.4f}" if n_planted else "–"
        expected = f"{detection_probability(similarity, settings.bands, settings.rows):.4f}"
        rows.append(
            [f"{similarity:.2f}", f"{n:,}", f"{n_planted:,}", str(len(removed)), precision, recall, expected]
        )
    header = ("similarity", "pairs", "duplicates", "found", "precision", "recall", "expected")
    print(harness.format_table(header, rows))


def planted(similarity: float, n_pairs: int, seed: int = 0) -> list[str]:
    """Originals, then for each a copy with another end, at the similarity or slightly above."""
    source = random.Random(f"{seed} {similarity}")  # noqa: S311

    def words(n: int) -> list[str]:
        return ["".join(source.choices("abcdefghij", k=6)) for _ in range(n)]

    originals = [words(source.randrange(100, 400)) for _ in range(n_pairs)]
    copies: list[list[str]] = []
    for own in originals:
        n_changed = int((len(own) - N + 1) * (1 - similarity) / (1 + similarity))
        copies.append(own[: len(own) - n_changed] + words(n_changed))
    return [" ".join(own) for own in (*originals, *copies)]
