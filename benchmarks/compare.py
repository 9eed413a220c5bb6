"""Time and memory of comparing tokenizers, beside encoding the same text with them.

    python benchmarks/compare.py gpt2 cl100k_base o200k_base own.json --text english=a.txt code=b.txt
    python benchmarks/compare.py gpt2 own.json --text big.txt --ngram-bytes 100MB

Each row is a process of its own, so that memory is the peak of that work beyond importing the package. Encoding reads
the files and encodes documents and passages with each tokenizer, as the comparison does, and drops the ids. Rows take
turns; time is the median over the rounds, the ratio that of the same round.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import bytemill
from bytemill.comparison import compare
from bytemill.comparison.counting import encode_units, read_units, unit_encoder
from bytemill.corpus import parse_bytes
from bytemill.tokenizer import open_tokenizer

ROWS = ("encoding", "comparing", "with n-grams")


def groups(options: argparse.Namespace) -> dict[str, bytemill.Corpus]:
    named = [entry.partition("=") for entry in options.text]
    return {
        name if is_named else f"text {number}": bytemill.Corpus(path if is_named else name)
        for number, (name, is_named, path) in enumerate(named, 1)
    }


def run_alone(options: argparse.Namespace) -> None:
    """Do the work of a row; print a JSON object with seconds, memory and bytes."""
    tokenizers = {name: open_tokenizer(name) for name in options.tokenizers}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n_bytes = 0
    started = time.perf_counter()
    if options.row == "encoding":
        encoders = [unit_encoder(tokenizer, None) for tokenizer in tokenizers.values()]
        for corpus in groups(options).values():
            for data, ends, _ in read_units(corpus):
                n_bytes += len(data)
                for encoder in encoders:
                    encode_units(encoder, data, ends)
    else:
        ngram_bytes = parse_bytes(options.ngram_bytes) if options.row == "with n-grams" else 0
        result = compare(tokenizers, groups(options), ngram_bytes=ngram_bytes)
        n_bytes = sum(about["n_bytes"] for about in result.groups.values())
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"seconds": seconds, "memory": peak * 1024, "n_bytes": n_bytes}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--text", nargs="+", required=True, help="files or globs; NAME=PATH names the group")
    parser.add_argument("--ngram-bytes", default="50MB", help="of each group, for the last row")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        run_alone(options)
        return
    found: dict[str, list[dict[str, float]]] = {row: [] for row in ROWS}
    for _ in range(options.rounds):
        for row in ROWS:
            words = [sys.executable, __file__, *sys.argv[1:], "--row", row]
            done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
            found[row].append(json.loads(done.stdout))
    n_bytes = found["encoding"][0]["n_bytes"]
    print(f"{n_bytes / 1e6:,.0f} MB, {len(options.tokenizers)} tokenizers")
    print(f"{'':14}{'time':>10}{'ratio':>8}{'memory':>12}")
    for row, own in found.items():
        seconds = statistics.median(each["seconds"] for each in own)
        ratio = statistics.median(
            a["seconds"] / b["seconds"] for a, b in zip(own, found["encoding"], strict=True)
        )
        memory = statistics.median(each["memory"] for each in own)
        print(f"{row:14}{seconds:8.2f} s{ratio:8.2f}{memory / 1e6:9,.0f} MB")
    ngrams = statistics.median(
        a["seconds"] - b["seconds"] for a, b in zip(found["with n-grams"], found["comparing"], strict=True)
    )
    limit = min(n_bytes, parse_bytes(options.ngram_bytes) * len(options.text))
    per = ngrams / len(options.tokenizers) / limit * 1e8
    print(f"n-gram figures: {per:.1f} s for 100 MB and tokenizer")


if __name__ == "__main__":
    main()
