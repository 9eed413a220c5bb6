"""`python -m benchmarks CASE [OPTIONS]`: run a case; without one, list them.

A case is a function of the module named here, called as the case with underscores, and declared with `harness.case`.
"""

import sys
from importlib import import_module
from pathlib import Path

from benchmarks import harness

CASES = {
    "corpus": ("texts.corpus", "build the texts (English, code, multilingual) from Debian packages"),
    "encode": ("encode", "encoding and decoding beside other tools: arrays, lists, batches, files"),
    "turns": ("turns", "two builds, or two numbers of threads, closely"),
    "hostile": ("limits", "worst cases: time, growth when the text doubles, memory"),
    "instructions": ("limits", "instructions per byte of each part of the core"),
    "exactness": ("exactness", "pre-tokens against regex and ids against tiktoken"),
    "fingerprints": ("exactness", "hashes of all that the core computes, to compare two builds"),
    "train": ("train", "training tokenizers beside other tools"),
    "load": ("load", "from a file to the ids of a first text, beside other tools"),
    "models": ("load", "published models' tokenizers beside other tools"),
    "shards": ("data", "from files of each format to shards, relative to encoding in memory"),
    "near": ("curation", "near duplicates beside other tools: rates and memory"),
    "near-pairs": ("curation", "what is found of planted near duplicates"),
    "extract": ("recipes", "text of web pages, beside resiliparse alone"),
    "curate": ("recipes", "a recipe of masks and rules beside datatrove"),
    "object-store": ("data", "shards in a store with latency, beside the disk"),
    "cluster": ("cluster", "counting and encoding by several processes, beside one"),
    "gpu": ("gpu", "language models: training, single parts, generation"),
    "lm-eval": ("evaluation", "scores of benchmarks beside lm-evaluation-harness, item by item"),
    "lm-parallel": ("parallel", "a step of each strategy of data parallelism beside torch's DDP"),
}
"""Case -> its module, and what it measures."""


def main() -> int:
    words = sys.argv[1:]
    if words[:1] == ["worker"]:
        return harness.worker_main(words[1], words[2])
    if not words or words[0] in {"list", "-h", "--help"}:
        print(f"{__doc__.splitlines()[0]}\n" if __doc__ else "")
        print("\n".join(f"  {name:16}  {what}" for name, (_, what) in CASES.items()))
        print("\n`python -m benchmarks CASE --help` explains the figures and the options of a case.")
        return 0
    name, *rest = words
    if name not in CASES:
        print(f"error: no case is called {name!r}\nhint: `python -m benchmarks` lists them", file=sys.stderr)
        return 2
    module = CASES[name][0]
    if module == "gpu":  # a program by itself, which imports others by their file names
        sys.path.insert(0, str(Path(__file__).parent))
        import_module(module).main(rest)
        return 0
    function = getattr(import_module(f"benchmarks.{module}"), name.replace("-", "_"))
    return harness.run_case(name, function, rest)


if __name__ == "__main__":
    sys.exit(main())
