"""Whole tokenizers: the cases `load`, `many-tokenizers`, `models`, `families` and `compare`."""

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Outcome, listed, option, require
from benchmarks.peers.encoders import (
    PATTERN_OF_FILE,
    Vocabulary,
    expression_of,
    fetch_own,
    require_own,
    vocabulary_of,
)

LOADED_TEXT = "Loading takes no time: l'été 2024, 日本語, and\n\n\tsome_code(x) += 17;"
LOADED = ("cl100k_base", "o200k_base", "r50k_base")
LOADERS = (("bytemill", "ranks"), ("tiktoken", "ranks"), ("bytemill", "json"), ("huggingface", "json"))
MODEL_TOOLS = ("bytemill", "gigatoken", "huggingface", "huggingface-1")
SLOW_BYTES = 2_000_000
COMPARED_CHARACTERS = 1_000_000
COMPARISONS = ("encoding", "comparing", "with n-grams")


@harness.case(
    option("--vocab", nargs="+", default=list(LOADED), choices=LOADED, metavar="NAME"),
    option("--runs", type=int, default=7, help="processes for each line (default %(default)s)"),
    option("--json", action="store_true", help="print the results as JSON in place of a table"),
)
def load(options: argparse.Namespace) -> int:
    """Time how long it takes until a tokenizer is there: bytemill, tiktoken and Hugging Face's library.

        python -m benchmarks load
        python -m benchmarks load --vocab cl100k_base --runs 9 --json

    Each run is a process of its own. It imports the tool, loads the tokenizer from a file on disk that has been
    read before, and encodes a short text; the times of the three, and the peak memory after them, are reported as
    medians. A tool that puts work off until a first text comes pays for it in "first text". Before any time
    counts, the ids of that text must be the same for every tool.

    The tokenizer.json is the one that bytemill writes from the rank file.
    """
    data = harness.shared_data()
    if data is None:
        print("no vocabularies: set BYTEMILL_TEST_DATA to a folder with .tiktoken files", file=sys.stderr)
        return 1
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.vocab:
            ranks, written = data / f"{name}.tiktoken", Path(folder) / f"{name}.json"
            # The same special tokens as in the tools beside it: none.
            own = require("bytemill").Tokenizer.load(ranks, pattern=PATTERN_OF_FILE[name], special_tokens={})
            own.save(written)
            results += _measure_loading(name, {"ranks": ranks, "json": written}, options.runs)
    if options.json:
        print(json.dumps({"machine": harness.machine(), "results": results}, indent=1))
        return 0
    rows: list[list[str]] = []
    seconds: dict[str, float] = {}
    for result in results:
        row = [result["vocabulary"], result["file"], result["tool"]]
        if result["reason"]:
            rows.append([*row, *["–"] * 5, result["reason"]])
            continue
        row += [f"{1000 * result[key]:.1f}" for key in ("import", "load", "first text")]
        # bytemill comes first of the tools that load a file.
        total = result["load"] + result["first text"]
        ours = seconds.setdefault(f"{row[0]} {row[1]}", total if result["tool"] == "bytemill" else 0)
        row += [f"{total / ours:.2f}" if ours else "–", f"{result['memory'] / 1e6:.0f}"]
        rows.append([*row, f"load ± {100 * result['spread'] / 2:.0f} %"])
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
    print(harness.format_table(header, rows))
    return 0


