"""Files that are cut off, damaged, or not what they seem: each is refused by name, none is read in silence."""

import gzip
import io
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from bytemill.corpus import Corpus
from bytemill.errors import CorpusError

from .conftest import COMPRESSIONS, DOCUMENTS, json_lines, read, texts_of, warc_record, wet

TEXT = "".join(
    f"line {i} of some text that does not compress to nothing {i * i}\n" for i in range(3000)
).encode()


def refusal(path: Path, **options: str) -> str:
    """What reading says; leaving out broken documents must not leave out a damaged file."""
    messages = set()
    for on_error in ("fail", "skip"):
        with pytest.raises(CorpusError) as caught:
            read(Corpus(path, on_error=on_error, **options))  # type: ignore[arg-type]
        messages.add(str(caught.value))
    assert len(messages) == 1
    assert str(path) in messages.copy().pop()
    return messages.pop()


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_compressed_files_that_are_cut_off_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt.{suffix}"
    whole = COMPRESSIONS[suffix](TEXT)
    for n_bytes in (len(whole) // 2, len(whole) - 1, 7):
        path.write_bytes(whole[:n_bytes])
        assert "data is damaged" in refusal(path, documents="line")
    # The second of two members.
    path.write_bytes(whole + whole[: len(whole) // 2])
    assert "data is damaged" in refusal(path, documents="line")


@pytest.mark.parametrize("suffix", ["gz", "xz", "bz2", "zst"])
def test_compressed_files_with_a_wrong_byte_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt.{suffix}"
    whole = bytearray(COMPRESSIONS[suffix](TEXT))
    if suffix == "zst":
        whole = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(TEXT))
    for place in (len(whole) // 3, len(whole) // 2):
        damaged = whole.copy()
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        assert "data is damaged" in refusal(path)


def test_compression_is_known_by_content_and_not_by_name(tmp_path: Path) -> None:
    for name, data in (
        ("a.txt", gzip.compress(TEXT)),
        ("b.txt.gz", COMPRESSIONS["zst"](TEXT)),
        ("c.txt.xz", TEXT),
    ):
        (tmp_path / name).write_bytes(data)
        assert texts_of(read(Corpus(tmp_path / name))) == [TEXT.decode()]


def test_frames_that_are_to_be_skipped_are(tmp_path: Path) -> None:
    skipped = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"12345"
    path = tmp_path / "a.txt.zst"
    path.write_bytes(skipped + COMPRESSIONS["zst"](TEXT) + skipped)
    assert texts_of(read(Corpus(path))) == [TEXT.decode()]


def test_bytes_behind_compressed_data_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(TEXT) + bytes(512))  # what tape drives append
    assert texts_of(read(Corpus(path))) == [TEXT.decode()]
    path.write_bytes(gzip.compress(TEXT) + b"and more")
    assert "data is damaged" in refusal(path)
    path.with_suffix(".zst").write_bytes(COMPRESSIONS["zst"](TEXT) + b"and more")
    assert "data is damaged" in refusal(path.with_suffix(".zst"))


def test_a_text_of_a_thousandfold_compression_takes_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"x" * (64 << 20), 1))
    tracemalloc.start()
    n_bytes = sum(len(batch.data) for batch in Corpus(path).read())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_bytes == 64 << 20
    assert peak < 48 << 20


def parquet(path: Path) -> bytes:
    table = pa.table({"text": DOCUMENTS * 20, "n": range(len(DOCUMENTS) * 20)})
    pq.write_table(table, path, row_group_size=50, compression="zstd", write_page_checksum=True)
    return path.read_bytes()


