"""Limits, samples and weights."""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.corpus import Corpus, documents
from bytemill.errors import CorpusError

from .conftest import read, texts_of


def rows(n: int, prefix: str = "") -> list[dict[str, str]]:
    return [{"text": f"{prefix}document {i} " + "x" * (i * 7 % 50)} for i in range(n)]


def given_texts(n: int, **options: Any) -> list[str]:
    return texts_of(read(Corpus.from_rows(rows(n), **options)))


ALL = [row["text"] for row in rows(200)]


@pytest.mark.parametrize("limit", [1, 10, 11, 100, 1000, 3000, 10**9])
@pytest.mark.parametrize("batch_bytes", [16, 300, 1 << 20])
def test_the_document_that_reaches_the_limit_is_the_last(
    monkeypatch: pytest.MonkeyPatch, limit: int, batch_bytes: int
) -> None:
    monkeypatch.setattr(documents, "BATCH_BYTES", batch_bytes)
    found = given_texts(200, limit_bytes=limit)
    assert found == ALL[: len(found)]
    n_bytes = sum(map(len, found))
    assert n_bytes >= limit or found == ALL
    assert n_bytes - len(found[-1]) < limit


def test_the_limit_counts_over_all_inputs(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} line {i}\n" for i in range(10)))
    found = texts_of(read(Corpus(tmp_path, documents="line", limit_bytes=100)))
    assert [text[:8] for text in found] == [f"a line {i}" for i in range(10)] + [
        "b line 0",
        "b line 1",
        "b line 2",
    ]


@pytest.mark.parametrize("limit", [1, 9, 10, 11, 64, 65, 127, 128, 129, 200, 300])
@pytest.mark.usefixtures("tiny_batches")
def test_a_file_ends_with_the_line_that_reaches_the_limit(tmp_path: Path, limit: int) -> None:
    text = "größer 12\n" * 20 + "no end"
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt").write_text("never")
    batches = read(Corpus(tmp_path, limit_bytes=limit))
    found = b"".join(bytes(batch.data) for batch in batches)
    data = (text + ("never" if limit > len(text.encode()) else "")).encode()
    if limit > len(data) - len("no end"):
        assert found == data
    else:
        assert found == data[: data.index(b"\n", limit - 1) + 1]
    assert batches[-1].after.source == 2
    assert not batches[-1].is_open


def test_a_limit_does_not_cut_documents_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one\\ntwo\\nthree"}\n' * 3)
    assert texts_of(read(Corpus(tmp_path, limit_bytes=2))) == ["one\ntwo\nthree"]
    assert (
        texts_of(read(Corpus.from_rows([{"text": "one\ntwo\nthree"}] * 3, limit_bytes=15)))
        == ["one\ntwo\nthree"] * 2
    )


def test_standard_input_ends_with_the_line_that_reaches_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\nthree\n")))
    assert texts_of(read(Corpus("-", limit_bytes=5))) == ["one\ntwo\n"]