def _measure_loading(vocabulary: str, paths: dict[str, Path], runs: int) -> list[dict[str, Any]]:
    """Results of all tools for one vocabulary."""

    def measured(loader: tuple[str, str]) -> Outcome:
        request = {"tool": loader[0], "path": str(paths[loader[1]])}
        return harness.measure_in_process(load_once, request, threads=2)

    found, reasons = harness.in_turns(LOADERS, runs, measured)
    expected = next((outcomes[0].values["ids"] for outcomes in found.values() if outcomes), None)
    results: list[dict[str, Any]] = []
    for loader, outcomes in found.items():
        reason = reasons.get(loader)
        if reason is None and outcomes[0].values["ids"] != expected:
            reason = "gives other ids"
        results.append({"vocabulary": vocabulary, "file": loader[1], "tool": loader[0]})
        if reason is None:
            keys = ("import", "load", "first text", "memory")
            results[-1] |= {key: harness.median_of(outcomes, key) for key in keys}
            results[-1]["spread"] = harness.spread_of(outcomes, "load")
        results[-1]["reason"] = reason
    return results


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
    """One measurement: seconds to import, to load and to encode a first text; ids; peak memory."""
    harness.preload()
    tool, path = request["tool"], Path(request["path"])
    start = time.perf_counter()
    require("tokenizers" if tool == "huggingface" else tool)
    if tool == "tiktoken":  # what the patterns come from is no part of loading
        require("tiktoken.load")
        expression_of(PATTERN_OF_FILE[path.stem])
    imported = time.perf_counter()
    encode = _loaded(tool, path)
    loaded = time.perf_counter()
    ids = list(encode(LOADED_TEXT))
    return {
        "import": imported - start,
        "load": loaded - imported,
        "first text": time.perf_counter() - loaded,
        "memory": harness.peak_memory_bytes(),
        "ids": ids,
    }


@harness.case(
    harness.TEXT,
    option("--vocab", type=listed(), default=["cl100k", "trained-10000"], help="(cl100k,trained-10000)"),
    option("--tokenizers", type=int, default=100, help="number of tokenizers (%(default)s)"),
    option("--megabytes", type=listed(float), default=[0.001, 1, 8], help="of the text (0.001,1,8)"),
    option("--threads", type=listed(int), default=[1, 2], help="numbers of threads (1,2)"),
    option("--limit", type=float, default=6000, help="MB at which a row ends (%(default)s)"),
    harness.JSON,
)
def many_tokenizers(options: argparse.Namespace) -> None:
    """Measure the memory that tokenizers keep between calls: many are loaded, each is used once, and all are held.

        python -m benchmarks many-tokenizers [--vocab cl100k,trained-10000] [--tokenizers 100] [--megabytes 0.001,1,8]

    Every row is a process of its own. "loaded" is the resident memory that the loaded tokenizers take before they
    are used, "used" what all take after each has encoded the text once to an array, and "each" that divided by
    their number. Growth beyond --limit ends a row early. "held" is how many there are by then.
    """
    texts = harness.chosen_texts(options.text, first=True)
    results: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    for name in options.vocab:
        vocabulary = vocabulary_of(name, None, texts)
        for megabytes in options.megabytes:
            for threads in options.threads:
                request = vocabulary.request() | {
                    "text": str(texts[0]),
                    "n_bytes": int(megabytes * 1e6),
                    "n_tokenizers": options.tokenizers,
                    "threads": threads,
                    "limit": options.limit * 1e6,
                }
                outcome = harness.measure_in_process(hold_many, request, threads=threads)
                rows.append([name, f"{megabytes:g}", str(threads), *_memory_cells(outcome)])
                named = {"vocabulary": name, "megabytes": megabytes, "threads": threads}
                results.append(named | outcome.values | {"reason": outcome.reason})
    header = ["vocabulary", "text MB", "threads", "held", "loaded MB", "used MB", "each MB"]
    print(harness.format_table(header, rows))
    print(f"\nSaved to {harness.save(options.json, 'many_tokenizers', {'rows': results})}")


def _resident_bytes() -> int:
    """Resident memory of this process."""
    import psutil

    return psutil.Process().memory_info().rss


def hold_many(request: dict[str, Any]) -> dict[str, Any]:
    """One row: loads the tokenizers, uses each once, and gives bytes and number."""
    load = harness.require("bytemill").Tokenizer.load
    text = harness.read_text(request["text"], request["n_bytes"])
    vocabulary = Vocabulary.of(request)
    # What the process takes once, whatever the number of tokenizers, is there before memory is counted.
    load(vocabulary.path, pattern=vocabulary.pattern, special_tokens={}).encode_to_numpy(text, num_threads=1)
    before = _resident_bytes()
    held: list[Any] = []
    for _ in range(request["n_tokenizers"]):
        held.append(load(vocabulary.path, pattern=vocabulary.pattern, special_tokens={}))
        if _resident_bytes() - before > request["limit"]:
            break
    loaded = _resident_bytes() - before
    n_used = 0
    for tokenizer in held:
        tokenizer.encode_to_numpy(text, num_threads=request["threads"])
        n_used += 1
        if _resident_bytes() - before > request["limit"]:
            break
    return {"n_loaded": len(held), "n_used": n_used, "loaded": loaded, "used": _resident_bytes() - before}


