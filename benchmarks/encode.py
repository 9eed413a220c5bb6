"""Encoding and decoding beside other tools: the cases `encode` and `append`."""

import argparse
import ctypes
import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Outcome, Stopwatch, UnavailableError, listed, option
from benchmarks.peers.encoders import (
    ENCODERS,
    PATTERN,
    SLOW_ENCODER_BYTES,
    SLOW_ENCODERS,
    VOCAB,
    Encoder,
    Vocabulary,
    arrays_of,
    encoder_of,
    fetch_own,
    vocabulary_of,
)
from bytemill import Tokenizer

SINGLE = ("array", "list", "decode array", "decode list")
INTERFACES = (*SINGLE, "batch", "batch array", "files", "short list", "short array")
THREADED = ("batch", "batch array", "files")
REFERENCE = "tiktoken"

NOT_OFFERED = "not offered"
MOST_DOCUMENTS = 10_000
N_SHORT = 2_000
SHORT_CHARACTERS = 100
N_FILES = 8


@harness.case(
    harness.TEXTS,
    harness.megabytes(32.0),  # enough for 10,000 documents
    option("--vocab", type=listed(), default=[None], help="as below, or several, comma-separated (cl100k)"),
    PATTERN,
    harness.several("--tools", ENCODERS),
    option("--interfaces", type=listed(str, INTERFACES), help=f"comma-separated: {', '.join(INTERFACES)}"),
    option("--threads", type=listed(int), help="for example 1,2"),
    option("--repeat", type=int, default=5, help="processes a figure, of which the median counts (5)"),
    option("--limit", type=float, default=300, help="seconds for one process (%(default)s)"),
    harness.JSON,
)
def encode(options: argparse.Namespace) -> int:
    """Time encoding and decoding beside the peers, after comparing ids and texts with tiktoken's.

        python -m benchmarks encode [--text FILE]... [--vocab cl100k,o200k,trained-10000] [--tools a,b]

    Every figure is a process of its own. "load" reads the vocabulary and encodes three words, for the tools that
    prepare themselves at the first call. "new" is the first pass over the text in that process: each byte is seen
    once. "again" is a second pass over the same text. CPython's conversion of the str to UTF-8, which it keeps in
    the str, is done before: it is no tool's work, and of a text of 100 MB with one emoji it is a third of a
    second. MB are 10^6 bytes of UTF-8; figures are medians. A tool whose ids are not tiktoken's is marked, and its
    times are shown all the same. Interfaces:

        array        one text to a numpy array; tools without threads for one text show no figure at two
        list         one text to a Python list of ints
        batch        10,000 documents of 1 to 5 KB to a row each, lists or slices of an array as the tool gives them
        batch array  the same documents to one array, and another of where the ids of each are
        files        eight files to an array each, read and encoded one by one by the tools that have no call for it
        short list   2,000 strings of 100 characters, one after the other: microseconds a string
        short array  the same to arrays
        decode array bytemill's ids as an array of uint32 to what a tool gives, bytes or a str
        decode list  the same from a list of ints

    Vocabularies: rank files, or gpt2, cl100k, o200k, and trained-N for N tokens with GPT-2's pattern.

    Without options: arrays and decoding of all texts, the other interfaces on the first text, with two threads what is
    offered so.
    """
    texts = harness.chosen_texts(options.text)
    options.megabytes = options.megabytes or None
    plan = default_plan(texts)
    if options.interfaces or options.threads or options.text:
        chosen: list[str] = options.interfaces or ["array", "list", "batch"]
        plan = [
            (text, name, threads) for text in texts for threads in options.threads or [1] for name in chosen
        ]
    print(harness.machine())
    fetch_own(options.tools)
    rows: list[dict[str, Any]] = []
    for name in options.vocab:
        rows += measure(options, vocabulary_of(name, options.pattern, texts), plan)
    print(f"\nSaved to {harness.save(options.json, 'encode', {'rows': rows})}")
    wrong = [row for row in rows if row["tool"] == "bytemill" and row.get("same_ids") is False]
    if wrong:
        print(f"error: bytemill gives other ids than {REFERENCE} in {len(wrong)} tables", file=sys.stderr)
    return 1 if wrong else 0


