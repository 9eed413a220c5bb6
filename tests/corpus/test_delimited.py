"""CSV and TSV: what Python's `csv` reads, and rows that are broken, large or cut off."""

import csv
import gzip
import io
import re
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.corpus import Corpus, documents
from bytemill.corpus.compression import Decompressed
from bytemill.corpus.delimited import _Dialect, _with_line_end
from bytemill.corpus.ranges import divide
from bytemill.corpus.streams import _BufferedStream
from bytemill.errors import CorpusError

from .conftest import read, table, texts_of

CELLS = st.text(st.sampled_from(',;"\n\r\tab é'), max_size=6)


@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=8), at=st.integers(0, 2))
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_values_are_those_of_python(
    tmp_path: Path, suffix: str, rows: list[tuple[str, str, str]], at: int
) -> None:
    names = ["a", "b"]
    names.insert(at, "text")
    path, delimiter = tmp_path / f"t.{suffix}", "\t" if suffix == "tsv" else ","
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([names, *rows])
    with path.open(encoding="utf-8", newline="") as file:
        expected = [row["text"] for row in csv.DictReader(file, delimiter=delimiter)]
    assert texts_of(read(Corpus(path))) == expected


def test_the_first_row_may_be_all_and_a_file_may_be_empty(tmp_path: Path) -> None:
    for name, data in (
        ("a.csv", b"id,text"),
        ("b.csv", b"id,text\n"),
        ("c.csv", b""),
        ("d.csv", b"\xef\xbb\xbf\n"),
    ):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "e.csv").write_bytes(b"\n\nid,text\r\n\r\n1,x")
    (tmp_path / "f.csv.gz").write_bytes(gzip.compress(b""))
    assert texts_of(read(Corpus(tmp_path))) == ["x"]


def test_values_that_are_no_text_elsewhere_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,id\nNULL,1\n,2\n"",3\nNaN,4\n1.50,5\ntrue,6\n5" disk,7\n')
    assert texts_of(read(Corpus(tmp_path))) == ["NULL", "", "", "NaN", "1.50", "true", '5" disk']


def test_rows_with_another_number_of_columns_are_broken(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,one\n2\n3,three\n4,four,five\n6,six\n7\n")
    batches: list[object] = []
    with pytest.raises(CorpusError, match=r"a\.csv: row 2 has 1 columns instead of 2") as caught:
        batches.extend(Corpus(tmp_path).read())
    assert "--on-error skip" in str(caught.value.hint)
    assert len(batches) == 1
    found = read(Corpus(tmp_path, on_error="skip"))
    assert texts_of(found) == ["one", "three", "six"]
    assert found[-1].after.counts.n_broken == 3


@pytest.mark.usefixtures("tiny_batches")
def test_resuming_among_broken_rows_counts_each_once(tmp_path: Path) -> None:
    rows = [f"{number},text {number}" if number % 3 else "broken" for number in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["id,text", *rows]))
    corpus = Corpus(tmp_path, on_error="skip")
    batches = read(corpus)
    assert (batches[-1].after.counts.n_broken, len(texts_of(batches)), len(batches) > 3) == (20, 40, True)
    for number, batch in enumerate(batches):
        rest = list(corpus.read(batch.after))
        assert [bytes(each.data) for each in rest] == [bytes(each.data) for each in batches[number + 1 :]]
        assert [each.after for each in rest] == [each.after for each in batches[number + 1 :]]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_rows_larger_than_a_block_are_read_whole_up_to_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(documents, "BATCH_BYTES", 1000)
    texts = ["one", "x" * 5000, "two", "y\n" * 4060, *(f"more {number}" for number in range(500))]
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(gzip.compress(table(texts)) if suffix == "csv.gz" else table(texts))
    corpus = Corpus(path)
    batches = read(corpus)
    assert texts_of(batches) == texts
    for number, batch in enumerate(batches):
        assert [each.after for each in corpus.read(batch.after)] == [
            each.after for each in batches[number + 1 :]
        ]
    with pytest.raises(CorpusError, match=r"row 2 is larger than max_document_bytes \(2,000\)"):
        read(Corpus(path, max_document_bytes=2000))
    corpus = Corpus(path, max_document_bytes=2000, on_error="skip")
    batches = read(corpus)
    assert texts_of(batches) == ["one", *texts[2:3], *texts[4:]]
    assert batches[-1].after.counts.n_broken == 2
    for number, batch in enumerate(batches):
        assert [each.after for each in corpus.read(batch.after)] == [
            each.after for each in batches[number + 1 :]
        ]


@given(data=st.text(st.sampled_from(',"\n\ra'), max_size=30), n_bytes=st.integers(2, 9))
def test_skipping_a_row_ends_where_the_pattern_of_rows_does(data: str, n_bytes: int) -> None:
    dialect = _Dialect("CSV", ",")
    encoded = data.encode()
    row = re.match(dialect._row, _with_line_end(encoded))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "BATCH_BYTES", n_bytes)
        stream = _BufferedStream(Decompressed(io.BytesIO(encoded), "data"), threading.Event())
        assert dialect.skip_row(stream) == (min(row.end(), len(encoded)) if row else len(encoded))


def test_a_quoted_value_that_does_not_end_is_damage(tmp_path: Path) -> None:
    whole = table(['a "quoted" text,\nof two lines'] * 5)
    path = tmp_path / "a.csv"
    n_read = 0
    for n_bytes in range(20, len(whole)):
        path.write_bytes(whole[:n_bytes])
        try:
            expected = list(csv.reader(io.StringIO(whole[:n_bytes].decode(), newline=""), strict=True))
        except csv.Error:
            with pytest.raises(CorpusError, match=r"does not end|columns instead of|first row does not end"):
                read(Corpus(path))
        else:
            n_read += len(expected[-1]) == 3 and n_bytes > 40 and texts_of(read(Corpus(path))) is not None
    assert n_read


def test_missing_columns_and_malformed_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,body\n1,one\n2,\xff\n")
    with pytest.raises(CorpusError, match=r"a\.csv: there is no column 'text'") as caught:
        read(Corpus(path))
    assert caught.value.hint == "choose one with --column (field=): id, body"
    with pytest.raises(CorpusError, match=r"a\.csv: row 2: byte offset 0 of the text is not valid UTF-8"):
        read(Corpus(path, field="body"))
    assert texts_of(read(Corpus(path, field="body", errors="replace"))) == ["one", "\ufffd"]


def test_tables_are_parts_of_a_corpus_and_read_whole(tmp_path: Path) -> None:
    for name in ("a.csv", "b.tsv"):
        (tmp_path / name).write_bytes(
            table([f"{name} {n}" for n in range(500)], "\t" if "tsv" in name else ",")
        )
    corpus = Corpus([str(tmp_path / "a.csv"), str(tmp_path / "b.tsv")])
    parts = divide(corpus, 2000)
    assert len(parts) == 2
    assert [text for part in parts for text in texts_of(corpus.read_range(part))] == texts_of(read(corpus))
