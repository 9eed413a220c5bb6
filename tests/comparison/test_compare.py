"""Comparisons: every figure against plain Python, equal bytes for equal inputs, errors before long work."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import statistics
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.cli.comparison import write_comparison
from bytemill.comparison import compare
from bytemill.comparison.counting import PASSAGE_BYTES, passage_ends
from bytemill.comparison.figures import FIGURES, Figure, Value, best_of, format_value, ratio, register_figure
from bytemill.errors import CorpusError, TokenizerError, TokenizerFileError
from tests.report.page_script import without_script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bytemill import Tokenizer

TEXTS = [
    "The cat sat on the mat, and 12 dogs saw 1,234,567 birds in 20000 trees.",
    "def f(x):\n    if x:\n\t\treturn 1234\n    return x  # naïve\n",
    "Straße, Übung, „Zitat“ – 日本語のテキスト 👨‍👩‍👧 don't can’t",
    "один два три, 42 и 4242424\n\n   \n  ok",
]


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {
        "small": bytemill.train_from_iterator(TEXTS * 3, 300),
        "cl100k": bytemill.train_from_iterator(TEXTS * 3, 340, pattern="cl100k"),
    }


def words_of(text: str) -> list[tuple[int, int]]:
    """Return the spans of words in bytes: between word boundaries of the package regex, with a letter or digit."""
    cuts = [match.start() for match in regex.finditer(r"(?w)\b", text)]
    spans = [(start, end) for start, end in pairwise(cuts) if any(c.isalnum() for c in text[start:end])]
    return [(len(text[:start].encode()), len(text[:end].encode())) for start, end in spans]


def expected(tokenizer: Tokenizer, texts: list[str]) -> dict[str, float]:
    """Compute figures with plain Python."""
    n_bytes = n_tokens = n_words = n_whole = n_split = n_characters = 0
    numbers: list[tuple[str, bool, bool]] = []
    lengths: list[int] = []
    for text in texts:
        ids = tokenizer.encode_ordinary(text)
        ends = np.cumsum([len(tokenizer.vocab[i]) for i in ids]).tolist()
        boundaries = set(ends[:-1])
        lengths.append(len(ids))
        n_tokens += len(ids)
        n_bytes += len(text.encode())
        n_characters += len(text)
        for start, end in words_of(text):
            n_words += 1
            n_whole += not boundaries & set(range(start + 1, end))
        at = 0
        for character in text:
            size = len(character.encode())
            n_split += bool(boundaries & set(range(at + 1, at + size)))
            at += size
        for match in regex.finditer("[0-9]+", text):
            start = len(text[: match.start()].encode())
            end = start + len(match[0])
            inner = boundaries & set(range(start + 1, end))
            numbers.append((match[0], not inner, inner == set(range(end - 3, start, -3))))
    short = [whole for digits, whole, _ in numbers if len(digits) <= 3]
    long = [grouped for digits, _, grouped in numbers if len(digits) > 3]
    return {
        "bytes_per_token": n_bytes / n_tokens,
        "characters_per_token": n_characters / n_tokens,
        "tokens_per_word": n_tokens / n_words,
        "whole_words": n_whole / n_words,
        "split_characters": n_split / n_characters,
        "whole_short_numbers": sum(short) / len(short),
        "grouped_numbers": sum(long) / len(long),
        "tokens_per_document_median": statistics.median(lengths),
        "round_trip": 1.0,
    }


def test_figures_are_those_of_plain_python(tokenizers: dict[str, Tokenizer]):
    result = compare(tokenizers, bytemill.Corpus.from_texts(TEXTS))
    assert list(result.values["text"]) == list(FIGURES)
    for name, tokenizer in tokenizers.items():
        for figure, value in expected(tokenizer, TEXTS).items():
            own = result.values["text"][figure][name]
            assert own.value == pytest.approx(value), figure
            if figure in ("bytes_per_token", "tokens_per_word", "whole_words", "split_characters"):
                low, middle, high = own.low or 0, own.value or 0, own.high or 0
                assert 0 <= low <= middle <= high
                assert high > 0
    assert result.groups["text"]["sha256"] == hashlib.sha256("".join(TEXTS).encode()).hexdigest()
    assert (result.values["text"]["trigram_bits_per_byte"]["small"].value or 0) > 0


def test_equal_inputs_give_equal_bytes_whatever_the_threads(tokenizers: dict[str, Tokenizer], tmp_path: Path):
    for i, text in enumerate(TEXTS):
        (tmp_path / f"{i}.txt").write_text(text * 50, encoding="utf-8")
    groups = {"a": str(tmp_path / "*.txt"), "b": str(tmp_path / "1.txt")}
    results = [compare(tokenizers, groups, num_threads=n).to_json() for n in (1, 2, 2)]
    assert results[0] == results[1] == results[2]
    assert list(json.loads(results[0])["groups"]) == ["a", "b"]


def test_a_single_document_has_no_intervals(tokenizers: dict[str, Tokenizer]):
    values = compare(tokenizers, bytemill.Corpus.from_texts(TEXTS[:1])).values["text"]
    assert values["bytes_per_token"]["small"].low is None
    assert values["bytes_per_token"]["small"].note == "a single document"
    assert values["trigram_bits_per_byte"]["small"] == Value(None, note="a single document")
    assert values["whole_indents"]["small"] == Value(None, note="the text has none")


def test_figures_of_places_are_missing_where_tokens_are_not_the_text(tmp_path: Path):
    document = json.loads(_saved(bytemill.train_from_iterator(TEXTS, 300), tmp_path / "plain.json"))
    document["normalizer"] = {"type": "NFC"}
    (tmp_path / "nfc.json").write_text(json.dumps(document))
    text = bytemill.Corpus.from_texts(["e\u0301a b", "c d"])
    values = compare([str(tmp_path / "plain.json"), str(tmp_path / "nfc.json")], text).values["text"]
    assert values["whole_words"]["nfc"] == Value(None, note="the tokens are not the text")
    assert values["whole_words"]["plain"].value is not None
    assert values["round_trip"]["nfc"].value == 0.5


def _saved(tokenizer: Tokenizer, path: Path) -> str:
    tokenizer.save(path)
    return path.read_text(encoding="utf-8")


@given(st.lists(st.integers(0, 90_000), min_size=1, max_size=4), st.sampled_from(["ab\n", "日本", "x"]))
def test_passages_divide_long_documents_at_characters(sizes: list[int], letters: str):
    documents = [(letters * (n // len(letters)))[:n].encode() for n in sizes]
    data = b"".join(documents)
    ends = np.cumsum([len(each) for each in documents])
    passages = passage_ends(data, ends)
    if data:
        assert set(ends.tolist()) - {0} <= set(passages.tolist())
        lengths = np.diff(passages, prepend=0)
        assert lengths.min() > 0
        assert lengths.max() <= 2 * PASSAGE_BYTES
        for start, end in pairwise([0, *passages]):
            data[start:end].decode()


def test_parallel_text_shows_what_languages_cost(tokenizers: dict[str, Tokenizer], tmp_path: Path):
    (tmp_path / "english.txt").write_text("the cat\nthe mat\n")
    (tmp_path / "japanese.txt").write_text("日本語\nテキスト\n", encoding="utf-8")
    text = bytemill.Corpus.from_texts(TEXTS)
    result = compare(tokenizers, text, parallel=tmp_path).parallel
    assert result is not None
    assert (result.reference, result.n_lines) == ("english", 2)
    for name, tokenizer in tokenizers.items():
        n = {
            language: sum(len(tokenizer.encode(line)) for line in lines)
            for language, lines in (("english", ["the cat", "the mat"]), ("japanese", ["日本語", "テキスト"]))
        }
        assert result.premiums[name]["japanese"] == n["japanese"] / n["english"]
    (tmp_path / "japanese.txt").write_text("\ufeff日本語\nテキスト\n", encoding="utf-8")
    assert compare(tokenizers, text, parallel=tmp_path).parallel == result
    (tmp_path / "japanese.txt").write_text("one line\n")
    with pytest.raises(CorpusError, match=r"has 1 lines, but english.txt has 2"):
        compare(tokenizers, text, parallel=tmp_path)


def test_what_cannot_be_compared_is_refused(tokenizers: dict[str, Tokenizer], tmp_path: Path):
    text = bytemill.Corpus.from_texts(TEXTS)
    with pytest.raises(TokenizerError, match="1 tokenizers cannot be compared"):
        compare({"one": tokenizers["small"]}, text)
    tokenizers["small"].save(tmp_path / "same.json")
    with pytest.raises(TokenizerError, match="two tokenizers are named 'same'"):
        compare([tmp_path / "same.json", tmp_path / "same.json"], text)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(TokenizerFileError):
        compare([tmp_path / "same.json", tmp_path / "bad.json"], text)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(CorpusError):
        compare(tokenizers, {"empty": str(tmp_path / "empty.txt")})
    with pytest.raises(CorpusError, match="no text to compare on"):
        compare(tokenizers, {})


def test_results_are_written_in_four_formats(tokenizers: dict[str, Tokenizer], tmp_path: Path):
    result = compare(tokenizers, {"a|b": bytemill.Corpus.from_texts(TEXTS)})
    for suffix in ("json", "md", "csv", "tex"):
        result.save(tmp_path / f"result.{suffix}")
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8")) == result.to_dict()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "result.csv").read_text(encoding="utf-8"))))
    assert len(rows) == 2 * len(FIGURES)
    first = next(row for row in rows if row["figure"] == "bytes_per_token")
    assert float(first["value"]) == result.values["a|b"]["bytes_per_token"]["small"].value
    markdown = (tmp_path / "result.md").read_text(encoding="utf-8")
    assert "## a\\|b" in markdown
    figures, *_ = markdown.split("## Boundaries")
    assert {line.count("|") - line.count("\\|") for line in figures.splitlines() if line.startswith("|")} == {
        4
    }
    assert "\\%" in (tmp_path / "result.tex").read_text(encoding="utf-8")
    with pytest.raises(CorpusError, match="does not say which format"):
        result.save(tmp_path / "result.xlsx")


def test_a_smaller_size_is_the_tokenizer_of_a_smaller_training(
    tokenizers: dict[str, Tokenizer], tmp_path: Path
):
    text = bytemill.Corpus.from_texts(TEXTS)
    result = compare(tokenizers, text, sizes=[310, 280, 5000])
    points = result.by_size["text"]["bytes_per_token"]
    assert [size for size, _ in points["small"]] == [280, 300]
    assert [size for size, _ in points["cl100k"]] == [280, 310, 340]
    again = bytemill.train_from_iterator(TEXTS * 3, 310, pattern="cl100k")
    expected_value = compare({"a": again, "b": tokenizers["small"]}, text).values["text"]["bytes_per_token"][
        "a"
    ]
    assert points["cl100k"][1][1] == expected_value
    assert points["cl100k"][2][1] == result.values["text"]["bytes_per_token"]["cl100k"]
    result.save(tmp_path / "page.html")
    assert "against vocabulary size" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert list(result.values["text"]["bytes_per_token"]) == ["small", "cl100k"]
    with pytest.raises(TokenizerError):
        compare(tokenizers, text, sizes=[10])


def test_the_page_is_self_contained_and_names_are_inert(tokenizers: dict[str, Tokenizer], tmp_path: Path):
    (tmp_path / "en.txt").write_text("a b\n")
    (tmp_path / "de.txt").write_text("ä ö\n", encoding="utf-8")
    hostile = {"<script>alert(1)</script>": tokenizers["small"], "b\x1b[31m": tokenizers["cl100k"]}
    text = {"<b>&": bytemill.Corpus.from_texts([*TEXTS, "<img src=x onerror=alert(1)>"] * 3)}
    pages: list[str] = []
    for _ in range(2):
        compare(hostile, text, parallel=tmp_path).save(tmp_path / "page.html")
        pages.append((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
    page = without_script(pages[0])
    assert "<script" not in page
    assert "<img" not in page
    assert "\x1b" not in page
    assert "http://" not in page
    assert "https://" not in page
    for expected_text in (
        "trigram bits/byte",
        "All figures",
        "Gini coefficient",
        "show ids",
        "&lt;b&gt;&amp;",
    ):
        assert expected_text in page
    assert page.count("<svg") >= 6
    assert len(page) < 2_000_000


def test_the_best_is_named_if_every_difference_is_beyond_0():
    figure = FIGURES["bytes_per_token"]
    noise = np.random.default_rng(1).normal(0, 1, 1000)
    b = 3.9 + noise + np.random.default_rng(2).normal(0, 0.01, 1000)
    near = {"a": Value(4.0, samples=4.0 + noise), "b": Value(3.9, samples=b), "c": Value(None)}
    assert best_of(figure, near) == "a"  # the intervals of the values overlap widely
    apart = near | {"b": Value(3.9, samples=3.9 + np.random.default_rng(3).normal(0, 1, 1000))}
    assert best_of(figure, apart) is None
    assert best_of(FIGURES["bigram_bits_per_byte"], near) == "b"
    assert best_of(FIGURES["vocabulary_used"], near) is None
    assert best_of(figure, {"a": Value(4.0), "b": Value(3.9)}) is None


def test_a_larger_vocabulary_of_one_training_is_shown_to_compress_better(tokenizers: dict[str, Tokenizer]):
    text = bytemill.Corpus.from_texts(TEXTS * 5)
    pair = {"full": tokenizers["cl100k"], "less": tokenizers["cl100k"].truncate(280)}
    assert compare(pair, text).best["text"]["bytes_per_token"] == "full"


def test_every_figure_has_a_value_or_says_why_not(tokenizers: dict[str, Tokenizer], tmp_path: Path):
    for number, text in enumerate(TEXTS * 4):
        (tmp_path / f"{number}.{'py' if number % 4 == 1 else 'txt'}").write_text(text, encoding="utf-8")
    several = compare(tokenizers, str(tmp_path / "*")).values["text"]
    single = compare(tokenizers, str(tmp_path / "0.txt"), ngram_bytes=0).values["text"]
    assert list(several) == list(single) == list(FIGURES)
    for name, figure in FIGURES.items():
        assert (name, bool(figure.title and figure.formula and figure.blind_to)) == (figure.name, True)
        for value in several[name].values():
            assert value.value is not None
            assert value.samples is None
            assert not figure.is_share or 0 <= value.value <= 1
            assert format_value(figure, value) != "–"
        for value in single[name].values():
            assert value.value is not None or value.note


@pytest.fixture
def own_figure() -> Iterator[Figure]:
    """A registered figure of a user's module."""
    figure = Figure(
        "tokens_per_unit",
        "tokens/unit",
        "tokens / documents and passages",
        "their lengths",
        ratio("n_tokens", "n_documents"),
        "lower",
        decimals=2,
    )
    register_figure(figure)
    yield figure
    del FIGURES[figure.name]


