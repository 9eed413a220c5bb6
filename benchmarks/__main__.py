"""`python -m benchmarks CASE [OPTIONS]`: run a case; without one, list them.

A case is a function of the module named here, called as the case with underscores, and declared with `harness.case`.
"""

import sys
from importlib import import_module
from pathlib import Path

from benchmarks import harness

CASES = {
    "corpus": ("texts.corpus", "build the texts (English, code, multilingual) from Debian packages"),
    "encode": ("encode", "encoding beside other tools: arrays, lists, batches, files, short strings"),
    "decode": ("encode", "decoding from arrays and lists beside other tools"),
    "scaling": ("threads", "two threads against one, and against what the machine's second core allows"),
    "turns": ("threads", "two builds, or two numbers of threads, closely"),
    "hostile": ("limits", "worst cases: time, growth when the text doubles, memory"),
    "instructions": ("limits", "instructions per byte of each part of the core"),
    "exactness": (
        "exactness",
        "pre-tokens against regex and ids against tiktoken, on texts or random strings",
    ),
    "fingerprints": ("exactness", "hashes of all that the core computes, to compare two builds"),
    "train": ("train", "training tokenizers beside other tools"),
    "memory": ("train", "training with a memory limit, and without"),
    "reference-steps": ("train", "each step of the optimization of training"),
    "load": ("load", "from a file to the ids of a first text, beside other tools"),
    "many-tokenizers": ("load", "memory kept between calls by many tokenizers"),
    "models": ("load", "published models' tokenizers beside other tools"),
    "families": ("load", "published pre-tokenizers around one vocabulary"),
    "compare": ("load", "comparing tokenizers beside encoding with them"),
    "inputs": ("data", "reading a corpus in each format"),
    "shards": ("data", "from files to shards, relative to encoding in memory"),
    "cluster": ("cluster", "counting and encoding by several processes, beside one"),
    "object-store": ("data", "shards in a store with latency, beside the disk"),
    "scale": ("cluster", "a simulation of 15 and 100 TB on up to 1,000 nodes"),
    "lm": ("lm", "training beside the same model of torch.nn, from the same weights"),
    "lm-train": ("lm", "training from the shell and in a bare loop, beside a model of torch.nn"),
    "lm-load": ("lm", "training and generation beside busy processes"),
    "lm-parallel": ("lm", "a step of each strategy of data parallelism beside torch's DDP"),
    "lm-generate": ("lm_generate", "generation on the CPU beside the limit by memory bandwidth"),
    "gpu": ("gpu", "on a GPU: training, single parts, generation"),
    "studio": ("studio", "the studio in headless Chromium, beside its bounds"),
}
"""Case -> its module, and what it measures."""

SCRIPTS = {"gpu", "lm_generate"}
"""Modules with a command line of their own, which import each other by their file names."""


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
    if module in SCRIPTS:
        sys.path.insert(0, str(Path(__file__).parent))
        sys.argv[1:] = rest
        import_module(module).main()
        return 0
    function = getattr(import_module(f"benchmarks.{module}"), name.replace("-", "_"))
    return harness.run_case(name, function, rest)


if __name__ == "__main__":
    sys.exit(main())
