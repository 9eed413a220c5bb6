"""A field or column that is not there: the error names those that are."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from bytemill.corpus import Corpus
from bytemill.errors import CorpusError

from .conftest import read

ROW = {"id": 1, "body": "x", "meta": {"lang": "en", "source text": "y"}}


def hint_of(corpus: Corpus) -> str:
    with pytest.raises(CorpusError) as caught:
        read(corpus)
    return str(caught.value.hint)


def test_every_format_names_the_fields_of_strings(tmp_path: Path) -> None:
    listing = "body, meta.lang, meta.source text"
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(ROW)}\n" * 2)
    pq.write_table(pa.Table.from_pylist([ROW]), tmp_path / "a.parquet")
    pyarrow.feather.write_feather(pa.Table.from_pylist([ROW]), str(tmp_path / "a.arrow"))
    (tmp_path / "a.csv").write_text("id,body,meta.lang\n1,x,en\n")
    assert hint_of(Corpus(tmp_path / "a.jsonl")) == f"choose one with --field (field=): {listing}"
    for name in ("a.parquet", "a.arrow"):
        assert hint_of(Corpus(tmp_path / name)) == f"choose one with --column (field=): {listing}"
        assert hint_of(Corpus(tmp_path / name, field="id")).endswith(listing)
    assert hint_of(Corpus(tmp_path / "a.csv")).endswith("(field=): id, body, meta.lang")
    assert hint_of(Corpus.from_rows([ROW])) == f"choose one with field=: {listing}"


@pytest.mark.parametrize(
    ("wanted", "meant"), [("bdy", "body"), ("Body", "body"), ("lang", "meta.lang"), ("meta.lan", "meta.lang")]
)
def test_the_nearest_field_is_suggested(tmp_path: Path, wanted: str, meant: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(ROW))
    pq.write_table(pa.Table.from_pylist([ROW]), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        assert hint_of(Corpus(tmp_path / name, field=wanted)).startswith(
            f"did you mean '{meant}'? choose one"
        )


def test_leaving_out_is_suggested_only_where_it_helps(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good, bad = json.dumps({"text": "one"}), json.dumps(ROW)
    path.write_text(f"{bad}\n{good}\n")
    assert "--on-error" not in hint_of(Corpus(path))
    path.write_text(f"{good}\n{bad}\n")
    assert hint_of(Corpus(path)).startswith(
        "choose one with --field (field=): body, meta.lang, meta.source text; "
    )
    assert "--on-error skip" in hint_of(Corpus(path))
    for line in ('{"text": null}', '{"text": "a', "17", "[]"):
        path.write_text(f"{good}\n{line}\n")
        assert hint_of(Corpus(path)).startswith('on_error="skip"')


def test_a_row_without_the_text_of_others_names_its_own_fields() -> None:
    assert "body" in hint_of(Corpus.from_rows([{"text": "one"}, ROW]))
