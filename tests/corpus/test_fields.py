"""A field or column that is not there: the error names those that are."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bytemill._core import JsonLines
from bytemill.corpus import Corpus, DocumentBatch
from bytemill.errors import CorpusError

from .conftest import read, texts_of

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


PATHS = (["text"], ["meta", "text"])


def slow_text(line: bytes, path: list[str], errors: str) -> tuple[str, int, int] | None:
    """(text, sequences replaced, bytes left out) of a line by Python's json; None where it is broken."""
    handlers = {"strict": "strict", "replace": "replace", "skip": "ignore"}
    try:
        decoded = line.decode("utf-8", handlers[errors])
    except UnicodeDecodeError:
        return None
    clean = line.decode("utf-8", "ignore")
    n_replaced = len(line.decode("utf-8", "replace")) - len(clean) if errors == "replace" else 0
    n_skipped = len(line) - len(clean.encode()) if errors == "skip" else 0
    try:
        value: Any = json.loads(decoded)
    except (ValueError, RecursionError):
        return None
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    if not isinstance(value, str):
        return None
    lone = [character for character in value if 0xD800 <= ord(character) <= 0xDFFF]
    if lone and errors == "strict":
        return None
    text = "".join("\ufffd" if character in lone else character for character in value)
    if errors == "skip":
        text = "".join(character for character in value if character not in lone)
        return text, n_replaced, n_skipped + 6 * len(lone)
    return text, n_replaced + (len(lone) if errors == "replace" else 0), n_skipped


def slow_documents(block: bytes, path: list[str], errors: str) -> tuple[list[str], int, list[int]]:
    """(texts, broken lines, [replaced, skipped]) of the lines of a block."""
    texts: list[str] = []
    n_broken, counts = 0, [0, 0]
    for line in block.split(b"\n"):
        if not line.strip(b" \t\r"):
            continue
        found = slow_text(line, path, errors)
        if found is None:
            n_broken += 1
        else:
            texts.append(found[0])
            counts = [counts[0] + found[1], counts[1] + found[2]]
    return texts, n_broken, counts


SPOILERS = [b"", b'"', b"\\", b"\xff", b"\xe4\xb8", b"\t", b"\r", b" ", b"NaN", b"-", b"{", b","]

