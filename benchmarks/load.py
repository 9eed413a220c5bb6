"""Whole tokenizers: the cases `load` and `models`."""

import argparse
import hashlib
import itertools
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Outcome, Stopwatch, UsageError, option, require
from benchmarks.peers.encoders import PATTERN_OF_FILE, expression_of, fetch_own, require_own, version_of

LOADED_TEXT = "Loading takes no time: l'été 2024, 日本語, and\n\n\tsome_code(x) += 17;"
LOADED = ("cl100k_base", "o200k_base", "r50k_base")
LOADERS = (("bytemill", "ranks"), ("tiktoken", "ranks"), ("bytemill", "json"), ("huggingface", "json"))
MODEL_TOOLS = ("bytemill", "gigatoken", "huggingface", "huggingface-1")
SLOW_BYTES = 2_000_000


@harness.case(
    harness.several("--vocab", LOADED),
    option("--repeat", type=int, default=7, help="processes for each line (%(default)s)"),
    harness.JSON,
)
def load(options: argparse.Namespace) -> None:
    """Time how long it takes until a tokenizer is there: bytemill, tiktoken and Hugging Face's library.

        python -m benchmarks load [--vocab cl100k_base,o200k_base] [--repeat 9]

    Each run is a process of its own. It imports the tool, loads the tokenizer from a file on disk that has been
    read before, and encodes a short text; the times of the three, and the peak memory after them, are reported as
    medians. A tool that puts work off until a first text comes pays for it in "first". Before any time counts, the
    ids of that text must be the same for every tool. The tokenizer.json is the one that bytemill writes from the
    rank file.
    """
    data = harness.shared_data()
    if data is None:
        raise UsageError("there are no vocabularies: set BYTEMILL_TEST_DATA to a folder with .tiktoken files")
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.vocab:
            ranks, written = data / f"{name}.tiktoken", Path(folder) / f"{name}.json"
            # The same special tokens as in the tools beside it: none.
            own = require("bytemill").Tokenizer.load(ranks, pattern=PATTERN_OF_FILE[name], special_tokens={})
            own.save(written)
            rows = _measure_loading({"ranks": ranks, "json": written}, options.repeat)
            columns = [(f"{key} ms", key, ".1f") for key in ("import", "load", "first")]
            columns += [
                ("ms", "total", ".1f", "bytemill, ranks"),
                ("peak MB", "memory", ".0f"),
                ("±", "spread", ".0%"),
            ]
            print(f"\n{name}\n\n{harness.format_tools(rows, columns)}", flush=True)
            results += [row | {"vocabulary": name} for row in rows]
    print(f"\nSaved to {harness.save(options.json, 'load', {'rows': results})}")


def _measure_loading(paths: dict[str, Path], repeat: int) -> list[dict[str, Any]]:
    """A row for each tool and kind of file."""

    def measured(loader: tuple[str, str]) -> Outcome:
        request = {"tool": loader[0], "path": str(paths[loader[1]])}
        return harness.measure_in_process(load_once, request, threads=2)

    runs, reasons = harness.in_turns(LOADERS, repeat, measured)
    expected = next((outcomes[0].values["ids"] for outcomes in runs.values() if outcomes), None)
    rows: list[dict[str, Any]] = []
    for loader, outcomes in runs.items():
        row: dict[str, Any] = {"tool": ", ".join(loader), "reason": reasons.get(loader)}
        if outcomes:
            row |= {
                key: harness.median_of(outcomes, key)
                for key in ("import", "load", "first", "total", "memory")
            }
            row |= {"version": outcomes[0].values["version"], "spread": harness.spread_of(outcomes, "load")}
            row["note"] = "" if outcomes[0].values["ids"] == expected else "OTHER IDS"
        rows.append(row)
    return rows


def _loaded(tool: str, path: Path) -> Any:
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


def load_once(request: dict[str, Any]) -> dict[str, Any]:
    """One measurement: milliseconds to import, to load and to encode a first text; ids; peak memory in MB."""
    harness.preload()
    tool, path = request["tool"], Path(request["path"])
    package = "tokenizers" if tool == "huggingface" else tool
    with Stopwatch() as importing:
        require(package)
        if tool == "tiktoken":  # what the patterns come from is no part of loading
            require("tiktoken.load")
            expression_of(PATTERN_OF_FILE[path.stem])
    with Stopwatch() as loading:
        encode = _loaded(tool, path)
    with Stopwatch() as first:
        ids = list(encode(LOADED_TEXT))
    return {
        "import": 1e3 * importing.wall,
        "load": 1e3 * loading.wall,
        "first": 1e3 * first.wall,
        "total": 1e3 * (loading.wall + first.wall),
        "memory": harness.peak_memory_bytes() / 1e6,
        "version": version_of(package),
        "ids": ids,
    }


