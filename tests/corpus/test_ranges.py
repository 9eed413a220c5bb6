"""The parts of a corpus give the documents of the whole."""

import itertools
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill._core import NAMED_PATTERNS, pretoken_spans, safe_cut
from bytemill.corpus import Corpus
from bytemill.corpus.documents import CorpusRange
from bytemill.corpus.ranges import divide
from bytemill.errors import CorpusError

WORDS = [
    "low", "lower", " ", "\n", "é", "日本", "naïve ", "x" * 50, "<|end|>", "1234", "it's", "\r\n", "😀", "a b",
]  # fmt: skip
texts = st.lists(st.sampled_from(WORDS), max_size=60).map("".join)


def documents(corpus: Corpus, parts: list[CorpusRange | None]) -> list[bytes]:
    """Return the documents; those that continue in the next part are joined."""
    found: list[bytes] = []
    is_open = False
    for part in parts:
        for batch in corpus.read() if part is None else corpus.read_range(part):
            data, start = bytes(batch.data), 0
            for end in batch.ends.tolist():
                if is_open:
                    found[-1] += data[start:end]
                else:
                    found.append(data[start:end])
                is_open, start = False, end
            is_open = batch.is_open
        is_open = is_open or (part is not None and part.ends_inside)
    return found


def cut(window: str) -> int | None:
    return safe_cut("gpt2", ["<|end|>"], window)


def check(corpus: Corpus, part_bytes: int) -> list[CorpusRange]:
    parts = divide(corpus, part_bytes, cut)
    assert sum(part.n_bytes for part in parts) == corpus.total_bytes
    for before, after in itertools.pairwise(parts):
        assert (before.stop or 0) == after.start
        assert after.first == before.last + (before.stop is None)
        assert before.ends_inside == after.starts_inside
    assert documents(corpus, [*parts]) == documents(corpus, [None])
    assert parts == divide(corpus, part_bytes, cut)
    assert [CorpusRange(**part.to_dict()) for part in parts] == parts
    return parts


@given(
    st.lists(texts, min_size=1, max_size=6), st.integers(1, 400), st.sampled_from(["line", "<|end|>", "file"])
)
def test_text_files(tmp_path: Path, contents: list[str], part_bytes: int, each: str) -> None:
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.txt").write_bytes(content.encode() + b"end\n")
    names = [tmp_path / f"{number}.txt" for number in range(len(contents))]
    check(Corpus(names, documents=each), part_bytes)


@given(st.lists(st.lists(texts, min_size=1, max_size=8), min_size=1, max_size=4), st.integers(1, 600))
def test_json_lines_and_parquet(tmp_path: Path, contents: list[list[str]], part_bytes: int) -> None:
    names: list[Path] = []
    for number, rows in enumerate(contents):
        lines = tmp_path / f"{number}.jsonl"
        lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
        table = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"text": rows}), table, row_group_size=2)
        names += [lines, table]
    check(Corpus(names), part_bytes)


def test_one_huge_file_is_divided_evenly(tmp_path: Path) -> None:
    path = tmp_path / "huge.txt"
    path.write_text("It was a dark and stormy night; 1830 was the year.\n" * 60_000)
    (tmp_path / "small.txt").write_text("small")
    corpus = Corpus([path, tmp_path / "small.txt"])
    parts = check(corpus, 300_000)
    assert len(parts) == 11, [part.n_bytes for part in parts]
    assert all(abs(part.n_bytes - 300_000) < 30_000 for part in parts[:-1])
    assert all(part.ends_inside for part in parts[:-1])
    text = path.read_text()
    starts = [part.start for part in parts]
    ends = {end for _, end in pretoken_spans(text, NAMED_PATTERNS["gpt2"])}
    assert set(starts[1:]) <= ends
    # Without a safe cut the file is one part.
    assert [part.first for part in divide(corpus, 300_000)] == [0, 1]


def test_small_files_share_a_part(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"{number:03}.txt").write_text("x" * 100)
    parts = divide(Corpus(tmp_path), 10_000, cut)
    assert [part.n_bytes for part in parts[:-1]] == [pytest.approx(10_000, rel=0.1)] * (len(parts) - 1)
    assert not any(part.start for part in parts)


def test_compressed_files_and_samples_are_whole(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "abc"}\n' * 5000, 0))
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "abc"}\n' * 5000)
    names = [tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"]
    starts = [part.start > 0 for part in check(Corpus(names), 20_000)]
    assert starts == [False, False, True, True, True]
    assert not any(part.start for part in check(Corpus(names, sample=0.5), 20_000))
    assert not any(
        part.start for part in check(Corpus(names, weights={str(names[1]): 2.5}, repeat_by_weight=True), 9000)
    )


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")
    with pytest.raises(CorpusError, match="limit of bytes"):
        divide(Corpus(tmp_path / "a.txt", limit_bytes=10), 100)
    with pytest.raises(CorpusError, match="read only once"):
        divide(Corpus.from_texts(["a"]), 100)


def test_an_error_in_a_part_names_the_line_of_the_file(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"number {number}"}) for number in range(3000)]
    lines[2500] = "{broken"
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    corpus = Corpus(path)
    with pytest.raises(CorpusError) as whole:
        documents(corpus, [None])
    parts = divide(corpus, 10_000, cut)
    [broken] = [
        part for part in parts if part.start <= path.read_text().find("{broken") < (part.stop or 1 << 60)
    ]
    with pytest.raises(CorpusError) as divided:
        documents(corpus, [broken])
    assert str(divided.value) == str(whole.value)
    assert ":2,501" in str(whole.value)
    path.write_bytes(b"good\n" * 5000 + b"bad \xff\n" + b"good\n" * 100)
    corpus = Corpus(path, format="text", documents="line")
    parts = divide(corpus, 4000, cut)
    with pytest.raises(CorpusError, match=r":5,001: byte offset 25004 "):
        documents(corpus, [*parts])
    with pytest.raises(CorpusError, match=r":5,001: byte offset 25004 "):
        documents(corpus, [None])
