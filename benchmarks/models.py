"""Published models' tokenizers: loading a tokenizer.json and encoding new text, beside gigatoken and Hugging Face.

    python benchmarks/models.py qwen3.tokenizer.json gptoss.tokenizer.json --text english=a.txt multilingual=b.txt
    python benchmarks/models.py llama2.tokenizer.json --text english=a.txt --markdown # for docs/reference/benchmarks.md

Every measurement is a process of its own on one thread; tools take turns, and the table has medians. Loading lasts
from the start of reading the file, which is in the page cache, to the ids of the first kilobyte; "again" is the same
for bytemill with the vocabulary in its cache, which the first load has filled. Hugging Face gets the first part of a
text only. A tool whose ids differ from Hugging Face's is marked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from harness import UnavailableError, measure_in_process

TOOLS = ("bytemill", "gigatoken", "huggingface")
SLOW_BYTES = 2_000_000


def encoder(tool: str, path: str) -> Any:
    """Load a tokenizer; return a function from text to ids."""
    if tool == "bytemill":
        import bytemill

        own = bytemill.Tokenizer.load(path)
        return lambda text: own.encode_to_numpy(text, num_threads=1)
    try:
        module: Any = import_module("tokenizers" if tool == "huggingface" else tool)
    except ImportError as error:
        raise UnavailableError("not installed") from error
    if tool == "gigatoken":
        return module.Tokenizer.from_json(Path(path).read_text(encoding="utf-8")).encode
    theirs = module.Tokenizer.from_file(path)
    return lambda text: theirs.encode(text, add_special_tokens=False).ids


def loaded(request: dict[str, Any], text: str) -> tuple[Any, float]:
    """A tool that has encoded the first kilobyte, and the seconds that took."""
    started = time.perf_counter()
    encode = encoder(request["tool"], request["model"])
    encode(text[:1000])
    return encode, time.perf_counter() - started


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Load, encode, and report times and a hash of the ids of the text's first part."""
    text = Path(request["text"]).read_text(encoding="utf-8")
    if request["tool"] == "huggingface":
        text = text[:SLOW_BYTES]
    with tempfile.TemporaryDirectory() as cache:
        os.environ["BYTEMILL_CACHE"] = cache
        encode, load = loaded(request, text)
        started = time.perf_counter()
        encode(text)
        seconds = time.perf_counter() - started
        again = loaded(request, text)[1] if request["tool"] == "bytemill" else load
    import numpy as np

    ids = np.asarray(encode(text[:SLOW_BYTES]), dtype=np.uint32)
    return {
        "load": load,
        "again": again,
        "rate": len(text.encode()) / seconds / 1e6,
        "sha256": hashlib.sha256(ids.tobytes()).hexdigest(),
    }


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        print(json.dumps(work(json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="tokenizer.json files")
    parser.add_argument("--text", nargs="+", required=True, metavar="NAME=FILE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--markdown", action="store_true", help="print one row per model, for the documentation"
    )
    options = parser.parse_args()
    texts = [(name, path) for name, _, path in (each.partition("=") for each in options.text)]
    print_row = print_markdown if options.markdown else print_lines
    if options.markdown:
        names = " | ".join(f"{name}, MB/s" for name, _ in texts)
        print(f"| model | load, s | again, s | {names} | ids |\n|---|---|---|{'---|' * len(texts)}---|")
    else:
        print(f"{'model':24} {'text':14} {'tool':12} {'load s':>8} {'again':>8} {'MB/s':>8}  ids")
    for model in options.models:
        print_row(
            Path(model).name.split(".")[0],
            {name: measured(model, path, options.rounds) for name, path in texts},
        )


def measured(model: str, text: str, rounds: int) -> dict[str, dict[str, Any] | str]:
    """Return the medians of each tool, or why it has none."""
    found: dict[str, list[dict[str, Any]]] = {tool: [] for tool in TOOLS}
    reasons: dict[str, str] = {}
    for _ in range(rounds):
        for tool in TOOLS:
            outcome = measure_in_process(__file__, {"tool": tool, "model": model, "text": text}, threads=1)
            if outcome.reason is None:
                found[tool].append(outcome.values)
            else:
                reasons[tool] = outcome.reason
    expected = found["huggingface"][0]["sha256"] if found["huggingface"] else None
    return {
        tool: reasons[tool]
        if not values
        else {
            "load": statistics.median(each["load"] for each in values),
            "again": statistics.median(each["again"] for each in values),
            "rate": statistics.median(each["rate"] for each in values),
            "same": values[0]["sha256"] == expected,
        }
        for tool, values in found.items()
    }


def print_lines(model: str, results: dict[str, dict[str, dict[str, Any] | str]]) -> None:
    for text, by_tool in results.items():
        for tool, result in by_tool.items():
            row = f"{model:24} {text:14} {tool:12}"
            if isinstance(result, str):
                print(f"{row} {result}")
            else:
                same = "equal" if result["same"] else "DIFFERENT"
                print(f"{row} {result['load']:8.3f} {result['again']:8.3f} {result['rate']:8.1f}  {same}")


def print_markdown(model: str, results: dict[str, dict[str, dict[str, Any] | str]]) -> None:
    """Print a row with the numbers of bytemill and, after a slash, of gigatoken."""

    def both(results: list[dict[str, dict[str, Any] | str]], key: str, form: str) -> str:
        numbers = [
            [result[key] for by_tool in results if not isinstance(result := by_tool[tool], str)]
            for tool in ("bytemill", "gigatoken")
        ]
        return " / ".join(format(statistics.median(each), form) if each else "–" for each in numbers)

    own = [by_tool["bytemill"] for by_tool in results.values()]
    is_equal = all(not isinstance(result, str) and result["same"] for result in own)
    rates = " | ".join(both([by_tool], "rate", ".0f") for by_tool in results.values())
    load = both(list(results.values()), "load", ".2f")
    again = statistics.median(result["again"] for result in own if not isinstance(result, str))
    print(
        f"| {model} | {load} | {again:.3f} | {rates} | {'equal' if is_equal else 'DIFFERENT'} |", flush=True
    )


if __name__ == "__main__":
    main()