def test_a_broken_document_behind_the_limit_is_not_seen(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\nnonsense\n')
    assert texts_of(read(Corpus(tmp_path, limit_bytes=4))) == ["one", "two"]
    with pytest.raises(CorpusError, match=r"a\.jsonl:3"):
        read(Corpus(tmp_path, limit_bytes=7))


@given(sample=st.floats(0.05, 1), seed=st.integers(-5, 2**70), batch_bytes=st.integers(16, 5000))
def test_a_sample_depends_on_the_seed_and_nothing_else(sample: float, seed: int, batch_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = given_texts(200, sample=sample, seed=seed)
        patch.setattr(documents, "BATCH_BYTES", batch_bytes)
        assert given_texts(200, sample=sample, seed=seed) == found
    assert found == [text for text in ALL if text in set(found)]


def test_a_sample_is_as_large_as_it_should_be_and_grows() -> None:
    small, large = (set(given_texts(200, sample=share, seed=1)) for share in (0.3, 0.7))
    assert small < large
    # Six standard deviations of a binomial distribution are 39.
    assert abs(len(small) - 60) < 39
    assert abs(len(large) - 140) < 39
    assert set(given_texts(200, sample=0.3, seed=2)) != small
    assert given_texts(200, sample=1.0) == ALL


def test_sources_are_sampled_apart(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("".join(f"{i}\n" for i in range(200)))
    found = texts_of(read(Corpus([str(tmp_path / "a"), str(tmp_path / "b")], documents="line", sample=0.5)))
    first = found[: found.index(max(found[:110], key=int)) + 1]
    assert first != found[len(first) :]


def test_files_that_are_not_in_the_sample_are_not_read(tmp_path: Path) -> None:
    for i in range(40):
        (tmp_path / f"{i:02}.txt").write_text(f"text {i}")
    corpus = Corpus(tmp_path, sample=0.3)
    found = texts_of(read(corpus))
    assert 1 < len(found) < 30
    for i in range(40):
        if f"text {i}" not in found:
            (tmp_path / f"{i:02}.txt").write_bytes(b"\xff" * len(f"text {i}"))
    assert texts_of(read(corpus)) == found


def test_weights_repeat_documents_and_leave_some_out(tmp_path: Path) -> None:
    for name in ("once", "often", "rarely"):
        (tmp_path / name).write_text("".join(f"{name} {i}\n" for i in range(400)))
    inputs = [str(tmp_path / name) for name in ("once", "often", "rarely")]
    weights = {inputs[1]: 2.5, inputs[2]: 0.25}
    plain = Corpus(inputs, documents="line", weights=weights)
    assert plain.weights == [1.0, 2.5, 0.25]
    assert len(texts_of(read(plain))) == 1200
    corpus = Corpus(inputs, documents="line", weights=weights, repeat_by_weight=True)
    batches = read(corpus)
    times = Counter(texts_of(batches))
    assert {times[f"once {i}"] for i in range(400)} == {1}
    assert Counter(times[f"often {i}"] for i in range(400)).keys() == {2, 3}
    assert abs(sum(times[f"often {i}"] for i in range(400)) - 1000) < 60
    assert abs(sum(times[f"rarely {i}"] for i in range(400)) - 100) < 52
    sizes = [path.stat().st_size for path in map(Path, inputs)]
    assert corpus.total_bytes == sizes[0] + 3 * sizes[1] + sizes[2]
    assert batches[-1].n_bytes_read == corpus.total_bytes


def test_weights_go_by_the_input_as_given_or_by_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    for name in ("books/a.txt", "books/b.txt", "web.txt"):
        Path(name).write_text("text")
    corpus = Corpus(["books/*.txt", "web.txt"], weights={"books/*.txt": 2, "books/b.txt": 3})
    assert corpus.weights == [2.0, 3.0, 1.0]
    with pytest.raises(CorpusError, match="book has a weight but is not an input") as caught:
        Corpus(["books", "web.txt"], weights={"book": 2})
    assert caught.value.hint == "the inputs are books, web.txt"
    for weight in (0, -1, float("nan"), float("inf")):
        with pytest.raises(CorpusError, match="the weight of books is"):
            Corpus("books", weights={"books": weight})
    with pytest.raises(TypeError, match="must be a number"):
        Corpus("books", weights={"books": "2"})  # type: ignore[dict-item]


def test_an_input_that_can_be_read_once_cannot_be_repeated() -> None:
    with pytest.raises(CorpusError, match="can be read only once, but its weight is 2"):
        Corpus(["-"], weights={"-": 2}, repeat_by_weight=True)
    assert Corpus(["-"], weights={"-": 2}).weights == [2.0]


def test_a_sample_without_documents_says_so() -> None:
    with pytest.raises(CorpusError, match="the sample holds no document of <rows>"):
        given_texts(1, sample=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit_bytes": 0}, "limit_bytes is 0"),
        ({"sample": 0.0}, "sample is 0.0"),
        ({"sample": 1.5}, "sample is 1.5"),
        ({"sample": float("nan")}, "sample is nan"),
        ({"format": "xlsx"}, "unknown format 'xlsx'"),
        ({"errors": "ignore"}, "errors is 'ignore'"),
        ({"on_error": "warn"}, "on_error is 'warn'"),
        ({"field": ""}, "field is ''"),
        ({"field": "a..b"}, "field is 'a..b'"),
        ({"documents": ""}, "documents is empty"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CorpusError) as caught:
        Corpus("no-such-file.txt", **options)
    assert str(caught.value) == message
    assert caught.value.hint
