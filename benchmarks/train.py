"""Training tokenizers: the cases `train` (beside other tools), `memory` and `reference-steps`."""

import argparse
import hashlib
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Outcome, Stopwatch, UsageError, listed, option
from benchmarks.peers.trainers import TRAINERS

REFERENCE = "huggingface"
EXACT = "bytemill, HF ties"
TOOLS = [name for name in TRAINERS if name != EXACT]


@harness.case(
    harness.TEXTS,
    option("--megabytes", type=float, help="use only the first so many 10^6 bytes of each text"),
    option("--vocab-sizes", type=listed(int), default=[10_000, 32_000], help="default 10000,32000"),
    option(
        "--no-compare", action="store_true", help=f"do not run {REFERENCE} to compare merges: times alone"
    ),
    option("--threads", type=listed(int), default=[1, 2], help="default 1,2"),
    harness.several("--tools", TOOLS),
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
    bytemill's own rule (the greatest pair of byte strings), rustbpe, ffbpe, minibperust and bpeasy break them
    otherwise, so for them the table says how many tokens of the vocabulary are the same. gigabpe does what
    Hugging Face does with a file: it reads line by line, which splits runs of line ends, and knows only the bytes
    that occur; so it has more merges, and some others.
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


@harness.case(
    option("--text", help="text (the English one of `corpus`)"),
    option("--max-memory", default="300MB", help="limit (%(default)s)"),
    option("--vocab-size", type=int, nargs="+", default=[10_000, 32_000]),
    option("--repeat", type=int, default=1, help="trainings of each kind (%(default)s)"),
)
def memory(options: argparse.Namespace) -> int:
    """Train with a limit on memory and without: merges, peak memory, time.

        python -m benchmarks memory --text corpus.txt [--max-memory 300MB] [--vocab-size 10000 32000] [--repeat 3]

    Each training is a process of its own. Its peak is the high-water mark of its resident memory, as the system
    keeps it.
    """
    from bytemill.training.memory_budget import parse_max_memory

    text: str = options.text or str(harness.text_path(harness.cache_folder(), "english", 100))
    bound = parse_max_memory(options.max_memory)
    print(f"{text}: {Path(text).stat().st_size / 1e6:,.0f} MB, bound {bound / 1e6:,.0f} MB")
    lines: list[list[str]] = []
    verdicts: dict[str, bool] = {}
    for vocab_size in options.vocab_size:
        runs, _ = harness.in_turns(
            ("none", options.max_memory),
            options.repeat,
            lambda limit, size=vocab_size: harness.measure_in_process(
                train_within, [text, size, None if limit == "none" else limit]
            ),
            needed=True,
        )
        plain = harness.median_of(runs["none"], "seconds")
        for limit, outcomes in runs.items():
            found = sorted((run.values for run in outcomes), key=lambda values: values["seconds"])
            middle = found[len(found) // 2]
            times = (
                middle["seconds"],
                middle["seconds"] / plain,
                *(middle["phases"][name] for name in ("count", "merge")),
            )
            memory = [f"{max(each['peak'] for each in found) / 1e6:.0f}", f"{middle['spilled'] / 1e6:.0f}"]
            lines.append(
                [f"{vocab_size:,}", limit, *(f"{time:.2f}" for time in times), *memory, str(middle["runs"])]
            )
        merges = {run.values["merges"] for outcomes in runs.values() for run in outcomes}
        verdicts[f"{vocab_size:,} tokens: the merges are the same"] = len(merges) == 1
        peak = max(run.values["peak"] for run in runs[options.max_memory])
        verdicts[f"{vocab_size:,} tokens: the bound is kept"] = peak <= bound
    header = ["tokens", "bound", "seconds", "ratio", "count", "learn", "peak MB", "on disk MB", "runs"]
    print(harness.format_table(header, lines))
    for verdict, holds in verdicts.items():
        print(f"{verdict}: {'yes' if holds else 'NO'}")
    return 0 if all(verdicts.values()) else 1


def train_within(request: tuple[str, int, str | None]) -> dict[str, Any]:
    """One process: train on a text, for a number of tokens, with a limit or without."""
    import bytemill
    import bytemill.training.memory_budget
    from bytemill.system import memory

    text, vocab_size, max_memory = request
    # To measure phase by phase the peak is reset; where it cannot be, it is that of the whole process.
    memory._CLEAR_REFS = Path("/nowhere/at/all")  # pyright: ignore[reportPrivateUsage]
    started = time.perf_counter()
    tokenizer = bytemill.train(text, vocab_size, ["<|endoftext|>"], max_memory=max_memory)
    seconds = time.perf_counter() - started
    report = tokenizer.training_report
    assert report is not None
    return {
        "seconds": seconds,
        "peak": memory.peak_bytes(),
        "merges": hashlib.sha256(repr(tokenizer.merges).encode()).hexdigest(),
        "spilled": report.spilled_bytes,
        "runs": report.spilled_runs,
        "phases": {phase.name: phase.seconds for phase in report.phases},
    }


@harness.case(
    option("--text", type=Path, help="text file (default: the help texts of Python itself)"),
    option("--bytes", type=int, default=100_000, help="bytes to take of it (default: %(default)s)"),
    option("--vocab-size", type=int, default=500, help="256 bytes and merges (default: %(default)s)"),
    option("--rounds", type=int, default=3, help="trainings of each kind (default: %(default)s)"),
)
def reference_steps(options: argparse.Namespace) -> int:
    """Time each step of the optimization of training: the readable trainers and the core, on one text.

        python -m benchmarks reference-steps --bytes 200000 --vocab-size 500

    Prints median seconds of whole trainings, pre-tokenization included, after checking that all merges are equal.
    """
    from bytemill import reference

    if options.text is not None and not options.text.is_file():
        raise UsageError(f"--text {options.text}: no such file")
    if options.bytes < 1 or options.rounds < 1:
        raise UsageError("--bytes and --rounds must be at least 1")
    if options.vocab_size < 256:
        raise UsageError(f"--vocab-size {options.vocab_size} has no room for the 256 bytes")
    text, vocab_size = _text_of(options.text, options.bytes), options.vocab_size
    trainers: dict[str, Callable[[], list[Any]]] = {
        "naive": lambda: reference.train_naive(text, vocab_size, pattern="gpt2")[1],
        "unique pre-tokens": lambda: reference.train_unique(text, vocab_size, pattern="gpt2")[1],
        "incremental counts": lambda: reference.train(text, vocab_size, pattern="gpt2")[1],
        **_core_trainers(text, vocab_size),
    }
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    expected: list[Any] | None = None
    for _ in range(options.rounds):
        for name, learn in trainers.items():
            start = time.perf_counter()
            merges = learn()
            seconds[name].append(time.perf_counter() - start)
            expected = merges if expected is None else expected
            if merges != expected:
                place = _first_difference(merges, expected)
                print(f"error: the merges of {name!r} differ from merge {place} on", file=sys.stderr)
                return 1
    print(
        f"{len(text.encode()):,} bytes of text, vocabulary of {256 + len(expected or ()):,}, pattern gpt2, "
        f"median of {options.rounds}, Python {platform.python_version()}\n"
    )
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    rows = [[name, f"{median:.4f}", f"{medians['naive'] / median:.1f}"] for name, median in medians.items()]
    print(harness.format_table(["trainer", "seconds", "times as fast"], rows))
    return 0


def _core_trainers(text: str, vocab_size: int) -> dict[str, Callable[[], list[Any]]]:
    """The core with one thread, and with as many as the machine has; empty where it is not built."""
    try:
        from bytemill._core import PretokenCounter
    except ImportError:
        print("the core is not built, so it is left out", file=sys.stderr)
        return {}

    def learn(num_threads: int | None) -> list[Any]:
        counter = PretokenCounter("gpt2", [], num_threads, None)
        counter.add_texts([text])
        merges, _ = counter.finish().learn_merges(vocab_size - 256, "bytes", 1, num_threads, None)
        return merges

    return {"core, one thread": lambda: learn(1), "core, all threads": lambda: learn(None)}


def _first_difference(left: list[Any], right: list[Any]) -> int:
    """The number of merges that both lists begin with."""
    shorter = min(len(left), len(right))
    return next((n for n in range(shorter) if left[n] != right[n]), shorter)


def _text_of(path: Path | None, n_bytes: int) -> str:
    """The first `n_bytes` bytes of a file, or of the help texts that come with Python."""
    if path is None:
        from pydoc_data.topics import topics

        data = "\n".join(topics[name] for name in sorted(topics)).encode()
    else:
        data = path.read_bytes()
    return data[:n_bytes].decode("utf-8", errors="ignore")
