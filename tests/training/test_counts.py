"""Saved counts: reuse, weighted sums, and errors for incompatible ones."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import Corpus, CorpusError, reference
from bytemill._core import NAMED_PATTERNS, read_counts_header
from bytemill.training import counts
from bytemill.training.counting import CountingSettings, count_corpus, count_texts
from bytemill.training.counts import CountedCorpus, SavedCounts, common_scale, exact_weight
from bytemill.training.work_folder import WorkFolder

END = "<|endoftext|>"
TEXT = f"low low lower newest{END}été 世界 low supercalifragilistic{END}"


def counted(inputs: object, special: Iterable[str] = (END,), pattern: str | None = "gpt2") -> CountedCorpus:
    settings = CountingSettings(list(special), pattern)
    with WorkFolder() as work:
        if isinstance(inputs, Iterator):
            return count_texts(inputs, settings, work)
        corpus = inputs if isinstance(inputs, Corpus) else Corpus(inputs)  # type: ignore[arg-type]
        return count_corpus(corpus, settings, work)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text(TEXT, "utf-8", newline="")
    return tmp_path


def half_up(number: Fraction) -> int:
    """Reference implementation of rounding."""
    return max(1, math.floor(number + Fraction(1, 2)))


# Files


def test_counts_that_are_kept_are_used_by_the_next_training(folder: Path) -> None:
    first = bytemill.train("corpus.txt", 270, [END], counts="c.bin")
    assert first.training_report is not None
    assert not first.training_report.from_counts
    info = counts.read_info("c.bin")
    assert (info.pattern, info.special_tokens, info.n_bytes) == ("gpt2", {END: 2}, len(TEXT.encode()))
    assert sorted(path.name for path in folder.iterdir()) == ["c.bin", "corpus.txt"]

    for options in ({}, {"ties": "huggingface"}, {"special_ids": "first"}, {"min_frequency": 2}):
        # Another size, tie rule or place of the special tokens: the corpus is not read.
        with pytest.warns(bytemill.TrainingStoppedEarly) if "min_frequency" in options else _nothing():
            again = bytemill.train("corpus.txt", 266, [END], counts="c.bin", **options)  # type: ignore[arg-type]
            expected = bytemill.train("corpus.txt", 266, [END], **options)  # type: ignore[arg-type]
        assert again.merges == expected.merges
        report, plain = again.training_report, expected.training_report
        assert report is not None
        assert plain is not None
        assert report.from_counts
        assert report.counts_file == "c.bin"
        for name in ("n_bytes", "n_pretokens", "n_unique_pretokens", "n_special_tokens", "n_documents"):
            assert getattr(report, name) == getattr(plain, name), name


def _nothing() -> AbstractContextManager[object]:
    return nullcontext()


def test_special_tokens_that_the_text_lacks_may_be_added_or_removed(folder: Path) -> None:
    bytemill.train("corpus.txt", 270, [END, "<|user|>"], counts="c.bin")
    expression = NAMED_PATTERNS["gpt2"]
    assert bytemill.train("corpus.txt", 270, [END], pattern=expression, counts="c.bin").n_vocab == 270
    for special in ([END], [END, "<|user|>"], ["<|bot|>", END]):
        tokenizer = bytemill.train("corpus.txt", 270, special, counts="c.bin")
        assert tokenizer.merges == bytemill.train("corpus.txt", 270, special).merges


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": "o200k"}, "counted with the pattern gpt2, not o200k"),
        ({"pattern": None}, "counted with the pattern gpt2, not none"),
        (
            {"special_tokens": ["<|user|>"]},
            r"special token '<\|endoftext\|>', which occurs 2 times in the text",
        ),
    ],
)
def test_counts_of_another_pattern_or_other_separators_are_refused(
    folder: Path, options: dict[str, object], message: str
) -> None:
    bytemill.train("corpus.txt", 270, [END], counts="c.bin")
    with pytest.raises(CorpusError, match=message) as caught:
        bytemill.train("corpus.txt", 270, **{"special_tokens": [END], "counts": "c.bin", **options})  # type: ignore[arg-type]
    assert caught.value.hint
    with pytest.raises(CorpusError, match=message):
        bytemill.train(SavedCounts([("c.bin", 1)]), 270, **{"special_tokens": [END], **options})  # type: ignore[arg-type]


def test_counts_of_another_version_of_unicode_are_refused(folder: Path) -> None:
    given = counted("corpus.txt")
    object.__setattr__(given.info, "unicode_version", "1.0.0")
    counts.save(given, "c.bin")
    with pytest.raises(CorpusError, match=r"counted with Unicode 1\.0\.0"):
        bytemill.train(SavedCounts([("c.bin", 1)]), 270, [END])


def test_counts_of_other_inputs_are_refused(folder: Path) -> None:
    # A checksum of the content on one side alone is not compared.
    bytemill.train(Corpus("corpus.txt", verify_input=True), 270, [END], counts="c.bin")
    assert bytemill.train("corpus.txt", 270, [END], counts="c.bin").n_vocab == 270
    (folder / "other.txt").write_text(TEXT + "more", "utf-8")
    for inputs in ("other.txt", ["corpus.txt", "other.txt"], Corpus("corpus.txt", documents="line")):
        with pytest.raises(
            CorpusError, match=r"c\.bin belongs to other inputs, or to files that changed since"
        ):
            bytemill.train(inputs, 270, [END], counts="c.bin")
    with pytest.raises(CorpusError, match="can be read only once"):
        bytemill.train_from_iterator([TEXT], 270, [END], counts="c.bin")
    (folder / "corpus.txt").write_text(TEXT + "more", "utf-8")
    with pytest.raises(CorpusError, match="they differ in sources"):
        bytemill.train("corpus.txt", 270, [END], counts="c.bin")
    assert bytemill.train(SavedCounts([("c.bin", 1)]), 270, [END]).n_vocab == 270


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("n_bytes", None, "n_bytes is None; it must be a valid integer"),
        ("n_pretokens", -1, "n_pretokens is -1; it must be greater than or equal to 0"),
        ("special_tokens", [], "special_tokens is []; it must be a valid dictionary"),
        ("reading", {"n_documents": "3"}, "reading.n_documents is '3'; it must be a valid integer"),
    ],
)
def test_an_invalid_value_in_the_header_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: object, problem: str
) -> None:
    bytemill.train("corpus.txt", 270, [END], counts="c.bin")
    header = json.loads(read_counts_header("c.bin")) | {key: value}
    monkeypatch.setattr(counts, "read_counts_header", lambda _: json.dumps(header))
    with pytest.raises(CorpusError) as caught:
        counts.load("c.bin")
    assert str(caught.value) == f"c.bin is damaged: {problem}"


@pytest.mark.parametrize("damage", ["bit", "cut", "text", "header", "version", "folder", "none"])
def test_damaged_and_missing_files_are_named(folder: Path, damage: str) -> None:
    bytemill.train("corpus.txt", 270, [END], counts="c.bin")
    path = folder / "c.bin"
    data = bytearray(path.read_bytes())
    match damage:
        case "bit":
            data[-9] ^= 1
        case "cut":
            del data[-3:]
        case "text":
            data[:] = b"not counts at all, but longer than that"
        case "header":
            data[24:30] = b"123456"
        case "version":
            data[16] = 9
        case _:
            pass
    path.unlink() if damage in ("folder", "none") else path.write_bytes(data)
    if damage == "folder":
        path.mkdir()
    expected = {
        "text": "c.bin is no file of counts",
        "version": "c.bin is of version 9",
        "folder": "c.bin is a folder",
        "none": "no such file: c.bin",
    }.get(damage, "c.bin is damaged")
    for attempt in (lambda: counts.load("c.bin"), lambda: counts.merge({"c.bin": 2})):
        with pytest.raises(CorpusError, match=expected) as caught:
            attempt()
        assert caught.value.hint


def test_the_file_is_as_documented(folder: Path) -> None:
    bytemill.train_from_iterator(["low low lower", "low été"], 260, [], counts="c.bin")
    data = (folder / "c.bin").read_bytes()
    assert data[:16] == b"bytemill counts\n"
    version, n_header = (int.from_bytes(data[at : at + 4], "little") for at in (16, 20))
    assert version == 1
    header = json.loads(data[24 : 24 + n_header])
    assert header["n_pretokens"] == 5
    at = 24 + n_header

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if not data[at - 1] & 0x80:
                return value

    words: list[tuple[bytes, int]] = []
    while count := number():
        for _ in range(number()):
            n_bytes = number()
            words.append((data[at : at + n_bytes], count))
            at += n_bytes
    import zlib

    assert words == [(b"low", 2), (b" low", 1), (b" lower", 1), (" été".encode(), 1)]
    assert data[at:] == zlib.crc32(data[:at]).to_bytes(4, "little")


# Adding up


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["low", " lower", "x" * 20, " 12", "é"]), min_size=1, max_size=20),
            st.sampled_from([1, 2, 0.5, 0.1, "1/3", "0.25", 1e-3, 7]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_sums_with_weights_are_those_of_fractions(
    tmp_path_factory: pytest.TempPathFactory, corpora: list[tuple[list[str], object]]
) -> None:
    folder = tmp_path_factory.mktemp("sums")
    expected: Counter[bytes] = Counter()
    files: list[tuple[str, object]] = []
    for place, (pieces, weight) in enumerate(corpora):
        text = "".join(pieces)
        path = str(folder / f"{place}.bin")
        counts.save(counted(iter([text])), path)
        files.append((path, weight))
        for pretoken, n_times in Counter(reference.corpus_pretokens([text], [END], "gpt2")).items():
            expected[pretoken] += n_times * exact_weight(weight)  # type: ignore[assignment, arg-type]
    found = counts.merge(files)  # type: ignore[arg-type]
    smallest = min(exact_weight(weight) for _, weight in files)  # type: ignore[arg-type]
    assert dict(found.items()) == {
        pretoken: half_up(Fraction(total) / smallest) for pretoken, total in expected.items()
    }


def test_only_the_ratios_of_weights_matter(folder: Path) -> None:
    (folder / "other.txt").write_text("newest widest lowest " * 9, "utf-8")
    trained = bytemill.train("corpus.txt", 290, [END], counts="c.bin").merges
    both = bytemill.train(Corpus(["corpus.txt", "other.txt"], weights={"other.txt": 2.0}), 290, [END]).merges
    assert both != trained
    for scale in (1e-9, 0.001, 3, 1e17):
        assert bytemill.train(SavedCounts([("c.bin", scale)]), 290, [END]).merges == trained
        weights = {"corpus.txt": scale, "other.txt": 2 * scale}
        corpus = Corpus(["corpus.txt", "other.txt"], weights=weights)
        assert bytemill.train(corpus, 290, [END]).merges == both


def test_a_sum_in_a_file_keeps_its_weights(folder: Path) -> None:
    counts.save(counted(iter(["low low lower"])), "a.bin")
    counts.save(counted(iter(["low newest"])), "b.bin")
    half = counts.merge({"a.bin": 0.5, "b.bin": 1})
    assert (dict(half.items())[b"low"], half.info.unit) == (1 + 2, "1/2")
    counts.save(half, "half.bin")
    assert counts.load("half.bin").info == half.info
    found = counts.merge({"half.bin": 1, "a.bin": 1})  # half as much again of a as of b
    assert dict(found.items()) == {b"low": 3 + 2, b" low": 3, b" lower": 3, b" newest": 2}
    weighted = Corpus("corpus.txt", weights={"corpus.txt": 0.25})
    assert counted(weighted).info.unit == "1/4"
    assert counted(weighted).items() == counted("corpus.txt").items()


def test_weights_of_a_corpus_multiply_its_counts(folder: Path) -> None:
    for name, text in (
        ("a.txt", "low low low lower"),
        ("b.txt", "low newest newest"),
        ("c.txt", " lower 12"),
    ):
        (folder / name).write_text(text, "utf-8")
    weights = {"a.txt": 0.5, "b.txt": 3.0}
    expected: Counter[bytes] = Counter()
    for name in ("a.txt", "b.txt", "c.txt"):
        text = (folder / name).read_text("utf-8")
        for pretoken, n_times in Counter(reference.corpus_pretokens([text], [], "gpt2")).items():
            expected[pretoken] += n_times * exact_weight(weights.get(name, 1))  # type: ignore[assignment]
    rounded = {pretoken: half_up(Fraction(total) * 2) for pretoken, total in expected.items()}
    for documents in ("file", "line"):
        corpus = Corpus(["a.txt", "b.txt", "c.txt"], weights=weights, documents=documents)
        assert dict(counted(corpus, []).items()) == rounded
    # Documents that come as often as their weight says do not count as often once more.
    repeated = Corpus(["a.txt", "b.txt"], weights={"b.txt": 2.0}, documents="line", repeat_by_weight=True)
    assert dict(counted(repeated, []).items())[b"low"] == 1 + 2


def test_counts_of_different_settings_cannot_be_added(folder: Path) -> None:
    counts.save(counted(iter([TEXT])), "a.bin")
    counts.save(counted(iter([TEXT]), pattern="o200k"), "o200k.bin")
    counts.save(counted(iter([TEXT]), special=[]), "no-special.bin")
    for other, message in (
        ("o200k.bin", "with the pattern gpt2, o200k.bin with o200k"),
        ("no-special.bin", "without it"),
    ):
        with pytest.raises(CorpusError, match=message):
            counts.merge(["a.bin", other])
    for weight in (0, -1, "much", float("nan"), float("inf"), None, "1/0"):
        with pytest.raises(CorpusError, match="is not a weight"):
            counts.merge([("a.bin", weight)])  # type: ignore[list-item]
    with pytest.raises(CorpusError, match="no common denominator"):
        counts.merge([("a.bin", 1), ("a.bin", "1/4294967291"), ("a.bin", "1/4294967279")])
    with pytest.raises(CorpusError, match="too large") as caught:
        counts.merge([("a.bin", 2**62), ("a.bin", 1)])
    assert caught.value.hint == "use weights that differ less, or have fewer digits"
    (folder / "other.txt").write_text(TEXT, "utf-8")
    with pytest.raises(CorpusError, match="too large") as caught:
        counted(Corpus(["corpus.txt", "other.txt"], weights={"corpus.txt": 2.0**62}))
    assert caught.value.hint == "use weights that differ less, or have fewer digits"
    with pytest.raises(CorpusError, match="there is no file of counts"):
        counts.merge([])


def test_a_scale_is_shared_by_all_weights() -> None:
    assert common_scale([]) == ([], 1)
    assert common_scale([1.0, 1.0]) == ([1, 1], 1)
    assert common_scale([0.1, 0.25]) == ([2, 5], 2)
    assert common_scale([0.001]) == common_scale([1]) == common_scale([1e17]) == ([1], 1)


# What is rare


def test_rare_pretokens_are_left_out_and_reported(folder: Path) -> None:
    tokenizer = bytemill.train("corpus.txt", 258, [END], min_pretoken_count=2)
    report = tokenizer.training_report
    assert report is not None
    items = counted("corpus.txt").items()
    rare = [n for _, n in items if n < 2]
    assert report.n_unique_pretokens == len(items)
    assert (report.n_dropped_pretokens, report.n_dropped_occurrences) == (len(rare), sum(rare))
    kept = {pretoken: n for pretoken, n in items if n >= 2}
    assert kept == {b" low": 2} or tokenizer.merges[0][0] in b" low"
    # In the file everything is kept.
    with pytest.warns(bytemill.TrainingStoppedEarly):
        bytemill.train("corpus.txt", 300, [END], min_pretoken_count=2, counts="c.bin")
    assert counts.load("c.bin").items() == items


def test_counts_that_one_trains_of_can_be_trained_of_again(folder: Path, small_process: None) -> None:
    given = counted("corpus.txt")
    items = given.items()
    expected = bytemill.train("corpus.txt", 266, [END]).merges
    for options in ({}, {"min_pretoken_count": 2}, {"max_memory": "1GB"}, {}):
        with pytest.warns(bytemill.TrainingStoppedEarly) if "min_pretoken_count" in options else _nothing():
            merges = bytemill.train(given, 266, [END], **options).merges  # type: ignore[arg-type]
        assert merges == expected or "min_pretoken_count" in options
        assert given.items() == items
