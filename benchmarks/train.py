"""Times BPE training side by side with the peers, from a text file, with GPT-2's pattern.

    uv run --group bench python benchmarks/train.py [--text FILE]... [--vocab-sizes 10000,32000] [--repeat 5]
        [--threads 1,2] [--tools bytemill,gigabpe] [--json FILE]

Every figure is the median of several processes of their own, in which the tools take turns. Before a time
counts, the merges are compared with Hugging Face's: bytemill with `ties="huggingface"` has to give the same
ones in the same order, or its row shows no time. Ties decide which of two equally frequent pairs comes first:
bytemill's own rule (the greatest pair of byte strings), rustbpe, ffbpe, minibperust and bpeasy break them
otherwise, so for them the table says how many tokens of the vocabulary are the same. gigabpe does what
Hugging Face does with a file: it reads line by line, which splits runs of line ends, and knows only the bytes
that occur; so it has more merges, and some others.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import corpus
import harness
from encode import standing_texts
from harness import Outcome, Stopwatch
from trainers import TRAINERS

REFERENCE = "huggingface"
EXACT = "bytemill, HF ties"


def work(request: dict[str, Any]) -> dict[str, Any]:
    """One process: one training; what was learned goes into a file for the comparison."""
    train = TRAINERS[request["tool"]]
    with Stopwatch() as training:
        trained = train(Path(request["text"]), request["vocab_size"], request["threads"])
    # A tool that measures the memory of its phases has reset the kernel's mark, and tells its own peak.
    peak = max(harness.peak_memory_bytes(), trained.peak_memory_bytes)
    learned = {
        "tokens": [token.hex() for token in trained.tokens],
        "merges": trained.merges and [[left.hex(), right.hex()] for left, right in trained.merges],
    }
    Path(request["learned"]).write_text(json.dumps(learned), encoding="ascii")
    return {
        "version": trained.version,
        "n_merges": len(trained.tokens),
        "wall_seconds": training.wall,
        "cpu_seconds": training.cpu,
        "peak_bytes": peak,
        "phases": trained.phases,
    }


def agreement(learned: dict[str, Any], reference: dict[str, Any]) -> str:
    """In words, how far two trainings agree.

    >>> agreement({"merges": [["61", "62"]]}, {"merges": [["61", "62"]]})
    'same merges'
    >>> agreement({"tokens": ["61", "62"], "merges": None}, {"tokens": ["62", "61"], "merges": []})
    'same tokens, other order'
    >>> agreement({"tokens": ["61", "63"], "merges": None}, {"tokens": ["61", "62"], "merges": []})
    '1 of 2 tokens'
    """
    if learned["merges"] == reference["merges"]:
        return "same merges"
    if learned["merges"] is None and learned["tokens"] == reference["tokens"]:
        return "same tokens, same order"
    shared = len(set(learned["tokens"]) & set(reference["tokens"]))
    if shared == len(reference["tokens"]) == len(learned["tokens"]):
        return "same tokens, other order"
    return f"{shared:,} of {len(reference['tokens']):,} tokens"


def measure(arguments: argparse.Namespace, text: Path, folder: Path) -> list[dict[str, Any]]:
    """All measurements of one text, a table for each size of the vocabulary and number of threads."""
    rows: list[dict[str, Any]] = []
    text = _cut(text, arguments.megabytes, folder)
    for vocab_size in arguments.vocab_sizes:
        reference = None if arguments.no_compare else _reference(text, vocab_size, folder)
        for threads in arguments.threads:
            what = {"text": text.name, "vocab_size": vocab_size, "threads": threads}
            new = _compare(arguments, text, what, folder, reference)
            _print_table(what, new)
            rows += new
    return rows


def _compare(
    arguments: argparse.Namespace,
    text: Path,
    what: dict[str, Any],
    folder: Path,
    reference: dict[str, Any] | None,
) -> list[dict[str, Any]]:
    """One row a tool. The tools take turns, to and fro, so that a slow minute of the machine hits all of them."""
    runs: dict[str, list[Outcome]] = {tool: [] for tool in arguments.tools}
    reasons: dict[str, str] = {}
    agreements: dict[str, str] = {}
    for turn in range(arguments.repeat):
        for tool in arguments.tools[:: -1 if turn % 2 else 1]:
            if tool in reasons:
                continue
            asked = {"tool": tool, "vocab_size": what["vocab_size"], "threads": what["threads"]}
            outcome, learned = _run(asked, text, folder)
            if learned is None:
                reasons[tool] = outcome.reason or "gave no merges"
                continue
            agreements[tool] = agreement(learned, reference) if reference is not None else "not compared"
            if tool == EXACT and reference is not None and agreements[tool] != "same merges":
                reasons[tool] = f"other merges than {REFERENCE} ({agreements[tool]}): no time counts"
            else:
                runs[tool].append(outcome)
    return [
        _row(what | {"tool": tool, "agreement": agreements.get(tool)}, runs[tool], reasons.get(tool))
        for tool in arguments.tools
    ]


def _cut(text: Path, megabytes: float | None, folder: Path) -> Path:
    if not megabytes:
        return text
    part = folder / f"{text.stem}-first-{megabytes:g}MB.txt"
    part.write_bytes(harness.read_text(text, int(megabytes * 1e6)).encode("utf-8"))
    return part


def _run(asked: dict[str, Any], text: Path, folder: Path) -> tuple[Outcome, dict[str, Any] | None]:
    file = folder / "learned.json"
    file.unlink(missing_ok=True)
    request = asked | {"text": str(text), "learned": str(file)}
    outcome = harness.measure_in_process(__file__, request, threads=asked["threads"])
    if outcome.reason is not None or not file.is_file():
        return outcome, None
    return outcome, json.loads(file.read_text(encoding="ascii"))


def _reference(text: Path, vocab_size: int, folder: Path) -> dict[str, Any] | None:
    outcome, learned = _run({"tool": REFERENCE, "vocab_size": vocab_size, "threads": 2}, text, folder)
    if learned is None:
        print(f"Nothing is compared: {REFERENCE}: {outcome.reason}.", file=sys.stderr)
    return learned


def _row(what: dict[str, Any], runs: Sequence[Outcome], reason: str | None) -> dict[str, Any]:
    if reason is not None:
        return what | {"reason": reason}
    return what | {
        "reason": None,
        "version": runs[0].values["version"],
        "n_merges": runs[0].values["n_merges"],
        "wall_seconds": harness.median_of(runs, "wall_seconds"),
        "cpu_seconds": harness.median_of(runs, "cpu_seconds"),
        "peak_mb": harness.median_of(runs, "peak_bytes") / 1e6,
        "spread": harness.spread_of(runs, "wall_seconds"),
        "phases": {
            name: statistics.median(outcome.values["phases"][name] for outcome in runs)
            for name in runs[0].values["phases"]
        },
        "runs": [outcome.values for outcome in runs],
    }


def _print_table(what: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    ours = next((row for row in rows if row["tool"] == "bytemill" and row["reason"] is None), None)
    header = [
        "tool",
        "version",
        "wall s",
        "× ours",
        "CPU s",
        "× ours",
        "peak MB",
        "× ours",
        "±",
        "merges",
        "against Hugging Face",
    ]
    cells: list[list[str]] = []
    for row in sorted(rows, key=lambda row: row.get("wall_seconds", float("inf"))):
        if row["reason"] is not None:
            cells.append([row["tool"], *[""] * 9, row["reason"]])
            continue
        cost: list[str] = []
        for key, digits in (("wall_seconds", 2), ("cpu_seconds", 2), ("peak_mb", 0)):
            ratio = f"{row[key] / ours[key]:.2f}" if ours is not None else ""
            cost += [f"{row[key]:.{digits}f}", ratio]
        result = [f"{row['n_merges']:,}", row["agreement"]]
        cells.append([row["tool"], row["version"], *cost, f"{row['spread']:.0%}", *result])
    print(f"\n{what['text']}, vocabulary of {what['vocab_size']:,}, threads: {what['threads']}\n")
    print(harness.format_table(header, cells))
    if ours is not None:
        phases = ", ".join(f"{name} {seconds:.3f}" for name, seconds in ours["phases"].items())
        print(f"\nbytemill, seconds by phase (reading goes on beside counting): {phases}")
    sys.stdout.flush()


def _numbers(value: str) -> list[int]:
    return [int(number) for number in value.split(",")]


def main() -> int:
    if sys.argv[1:2] == ["worker"]:
        return harness.worker_main(work, sys.argv[2])
    parser = argparse.ArgumentParser(description="Time BPE training side by side with the peers.")
    parser.add_argument(
        "--text", type=Path, action="append", help="text to train on, repeatable (those of corpus.py)"
    )
    parser.add_argument("--megabytes", type=float, help="use only the first so many 10^6 bytes of each text")
    parser.add_argument("--vocab-sizes", type=_numbers, default=[10_000, 32_000], help="default 10000,32000")
    parser.add_argument(
        "--no-compare", action="store_true", help=f"do not run {REFERENCE} to compare merges: times alone"
    )
    parser.add_argument("--threads", type=_numbers, default=[1, 2], help="default 1,2")
    parser.add_argument("--tools", type=_tools, default=list(TRAINERS), help=f"comma-separated: {_SHORT}")
    parser.add_argument(
        "--repeat", type=int, default=5, help="processes a figure, of which the median counts (5)"
    )
    parser.add_argument(
        "--results", type=Path, default=harness.RESULTS, help="folder for the saved table (%(default)s)"
    )
    parser.add_argument(
        "--json", type=Path, help="file for the saved table, in place of one named by the time"
    )
    arguments = parser.parse_args()
    texts: list[Path] = arguments.text or standing_texts()
    if not texts:
        parser.error("there is no text: run benchmarks/corpus.py first, or give --text")
    print(harness.machine())
    corpus.cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=corpus.cache_folder()) as folder:
        rows = [row for text in texts for row in measure(arguments, text, Path(folder))]
    path: Path = harness.save(arguments.results, "train", {"rows": rows})
    if arguments.json:
        path = path.replace(arguments.json)
    print(f"\nSaved to {path}")
    return 0


_SHORT = ", ".join(name for name in TRAINERS if name != EXACT)


def _tools(value: str) -> list[str]:
    """Names of tools; bytemill stands for both of its tie rules."""
    names: list[str] = []
    for name in value.split(","):
        if name not in TRAINERS or name == EXACT:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {_SHORT}")
        names += [name, EXACT] if name == "bytemill" else [name]
    return names


if __name__ == "__main__":
    sys.exit(main())
