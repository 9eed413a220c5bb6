"""Times encoding side by side with the peers, after comparing the ids of all with tiktoken's.

    uv run --group bench python benchmarks/encode.py [--text FILE]... [--vocab cl100k,o200k,trained-10000] [--tools a,b]

Every figure is a process of its own. "load" reads the vocabulary and encodes three words, for the tools that prepare
themselves at the first call. "new" is the first pass over the text in that process: each byte is seen once. "again" is
a second pass over the same text. CPython's conversion of the str to UTF-8, which it keeps in the str, is done before:
it is no tool's work, and of a text of 100 MB with one emoji it is a third of a second. MB are 10^6 bytes of UTF-8;
figures are medians. A tool whose ids are not tiktoken's is marked, and its times are shown all the same. Interfaces:

    array        one text to a numpy array; tools without threads for one text show no figure at two
    list         one text to a Python list of ints
    batch        10,000 documents of 1 to 5 KB to a row each, lists or slices of an array as the tool gives them
    batch array  the same documents to one array, and another of where the ids of each are
    files        eight files to an array each, read and encoded one by one by the tools that have no call for it
    short list   2,000 strings of 100 characters, one after the other: microseconds a string
    short array  the same to arrays
    stretches    ten megabytes after ten megabytes: the rate of the first and of the last stretch

Without options: arrays of all texts, the other interfaces on the first text, with two threads what is offered so.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import corpus
import harness
from encode_worker import NOT_OFFERED, work
from encoders import ENCODERS, SLOW_ENCODER_BYTES, SLOW_ENCODERS
from harness import Outcome
from vocabularies import PATTERN_OF_FILE, Vocabulary, vocabulary_of

INTERFACES = ("array", "list", "batch", "batch array", "files", "short list", "short array", "stretches")
THREADED = ("batch", "batch array", "files")
REFERENCE = "tiktoken"
DEFAULT_MEGABYTES = 32.0
"""Enough for 10,000 documents."""


def default_plan(texts: Sequence[Path]) -> list[tuple[Path, str, int]]:
    """Text, interface and threads of the tables that are made where no option says which."""
    plan = [(text, "array", 1) for text in texts]
    plan += [
        (texts[0], interface, 1)
        for interface in ("list", "batch", "batch array", "files", "short list", "short array")
    ]
    return plan + [(texts[0], interface, 2) for interface in ("array", *THREADED)]


def measure(
    arguments: argparse.Namespace, vocabulary: Vocabulary, plan: Sequence[tuple[Path, str, int]]
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
        new = _compare(arguments, vocabulary, text, what)
        _print_table(what, new)
        rows += new
    return rows


def _compare(
    arguments: argparse.Namespace, vocabulary: Vocabulary, text: Path, what: dict[str, Any]
) -> list[dict[str, Any]]:
    """One row a tool. The tools take turns, so that a slow minute of the machine hits all of them.

    Every other turn is the other way round: on a virtual machine the second of two processes took 5 to 10 % longer,
    whichever it was.
    """
    request = {"vocab": str(vocabulary.path), "pattern": vocabulary.pattern, "text": str(text), "again": True}
    request |= {"interface": what["interface"], "threads": what["threads"]}
    runs: dict[str, list[Outcome]] = {tool: [] for tool in arguments.tools}
    reasons: dict[str, str] = {}
    same_ids: dict[str, bool] = {}
    for turn in range(arguments.repeat):
        for tool in arguments.tools[:: -1 if turn % 2 else 1]:
            if tool in reasons:
                continue
            asked = request | {"tool": tool, "n_bytes": _n_bytes(tool, text, arguments.megabytes, what)}
            outcome = harness.measure_in_process(
                __file__, asked, threads=what["threads"], timeout=arguments.limit
            )
            if outcome.reason is not None:
                reasons[tool] = outcome.reason
            else:
                same = outcome.values["ids"] == _reference_ids(asked)
                same_ids[tool] = same_ids.get(tool, True) and same
                runs[tool].append(outcome)
    return [
        _row(what | {"tool": tool}, runs[tool], reasons.get(tool), same_ids.get(tool))
        for tool in arguments.tools
    ]


def _n_bytes(tool: str, text: Path, megabytes: float | None, what: dict[str, Any]) -> int:
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
        outcome = harness.measure_in_process(__file__, asked, threads=1)
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
    for name in ("first_mb_per_s", "last_mb_per_s"):
        if name in first:
            row[name] = harness.median_of(runs, name)
    return row


def _print_table(what: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    ours = next((row for row in rows if row["tool"] == "bytemill" and row["reason"] is None), None)
    shown = {"new_mb_per_s": "new MB/s", "again_mb_per_s": "again MB/s"}
    if what["interface"].startswith("short"):
        shown = {"new_us": "new µs", "again_us": "again µs"}
    elif any("first_mb_per_s" in row for row in rows):
        shown = {"first_mb_per_s": "first MB/s", "last_mb_per_s": "last MB/s"}
    header = ["tool", "version", "MB"]
    for name in shown.values():
        header += [name, "× ours"]
    header += ["load s", "peak MB", "±", "note"]
    cells: list[list[str]] = []
    for row in sorted(rows, key=lambda row: -row.get("new_mb_per_s", 0)):
        if row["reason"] is not None:
            if row["reason"] != NOT_OFFERED:
                cells.append([row["tool"], *[""] * 9, row["reason"]])
            continue
        line = [row["tool"], row["version"], f"{row['megabytes']:.1f}"]
        for key in shown:
            line += (
                [f"{row[key]:.1f}", f"{row[key] / ours[key]:.2f}" if ours is not None and key in ours else ""]
                if key in row
                else ["", ""]
            )
        note = "" if row["same_ids"] else f"NOT EXACT: other ids than {REFERENCE}"
        line += [f"{row['load_seconds']:.2f}", f"{row['peak_mb']:.0f}", f"{row['spread']:.0%}", note]
        cells.append(line)
    if cells:
        place = f"{what['text']}, {what['interface']}, threads: {what['threads']}, {what['vocabulary']}"
        print(f"\n{place}\n")
        print(harness.format_table(header, cells), flush=True)


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
    parser.add_argument(
        "--megabytes",
        type=float,
        default=DEFAULT_MEGABYTES,
        help="first 10^6 bytes used, 0 for all (%(default)s)",
    )
    parser.add_argument(
        "--vocab",
        default=None,
        help="rank files or gpt2, cl100k, o200k, trained-N (N tokens, GPT-2's pattern), comma-separated (cl100k)",
    )
    parser.add_argument(
        "--pattern", choices=sorted(set(PATTERN_OF_FILE.values())), help="pattern of a rank file"
    )
    parser.add_argument(
        "--tools", type=_names(list(ENCODERS)), default=list(ENCODERS), help="comma-separated (all)"
    )
    parser.add_argument(
        "--interfaces", type=_names(INTERFACES), help=f"comma-separated: {', '.join(INTERFACES)}"
    )
    parser.add_argument(
        "--threads", type=lambda value: [int(n) for n in value.split(",")], help="for example 1,2"
    )
    parser.add_argument(
        "--repeat", type=int, default=5, help="processes a figure, of which the median counts (5)"
    )
    parser.add_argument("--limit", type=float, default=300, help="seconds for one process (%(default)s)")
    parser.add_argument("--json", type=Path, help="file for the results (a new one in benchmarks/results)")
    arguments = parser.parse_args()
    texts: list[Path] = arguments.text or standing_texts()
    if not texts:
        parser.error("there is no text: run benchmarks/corpus.py first, or give --text")
    arguments.megabytes = arguments.megabytes or None
    plan = default_plan(texts)
    if arguments.interfaces or arguments.threads or arguments.text:
        chosen: list[str] = arguments.interfaces or ["array", "list", "batch"]
        plan = [
            (text, name, threads) for text in texts for threads in arguments.threads or [1] for name in chosen
        ]
    rows: list[dict[str, Any]] = []
    print(harness.machine())
    for name in arguments.vocab.split(",") if arguments.vocab else [None]:
        rows += measure(arguments, vocabulary_of(name, arguments.pattern, texts), plan)
    print(f"\nSaved to {harness.save(arguments.json, 'encode', {'rows': rows})}")
    wrong = [row for row in rows if row["tool"] == "bytemill" and row.get("same_ids") is False]
    if wrong:
        print(f"error: bytemill gives other ids than {REFERENCE} in {len(wrong)} tables", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
