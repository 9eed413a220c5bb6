"""Plain text: files, lines and separators, and bytes that are not UTF-8."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bytemill._core import TextSplitter, check_documents, clean_text, select_documents
from bytemill.corpus import Corpus, documents, iter_texts
from bytemill.errors import CorpusError

from .conftest import END, read, texts_of

Errors = Literal["strict", "replace", "skip"]
MODES: tuple[Errors, ...] = ("strict", "replace", "skip")


def slow_decode(data: bytes, errors: str) -> str:
    """Decode with Python; raises UnicodeDecodeError."""
    return data.decode("utf-8", "ignore" if errors == "skip" else errors)


def slow_split(data: bytes, separator: str | None) -> list[bytes]:
    """Split a text into documents, undecoded."""
    if separator is None:
        lines = data.split(b"\n")
        # The last line has no end, so its carriage return is text.
        lines[:-1] = [line.removesuffix(b"\r") for line in lines[:-1]]
        return [line for line in lines if line]
    *ended, rest = data.split(separator.encode())
    return [text + separator.encode() for text in ended] + ([rest] if rest else [])


def slow_texts(data: bytes, separator: str | None, errors: str) -> tuple[list[str], int]:
    """(documents, broken ones)."""
    texts: list[str] = []
    n_broken = 0
    for document in slow_split(data, separator):
        try:
            text = slow_decode(document, errors)
        except UnicodeDecodeError:
            n_broken += 1
        else:
            texts.append(text)
    return texts, n_broken


CHARACTERS = [b"a", b"\n", b"\r\n", b"\r", "é".encode(), "日".encode(), "😀".encode(), b"x" * 40]
MALFORMED = [b"\xe4", b"\xb8", b"\xff", b"\xf0\x9f", b"\xed\xa0\x80"]
SEPARATORS = [END.encode(), b"<|end", b"oftext|>", b"<|"]
pieces = st.sampled_from([*CHARACTERS, *MALFORMED, *SEPARATORS])
texts = st.lists(pieces, max_size=25).map(b"".join)


def in_pieces(
    data: bytes, separator: str | None, errors: Errors, n_bytes: int
) -> tuple[list[str], int, int, int]:
    """Split a text block by block; return documents, broken ones, replaced sequences, skipped bytes."""
    splitter = TextSplitter(separator, errors, leaves_out=True)
    found: list[str] = []
    begun, start, wanted, is_inside = b"", 0, n_bytes, False
    n_broken = n_replaced = n_skipped = n_lines = 0
    while True:
        block = data[start : start + wanted]
        is_last = start + len(block) == len(data)
        part = splitter.split(block, is_inside, is_last)
        assert part.broken is None
        if not part.consumed and not is_last:
            wanted *= 2
            continue
        wanted = n_bytes
        place = 0
        for index, end in enumerate(part.ends.tolist()):
            begun += part.text[place:end]
            place = end
            if not part.is_open or index < len(part.ends) - 1:
                found.append(begun.decode())
                begun = b""
        is_inside = part.is_open
        n_broken += part.n_broken
        n_replaced += part.n_replaced
        n_skipped += part.n_skipped_bytes
        n_lines += part.n_lines
        start += part.consumed
        if is_last:
            assert start == len(data)
            assert n_lines == data.count(b"\n")
            return found, n_broken, n_replaced, n_skipped


@given(data=texts, separator=st.sampled_from([None, END, "é"]), n_bytes=st.integers(16, 200))
@example(b"a\r" * 8 + b"\n" * 20, None, 16)
@example(b"x" * 15 + b"\r\n\r\n", None, 16)
def test_blocks_give_the_documents_of_the_whole(data: bytes, separator: str | None, n_bytes: int) -> None:
    for errors in MODES:
        found, n_broken, n_replaced, n_skipped = in_pieces(data, separator, errors, n_bytes)
        expected, expected_broken = slow_texts(data, separator, errors)
        assert (found, n_broken) == (expected, expected_broken)
        bodies = slow_split(data, separator)
        n_valid = sum(len(slow_decode(body, "skip")) for body in bodies)
        if errors == "replace":
            assert n_replaced == sum(len(slow_decode(body, "replace")) for body in bodies) - n_valid
        if errors == "skip":
            assert n_skipped == sum(len(body) - len(slow_decode(body, "skip").encode()) for body in bodies)


@given(data=texts, separator=st.sampled_from([None, END]))
def test_the_first_broken_document_ends_the_work_and_is_named(data: bytes, separator: str | None) -> None:
    found = TextSplitter(separator, "strict", leaves_out=False).split(data, False, True)
    if data == data.decode("utf-8", "ignore").encode():
        assert found.broken is None
        return
    assert found.broken is not None
    line, offset, _ = found.broken
    assert offset == _first_error(data)
    assert line == data[:offset].count(b"\n")


@given(data=texts, cut=st.integers(0, 300), errors=st.sampled_from(MODES))
def test_a_long_document_is_cleaned_in_pieces(data: bytes, cut: int, errors: Errors) -> None:
    cut = min(cut, len(data))
    first = clean_text(data[:cut], False, errors)
    if first.broken is not None:
        assert first.broken[1] == _first_error(data)
        return
    second = clean_text(data[first.consumed :], True, errors)
    if second.broken is not None:
        assert second.broken[1] == _first_error(data) - first.consumed
        return
    assert (first.text + second.text).decode() == slow_decode(data, errors)
    assert (first.is_open, second.is_open) == (True, False)
    assert first.n_lines + second.n_lines == data.count(b"\n")
    assert first.n_replaced + second.n_replaced == (
        len(slow_decode(data, "replace")) - len(slow_decode(data, "skip")) if errors == "replace" else 0
    )


def _first_error(data: bytes) -> int:
    with pytest.raises(UnicodeDecodeError) as caught:
        data.decode()
    return caught.value.start


@given(
    bodies=st.lists(texts, max_size=6),
    missing=st.lists(st.booleans(), min_size=6, max_size=6),
    keep=st.data(),
)
def test_packed_documents_are_checked_one_by_one(
    bodies: list[bytes], missing: list[bool], keep: st.DataObject
) -> None:
    data, ends = b"".join(bodies), np.cumsum([len(body) for body in bodies], dtype=np.int64)
    gone = np.array(missing[: len(bodies)], np.bool_)
    for errors in MODES:
        for mask in (None, gone):
            expected: list[bytes] = []
            for place, body in enumerate(bodies):
                if mask is None or not mask[place]:
                    try:
                        expected.append(slow_decode(body, errors).encode())
                    except UnicodeDecodeError:
                        continue
            found = check_documents(data, ends, mask, errors, leaves_out=True)
            assert found.text == b"".join(expected)
            assert np.diff(found.ends, prepend=0).tolist() == list(map(len, expected))
            assert found.n_broken == len(bodies) - len(expected)
            stopped = check_documents(data, ends, mask, errors, leaves_out=False)
            assert (stopped.broken is None) == (not found.n_broken)
    chosen = [keep.draw(st.booleans()) for _ in bodies]
    text, kept = select_documents(data, ends, np.array(chosen, np.bool_))
    wanted = [body for body, is_chosen in zip(bodies, chosen, strict=True) if is_chosen]
    assert text == b"".join(wanted)
    assert np.diff(kept, prepend=0).tolist() == list(map(len, wanted))


@pytest.mark.parametrize("ends", [[2, 1], [-1, 2], [4], [1 << 40]])
def test_document_ends_that_are_not_ascending_are_refused(ends: list[int]) -> None:
    with pytest.raises(ValueError, match="not in order"):
        check_documents(b"abc", np.array(ends, np.int64), None, "strict", leaves_out=False)
    with pytest.raises(ValueError, match="not in order"):
        select_documents(b"abc", np.array(ends, np.int64), np.ones(len(ends), np.bool_))


def test_a_file_is_one_document_and_kept_byte_for_byte(tmp_path: Path) -> None:
    data = b"one\r\n\r\ntwo\x00" + END.encode() + b"\n"
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(CorpusError, match=r"a\.txt is binary data \(byte 10 is zero\), not text"):
        read(Corpus(path))
    corpus = Corpus(path, format="text")
    assert corpus.is_plain
    (batch,) = read(corpus)
    assert (bytes(batch.data), batch.ends.tolist(), batch.is_open) == (data, [len(data)], False)
    assert texts_of(read(Corpus(path, format="text", documents=END))) == [data[:-1].decode(), "\n"]
    assert texts_of(read(Corpus(path, format="text", documents="line"))) == ["one", "two\x00" + END]


@pytest.mark.usefixtures("tiny_batches")
@pytest.mark.parametrize("kind", ["file", "line", END])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl"])
def test_a_byte_order_mark_is_dropped_and_counted(tmp_path: Path, name: str, kind: str) -> None:
    import gzip

    text = '{"text": "\ufeffone"}\n' * 20 if name.endswith("jsonl") else "one\ufeff\n" * 20
    for mark in (b"", b"\xef\xbb\xbf"):
        data = mark + text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        batches = read(Corpus(tmp_path / name, documents=kind))
        documents_read = texts_of(batches)
        # A mark inside the text stays.
        assert "".join(documents_read).count("\ufeff") == 20
        assert batches[-1].after.counts.n_byte_order_marks == bool(mark)
        for number, batch in enumerate(batches):
            rest = b"".join(
                bytes(each.data) for each in read(Corpus(tmp_path / name, documents=kind), batch.after)
            )
            read_so_far = b"".join(bytes(each.data) for each in batches[: number + 1])
            assert (read_so_far + rest).decode() == "".join(documents_read)


def test_an_empty_file_among_others_is_an_empty_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.txt").write_text("text")
    assert texts_of(read(Corpus(tmp_path))) == ["", "text"]
    assert texts_of(read(Corpus(tmp_path, documents="line"))) == ["text"]


@pytest.mark.usefixtures("tiny_batches")
@pytest.mark.parametrize("kind", ["file", "line", END])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_what_is_not_utf8_is_named_by_line_and_byte(tmp_path: Path, name: str, kind: str) -> None:
    import gzip

    text = f"größer\n{END}".encode() * 30
    data = text + b"bad \xe4\xb8 text\n" + text
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    message = rf"{name}:31: byte offset {len(text) + 4} \(0xe4\) is not valid UTF-8"
    with pytest.raises(CorpusError, match=message) as caught:
        read(Corpus(path, documents=kind))
    assert caught.value.hint is not None
    assert "--errors replace" in caught.value.hint
    for errors, middle, counts in (("replace", "bad \ufffd text\n", (1, 0)), ("skip", "bad  text\n", (0, 2))):
        batches = read(Corpus(path, documents=kind, errors=errors))  # type: ignore[arg-type]
        expected, _ = slow_texts(data, None if kind == "line" else END, errors)
        assert texts_of(batches) == (["".join(expected)] if kind == "file" else expected)
        after = batches[-1].after.counts
        assert (after.n_replaced, after.n_skipped_bytes, after.n_broken) == (*counts, 0)
        assert middle in data.decode("utf-8", "ignore" if errors == "skip" else errors)
    if kind == "file":
        with pytest.raises(CorpusError, match="holds no document"):
            read(Corpus(path, documents=kind, on_error="skip"))
        (tmp_path / "good.txt").write_text("good" * 100)
        batches = read(Corpus([str(path), str(tmp_path / "good.txt"), str(path)], on_error="skip"))
        assert texts_of(batches) == ["good" * 100]
        assert batches[-1].after.counts.n_broken == 2
    else:
        batches = read(Corpus(path, documents=kind, on_error="skip"))
        assert texts_of(batches) == slow_texts(data, None if kind == "line" else END, "strict")[0]
        assert batches[-1].after.counts.n_broken == 1


def test_texts_of_a_corpus_are_its_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BATCH_BYTES", 16)
    (tmp_path / "a.txt").write_text("größer\n" * 20)
    assert list(iter_texts(Corpus(tmp_path))) == ["größer\n" * 20]
    assert list(iter_texts(Corpus(tmp_path, documents="line"))) == ["größer"] * 20
