"""Command-line options of a corpus."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App, CycloptsError

from bytemill.cli.options import CorpusArguments
from bytemill.cli.summaries import corpus_notes
from bytemill.corpus import CorpusCounts, parse_bytes
from bytemill.corpus.formats import FORMATS
from bytemill.errors import CorpusError

from .conftest import read, texts_of


def parsed(*arguments: str) -> CorpusArguments:
    app = App(name="test", result_action="return_value")

    @app.default
    def command(*inputs: str, corpus: CorpusArguments = CorpusArguments()) -> CorpusArguments:  # noqa: B008
        return corpus

    return app(arguments, exit_on_error=False, print_error=False)


def test_every_option_reaches_the_corpus(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text('{"body": "one"}\nnonsense\n{"body": "two"}\n')
    options = parsed(
        *(str(path), "--format", "jsonl", "--column", "body", "--limit-bytes", "1kB", "--sample", "1"),
        *("--seed", "3"),
        *("--weight", f"{path}=2.5", "--errors", "skip", "--on-error", "skip", "--documents", "line"),
        *("--max-document-bytes", "1MB", "--verify-input"),
    )
    corpus = options.corpus([str(path)])
    assert corpus.description["options"] == {
        "format": "jsonl",
        "field": "body",
        "documents": "line",
        "limit_bytes": 1000,
        "sample": 1.0,
        "seed": 3,
        "errors": "skip",
        "on_error": "skip",
        "max_document_bytes": 1_000_000,
    }
    assert len(corpus.description["sha256"]) == 1
    assert corpus.weights == [2.5]
    assert texts_of(read(corpus)) == ["one", "two"]
    assert len(texts_of(read(options.corpus([str(path)], repeat_by_weight=True)))) in (4, 5, 6)


def test_without_options_it_is_the_default_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    corpus = parsed().corpus([str(tmp_path)])
    assert corpus.is_plain
    assert parsed("x", "--errors", "replace").errors == "replace"


@pytest.mark.parametrize("weight", ["a.txt", "=2", "a.txt=much"])
def test_a_weight_is_an_input_and_a_number(weight: str) -> None:
    with pytest.raises(CycloptsError, match="is not a weight"):
        parsed("--weight", weight).arguments()
    assert parsed("--weight", "a=b=2").arguments()["weights"] == {"a=b": 2.0}


@pytest.mark.parametrize("options", [["--on-error", "warn"], ["--errors", "ignore"], ["--sample", "half"]])
def test_invalid_options_are_usage_errors(options: list[str]) -> None:
    with pytest.raises(CycloptsError):
        parsed(*options)


def test_an_unknown_format_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(CorpusError, match="unknown format 'xlsx'") as caught:
        parsed("--format", "xlsx").corpus([str(tmp_path / "a.txt")])
    for name in FORMATS:
        assert name in str(caught.value.hint)
        assert re.search(rf"\b{name}\b", inspect.getsource(CorpusArguments))


@pytest.mark.parametrize("text", ["", "GB", "2 XB", "-1", "1e3", "1.5.2", "0x10", "2GB!"])
def test_malformed_sizes_are_refused(text: str) -> None:
    with pytest.raises(CorpusError, match="is not a number of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("counts", "notes"),
    [
        ({}, []),
        ({"n_documents": 5, "n_bytes": 5}, []),
        ({"n_byte_order_marks": 1}, ["a UTF-8 byte-order mark was dropped from the start of 1 file"]),
        ({"n_replaced": 1}, ["1 malformed sequence was read as U+FFFD"]),
        ({"n_skipped_bytes": 1}, ["1 byte that is not UTF-8 was left out"]),
        (
            {"n_replaced": 1204, "n_skipped_bytes": 12, "n_broken": 2},
            [
                "1,204 malformed sequences were read as U+FFFD",
                "12 bytes that are not UTF-8 were left out",
                "2 broken documents were left out",
            ],
        ),
    ],
)
def test_the_end_of_the_work_says_what_was_left_out(counts: dict[str, Any], notes: list[str]) -> None:
    assert corpus_notes(CorpusCounts(**counts)) == notes
