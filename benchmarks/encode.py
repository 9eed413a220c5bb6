"""Times encoding side by side with the peers, after checking that all give the same ids as tiktoken.

    uv run --group bench python benchmarks/encode.py [--text FILE]... [--vocab RANKS] [--tools a,b]

Every figure is a process of its own. "load" reads the vocabulary and encodes three words, for the tools that
prepare themselves at the first call. "new" is the first pass over the text in that process: each byte is seen
once. "again" is a second pass over the same text. CPython's conversion of the str to UTF-8, which it keeps in
the str, is done before: it is no tool's work, and of a text of 100 MB that holds one emoji it is a third of a
second. MB are 10^6 bytes of UTF-8; figures are medians. The interfaces:

    array   one text to a numpy array; tools without threads for one text show no figure at two
    list    one text to a Python list of ints
    batch   the text as documents of about 4 KB to a list of lists (toktok: to slices of one array)
"""

import argparse
import ctypes
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import corpus
import harness
from encoders import ENCODERS, PATTERN_OF_FILE, SLOW_ENCODER_BYTES, SLOW_ENCODERS, Vocabulary
from harness import Outcome, Stopwatch, UnavailableError

INTERFACES = ("array", "list", "batch")
REFERENCE = "tiktoken"
DOCUMENT_CHARACTERS = 4000
NOT_OFFERED = "not offered"


def documents_of(text: str) -> list[str]:
    """The text in documents that end at line ends, about DOCUMENT_CHARACTERS each."""
    documents: list[str] = []
    start = 0
    while start < len(text):
        end = text.find("\n", start + DOCUMENT_CHARACTERS) + 1 or len(text)
        documents.append(text[start:end])
        start = end
    return documents


def keep_utf8(text: str) -> None:
    """Has CPython make the UTF-8 form of a str, which it keeps beside the characters."""
    size = ctypes.c_ssize_t()
    ctypes.pythonapi.PyUnicode_AsUTF8AndSize(ctypes.py_object(text), ctypes.byref(size))


def fingerprint(ids: Any, *, batch: bool) -> tuple[int, str]:
    """Number of tokens, and a hash of the ids that does not depend on the integer type they came in."""
    import numpy as np

    digest = hashlib.sha256()
    n_tokens = 0
    for row in ids if batch else [ids]:
        # A list of ints is converted in parts: all at once it would take as much memory again.
        for start in range(0, len(row), 1 << 20):
            digest.update(np.asarray(row[start : start + (1 << 20)], dtype="<u4").tobytes())
        digest.update(b"|")
        n_tokens += len(row)
    return n_tokens, digest.hexdigest()


def work(request: dict[str, Any]) -> dict[str, Any]:
    """One process: load, encode the text once, and once more."""
    vocabulary = Vocabulary(Path(request["vocab"]), request["pattern"])
    text = harness.read_text(request["text"], request["n_bytes"])
    interface = request["interface"]
    with Stopwatch() as loading:
        encoder = ENCODERS[request["tool"]](vocabulary, request["threads"])
    encode = {"array": encoder.to_array, "list": encoder.to_list, "batch": encoder.batch}[interface]
    if encode is None:
        raise UnavailableError(NOT_OFFERED)
    with Stopwatch() as starting:
        encode(["A few words."] if interface == "batch" else "A few words.")
    given: Any = documents_of(text) if interface == "batch" else text
    for piece in given if interface == "batch" else [text]:
        keep_utf8(piece)
    n_bytes = len(text.encode("utf-8"))
    with Stopwatch() as new:
        ids = encode(given)
    peak = harness.peak_memory_bytes()
    n_tokens, digest = fingerprint(ids, batch=interface == "batch")
    del ids
    values: dict[str, Any] = {
        "version": encoder.version,
        "n_bytes": n_bytes,
        "n_tokens": n_tokens,
        "ids": digest,
    }
    values |= {"load_seconds": loading.wall + starting.wall, "new_seconds": new.wall, "peak_bytes": peak}
    if request["again"]:
        with Stopwatch() as again:
            ids = encode(given)
        values["again_seconds"] = again.wall
        if fingerprint(ids, batch=interface == "batch")[1] != digest:
            raise RuntimeError("the second pass gave other ids than the first")
    return values