def test_a_registered_figure_is_in_every_output(
    tokenizers: dict[str, Tokenizer], own_figure: Figure, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    result = compare(tokenizers, bytemill.Corpus.from_texts(TEXTS), sizes=[280])
    value = result.values["text"]["tokens_per_unit"]["small"]
    assert value.value == sum(len(tokenizers["small"].encode(text)) for text in TEXTS) / len(TEXTS)
    assert value.low is not None
    assert result.best["text"]["tokens_per_unit"] in (None, "cl100k")
    assert len(result.by_size["text"]["tokens_per_unit"]["small"]) == 2
    assert result.to_dict()["values"]["text"]["tokens_per_unit"]["small"] == value.to_dict()
    write_comparison(result)
    shown = {"terminal": capsys.readouterr().out}
    for suffix in ("html", "json", "md", "csv", "tex"):
        result.save(tmp_path / f"result.{suffix}")
        shown[suffix] = (tmp_path / f"result.{suffix}").read_text(encoding="utf-8")
    for output, text in shown.items():
        is_data = output in ("json", "csv")
        assert (own_figure.name if is_data else own_figure.title) in text, output
        assert (str(value.value) if is_data else f"{value.value:.2f}") in text, output
    assert own_figure.formula in shown["html"]


def test_a_figure_has_one_name():
    with pytest.raises(ValueError, match="already registered"):
        register_figure(FIGURES["round_trip"])