# A string with every kind of character, and spellings that only some readers take.
characters = st.one_of(
    st.characters(), st.sampled_from('"\\/\b\t\n\r\x00\x1f\x7f\u2028é日😀\ud800\udc00\udfff')
)
strings = st.text(characters, max_size=8)
keys = st.one_of(st.sampled_from(["text", "meta"]), strings)
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**30), 10**30),
        st.floats(),
        strings,
        st.sampled_from(["text", "NaN"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from(["text", "meta", "a.b", "\ud800"]), values, max_size=4)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line of JSON, sometimes broken."""
    value = draw(st.one_of(objects, values))
    line = json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 2)) if draw(st.booleans()) else 0):
        place = draw(st.integers(0, len(line)))
        kind = draw(st.integers(0, 3))
        inserted = draw(st.sampled_from(SPOILERS))
        line = line[:place] + (inserted if kind else b"") + line[place + (kind == 1) :]
    return line.replace(b"\n", b"")


@given(block=st.lists(lines(), max_size=4).map(b"\n".join), path=st.sampled_from(PATHS))
@example(b'{"text": "a", "text": 5}\n{"text": 5, "text": "b"}', ["text"])
@example(b'{"meta": {"text": "a"}, "meta": 5}\n{"meta": 5, "meta": {"text": "b"}}', ["meta", "text"])
@example(b'{"text": "\\ud83d\\ude00 \\ude00\\ud83d \\\\ud800"}\r\n\r\n \t\n{"text": "\\ud800\xff"}', ["text"])
@example(
    b'{"text": "x", "n": NaN}\n{"text": "x", "n": [-Infinity,Infinity]}\n{"text": "x", "n": -NaN}', ["text"]
)
@example(b"\xff", ["text"])
@example(b'{"text": "a\tb"}\n{"text": "x"} x\n["text"]\n"text"\n5\n{"text": "x",}', ["text"])
@example(b'{"n": 1e400, "m": ' + b"1" * 400 + b', "text": "x"}\n{"text": 1e400}', ["text"])
@example(b'{"a": ' + b"[" * 300 + b"]" * 300 + b', "text": "deep"}', ["text"])
def test_lines_mean_what_python_makes_of_them(block: bytes, path: list[str]) -> None:
    for errors in ("strict", "replace", "skip"):
        found = JsonLines(path, errors, leaves_out=True).parse(block, len(block))
        texts, n_broken, counts = slow_documents(block, path, errors)
        starts = [0, *found.ends.tolist()]
        assert [found.text[start:end].decode() for start, end in pairwise(starts)] == texts
        assert [found.n_replaced, found.n_skipped_bytes] == counts
        assert found.n_broken == n_broken
        assert found.n_lines == block.count(b"\n")
        assert found.broken is None


@given(block=st.lists(lines(), max_size=5).map(b"\n".join))
def test_the_first_broken_line_ends_the_work_and_is_named(block: bytes) -> None:
    found = JsonLines(["text"], "strict", leaves_out=False).parse(block, len(block))
    each = [(line, slow_text(line, ["text"], "strict")) for line in block.split(b"\n")]
    broken = [place for place, (line, text) in enumerate(each) if text is None and line.strip(b" \t\r")]
    if not broken:
        assert found.broken is None
        return
    assert found.broken is not None
    assert found.broken[0] == broken[0]
    assert len(found.ends) == sum(text is not None for _, text in each[: broken[0]])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"txt": "a"}', "field 'text' is missing"),
        (b'{"text": null}', "field 'text' is null, not a string"),
        (b'{"text": ["a"]}', "field 'text' is a list, not a string"),
        (b'{"text": {"a": 1}}', "field 'text' is an object, not a string"),
        (b'{"text": 5}', "field 'text' is a number, not a string"),
        (b'["text"]', "the line is a list, not an object"),
        (b'{"text": "a"', "invalid JSON: the line ends while parsing an object at column 12"),
        (b'{"text": "a"} 5', "invalid JSON: trailing characters at column 15"),
        (b'{"text": "a\tb"}', "invalid JSON: control character"),
        (b'{"text": "\\ud800"}', "field 'text' holds half of a surrogate pair"),
        (b'{"text": "a\xff"}', "byte offset {} (0xff) is not valid UTF-8"),
    ],
)
def test_a_broken_line_is_named_with_file_and_number(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "corpus.jsonl"
    good = b'{"text": "good"}\n' * 1203
    path.write_bytes(good + line + b"\n" + good)
    corpus = Corpus(path)
    before: list[DocumentBatch] = []
    with pytest.raises(CorpusError) as caught:
        before.extend(corpus.read())
    assert str(caught.value).startswith(f"{path}:1,204: {message.format(len(good) + 11)}")
    assert texts_of(before) == ["good"] * 1203
    skipping = Corpus(path, on_error="skip")
    batches = read(skipping)
    assert texts_of(batches) == ["good"] * 2406
    assert batches[-1].after.counts.n_broken == 1


def test_a_nested_field_is_named_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"meta": {"a.b": {"c": "found"}}}\n')
    assert texts_of(read(Corpus(path, field=r"meta.a\.b.c"))) == ["found"]
    with pytest.raises(CorpusError, match=r"a\.jsonl:1: field 'meta.a.b.c' is missing"):
        read(Corpus(path, field="meta.a.b.c"))


def test_json_that_is_not_json_lines_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('\n[{"text": "a"},\n {"text": "b"}]')
    with pytest.raises(CorpusError, match="is a JSON list, not JSON lines") as caught:
        read(Corpus(path, on_error="skip"))
    assert caught.value.hint is not None
    assert "jq -c" in caught.value.hint


@pytest.mark.usefixtures("tiny_batches")
def test_lines_longer_than_a_block_are_read_whole(tmp_path: Path) -> None:
    rng = random.Random(5)
    texts = ["é" * rng.choice([0, 1, 30, 63, 64, 65, 500, 3000]) for _ in range(40)]
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts))
    assert texts_of(read(Corpus(path))) == texts


@pytest.mark.usefixtures("tiny_batches")
def test_byte_offsets_count_from_the_beginning_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good = b'{"text": "some words of text"}\r\n'
    path.write_bytes(b"\xef\xbb\xbf" + good * 50 + b'{"text": "\xc3("}')
    with pytest.raises(CorpusError, match=rf":51: byte offset {3 + 50 * len(good) + 10} \(0xc3\)"):
        read(Corpus(path))