def measure(arguments: argparse.Namespace, vocabulary: Vocabulary, text: Path) -> list[dict[str, Any]]:
    """All measurements of one text, a table for each interface and number of threads."""
    rows: list[dict[str, Any]] = []
    for threads in arguments.threads:
        for interface in arguments.interfaces:
            what = {"text": text.name, "interface": interface, "threads": threads}
            new = _compare(arguments, vocabulary, text, what)
            _print_table(what, new)
            rows += new
    return rows


def _compare(
    arguments: argparse.Namespace, vocabulary: Vocabulary, text: Path, what: dict[str, Any]
) -> list[dict[str, Any]]:
    """One row a tool. The tools take turns, so that a slow minute of the machine hits all of them."""
    request = {"vocab": str(vocabulary.path), "pattern": vocabulary.pattern, "text": str(text), "again": True}
    request |= {"interface": what["interface"], "threads": what["threads"]}
    runs: dict[str, list[Outcome]] = {tool: [] for tool in arguments.tools}
    reasons: dict[str, str] = {}
    for _ in range(arguments.repeat):
        for tool in arguments.tools:
            if tool in reasons:
                continue
            asked = request | {"tool": tool, "n_bytes": _n_bytes(tool, text, arguments.megabytes)}
            outcome = harness.measure_in_process(__file__, asked, threads=what["threads"])
            if outcome.reason is not None:
                reasons[tool] = outcome.reason
            elif outcome.values["ids"] != _reference_ids(asked):
                reasons[tool] = f"other ids than {REFERENCE}: no time counts"
            else:
                runs[tool].append(outcome)
    return [_row(what | {"tool": tool}, runs[tool], reasons.get(tool)) for tool in arguments.tools]


def _n_bytes(tool: str, text: Path, megabytes: float | None) -> int:
    n_bytes = text.stat().st_size if megabytes is None else min(int(megabytes * 1e6), text.stat().st_size)
    return min(n_bytes, SLOW_ENCODER_BYTES) if tool in SLOW_ENCODERS else n_bytes


_known_references: dict[str, str] = {}


def _reference_ids(request: dict[str, Any]) -> str:
    """The fingerprint of tiktoken's ids for a request, computed once for each text, size and shape."""
    asked = request | {"tool": REFERENCE, "threads": 1, "again": False}
    asked["interface"] = "batch" if request["interface"] == "batch" else "array"
    key = repr(sorted(asked.items()))
    if key not in _known_references:
        outcome = harness.measure_in_process(__file__, asked, threads=1)
        if outcome.reason is not None:
            raise SystemExit(f"error: {REFERENCE}, with which ids are compared, gave none: {outcome.reason}")
        _known_references[key] = outcome.values["ids"]
    return _known_references[key]


def _row(what: dict[str, Any], runs: Sequence[Outcome], reason: str | None) -> dict[str, Any]:
    if reason is not None:
        return what | {"reason": reason}
    first = runs[0].values
    megabytes = first["n_bytes"] / 1e6
    return what | {
        "reason": None,
        "version": first["version"],
        "megabytes": megabytes,
        "n_tokens": first["n_tokens"],
        "new_mb_per_s": megabytes / harness.median_of(runs, "new_seconds"),
        "again_mb_per_s": megabytes / harness.median_of(runs, "again_seconds"),
        "load_seconds": harness.median_of(runs, "load_seconds"),
        "peak_mb": harness.median_of(runs, "peak_bytes") / 1e6,
        "spread": harness.spread_of(runs, "new_seconds"),
        "runs": [outcome.values for outcome in runs],
    }


