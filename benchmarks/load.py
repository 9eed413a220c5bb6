"""How long it takes until a tokenizer is there: bytemill, tiktoken and Hugging Face's library.

    python benchmarks/load.py
    python benchmarks/load.py --vocab cl100k_base --runs 9 --json

Each run is a process of its own. It imports the tool, loads the tokenizer from a file on disk that has been read
before, and encodes a short text; the times of the three, and the peak memory after them, are reported as medians. A
tool that puts work off until a first text comes pays for it in "first text". Before any time counts, the ids of that
text must be the same for every tool.

The tokenizer.json is the one that bytemill writes from the rank file.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
from encoders import PATTERN_OF_FILE, expression_of
from harness import Outcome, require

TEXT = "Loading takes no time: l'été 2024, 日本語, and\n\n\tsome_code(x) += 17;"
VOCABULARIES = ("cl100k_base", "o200k_base", "r50k_base")
TOOLS = (("bytemill", "ranks"), ("tiktoken", "ranks"), ("bytemill", "json"), ("huggingface", "json"))


def load(tool: str, path: Path) -> Any:
    """A function from text to ids."""
    if tool == "bytemill":
        return require("bytemill").Tokenizer.load(path).encode_ordinary
    if tool == "huggingface":
        tokenizer = require("tokenizers").Tokenizer.from_file(str(path))
        return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    encoding = require("tiktoken").Encoding(
        path.stem,
        pat_str=expression_of(PATTERN_OF_FILE[path.stem]),
        mergeable_ranks=require("tiktoken.load").load_tiktoken_bpe(str(path)),
        special_tokens={},
    )
    return encoding.encode_ordinary


def work(request: dict[str, Any]) -> dict[str, Any]:
    """One measurement: seconds to import, to load and to encode a first text; ids; peak memory."""
    tool, path = request["tool"], Path(request["path"])
    start = time.perf_counter()
    require("tokenizers" if tool == "huggingface" else tool)
    if tool == "tiktoken":  # what the patterns come from is no part of loading
        require("tiktoken.load")
        expression_of(PATTERN_OF_FILE[path.stem])
    imported = time.perf_counter()
    encode = load(tool, path)
    loaded = time.perf_counter()
    ids = list(encode(TEXT))
    return {
        "import": imported - start,
        "load": loaded - imported,
        "first text": time.perf_counter() - loaded,
        "memory": harness.peak_memory_bytes(),
        "ids": ids,
    }


def measure(vocabulary: str, ranks: Path, written: Path, runs: int) -> list[dict[str, Any]]:
    """Results of all tools for one vocabulary; runs of different tools take turns."""
    paths = {"ranks": ranks, "json": written}
    outcomes: dict[tuple[str, str], list[Outcome]] = {each: [] for each in TOOLS}
    for _ in range(runs):
        for tool, kind in TOOLS:
            request = {"tool": tool, "path": str(paths[kind])}
            outcomes[tool, kind].append(harness.measure_in_process(__file__, request, threads=2))
    results: list[dict[str, Any]] = []
    expected: list[int] | None = None
    for (tool, kind), measured in outcomes.items():
        result: dict[str, Any] = {"vocabulary": vocabulary, "file": kind, "tool": tool}
        reason = next((outcome.reason for outcome in measured if outcome.reason), None)
        if reason is None:
            ids = measured[0].values["ids"]
            expected = expected or ids
            reason = None if ids == expected else "gives other ids"
        if reason is None:
            for key in ("import", "load", "first text", "memory"):
                result[key] = harness.median_of(measured, key)
            result["spread"] = harness.spread_of(measured, "load")
        results.append(result | {"reason": reason})
    return results


def table(results: list[dict[str, Any]]) -> str:
    """Milliseconds, and how many times as long as bytemill loading and a first text take from the same file."""
    total = {
        (result["vocabulary"], result["file"], result["tool"]): result["load"] + result["first text"]
        for result in results
        if not result["reason"]
    }
    rows: list[list[str]] = []
    for result in results:
        vocabulary, kind, tool = result["vocabulary"], result["file"], result["tool"]
        row = [vocabulary, kind, tool]
        if result["reason"]:
            rows.append([*row, *["–"] * 5, result["reason"]])
            continue
        row += [f"{1000 * result[key]:.1f}" for key in ("import", "load", "first text")]
        ours = total.get((vocabulary, kind, "bytemill"))
        row.append(f"{total[vocabulary, kind, tool] / ours:.2f}" if ours else "–")
        rows.append([*row, f"{result['memory'] / 1e6:.0f}", f"load ± {100 * result['spread'] / 2:.0f} %"])
    header = [
        "vocabulary",
        "file",
        "tool",
        "import ms",
        "load ms",
        "first text ms",
        "× bytemill",
        "peak MB",
        "",
    ]
    return harness.format_table(header, rows)


def main() -> int:
    if sys.argv[1:2] == ["worker"]:
        return harness.worker_main(work, sys.argv[2])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--vocab", nargs="+", default=list(VOCABULARIES), choices=VOCABULARIES, metavar="NAME"
    )
    parser.add_argument("--runs", type=int, default=7, help="processes for each line (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON in place of a table")
    options = parser.parse_args()
    data = harness.shared_data()
    if data is None:
        print("no vocabularies: set BYTEMILL_TEST_DATA to a folder with .tiktoken files", file=sys.stderr)
        return 1
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.vocab:
            ranks, written = data / f"{name}.tiktoken", Path(folder) / f"{name}.json"
            # The same special tokens as in the tools beside it: none.
            require("bytemill").Tokenizer.load(ranks, pattern=PATTERN_OF_FILE[name], special_tokens={}).save(
                written
            )
            results += measure(name, ranks, written, options.runs)
    print(
        json.dumps({"machine": harness.machine(), "results": results}, indent=1)
        if options.json
        else table(results)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
