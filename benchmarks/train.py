"""Training tokenizers beside other tools: the case `train`."""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Outcome, Stopwatch, listed, option
from benchmarks.peers.trainers import TRAINERS

REFERENCE = "huggingface"
EXACT, LIMITED = "bytemill, HF ties", "bytemill-300MB"
TOOLS = [name for name in TRAINERS if name not in (EXACT, LIMITED)]


@harness.case(
    harness.TEXTS,
    option("--megabytes", type=float, help="use only the first so many 10^6 bytes of each text"),
    option("--vocab-sizes", type=listed(int), default=[10_000, 32_000], help="default 10000,32000"),
    option(
        "--no-compare", action="store_true", help=f"do not run {REFERENCE} to compare merges: times alone"
    ),
    option("--threads", type=listed(int), default=[1, 2], help="default 1,2"),
    harness.several("--tools", [*TOOLS, LIMITED], TOOLS),
    option("--repeat", type=int, default=5, help="processes a figure, of which the median counts (5)"),
    harness.JSON,
)
def train(options: argparse.Namespace) -> None:
    """Time BPE training side by side with the peers, from a text file, with GPT-2's pattern.

        python -m benchmarks train [--text FILE]... [--vocab-sizes 10000,32000] [--repeat 5]
                [--threads 1,2] [--tools bytemill,gigabpe] [--json FILE]

    Every figure is the median of several processes of their own, in which the tools take turns. Before a time
    counts, the merges are compared with Hugging Face's: bytemill with `ties="huggingface"` has to give the same
    ones in the same order, or its row shows no time. Ties decide which of two equally frequent pairs comes first:
    bytemill's own rule (the greatest pair of byte strings) and rustbpe break them otherwise, so for them the table
    says how many tokens of the vocabulary are the same. gigabpe does what
    Hugging Face does with a file: it reads line by line, which splits runs of line ends, and knows only the bytes
    that occur; so it has more merges, and some others. The tool "bytemill-300MB" trains with `max_memory`.
    """
    texts = harness.chosen_texts(options.text)
    # bytemill stands for both of its tie rules.
    options.tools = [
        each for name in options.tools for each in ([name, EXACT] if name == "bytemill" else [name])
    ]
    print(harness.machine())
    harness.cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=harness.cache_folder()) as folder:
        rows = [row for text in texts for row in measure(options, text, Path(folder))]
    print(f"\nSaved to {harness.save(options.json, 'train', {'rows': rows})}")


def measure(options: argparse.Namespace, text: Path, folder: Path) -> list[dict[str, Any]]:
    """All measurements of one text, a table for each size of the vocabulary and number of threads."""
    rows: list[dict[str, Any]] = []
    text = _cut(text, options.megabytes, folder)
    for vocab_size in options.vocab_sizes:
        reference = None if options.no_compare else _reference(text, vocab_size, folder)
        for threads in options.threads:
            what = {"text": text.name, "vocab_size": vocab_size, "threads": threads}
            new = _compare(options, text, what, folder, reference)
            _print_table(what, new)
            rows += new
    return rows


def _compare(
    options: argparse.Namespace,
    text: Path,
    what: dict[str, Any],
    folder: Path,
    reference: dict[str, Any] | None,
) -> list[dict[str, Any]]:
    """One row a tool."""
    agreements: dict[str, str] = {}

    def measured(tool: str) -> Outcome:
        asked = {"tool": tool, "vocab_size": what["vocab_size"], "threads": what["threads"]}
        outcome, learned = _run(asked, text, folder)
        if learned is None:
            return Outcome({}, outcome.reason or "gave no merges")
        agreements[tool] = agreement(learned, reference) if reference is not None else "not compared"
        if tool == EXACT and reference is not None and agreements[tool] != "same merges":
            return Outcome({}, f"other merges than {REFERENCE} ({agreements[tool]}): no time counts")
        return outcome

    runs, reasons = harness.in_turns(options.tools, options.repeat, measured, to_and_fro=True)
    return [
        _row(what | {"tool": tool, "agreement": agreements.get(tool)}, runs[tool], reasons.get(tool))
        for tool in options.tools
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
    outcome = harness.measure_in_process(train_once, request, threads=asked["threads"])
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
    columns = [("wall s", "wall_seconds", ".2f", "bytemill"), ("CPU s", "cpu_seconds", ".2f", "bytemill")]
    columns += [
        ("peak MB", "peak_mb", ".0f", "bytemill"),
        ("±", "spread", ".0%"),
        ("merges", "n_merges", ","),
    ]
    columns += [("against Hugging Face", "agreement", "")]
    quickest_first = sorted(rows, key=lambda row: row.get("wall_seconds", float("inf")))
    print(f"\n{what['text']}, vocabulary of {what['vocab_size']:,}, threads: {what['threads']}\n")
    print(harness.format_tools(quickest_first, columns))
    for row in rows:
        if row["tool"] == "bytemill" and row["reason"] is None:
            phases = ", ".join(f"{name} {seconds:.3f}" for name, seconds in row["phases"].items())
            print(f"\nbytemill, seconds by phase (reading goes on beside counting): {phases}")
    sys.stdout.flush()


def train_once(request: dict[str, Any]) -> dict[str, Any]:
    """One process: one training; what was learned goes into a file for the comparison."""
    harness.preload()
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