def default_plan(texts: Sequence[Path]) -> list[tuple[Path, str, int]]:
    """Text, interface and threads of the tables that are made where no option says which."""
    plan = [(text, interface, 1) for interface in ("array", "decode array") for text in texts]
    plan += [
        (texts[0], interface, 1) for interface in INTERFACES if interface not in ("array", "decode array")
    ]
    return plan + [(texts[0], interface, 2) for interface in ("array", *THREADED)]


def measure(
    options: argparse.Namespace, vocabulary: Vocabulary, plan: Sequence[tuple[Path, str, int]]
) -> list[dict[str, Any]]:
    """All measurements with one vocabulary, a table for each text, interface and number of threads."""
    rows: list[dict[str, Any]] = []
    for text, interface, threads in plan:
        what = {
            "vocabulary": vocabulary.path.name,
            "text": text.name,
            "interface": interface,
            "threads": threads,
        }
        new = _compare(options, vocabulary, text, what)
        _print_table(what, new)
        rows += new
    return rows


def _compare(
    options: argparse.Namespace, vocabulary: Vocabulary, text: Path, what: dict[str, Any]
) -> list[dict[str, Any]]:
    """One row a tool."""
    request = vocabulary.request() | {"text": str(text), "again": True}
    request |= {"interface": what["interface"], "threads": what["threads"]}
    same_ids: dict[str, bool] = {}

    def measured(tool: str) -> Outcome:
        asked = request | {"tool": tool, "n_bytes": _n_bytes_used(tool, text, options.megabytes, what)}
        outcome = harness.measure_in_process(
            encode_once, asked, threads=what["threads"], timeout=options.limit
        )
        if outcome.reason is None:
            same = outcome.values["ids"] == _reference_ids(asked)
            same_ids[tool] = same_ids.get(tool, True) and same
        return outcome

    runs, reasons = harness.in_turns(options.tools, options.repeat, measured, to_and_fro=True)
    return [
        _row(what | {"tool": tool}, runs[tool], reasons.get(tool), same_ids.get(tool))
        for tool in options.tools
    ]


def _n_bytes_used(tool: str, text: Path, megabytes: float | None, what: dict[str, Any]) -> int:
    n_bytes = text.stat().st_size if megabytes is None else min(int(megabytes * 1e6), text.stat().st_size)
    # Short strings are as many whatever the text, and come from all over it.
    slow = tool in SLOW_ENCODERS and not what["interface"].startswith("short")
    return min(n_bytes, SLOW_ENCODER_BYTES) if slow else n_bytes


_known_references: dict[str, str] = {}


def _reference_ids(request: dict[str, Any]) -> str:
    """The fingerprint of tiktoken's ids for a request, computed once for each text, size and shape."""
    like = {"list": "array", "batch array": "batch", "short array": "short list"}
    asked = request | {"tool": REFERENCE, "threads": 1, "again": False}
    asked["interface"] = like.get(request["interface"], request["interface"])
    key = repr(sorted(asked.items()))
    if key not in _known_references:
        outcome = harness.measure_in_process(encode_once, asked, threads=1)
        if outcome.reason is not None:
            raise SystemExit(f"error: {REFERENCE}, with which ids are compared, gave none: {outcome.reason}")
        _known_references[key] = outcome.values["ids"]
    return _known_references[key]