def _print_table(what: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    ours = next((row for row in rows if row["tool"] == "bytemill" and row["reason"] is None), None)
    header = [
        "tool",
        "version",
        "MB",
        "new MB/s",
        "× ours",
        "again MB/s",
        "× ours",
        "load s",
        "peak MB",
        "±",
        "note",
    ]
    cells: list[list[str]] = []
    for row in sorted(rows, key=lambda row: -row.get("new_mb_per_s", 0)):
        if row["reason"] is not None:
            if row["reason"] != NOT_OFFERED:
                cells.append([row["tool"], *[""] * 9, row["reason"]])
            continue
        new, again = (
            [f"{row[key]:.1f}", f"{row[key] / ours[key]:.2f}" if ours is not None else ""]
            for key in ("new_mb_per_s", "again_mb_per_s")
        )
        memory = [f"{row['load_seconds']:.2f}", f"{row['peak_mb']:.0f}", f"{row['spread']:.0%}", ""]
        cells.append([row["tool"], row["version"], f"{row['megabytes']:.1f}", *new, *again, *memory])
    if cells:
        print(f"\n{what['text']}, {what['interface']}, threads: {what['threads']}\n")
        print(harness.format_table(header, cells), flush=True)


def vocabulary_of(path: Path | None, pattern: str | None, texts: Sequence[Path] = ()) -> Vocabulary:
    """The file given, cl100k where it is at hand, else a vocabulary trained on the first text."""
    data = harness.shared_data()
    if path is None and data is not None and (data / "cl100k_base.tiktoken").is_file():
        path = data / "cl100k_base.tiktoken"
    if path is None:
        return _trained_vocabulary(texts[0])
    known = pattern or PATTERN_OF_FILE.get(path.name.removesuffix(".tiktoken"))
    if known is None:
        raise SystemExit(
            f"error: {path.name} does not say its pattern\nhint: add --pattern gpt2, cl100k or o200k"
        )
    return Vocabulary(path, known)


def _trained_vocabulary(text: Path) -> Vocabulary:
    """32,000 tokens trained by bytemill on the first 20 MB of the text, as a rank file in the cache."""
    import base64

    import bytemill

    path = corpus.cache_folder() / f"trained-on-{text.stem}.tiktoken"
    if not path.is_file():
        part = harness.read_text(text, 20_000_000)
        print(f"No rank file is at hand: training one on the first {len(part):,} characters of {text.name}.")
        tokenizer = bytemill.train(iter([part]), vocab_size=32_000, pattern="cl100k")
        tokens = (tokenizer.decode_single_token_bytes(token_id) for token_id in range(tokenizer.n_vocab))
        lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
        path.write_text("".join(lines), encoding="ascii")
    return Vocabulary(path, "cl100k")


def standing_texts() -> list[Path]:
    """The texts that corpus.py has built."""
    found = [
        corpus.text_path(corpus.cache_folder(), name, size) for name, size in corpus.DEFAULT_MEGABYTES.items()
    ]
    return [path for path in found if path.is_file()]


def _names(allowed: Sequence[str]) -> Any:
    def parse(value: str) -> list[str]:
        names = value.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(allowed)}")
        return names

    return parse


def main() -> int:
    if sys.argv[1:2] == ["worker"]:
        return harness.worker_main(work, sys.argv[2])
    parser = argparse.ArgumentParser(description="Time encoding side by side with the peers.")
    parser.add_argument(
        "--text", type=Path, action="append", help="text to encode, repeatable (those of corpus.py)"
    )
    parser.add_argument("--megabytes", type=float, help="use only the first so many 10^6 bytes of each text")
    parser.add_argument("--vocab", type=Path, help="rank file (cl100k where it is at hand)")
    parser.add_argument("--pattern", choices=sorted(set(PATTERN_OF_FILE.values())), help="pattern of --vocab")
    parser.add_argument(
        "--tools", type=_names(list(ENCODERS)), default=list(ENCODERS), help="comma-separated (all)"
    )
    parser.add_argument(
        "--interfaces", type=_names(INTERFACES), default=list(INTERFACES), help="comma-separated (all)"
    )
    parser.add_argument(
        "--threads",
        type=lambda value: [int(number) for number in value.split(",")],
        default=[1, 2],
        help="default 1,2",
    )
    parser.add_argument(
        "--repeat", type=int, default=5, help="processes a figure, of which the median counts (5)"
    )
    parser.add_argument(
        "--results", type=Path, default=harness.RESULTS, help="folder for the saved table (%(default)s)"
    )
    arguments = parser.parse_args()
    texts: list[Path] = arguments.text or standing_texts()
    if not texts:
        parser.error("there is no text: run benchmarks/corpus.py first, or give --text")
    vocabulary = vocabulary_of(arguments.vocab, arguments.pattern, texts)
    print(f"vocabulary {vocabulary.path.name}, pattern {vocabulary.pattern}; {harness.machine()}")
    rows = [row for text in texts for row in measure(arguments, vocabulary, text)]
    path = harness.save(arguments.results, "encode", {"vocabulary": vocabulary.path.name, "rows": rows})
    print(f"\nSaved to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