@harness.case(
    option("models", nargs="*", help="tokenizer.json files"),
    option(
        "--shapes",
        type=Path,
        metavar="FILE",
        help="tokenizer.json whose vocabulary gets published pre-tokenizers",
    ),
    option("--text", nargs="+", required=True, metavar="NAME=FILE"),
    harness.several("--tools", MODEL_TOOLS),
    harness.ROUNDS,
    harness.MARKDOWN,
)
def models(options: argparse.Namespace) -> None:
    """Load published models' tokenizers and encode text with them, beside gigatoken and Hugging Face.

        python -m benchmarks models qwen3.tokenizer.json gptoss.tokenizer.json --text english=a.txt multilingual=b.txt
        python -m benchmarks models --shapes qwen3.tokenizer.json --tools bytemill,huggingface --text english=a.txt

    Every measurement is a process of its own on one thread; tools take turns, and the table has medians. Loading
    lasts from the start of reading the file, which is in the page cache, to the ids of the first kilobyte; "cached"
    is the second load, which finds bytemill's vocabulary in the cache that the first has filled. "new" is the first
    pass over the text and "again" the second. Hugging Face gets the first part of a text only. Ids of that part are
    compared with Hugging Face's.

    With --shapes, each pre-tokenizer and normalizer of tests/support/published_shapes.py gets the vocabulary and merges
    of the file, so that only they differ.
    """
    texts = [(name, path) for name, _, path in (each.partition("=") for each in options.text)]
    fetch_own(options.tools)
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        files = options.models + (_shapes(options.shapes, Path(folder)) if options.shapes else [])
        for model, (name, path) in itertools.product(files, texts):
            measured = _measure_model(str(model), path, options.tools, options.rounds)
            rows += [[Path(model).name.split(".")[0], name, *cells] for cells in measured]
    header = ["model", "text", "tool", "load, s", "cached, s", "new, MB/s", "again, MB/s", "ids"]
    print(harness.format_table(header, rows, markdown=options.markdown))


def _shapes(vocabulary: Path, folder: Path) -> list[Path]:
    """Write a tokenizer.json for each published shape."""
    from tests.support.published_shapes import SHAPES, in_shape

    trained = json.loads(vocabulary.read_text(encoding="utf-8"))
    paths: list[Path] = []
    for name in (name for name in SHAPES if name != "single words"):  # a flag of tokens, not a model
        paths.append(folder / f"{name.replace('.', '-')}.json")
        paths[-1].write_text(in_shape(trained, name), encoding="utf-8")
    return paths


def _measure_model(model: str, text: str, tools: list[str], rounds: int) -> list[list[str]]:
    """The cells of each tool."""
    request = {"model": model, "text": text}
    runs, reasons = harness.in_turns(
        tools,
        rounds,
        lambda tool: harness.measure_in_process(encode_with_model, request | {"tool": tool}, threads=1),
    )
    expected = runs["huggingface"][0].values["sha256"] if runs.get("huggingface") else None
    rows: list[list[str]] = []
    for tool, outcomes in runs.items():
        if not outcomes:
            rows.append([tool, "", "", "", "", reasons[tool]])
            continue
        ids = "equal" if outcomes[0].values["sha256"] == expected else "DIFFERENT" if expected else ""
        forms = {"load": ".3f", "cached": ".3f", "new": ".1f", "again": ".1f"}
        rows.append([tool, *(format(harness.median_of(outcomes, key), forms[key]) for key in forms), ids])
    return rows


def _model_encoder(tool: str, path: str) -> Any:
    """Load a tokenizer; return a function from text to ids."""
    if tool == "bytemill":
        own = require("bytemill").Tokenizer.load(path)
        return lambda text: own.encode_to_numpy(text, num_threads=1)
    if tool == "huggingface-1":
        newest = require_own(tool).Tokenizer.from_file(path)
        return lambda text: newest.encode(text, add_special_tokens=False).ids_array
    module = require("tokenizers" if tool == "huggingface" else tool)
    if tool == "gigatoken":
        return module.Tokenizer.from_json(Path(path).read_text(encoding="utf-8")).encode
    theirs = module.Tokenizer.from_file(path)
    return lambda text: theirs.encode(text, add_special_tokens=False).ids


def encode_with_model(request: dict[str, Any]) -> dict[str, Any]:
    """Load, encode twice, and report times and a hash of the ids of the text's first part."""
    text = Path(request["text"]).read_text(encoding="utf-8")
    if request["tool"] == "huggingface":
        text = text[:SLOW_BYTES]
    values: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["BYTEMILL_CACHE"] = cache
        for key in ("load", "cached"):
            with Stopwatch() as watch:
                encode = _model_encoder(request["tool"], request["model"])
                encode(text[:1000])
            values[key] = watch.wall
    for key in ("new", "again"):
        with Stopwatch() as watch:
            ids = encode(text)
        values[key] = len(text.encode()) / watch.wall / 1e6
    import numpy as np

    ids = np.asarray(encode(text[:SLOW_BYTES]), dtype=np.uint32)
    return values | {"sha256": hashlib.sha256(ids.tobytes()).hexdigest()}
