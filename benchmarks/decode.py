"""Times decoding side by side with the peers, after checking that all give the text back.

    uv run --group bench --with toktok-rs python benchmarks/decode.py [--text FILE]... [--tools bytemill,tiktoken]

One thread. The ids are bytemill's, as an array of uint32 and as a list of ints; each tool gives what it gives, bytes or
a str. A process for each figure decodes five times, after a few ids for the tools that prepare themselves at the first
call; "first" is the first time, "best" the quickest. MB are 10^6 bytes of the text that comes out; figures are medians.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness
from encode import REFERENCE, standing_texts
from encoders import ENCODERS
from harness import Outcome, Stopwatch, UnavailableError
from vocabularies import PATTERN_OF_FILE, Vocabulary, vocabulary_of

FORMS = ("array", "list")
DEFAULT_TOOLS = ("bytemill", "gigatoken", "toktok", "tiktoken", "huggingface", "quicktok", "splintr")
DEFAULT_MEGABYTES = 20.0
PASSES = 5


def work(request: dict[str, Any]) -> dict[str, Any]:
    """One process: makes the ids, then decodes them a few times."""
    import numpy as np

    vocabulary = Vocabulary(Path(request["vocab"]), request["pattern"])
    text = harness.read_text(request["text"], request["n_bytes"])
    encoder = ENCODERS[request["tool"]](vocabulary, 1)
    decode = encoder.decode_array if request["form"] == "array" else encoder.decode
    if decode is None:
        raise UnavailableError("not offered")
    ours = ENCODERS["bytemill"](vocabulary, 1).to_array
    if ours is None:
        raise UnavailableError("there are no ids")
    ids: Any = ours(text).astype(np.uint32)
    if request["form"] == "list":
        ids = ids.tolist()
    decode(ids[:3])
    data = text.encode("utf-8")
    seconds: list[float] = []
    for _ in range(PASSES):
        with Stopwatch() as watch:
            decoded = decode(ids)
        seconds.append(watch.wall)
        if not same_text(decoded, text, data):
            raise UnavailableError("gives another text")
        del decoded
    return {
        "version": encoder.version,
        "n_bytes": len(data),
        "n_tokens": len(ids),
        "first_seconds": seconds[0],
        "best_seconds": min(seconds),
    }


def same_text(decoded: Any, text: str, data: bytes) -> bool:
    """Whether what a tool gave, a str or something with bytes, is the text."""
    return decoded == text if isinstance(decoded, str) else bytes(decoded) == data


def measure(arguments: argparse.Namespace, vocabulary: Vocabulary, text: Path) -> list[dict[str, Any]]:
    """A table for each form of the ids."""
    rows: list[dict[str, Any]] = []
    n_bytes = int(arguments.megabytes * 1e6) or None
    for form in FORMS:
        request = {"vocab": str(vocabulary.path), "pattern": vocabulary.pattern, "text": str(text)}
        request |= {"form": form, "n_bytes": n_bytes}
        runs: dict[str, list[Outcome]] = {tool: [] for tool in arguments.tools}
        reasons: dict[str, str] = {}
        for _ in range(arguments.repeat):
            for tool in arguments.tools:
                if tool not in reasons:
                    outcome = harness.measure_in_process(__file__, request | {"tool": tool}, threads=1)
                    if outcome.reason is not None:
                        reasons[tool] = outcome.reason
                    else:
                        runs[tool].append(outcome)
        new = [row_of(text.name, form, tool, runs[tool], reasons.get(tool)) for tool in arguments.tools]
        print_table(text.name, form, new)
        rows += new
    return rows


def row_of(text: str, form: str, tool: str, runs: Sequence[Outcome], reason: str | None) -> dict[str, Any]:
    """The medians of one tool."""
    row: dict[str, Any] = {"text": text, "form": form, "tool": tool, "reason": reason}
    if reason is not None:
        return row
    megabytes = runs[0].values["n_bytes"] / 1e6
    return row | {
        "version": runs[0].values["version"],
        "megabytes": megabytes,
        "first_mb_per_s": megabytes / harness.median_of(runs, "first_seconds"),
        "best_mb_per_s": megabytes / harness.median_of(runs, "best_seconds"),
        "spread": harness.spread_of(runs, "best_seconds"),
        "runs": [outcome.values for outcome in runs],
    }


def print_table(text: str, form: str, rows: Sequence[dict[str, Any]]) -> None:
    """The rows, the quickest first, beside bytemill's and tiktoken's."""
    rate = {row["tool"]: row["best_mb_per_s"] for row in rows if row["reason"] is None}
    cells: list[list[str]] = []
    for row in sorted(rows, key=lambda row: -row.get("best_mb_per_s", 0)):
        if row["reason"] is not None:
            cells.append([row["tool"], *[""] * 6, row["reason"]])
            continue
        ratios = [
            f"{row['best_mb_per_s'] / rate[other]:.2f}" if other in rate else ""
            for other in ("bytemill", REFERENCE)
        ]
        rates = [f"{row[key]:.0f}" for key in ("first_mb_per_s", "best_mb_per_s")]
        cells.append([row["tool"], row["version"], *rates, *ratios, f"{row['spread']:.0%}", ""])
    header = ["tool", "version", "first MB/s", "best MB/s", "× ours", f"× {REFERENCE}", "±", "note"]
    print(f"\n{text}, from {'an' if form == 'array' else 'a'} {form}\n")
    print(harness.format_table(header, cells), flush=True)


def main() -> int:
    if sys.argv[1:2] == ["worker"]:
        return harness.worker_main(work, sys.argv[2])
    parser = argparse.ArgumentParser(description="Time decoding side by side with the peers.")
    parser.add_argument("--text", type=Path, action="append", help="text, repeatable (those of corpus.py)")
    parser.add_argument(
        "--megabytes", type=float, default=DEFAULT_MEGABYTES, help="first 10^6 bytes used, 0 for all (20)"
    )
    parser.add_argument("--vocab", help="rank file, or gpt2, cl100k, o200k, trained-N (cl100k)")
    parser.add_argument("--pattern", choices=sorted(set(PATTERN_OF_FILE.values())), help="of a rank file")
    parser.add_argument("--tools", type=lambda value: value.split(","), default=list(DEFAULT_TOOLS))
    parser.add_argument("--repeat", type=int, default=5, help="processes a figure (5)")
    parser.add_argument("--json", type=Path, help="file for the results (a new one in benchmarks/results)")
    arguments = parser.parse_args()
    for tool in arguments.tools:
        if tool not in ENCODERS:
            parser.error(f"{tool!r} is none of {', '.join(ENCODERS)}")
    texts: list[Path] = arguments.text or standing_texts()
    if not texts:
        parser.error("there is no text: run benchmarks/corpus.py first, or give --text")
    vocabulary = vocabulary_of(arguments.vocab, arguments.pattern, texts)
    print(f"vocabulary {vocabulary.path.name}; {harness.machine()}")
    rows = [row for text in texts for row in measure(arguments, vocabulary, text)]
    print(f"\nSaved to {harness.save(arguments.json, 'decode', {'rows': rows})}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