def _memory_cells(outcome: Outcome) -> list[str]:
    """Number of tokenizers and their memory; the reason if there is none."""
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


@harness.case(
    option("models", nargs="+", help="tokenizer.json files"),
    option("--text", nargs="+", required=True, metavar="NAME=FILE"),
    harness.ROUNDS,
    option("--markdown", action="store_true", help="print one row per model, for the documentation"),
)
def models(options: argparse.Namespace) -> None:
    """Load published models' tokenizers and encode new text, beside gigatoken and Hugging Face.

        python -m benchmarks models qwen3.tokenizer.json gptoss.tokenizer.json --text english=a.txt multilingual=b.txt
        python -m benchmarks models llama2.tokenizer.json --text english=a.txt --markdown

    Every measurement is a process of its own on one thread; tools take turns, and the table has medians. Loading
    lasts from the start of reading the file, which is in the page cache, to the ids of the first kilobyte; "again"
    is the same for bytemill with the vocabulary in its cache, which the first load has filled. Hugging Face gets
    the first part of a text only. A tool whose ids differ from Hugging Face's is marked. With --markdown, rows
    show bytemill and, after a slash, gigatoken.
    """
    texts = [(name, path) for name, _, path in (each.partition("=") for each in options.text)]
    fetch_own(MODEL_TOOLS)
    rows: list[list[str]] = []
    for model in options.models:
        results = {name: _measure_model(model, path, options.rounds) for name, path in texts}
        rows += (_model_row if options.markdown else _model_lines)(Path(model).name.split(".")[0], results)
    header = ["model", "text", "tool", "load s", "again", "MB/s", "ids"]
    if options.markdown:
        header = ["model", "load, s", "again, s", *(f"{name}, MB/s" for name, _ in texts), "ids"]
    print(harness.format_table(header, rows, markdown=options.markdown))


ModelResults = dict[str, dict[str, dict[str, Any] | str]]
"""Text -> tool -> the medians of a tool, or why it has none."""


def _measure_model(model: str, text: str, rounds: int) -> dict[str, dict[str, Any] | str]:
    request = {"model": model, "text": text}
    runs, reasons = harness.in_turns(
        MODEL_TOOLS,
        rounds,
        lambda tool: harness.measure_in_process(encode_with_model, request | {"tool": tool}, threads=1),
    )
    expected = runs["huggingface"][0].values["sha256"] if runs["huggingface"] else None
    return {
        tool: {
            **{key: harness.median_of(outcomes, key) for key in ("load", "again", "rate")},
            "ids": "equal" if outcomes[0].values["sha256"] == expected else "DIFFERENT",
        }
        if outcomes
        else reasons[tool]
        for tool, outcomes in runs.items()
    }


def _model_lines(model: str, results: ModelResults) -> list[list[str]]:
    """A row for each text and tool."""
    rows: list[list[str]] = []
    for text, by_tool in results.items():
        for tool, result in by_tool.items():
            cells = ["", "", "", result]
            if not isinstance(result, str):
                cells = [f"{result['load']:.3f}", f"{result['again']:.3f}", f"{result['rate']:.1f}"]
                cells.append(result["ids"])
            rows.append([model, text, tool, *cells])
    return rows


