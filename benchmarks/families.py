"""The table "opens / exact / speed" of docs/guides/formats.md: published pre-tokenizers around one vocabulary.

    python benchmarks/families.py qwen3.tokenizer.json --text a.txt

Each shape of tests/support/published_shapes.py gets the vocabulary and merges of the file named first, so that only the
pre-tokenizer and the normalizer differ. Ids are compared with Hugging Face's on the first megabyte. Rates are those of
the whole text, new and then again, on one thread; medians of three processes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import measure_in_process

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.published_shapes import SHAPES, in_shape

COMPARED = 1_000_000


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Load, compare ids, and encode twice."""
    import tokenizers

    import bytemill
    from bytemill._core import matcher

    text = Path(request["text"]).read_text(encoding="utf-8")
    ours = bytemill.Tokenizer.load(request["model"])
    theirs = tokenizers.Tokenizer.from_file(request["model"])
    part = text[:COMPARED]
    is_equal = ours.encode(part) == theirs.encode(part, add_special_tokens=False).ids
    ours.encode_to_numpy("a")  # imports numpy
    fresh = bytemill.Tokenizer.load(request["model"])
    rates = []
    for _ in range(2):
        started = time.perf_counter()
        fresh.encode_to_numpy(text, num_threads=1)
        rates.append(len(text.encode()) / (time.perf_counter() - started) / 1e6)
    return {"equal": is_equal, "matcher": matcher(ours.pattern), "new": rates[0], "again": rates[1]}


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        print(json.dumps(work(json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("vocabulary", type=Path, help="tokenizer.json of a byte-level model")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    trained = json.loads(options.vocabulary.read_text(encoding="utf-8"))
    print("| shape | matched by | ids | new, MB/s | again, MB/s |\n|---|---|---|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in (name for name in SHAPES if name != "single words"):  # a flag of tokens, not a model
            path = Path(folder) / "tokenizer.json"
            path.write_text(in_shape(trained, name), encoding="utf-8")
            request = {"model": str(path), "text": str(options.text)}
            outcomes = [measure_in_process(__file__, request, threads=1) for _ in range(options.rounds)]
            if reason := next((each.reason for each in outcomes if each.reason is not None), None):
                print(f"| {name} | {reason} | | | |", flush=True)
                continue
            new, again = (
                statistics.median(each.values[key] for each in outcomes) for key in ("new", "again")
            )
            is_equal = all(each.values["equal"] for each in outcomes)
            matched = outcomes[0].values["matcher"]
            print(
                f"| {name} | {matched} | {'equal' if is_equal else 'DIFFERENT'} | {new:.0f} | {again:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
