"""Memory that tokenizers keep between calls: many are loaded, each is used once, and all are held.

    python benchmarks/many_tokenizers.py [--vocab cl100k,trained-10000] [--tokenizers 100] [--megabytes 0.001,1,8]

Every row is a process of its own. "loaded" is the resident memory that the loaded tokenizers take before they are used,
"used" what all take after each has encoded the text once to an array, and "each" that divided by their number. Growth
beyond --limit ends a row early. "held" is how many there are by then.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import harness
from encode import standing_texts
from vocabularies import Vocabulary, vocabulary_of


def resident_bytes() -> int:
    """Resident memory of this process."""
    import psutil

    return psutil.Process().memory_info().rss


def work(request: dict[str, Any]) -> dict[str, Any]:
    """One row: loads the tokenizers, uses each once, and gives bytes and number."""
    load = harness.require("bytemill").Tokenizer.load
    text = harness.read_text(request["text"], request["n_bytes"])
    vocabulary = Vocabulary(Path(request["vocab"]), request["pattern"])
    # What the process takes once, whatever the number of tokenizers, is there before memory is counted.
    load(vocabulary.path, pattern=vocabulary.pattern, special_tokens={}).encode_to_numpy(text, num_threads=1)
    before = resident_bytes()
    held: list[Any] = []
    for _ in range(request["n_tokenizers"]):
        held.append(load(vocabulary.path, pattern=vocabulary.pattern, special_tokens={}))
        if resident_bytes() - before > request["limit"]:
            break
    loaded = resident_bytes() - before
    n_used = 0
    for tokenizer in held:
        tokenizer.encode_to_numpy(text, num_threads=request["threads"])
        n_used += 1
        if resident_bytes() - before > request["limit"]:
            break
    return {"n_loaded": len(held), "n_used": n_used, "loaded": loaded, "used": resident_bytes() - before}


def main() -> int:
    if sys.argv[1:2] == ["worker"]:
        return harness.worker_main(work, sys.argv[2])
    parser = argparse.ArgumentParser(
        description="Measure the memory that many tokenizers keep between calls."
    )
    parser.add_argument("--text", type=Path, help="text (the first of corpus.py)")
    parser.add_argument("--vocab", default="cl100k,trained-10000", help="as in encode.py (%(default)s)")
    parser.add_argument("--tokenizers", type=int, default=100, help="number of tokenizers (%(default)s)")
    parser.add_argument(
        "--megabytes", default="0.001,1,8", help="sizes of the text, 10^6 bytes each (%(default)s)"
    )
    parser.add_argument("--threads", default="1,2", help="numbers of threads (%(default)s)")
    parser.add_argument("--limit", type=float, default=6000, help="MB at which a row ends (%(default)s)")
    parser.add_argument("--json", type=Path, help="file for the results (a new one in benchmarks/results)")
    arguments = parser.parse_args()
    texts: list[Path] = [arguments.text] if arguments.text else standing_texts()[:1]
    if not texts:
        parser.error("there is no text: run benchmarks/corpus.py first, or give --text")
    results: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    for name in arguments.vocab.split(","):
        vocabulary = vocabulary_of(name, None, texts)
        for megabytes in map(float, arguments.megabytes.split(",")):
            for threads in map(int, arguments.threads.split(",")):
                request = {
                    "vocab": str(vocabulary.path),
                    "pattern": vocabulary.pattern,
                    "text": str(texts[0]),
                    "n_bytes": int(megabytes * 1e6),
                    "n_tokenizers": arguments.tokenizers,
                    "threads": threads,
                    "limit": arguments.limit * 1e6,
                }
                outcome = harness.measure_in_process(__file__, request, threads=threads)
                what = [name, f"{megabytes:g}", str(threads)]
                rows.append([*what, *_cells(outcome)])
                named = {"vocabulary": name, "megabytes": megabytes, "threads": threads}
                results.append(named | outcome.values | {"reason": outcome.reason})
    header = ["vocabulary", "text MB", "threads", "held", "loaded MB", "used MB", "each MB"]
    print(harness.format_table(header, rows))
    print(f"\nSaved to {harness.save(arguments.json, 'many_tokenizers', {'rows': results})}")
    return 0


def _cells(outcome: harness.Outcome) -> list[str]:
    """Number of tokenizers and their memory; the reason where there is none."""
    if outcome.reason:
        return ["–", "–", "–", outcome.reason]
    values = outcome.values
    # Where the limit was met, only some of the tokenizers have been used: what each took while it was used counts.
    each = values["loaded"] / values["n_loaded"] + (values["used"] - values["loaded"]) / values["n_used"]
    return [
        str(values["n_used"]),
        *(f"{values[key] / 1e6:,.0f}" for key in ("loaded", "used")),
        f"{each / 1e6:.1f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