def test_damaged_parquet_and_arrow_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    whole = parquet(path)
    for data in (whole[: len(whole) // 2], whole[:-1], b"PAR1", b"", whole[:100] + bytes(100) + whole[200:]):
        path.write_bytes(data)
        (tmp_path / "b.parquet").write_bytes(whole)
        with pytest.raises(CorpusError, match=r"a\.parquet") as caught:
            read(Corpus([str(path), str(tmp_path / "b.parquet")]))
        assert "damaged" in str(caught.value)
    sink = io.BytesIO()
    table = pa.table({"text": DOCUMENTS})
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    path = tmp_path / "a.arrow"
    for data in (sink.getvalue()[:300], b"ARROW1\0\0" + b"x" * 50, b"no arrow at all"):
        path.write_bytes(data)
        assert "damaged" in refusal(path)


def test_columns_that_are_missing_or_no_strings_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet(path)
    assert "there is no column 'body'" in refusal(path, field="body")
    assert "there is no column 'text.deeper'" in refusal(path, field="text.deeper")
    assert "column 'n' holds int64, not strings" in refusal(path, field="n")


@pytest.mark.usefixtures("tiny_batches")
def test_missing_and_malformed_values_are_named_by_row(tmp_path: Path) -> None:
    texts = ["some text"] * 30 + [None] + ["more"] * 20
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=20)
    with pytest.raises(CorpusError, match=r"a\.parquet: row 31: column 'text' is missing"):
        read(Corpus(path))
    batches = read(Corpus(path, on_error="skip"))
    assert texts_of(batches) == [text for text in texts if text is not None]
    assert batches[-1].after.counts.n_broken == 1
    raw = [b"some text"] * 30 + [b"a\xffb"] + [b"\xc3", b"\xa9"]
    pq.write_table(pa.table({"text": pa.array(raw, pa.binary())}), path)
    with pytest.raises(CorpusError, match=r"row 31: byte offset 1 of the text is not valid UTF-8"):
        read(Corpus(path))
    batches = read(Corpus(path, encoding_errors="replace"))
    assert texts_of(batches)[30:] == ["a\ufffdb", "\ufffd", "\ufffd"]
    assert batches[-1].after.counts.n_replaced == 3
    structs = [{"text": "a"}, None, {"text": None}, {"text": "b"}]
    pq.write_table(pa.table({"meta": pa.array(structs)}), path)
    batches = read(Corpus(path, field="meta.text", on_error="skip"))
    assert (texts_of(batches), batches[-1].after.counts.n_broken) == (["a", "b"], 2)
    pq.write_table(pa.table({"text": pa.nulls(3)}), path)
    with pytest.raises(CorpusError, match="row 1: column 'text' is missing"):
        read(Corpus(path))


def test_web_pages_and_damaged_records_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(
        warc_record("warcinfo", b"") + warc_record("response", b"HTTP/1.1 200 OK\r\n\r\n<p>text")
    )
    assert "record 2 is a web page" in refusal(path)
    whole = wet(DOCUMENTS)
    path.write_bytes(whole[: len(whole) - 20])
    assert "is damaged" in refusal(path)
    path.write_bytes(b"no records here\n" * 10)
    assert "is damaged" in refusal(path)


def test_text_of_records_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.wet"
    path.write_bytes(wet(DOCUMENTS) + warc_record("conversion", b"a\xff"))
    with pytest.raises(CorpusError, match=rf"a\.wet: record {len(DOCUMENTS) + 2}: .*not valid UTF-8"):
        read(Corpus(path))
    batches = read(Corpus(path, on_error="skip"))
    assert (texts_of(batches), batches[-1].after.counts.n_broken) == (DOCUMENTS, 1)
    assert texts_of(read(Corpus(path, encoding_errors="skip"))) == [*DOCUMENTS, "a"]


def test_a_file_that_becomes_shorter_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(json_lines(DOCUMENTS)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bytemill.corpus.documents.BATCH_BYTES", 64)
        corpus = Corpus(path)
        batches = read(corpus)
        path.write_bytes(gzip.compress(json_lines(DOCUMENTS[:1])))
        with pytest.raises(CorpusError, match="is shorter than when it was read before"):
            read(corpus, batches[-3].after)