def _model_row(model: str, results: ModelResults) -> list[list[str]]:
    """One row with the numbers of bytemill and, after a slash, of gigatoken."""

    def median(tool: str, key: str, form: str, texts: Iterable[str] = results) -> str:
        found = [result[key] for text in texts if not isinstance(result := results[text][tool], str)]
        return format(statistics.median(found), form) if found else "–"

    rates = [" / ".join(median(tool, "rate", ".0f", [text]) for tool in MODEL_TOOLS[:2]) for text in results]
    load = " / ".join(median(tool, "load", ".2f") for tool in MODEL_TOOLS[:2])
    own = [by_tool["bytemill"] for by_tool in results.values()]
    is_equal = all(not isinstance(result, str) and result["ids"] == "equal" for result in own)
    ids = "equal" if is_equal else "DIFFERENT"
    return [[model, load, median("bytemill", "again", ".3f"), *rates, ids]]


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


def _loaded_model(request: dict[str, Any], text: str) -> tuple[Any, float]:
    """A tool that has encoded the first kilobyte, and the seconds that took."""
    started = time.perf_counter()
    encode = _model_encoder(request["tool"], request["model"])
    encode(text[:1000])
    return encode, time.perf_counter() - started


def encode_with_model(request: dict[str, Any]) -> dict[str, Any]:
    """Load, encode, and report times and a hash of the ids of the text's first part."""
    text = Path(request["text"]).read_text(encoding="utf-8")
    if request["tool"] == "huggingface":
        text = text[:SLOW_BYTES]
    with tempfile.TemporaryDirectory() as cache:
        os.environ["BYTEMILL_CACHE"] = cache
        encode, load = _loaded_model(request, text)
        started = time.perf_counter()
        encode(text)
        seconds = time.perf_counter() - started
        again = _loaded_model(request, text)[1] if request["tool"] == "bytemill" else load
    import numpy as np

    ids = np.asarray(encode(text[:SLOW_BYTES]), dtype=np.uint32)
    return {
        "load": load,
        "again": again,
        "rate": len(text.encode()) / seconds / 1e6,
        "sha256": hashlib.sha256(ids.tobytes()).hexdigest(),
    }


@harness.case(
    option("vocabulary", type=Path, help="tokenizer.json of a byte-level model"),
    option("--text", type=Path, required=True),
    harness.ROUNDS,
)
def families(options: argparse.Namespace) -> None:
    """Put published pre-tokenizers around one vocabulary: the table "opens / exact / speed" of docs/guides/formats.md.

        python -m benchmarks families qwen3.tokenizer.json --text a.txt

    Each shape of tests/support/published_shapes.py gets the vocabulary and merges of the file named first, so that
    only the pre-tokenizer and the normalizer differ. Ids are compared with Hugging Face's on the first megabyte.
    Rates are those of the whole text, new and then again, on one thread; medians of three processes.
    """
    from tests.support.published_shapes import SHAPES, in_shape

    trained = json.loads(options.vocabulary.read_text(encoding="utf-8"))
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        request = {"model": str(path), "text": str(options.text)}
        for name in (name for name in SHAPES if name != "single words"):  # a flag of tokens, not a model
            path.write_text(in_shape(trained, name), encoding="utf-8")
            found, reasons = harness.in_turns(
                [name],
                options.rounds,
                lambda _name: harness.measure_in_process(encode_family, request, threads=1),
            )
            if reasons:
                rows.append([name, reasons[name], "", "", ""])
                continue
            is_equal = all(each.values["equal"] for each in found[name])
            rows.append([name, found[name][0].values["matcher"], "equal" if is_equal else "DIFFERENT"])
            rows[-1] += [f"{harness.median_of(found[name], key):.0f}" for key in ("new", "again")]
    header = ["shape", "matched by", "ids", "new, MB/s", "again, MB/s"]
    print(harness.format_table(header, rows, markdown=True))


def encode_family(request: dict[str, Any]) -> dict[str, Any]:
    """Load, compare ids, and encode twice."""
    import tokenizers

    import bytemill
    from bytemill._core import matcher

    text = Path(request["text"]).read_text(encoding="utf-8")
    ours = bytemill.Tokenizer.load(request["model"])
    theirs = tokenizers.Tokenizer.from_file(request["model"])
    part = text[:COMPARED_CHARACTERS]
    is_equal = ours.encode(part) == theirs.encode(part, add_special_tokens=False).ids
    ours.encode_to_numpy("a")  # imports numpy
    fresh = bytemill.Tokenizer.load(request["model"])
    rates = []
    for _ in range(2):
        started = time.perf_counter()
        fresh.encode_to_numpy(text, num_threads=1)
        rates.append(len(text.encode()) / (time.perf_counter() - started) / 1e6)
    return {"equal": is_equal, "matcher": matcher(ours.pattern), "new": rates[0], "again": rates[1]}


