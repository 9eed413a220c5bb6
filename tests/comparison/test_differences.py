"""Differences of tokenizers, cost for a model, speed: each figure against plain Python."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill._core import TextMarks
from bytemill.comparison import compare
from bytemill.comparison.costs import _lines, articles, model_cost  # pyright: ignore[reportPrivateUsage]
from bytemill.comparison.counting import MAX_UNITS, TokenCounter, TokenTable, UnitSums
from bytemill.comparison.differences import DifferenceCounter, vocabulary_difference
from bytemill.comparison.run import _names_of  # pyright: ignore[reportPrivateUsage]
from bytemill.errors import CorpusError, ModelConfigError
from bytemill.lm.planning import forward_flops, n_parameters
from bytemill.lm.presets import preset

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill import Tokenizer

TEXTS = ["The cat sat on the mat. " * 9, "日本語のテキスト naïve " * 8, "x = 12345\n" * 15, "12345\nx = "]
"""The last one is too short to be an excerpt, though its numbers of tokens differ."""


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {
        "words": bytemill.train_from_iterator(TEXTS, 300, ["<|end|>"]),
        "none": bytemill.train_from_iterator(TEXTS, 290, [], pattern=None),
        "bytes": bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, []),
    }


def boundaries(tokenizer: Tokenizer, text: str) -> set[int]:
    """Offsets of the boundaries inside a text."""
    ends = np.cumsum([len(tokenizer.vocab[i]) for i in tokenizer.encode_ordinary(text)]).tolist()
    return set(ends[:-1])


@pytest.mark.parametrize("all_pairs", [False, True])
def test_boundaries_are_those_of_plain_python(tokenizers: dict[str, Tokenizer], all_pairs: bool):
    texts_of = {"a": bytemill.Corpus.from_texts(TEXTS), "b": bytemill.Corpus.from_texts(TEXTS[:2])}
    result = compare(tokenizers, texts_of, all_pairs=all_pairs)
    for group, texts in (("a", TEXTS), ("b", TEXTS[:2])):
        pairs = [(own.first, own.second) for own in result.differences[group]]
        assert pairs == [("words", "none"), ("words", "bytes"), ("none", "bytes")][: 3 if all_pairs else 2]
        for own in result.differences[group]:
            cuts = [
                [boundaries(tokenizers[name], text) for text in texts] for name in (own.first, own.second)
            ]
            shared = sum(len(a & b) for a, b in zip(*cuts, strict=True))
            assert own.n_shared == shared
            assert own.n_boundaries == tuple(sum(map(len, each)) for each in cuts)
            assert own.shares == tuple(shared / sum(map(len, each)) for each in cuts)


def test_excerpts_are_the_documents_with_the_most_extreme_ratios(tokenizers: dict[str, Tokenizer]):
    result = compare(tokenizers, bytemill.Corpus.from_texts(TEXTS))
    (own, _) = result.differences["text"]
    counts = [
        [len(tokenizers[name].encode_ordinary(text)) for text in TEXTS[:3]] for name in ("words", "none")
    ]
    ratios = [max(a / b, b / a) for a, b in zip(*counts, strict=True)]
    order = sorted(range(3), key=lambda number: -ratios[number])
    assert [excerpt.number - 1 for excerpt in own.excerpts] == [n for n in order if ratios[n] > 1]
    first = own.excerpts[0]
    assert first.n_tokens == tuple(each[first.number - 1] for each in counts)
    assert first.tokens is not None
    for tokens in first.tokens:
        assert b"".join(token.bytes for token in tokens) == TEXTS[first.number - 1].encode()


def test_vocabularies_are_compared_as_byte_strings(tokenizers: dict[str, Tokenizer]):
    uses = {name: Counter(tokenizer.encode_ordinary(TEXTS[0])) for name, tokenizer in tokenizers.items()}
    histograms = {
        "g": {
            name: np.array([uses[name][number] for number in range(tokenizer.n_vocab)])
            for name, tokenizer in tokenizers.items()
        }
    }
    tables = {name: TokenTable(tokenizer) for name, tokenizer in tokenizers.items()}
    own = vocabulary_difference("words", "none", tables, histograms)
    first, second = ({*tokenizers[name].vocab.values()} - {b"<|end|>"} for name in ("words", "none"))
    assert own.n_common == len(first & second)
    assert own.n_only == (len(first - second), len(second - first))
    assert own.jaccard == len(first & second) / len(first | second)
    total = sum(uses["words"].values())
    expected = {tokenizers["words"].vocab[number]: n for number, n in uses["words"].items()}
    expected = {token: n for token, n in expected.items() if token not in second}
    most_used = sorted(expected.items(), key=lambda each: (each[1], each[0]), reverse=True)[:20]
    assert own.only_first["g"] == [(token, n, n / total) for token, n in most_used]


def test_tokenizers_that_change_the_text_have_no_boundaries_in_it():
    table = TokenTable(bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, []))
    marks = TextMarks(b"abc", np.array([3]))
    counted = marks.count(np.array([97], np.uint16), np.array([1]), table.bytes, np.zeros(256, np.int64))
    counter = DifferenceCounter([("a", "a")])
    counter.add(b"abc", np.array([3]), {"a": counted})
    assert counter.differences[0].shares == (None, None)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 7))
def test_sums_by_unit_are_exact_and_bounded(values: list[int], size: int):
    sums = UnitSums()
    for first in range(0, len(values), size):
        sums.add({"x": np.array(values[first : first + size])})
    assert sums.columns["x"].tolist() == values


def test_many_units_become_groups():
    sums = UnitSums()
    values = np.arange(3 * MAX_UNITS + 1)
    for part in np.array_split(values, 4):
        sums.add({"x": part})
    assert len(sums.columns["x"]) == MAX_UNITS
    assert sums.columns["x"].sum() == values.sum()
    assert sums.columns["x"][0] == 0 + MAX_UNITS + 2 * MAX_UNITS + 3 * MAX_UNITS


def test_lengths_of_units_are_counted_over_all_blocks(tokenizers: dict[str, Tokenizer]):
    counter = TokenCounter(tokenizers["bytes"], TokenTable(tokenizers["bytes"]), 1)
    for n_tokens in ([1, 3], [3], [5]):
        counter.add({"n_tokens": np.array(n_tokens)})
    assert counter.lengths.tolist() == [0, 1, 0, 2, 0, 1]


def test_costs_are_those_of_the_model():
    cost = model_cost("gpt2", 10_000, {"a": 4.0, "empty": None})
    shape = preset("gpt2", vocab_size=10_048)
    assert cost.vocab_size == 10_048
    assert cost.embedding_parameters == 10_048 * 768  # tied
    assert cost.parameter_share == cost.embedding_parameters / n_parameters(shape)
    flops = forward_flops(shape)
    assert cost.output_flops_share == flops["output layer"] / sum(flops.values())
    assert cost.flops_per_byte == {"a": sum(flops.values()) / 1024 / 4, "empty": None}
    assert cost.cache_bytes_per_kilobyte["a"] == 12 * 2 * 768 * 2 * 250
    assert cost.context_bytes["a"] == 4096


def test_an_unknown_preset_is_an_error_before_the_text_is_read(
    tokenizers: dict[str, Tokenizer], tmp_path: Path
):
    with pytest.raises(ModelConfigError, match="gpt3"):
        compare(tokenizers, str(tmp_path / "nothing.txt"), model="gpt3")


def test_speed_is_kept_apart(tokenizers: dict[str, Tokenizer]):
    texts = {"a": bytemill.Corpus.from_texts(TEXTS)}
    result = compare(tokenizers, texts, speed=True)
    for own in result.speed.values():
        assert own.bytes_per_second["a"] > 0
        assert own.memory_bytes is None or own.memory_bytes >= 0
    without = compare(tokenizers, {"a": bytemill.Corpus.from_texts(TEXTS)}).to_dict()
    assert {key: value for key, value in result.to_dict().items() if key != "speed"} == without


def test_an_empty_group_is_found_before_others_are_counted(tokenizers: dict[str, Tokenizer], tmp_path: Path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "empty.txt").write_text("")
    shown: list[str] = []
    with pytest.raises(CorpusError, match=r"no text|is empty"):
        compare(
            tokenizers,
            {"a": str(tmp_path / "a.txt"), "b": str(tmp_path / "empty.txt")},
            progress=lambda what, *_: shown.append(what),
        )
    assert shown == []


def test_names_tell_folders_and_equal_files_apart(tmp_path: Path):
    for name in ("Qwen2.5-0.5B", "Qwen2.5-0.6B"):
        (tmp_path / name).mkdir()
    assert _names_of([tmp_path / "Qwen2.5-0.5B", tmp_path / "Qwen2.5-0.6B"]) == [
        "Qwen2.5-0.5B",
        "Qwen2.5-0.6B",
    ]
    assert _names_of(["o200k_base.tiktoken", "x/v1.2", "y/tokenizer.json"]) == ["o200k_base", "v1.2", "y"]
    assert _names_of(["a/b/t.json", "a/c/t.json", "d/u.json"]) == ["b/t", "c/t", "u"]
    assert _names_of(["same.json", "same.json"]) == ["same", "same"]


def test_parallel_lines_end_at_line_feeds_alone():
    assert _lines("a\u2028b\x0bc\x85d\r\ne\n") == ["a\u2028b\x0bc\x85d", "e"]
    assert _lines("a\n\nb") == ["a", "", "b"]


def declaration(language: str, *, indent: int) -> str:
    """Return a file as "UDHR in Unicode" makes them: title, preamble and 30 articles, one of them a list."""
    space = " " * indent
    parts = [f"{space}Preamble\n{space}Whereas {language}\n{space}Whereas too"]
    for number in range(1, 31):
        paragraphs = [f"{space}Article {number}", f"{space}{language} text {number}"]
        if number == 11:
            paragraphs += [" " * (2 * indent), f"{space * 2}first", " " * (2 * indent), f"{space * 2}second"]
        parts.append("\n".join(paragraphs))
    header = "Declaration\nproject, http://www.unicode.org/udhr.\n---\n\nDeclaration\n   \n"
    return header + f"\n{' ' * (indent // 2)}\n".join(parts) + "\n"


def test_the_universal_declaration_is_aligned_by_articles(tokenizers: dict[str, Tokenizer], tmp_path: Path):
    (tmp_path / "udhr_eng.txt").write_text(declaration("english", indent=6))
    (tmp_path / "udhr_deu.txt").write_text(declaration("deutsch", indent=4))
    found = articles((tmp_path / "udhr_eng.txt").read_text())
    assert found == [f"english text {n}" + (" first second" if n == 11 else "") for n in range(1, 31)]
    result = compare(tokenizers, bytemill.Corpus.from_texts(TEXTS), parallel=tmp_path).parallel
    assert result is not None
    assert (result.reference, result.n_lines) == ("eng", 30)
    assert list(result.premiums["bytes"]) == ["deu", "eng"]


def test_all_languages_of_the_declaration_have_thirty_articles(shared_data: Path):
    files = sorted((shared_data / "udhr").glob("*.txt"))
    assert len(files) > 20
    for file in files:
        found = articles(file.read_text(encoding="utf-8"))
        assert len(found) == 30
        assert min(map(len, found)) > 10


def test_a_reference_without_tokens_gives_no_premiums(tokenizers: dict[str, Tokenizer], tmp_path: Path):
    (tmp_path / "en.txt").write_text("\n\n")
    (tmp_path / "de.txt").write_text("ä\nö\n", encoding="utf-8")
    result = compare(tokenizers, bytemill.Corpus.from_texts(TEXTS), parallel=tmp_path).parallel
    assert result is not None
    assert result.premiums["words"] == {"de": None, "en": None}
    assert result.line_gini["words"] == pytest.approx(0.5)
    assert result.lorenz["words"][-1] == (1.0, 1.0)
