"""Extraction beside resiliparse alone, and a recipe beside datatrove: the cases `extract` and `curate`."""

import argparse
import json
import os
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.data import documents_of
from benchmarks.harness import Stopwatch, option

RECIPE: dict[str, Any] = {
    "step": [
        {"use": "mask", "phone_numbers": False},
        {"use": "rules", "sets": ["gopher", "gopher_repetition", "fineweb"]},
    ]
}


@harness.case(
    option("--pages", type=Path, required=True, help="folder of HTML files"),
    harness.megabytes(20.0),
    harness.ROUNDS,
)
def extract(options: argparse.Namespace) -> None:
    """Time the extraction of text from web pages beside resiliparse alone, by one thread.

        python -m benchmarks extract --pages /usr/share/doc

    Both take the main content of the same pages in memory, in UTF-8. bytemill finds the encoding and the title too.
    MB of pages for each second of processor time; every figure is a process of its own.
    """
    request = {"pages": str(options.pages), "bytes": int(options.megabytes * 1e6)}
    tools = ("bytemill", "resiliparse")
    runs, reasons = harness.in_turns(
        tools,
        options.rounds,
        lambda tool: harness.measure_in_process(extracted, {"tool": tool, **request}, threads=1),
        to_and_fro=True,
    )
    rows = [
        [
            tool,
            reasons[tool]
            if tool in reasons
            else f"{runs[tool][0].values['bytes'] / 1e6 / harness.median_of(runs[tool], 'seconds'):.1f}",
        ]
        for tool in tools
    ]
    print(harness.format_table(("tool", "MB/s"), rows))


def extracted(request: dict[str, Any]) -> dict[str, Any]:
    """Extract the text of pages with one tool."""
    pages: list[bytes] = []
    n_bytes = 0
    for path in sorted(Path(request["pages"]).rglob("*.html")):
        data = path.read_bytes()
        try:
            data.decode()
        except UnicodeDecodeError:
            continue
        pages.append(data)
        n_bytes += len(data)
        if n_bytes >= request["bytes"]:
            break
    html = harness.require("resiliparse.extract.html2text")
    if request["tool"] == "bytemill":
        from bytemill.corpus.html import page_text

        with Stopwatch() as time:
            n = sum(len(page_text(page, main_content=True).text) for page in pages)
    else:
        with Stopwatch() as time:
            n = sum(len(html.extract_plain_text(page.decode(), main_content=True)) for page in pages)
    return {"bytes": n_bytes, "seconds": time.cpu, "characters": n}


@harness.case(harness.TEXTS, harness.megabytes(5.0), harness.ROUNDS)
def curate(options: argparse.Namespace) -> None:
    """Time a recipe beside the local executor of datatrove, each in one process.

        python -m benchmarks curate --text english.txt

    The text is divided into documents of about 3 kB in JSON lines. E-mail and IP addresses are masked, and the rules of
    Gopher (quality and repetition) and of FineWeb decide. datatrove needs `datatrove[io,processing]` and spacy. MB of
    text for each second of processor time, files read and written included; the time to load spaCy is not. Every figure
    is a process of its own.

        kept    documents, which differ where words are divided in another way
    """
    rows: list[list[str]] = []
    tools = ("bytemill", "datatrove")
    for path in harness.chosen_texts(options.text):
        request = {"text": str(path), "bytes": int(options.megabytes * 1e6)}
        runs, reasons = harness.in_turns(
            tools,
            options.rounds,
            lambda tool: harness.measure_in_process(curated, {"tool": tool, **request}, threads=1),  # noqa: B023
            to_and_fro=True,
        )
        for tool in tools:
            if tool in reasons:
                rows.append([path.stem, tool, reasons[tool], ""])
                continue
            own = runs[tool]
            rate = own[0].values["bytes"] / 1e6 / harness.median_of(own, "seconds")
            rows.append([path.stem, tool, f"{rate:.2f}", f"{int(own[0].values['kept']):,}"])
    print(harness.format_table(("text", "tool", "MB/s", "kept"), rows))


def curated(request: dict[str, Any]) -> dict[str, Any]:
    """Run the recipe with one tool."""
    documents = documents_of(harness.read_text(request["text"], request["bytes"]))
    n_bytes = sum(len(document.encode()) for document in documents)
    run = {"bytemill": _bytemill, "datatrove": _datatrove}[request["tool"]]
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as null:
        rows = (json.dumps({"text": text, "id": str(number)}) + "\n" for number, text in enumerate(documents))
        (Path(folder) / "in.jsonl").write_text("".join(rows), encoding="utf-8")
        with redirect_stdout(null), redirect_stderr(null):
            seconds, kept = run(Path(folder))
    return {"bytes": n_bytes, "seconds": seconds, "kept": kept}


def _bytemill(folder: Path) -> tuple[float, int]:
    from bytemill.corpus import Corpus
    from bytemill.curation.recipe import Recipe
    from bytemill.curation.run import curate as run
    from bytemill.data.executors.inline import InlineExecutor

    with Stopwatch() as time:
        corpus = Corpus(folder / "in.jsonl")
        result = run(InlineExecutor(), Recipe.from_dict(RECIPE), corpus, folder / "out")
    return time.cpu, result["funnel"]["kept_documents"]


def _datatrove(folder: Path) -> tuple[float, int]:
    for module in ("datatrove", "spacy", "orjson", "ftfy"):
        harness.require(module)
    executor: Any = harness.require("datatrove.executor")
    filters: Any = harness.require("datatrove.pipeline.filters")
    formatters: Any = harness.require("datatrove.pipeline.formatters")
    readers: Any = harness.require("datatrove.pipeline.readers")
    writers: Any = harness.require("datatrove.pipeline.writers")
    harness.require("datatrove.utils.text").split_into_words("Load the model.")
    pipeline = [
        readers.JsonlReader(str(folder), glob_pattern="in.jsonl"),
        formatters.PIIFormatter(),
        filters.GopherRepetitionFilter(),
        filters.GopherQualityFilter(),
        filters.FineWebQualityFilter(),
        writers.JsonlWriter(str(folder / "out")),
    ]
    with Stopwatch() as time:
        done: Any = executor.LocalPipelineExecutor(
            pipeline, tasks=1, workers=1, logging_dir=str(folder / "log")
        ).run()
    return time.cpu, done.stats[-1].stats["total"].total