@harness.case(
    option("tokenizers", nargs="+"),
    option("--text", nargs="+", required=True, help="files or globs; NAME=PATH names the group"),
    option("--ngram-bytes", default="50MB", help="of each group, for the last row"),
    harness.ROUNDS,
)
def compare(options: argparse.Namespace) -> None:
    """Measure time and memory of comparing tokenizers, beside encoding the same text with them.

        python -m benchmarks compare gpt2 cl100k_base o200k_base own.json --text english=a.txt code=b.txt
        python -m benchmarks compare gpt2 own.json --text big.txt --ngram-bytes 100MB

    Each row is a process of its own, so that memory is the peak of that work beyond importing the package.
    Encoding reads the files and encodes documents and passages with each tokenizer, as the comparison does, and
    drops the ids. Rows take turns; time is the median over the rounds, the ratio that of the same round.
    """
    from bytemill.corpus import parse_bytes

    request = {"tokenizers": options.tokenizers, "text": options.text, "ngram_bytes": options.ngram_bytes}
    runs, _ = harness.in_turns(
        COMPARISONS,
        options.rounds,
        lambda row: harness.measure_in_process(compare_once, request | {"row": row}),
        needed=True,
    )
    seconds = {row: [outcome.values["seconds"] for outcome in outcomes] for row, outcomes in runs.items()}
    n_bytes = runs["encoding"][0].values["n_bytes"]
    print(f"{n_bytes / 1e6:,.0f} MB, {len(options.tokenizers)} tokenizers")
    rows: list[list[str]] = []
    for row, outcomes in runs.items():
        own = seconds[row]
        ratio = statistics.median(a / b for a, b in zip(own, seconds["encoding"], strict=True))
        memory = harness.median_of(outcomes, "memory") / 1e6
        rows.append([row, f"{statistics.median(own):.2f} s", f"{ratio:.2f}", f"{memory:,.0f} MB"])
    print(harness.format_table(["", "time", "ratio", "memory"], rows))
    both = zip(seconds["with n-grams"], seconds["comparing"], strict=True)
    limit = min(n_bytes, parse_bytes(options.ngram_bytes) * len(options.text))
    per = statistics.median(a - b for a, b in both) / len(options.tokenizers) / limit * 1e8
    print(f"n-gram figures: {per:.1f} s for 100 MB and tokenizer")


def compare_once(request: dict[str, Any]) -> dict[str, float]:
    """One process: the work of a row; gives seconds, memory and bytes."""
    import bytemill
    from bytemill.comparison import compare
    from bytemill.comparison.counting import encode_units, read_units, unit_encoder
    from bytemill.corpus import parse_bytes
    from bytemill.tokenizer import open_tokenizer

    named = [entry.partition("=") for entry in request["text"]]
    groups = {
        name if is_named else f"text {number}": bytemill.Corpus(path if is_named else name)
        for number, (name, is_named, path) in enumerate(named, 1)
    }
    tokenizers = {name: open_tokenizer(name) for name in request["tokenizers"]}
    before = harness.peak_memory_bytes()
    n_bytes = 0
    started = time.perf_counter()
    if request["row"] == "encoding":
        encoders = [unit_encoder(tokenizer, None) for tokenizer in tokenizers.values()]
        for corpus in groups.values():
            for data, ends, _ in read_units(corpus):
                n_bytes += len(data)
                for encoder in encoders:
                    encode_units(encoder, data, ends)
    else:
        ngram_bytes = parse_bytes(request["ngram_bytes"]) if request["row"] == "with n-grams" else 0
        result = compare(tokenizers, groups, ngram_bytes=ngram_bytes)
        n_bytes = sum(about["n_bytes"] for about in result.groups.values())
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "memory": harness.peak_memory_bytes() - before, "n_bytes": n_bytes}