def _row(
    what: dict[str, Any], runs: Sequence[Outcome], reason: str | None, same_ids: bool | None
) -> dict[str, Any]:
    if reason is not None:
        return what | {"reason": reason}
    first = runs[0].values
    megabytes = first["n_bytes"] / 1e6
    row = what | {
        "reason": None,
        "same_ids": same_ids,
        "note": "" if same_ids else f"NOT EXACT: other ids than {REFERENCE}",
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
    if what["interface"].startswith("short"):
        for name in ("new", "again"):
            row[f"{name}_us"] = harness.median_of(runs, f"{name}_seconds") / first["n_texts"] * 1e6
    return row


def _print_table(what: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    shown = {"new_mb_per_s": "new MB/s", "again_mb_per_s": "again MB/s"}
    if what["interface"].startswith("short"):
        shown = {"new_us": "new µs", "again_us": "again µs"}
    columns = [("MB", "megabytes", ".1f"), *((name, key, ".1f", "bytemill") for key, name in shown.items())]
    columns += [("load s", "load_seconds", ".2f"), ("peak MB", "peak_mb", ".0f"), ("±", "spread", ".0%")]
    if offered := [row for row in rows if row["reason"] != NOT_OFFERED]:
        place = f"{what['text']}, {what['interface']}, threads: {what['threads']}, {what['vocabulary']}"
        offered.sort(key=lambda row: -row.get("new_mb_per_s", 0))
        print(f"\n{place}\n\n{harness.format_tools(offered, columns)}", flush=True)


def documents_of(text: str) -> list[str]:
    """The text in documents of 1,000 to 5,000 characters that end at line ends, 10,000 at most.

    The sizes come again and again in the same order, so they are the same whatever the text.
    """
    documents: list[str] = []
    start = 0
    while start < len(text) and len(documents) < MOST_DOCUMENTS:
        size = 1_000 + len(documents) * 1_237 % 4_000
        end = text.find("\n", start + size) + 1 or len(text)
        documents.append(text[start:end])
        start = end
    return documents


def short_strings_of(text: str) -> list[str]:
    """Strings of 100 characters from all over the text."""
    step = max(len(text) // N_SHORT, SHORT_CHARACTERS)
    return [text[start : start + SHORT_CHARACTERS] for start in range(0, len(text) - SHORT_CHARACTERS, step)]


def keep_utf8(text: str) -> None:
    """Let CPython make the UTF-8 form of a str, which it keeps beside the characters."""
    size = ctypes.c_ssize_t()
    ctypes.pythonapi.PyUnicode_AsUTF8AndSize(ctypes.py_object(text), ctypes.byref(size))


def fingerprint(ids: Any, *, batch: bool) -> tuple[int, str]:
    """Number of tokens, and a hash of the ids that does not depend on the integer type they came in."""
    import numpy as np

    if isinstance(ids, tuple):
        ids = arrays_of(ids)
    digest = hashlib.sha256()
    n_tokens = 0
    for row in ids if batch else [ids]:
        # A list of ints is converted in parts: all at once it would take as much memory again.
        for start in range(0, len(row), 1 << 20):
            digest.update(np.asarray(row[start : start + (1 << 20)], dtype="<u4").tobytes())
        digest.update(b"|")
        n_tokens += len(row)
    return n_tokens, digest.hexdigest()


def _one_by_one(encode: Callable[[str], Any]) -> Callable[[list[str]], list[Any]]:
    return lambda texts: [encode(text) for text in texts]


def _read_first(encode: Callable[[str], Any]) -> Callable[[list[Path]], list[Any]]:
    """What the tools do for files that have no call for them."""
    return lambda paths: [encode(path.read_bytes().decode("utf-8")) for path in paths]


def _written(text: str, folder: Path) -> list[Path]:
    """The text in files of whole lines."""
    paths: list[Path] = []
    lines = text.splitlines(keepends=True)
    for index in range(N_FILES):
        part = lines[index * len(lines) // N_FILES : (index + 1) * len(lines) // N_FILES]
        paths.append(folder / f"{index}.txt")
        paths[-1].write_bytes("".join(part).encode("utf-8"))
    return paths


def call_of(encoder: Encoder, interface: str) -> Callable[[Any], Any]:
    """The call that an interface stands for; UnavailableError where the tool does not offer it."""
    to_array, to_list = encoder.to_array, encoder.to_list
    either = to_array or to_list
    calls: dict[str, Callable[[Any], Any] | None] = {
        "array": to_array,
        "list": to_list,
        "decode array": encoder.decode_array,
        "decode list": encoder.decode,
        "batch": encoder.batch,
        "batch array": encoder.batch_array,
        "files": encoder.files or (_read_first(either) if either else None),
        "short list": _one_by_one(to_list) if to_list else None,
        "short array": _one_by_one(to_array) if to_array else None,
    }
    call = calls[interface]
    if call is None:
        raise UnavailableError(NOT_OFFERED)
    return call


def encode_once(request: dict[str, Any]) -> dict[str, Any]:
    """Load, encode or decode once, and once more."""
    harness.preload()
    interface: str = request["interface"]
    vocabulary = Vocabulary.of(request)
    text = harness.read_text(request["text"], request["n_bytes"])
    with Stopwatch() as loading:
        encoder = encoder_of(request["tool"], vocabulary, request["threads"])
    call = call_of(encoder, interface)
    with tempfile.TemporaryDirectory() as folder:
        given, warming = given_to(interface, text, Path(folder), vocabulary)
        with Stopwatch() as starting:
            call(warming)
        # numpy's threads, which a tool may have just started, spin for a while before they sleep.
        time.sleep(0.1)
        with Stopwatch() as new:
            result = call(given)
        peak = harness.peak_memory_bytes()
        n_tokens, digest = _digest(result, given, interface)
        del result
        values: dict[str, Any] = {
            "n_bytes": _n_bytes(text, given, interface),
            "n_tokens": n_tokens,
            "ids": digest,
        }
        values |= {
            "peak_bytes": peak,
            "n_texts": 1 if interface in SINGLE else len(given),
            "new_seconds": new.wall,
        }
        if request["again"]:
            with Stopwatch() as watch:
                result = call(given)
            values["again_seconds"] = watch.wall
            if _digest(result, given, interface)[1] != digest:
                raise RuntimeError("the second pass gave another result than the first")
    return values | {"version": encoder.version, "load_seconds": loading.wall + starting.wall}


def given_to(interface: str, text: str, folder: Path, vocabulary: Vocabulary) -> tuple[Any, Any]:
    """What a call gets, and a little of the same for the tools that prepare themselves at the first call."""
    few = "A few words."
    if interface.startswith("decode"):
        import numpy as np

        to_array = encoder_of("bytemill", vocabulary, 1).to_array
        assert to_array is not None
        ids: Any = to_array(text).astype(np.uint32)
        ids = ids.tolist() if interface == "decode list" else ids
        return ids, ids[:3]
    if interface in SINGLE:
        keep_utf8(text)
        return text, few
    if interface == "files":
        (folder / "few").write_text(few, encoding="utf-8")
        return _written(text, folder), [folder / "few"]
    texts = documents_of(text) if interface in THREADED else short_strings_of(text)
    for piece in texts:
        keep_utf8(piece)
    return texts, [few]


def _digest(result: Any, given: Any, interface: str) -> tuple[int, str]:
    """Number of tokens, and a hash of the ids or of the decoded text."""
    if interface.startswith("decode"):
        data = result.encode("utf-8") if isinstance(result, str) else bytes(result)
        return len(given), hashlib.sha256(data).hexdigest()
    return fingerprint(result, batch=interface not in SINGLE)


def _n_bytes(text: str, given: Any, interface: str) -> int:
    """Bytes of text that a call encodes, or that come out."""
    if interface in SINGLE or interface == "files":
        return len(text.encode("utf-8"))
    return sum(len(each.encode("utf-8")) for each in given)


@harness.case(
    harness.TEXT,
    VOCAB,
    option("--ids", type=int, default=100_000, help="ids before the appended text (%(default)s)"),
    option("--repeat", type=int, default=300, help="calls of which the median counts (%(default)s)"),
)
def append(options: argparse.Namespace) -> None:
    """Time the ids of 100 characters behind many ids.

        python -m benchmarks append [--text FILE] [--vocab cl100k]

    Rows are calls: `append` to a list of ids, `append` to a text that grows with every call, and encoding the whole
    text, whose ids all of them give.
    """
    [text] = harness.chosen_texts(options.text, first=True)
    tok = Tokenizer.load(vocabulary_of(options.vocab, None, [text]).path)
    characters = harness.read_text(text, None)
    ids = tok.encode(tok.decode(tok.encode(characters)[: options.ids], "ignore"))
    before = tok.decode(ids)
    added = [characters[at : at + 100] for at in range(0, 100 * options.repeat, 100)]
    growing = tok.growing_text(before)
    calls: dict[str, Callable[[str], Any]] = {
        "append to ids": partial(tok.append, ids),
        "append to a growing text": growing.append,
        "encode the whole": lambda more: tok.encode(before + more, num_threads=1),
    }
    rows: list[list[str]] = []
    for name, call in calls.items():
        times: list[float] = []
        for more in added[: 20 if name.startswith("encode") else None]:
            with Stopwatch() as watch:
                call(more)
            times.append(watch.wall * 1e6)
        rows.append([name, f"{statistics.median(times):,.1f}", f"{max(times):,.1f}"])
    assert growing.ids == tok.encode(before + "".join(added))
    print(harness.machine())
    print(f"{text.name}, {len(ids):,} ids\n")
    print(harness.format_table(["call", "median µs", "most"], rows))
