"""Truncated, damaged, misnamed and oversized inputs: each is an error that names it."""

import contextlib
import gzip
import io
import json
import lzma
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from bytemill import train
from bytemill.corpus import Corpus
from bytemill.corpus.formats import FORMATS
from bytemill.errors import CorpusError

from .conftest import COMPRESSIONS, DOCUMENTS, json_lines, read, texts_of, warc_record, wet

TEXT = "".join(
    f"line {i} of some text that does not compress to nothing {i * i}\n" for i in range(3000)
).encode()


def refusal(path: Path, **options: str) -> str:
    """Return the error of reading; `on_error="skip"` must not leave out a damaged file."""
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


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_every_byte_of_a_compressed_file_belongs_to_a_stream(tmp_path: Path, suffix: str) -> None:
    path, compress = tmp_path / f"a.txt.{suffix}", COMPRESSIONS[suffix]
    first, second = compress(TEXT[:4000]), compress(TEXT[4000:8000])
    for tail in (b"x", b"no stream at all", b"\xfd7zXY\0", b"BZx9" + second[4:]):
        path.write_bytes(first + tail)
        assert "data is damaged" in refusal(path)
    for bit in range(32):
        damaged = bytearray(first + second)
        damaged[len(first) + bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        found = [TEXT[:8000].decode()]  # a few bits of headers have no meaning for this text
        with contextlib.suppress(CorpusError):
            found = texts_of(read(Corpus(path)))
        assert found == [TEXT[:8000].decode()]


@pytest.mark.parametrize(
    ("n_zeros", "is_legal"), [(4, True), (8, True), (1, False), (6, False), (1 << 17, True)]
)
def test_xz_streams_are_padded_with_multiples_of_four_zeros(
    tmp_path: Path, n_zeros: int, is_legal: bool
) -> None:
    for rest in (b"", lzma.compress(TEXT[4000:])):
        (tmp_path / "a.txt.xz").write_bytes(lzma.compress(TEXT[:4000]) + bytes(n_zeros) + rest)
        if is_legal:
            assert texts_of(read(Corpus(tmp_path / "a.txt.xz"))) == [(TEXT if rest else TEXT[:4000]).decode()]
        else:
            assert "zero bytes follow stream 1" in refusal(tmp_path / "a.txt.xz")


def test_zstd_with_a_large_window_is_read_and_a_dictionary_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.zst"
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=31, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path.write_bytes(compressor.compress(TEXT) + compressor.flush())
    assert texts_of(read(Corpus(path))) == [TEXT.decode()]
    dictionary = zstandard.train_dictionary(1024, [TEXT[n : n + 100] for n in range(0, 50_000, 50)])
    path.write_bytes(zstandard.ZstdCompressor(dict_data=dictionary).compress(TEXT))
    assert "is compressed with a dictionary" in refusal(path)


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
HTML = b"\n<!DOCTYPE html>\n<html><title>404 Not Found</title></html>\n"


@pytest.mark.parametrize(
    ("content", "is_called"),
    [
        (LFS_POINTER, "a Git LFS pointer"),
        (HTML, "an HTML page"),
        (TEXT, "plain text"),
        ("größer ".encode() * 100, "plain text"),
        (b"", "an empty file"),
        (b"PAR1 and more", "parquet data"),
        (gzip.compress(TEXT), "gzip data"),
        ("text".encode("utf-16"), "UTF-16 text"),
        (bytes(range(256)), "unknown binary data"),
    ],
)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.txt.gz", "gzip"),
        ("a.jsonl.zst", "zstd"),
        ("a.bz2", "bzip2"),
        ("a.txt.xz", "xz"),
        ("a.arrow", "arrow"),
        ("a.warc", "warc"),
        ("a.parquet", "parquet"),
    ],
)
def test_a_suffix_that_the_content_contradicts_is_an_error_that_names_the_content(
    tmp_path: Path, name: str, expected: str, content: bytes, is_called: str
) -> None:
    if is_called.startswith(expected) or (is_called == "gzip data" and expected in FORMATS):
        return  # of formats, the decompressed content counts
    path = tmp_path / name
    path.write_bytes(content)
    (tmp_path / "good.txt").write_text("good")
    for use in (read, lambda corpus: train(corpus, 257)):
        with pytest.raises(CorpusError) as caught:
            use(Corpus([str(path), str(tmp_path / "good.txt")]))
        assert str(caught.value) == f"{path} is not {expected} data but {is_called}"
        assert caught.value.hint
    if is_called == "a Git LFS pointer":
        assert caught.value.hint == "fetch the file itself: git lfs pull"


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "unnamed"])
def test_a_git_lfs_pointer_is_not_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(LFS_POINTER)
    assert "is a Git LFS pointer" in refusal(tmp_path / name)
    with pytest.raises(CorpusError, match="is a Git LFS pointer"):
        train(tmp_path / name, 257)


@pytest.mark.usefixtures("tiny_batches")
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.txt", "a.txt.zst"])
def test_a_document_larger_than_the_bound_is_named_or_left_out(tmp_path: Path, name: str) -> None:
    texts = ["one", "x" * 5000, "two", "y" * 3000, "three" * 30]
    is_json = "jsonl" in name
    lines = [json.dumps({"text": text}) if is_json else text for text in texts]
    data = "\n".join(lines).encode()
    path = tmp_path / name
    path.write_bytes(COMPRESSIONS[name.rsplit(".", maxsplit=1)[-1]](data) if name.count(".") == 2 else data)
    options: dict[str, Any] = {"documents": "line", "max_document_bytes": 1000}
    if is_json:
        where = (
            rf"{name}:2: the document at byte offset {len(lines[0]) + 1} is larger than max_document_bytes"
        )
        with pytest.raises(CorpusError, match=where):
            read(Corpus(path, **options))
    corpus = Corpus(path, **options, on_error="skip")
    batches = read(corpus)
    assert texts_of(batches) == [texts[0], texts[2], texts[4]]
    assert batches[-1].after.counts.n_broken == 2
    for number, batch in enumerate(batches):
        rest = b"".join(bytes(later.data) for later in batches[number + 1 :])
        assert b"".join(bytes(later.data) for later in read(corpus, batch.after)) == rest
    options["max_document_bytes"] = 10_000
    assert texts_of(read(Corpus(path, **options, on_error="skip"))) == texts


def test_rows_and_records_larger_than_the_bound_are_named_or_left_out(tmp_path: Path) -> None:
    texts = ["one", "x" * 500, "two", "three"]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    (tmp_path / "a.wet").write_bytes(wet(texts))
    for name, where in (("a.parquet", "row 2"), ("a.wet", r"record 3 at byte offset \d+")):
        with pytest.raises(CorpusError, match=rf"{name}: {where} is larger than max_document_bytes \(100\)"):
            read(Corpus(tmp_path / name, max_document_bytes=100))
        batches = read(Corpus(tmp_path / name, max_document_bytes=100, on_error="skip"))
        assert texts_of(batches) == ["one", "two", "three"]
        assert batches[-1].after.counts.n_broken == 1


@pytest.mark.usefixtures("tiny_batches")
@pytest.mark.parametrize("name", ["a.txt", "a.txt.zst"])
@pytest.mark.parametrize("filler", [b"x", b" ", b"\n"])
def test_text_without_white_space_larger_than_the_bound_is_refused(
    tmp_path: Path, name: str, filler: bytes
) -> None:
    """It is a single pre-token, which encoding holds as a whole."""
    data = b"some text " * 30 + filler * 2000 + b" more text"
    path = tmp_path / name
    path.write_bytes(zstandard.compress(data) if name.endswith("zst") else data)
    with pytest.raises(CorpusError, match=r"a\.txt.*: the text at byte offset [\d,]+ has no white space"):
        read(Corpus(path, max_document_bytes=1000))
    (tmp_path / "good.txt").write_text("good")
    corpus = Corpus([str(path), str(tmp_path / "good.txt")], max_document_bytes=1000, on_error="skip")
    batches = read(corpus)
    assert (texts_of(batches), batches[-1].after.counts.n_broken) == (["good"], 1)
    assert texts_of(read(Corpus(path, max_document_bytes=3000))) == [data.decode()]


@pytest.mark.parametrize("suffix", ["gz", "xz", pytest.param("bz2", marks=pytest.mark.slow), "zst"])
def test_a_huge_line_takes_memory_within_the_bound(tmp_path: Path, suffix: str) -> None:
    """A line of 40 MB that compresses to a few kilobytes."""
    path = tmp_path / f"bomb.jsonl.{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](b'{"text": "' + b"x" * (40 << 20) + b'"}\n{"text": "end"}\n'))
    assert path.stat().st_size < 256 << 10
    tracemalloc.start()
    batches = read(Corpus(path, max_document_bytes=2 << 20, on_error="skip"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert texts_of(batches) == ["end"]
    assert peak < 32 << 20


@pytest.mark.parametrize(
    ("level", "has_size", "has_checksum"),
    [(-5, False, True), (3, True, False), (3, False, False), (19, True, True)],
)
def test_zstd_frames_of_every_kind_are_read(
    tmp_path: Path, level: int, has_size: bool, has_checksum: bool
) -> None:
    chance = random.Random(level)
    texts = [
        b"",
        b"x",
        b"a" * 500_000,  # blocks that repeat a byte
        chance.randbytes(100_000).hex().encode(),
        "".join(chance.choices("abcdefghijklmnop \n日本", k=200_000)).encode(),
        bytes(chance.choices(range(0x20, 0x7F), k=150_000)),
    ]
    compressor = zstandard.ZstdCompressor(
        level=level, write_checksum=has_checksum, write_content_size=has_size
    )
    path = tmp_path / "a.txt.zst"
    path.write_bytes(b"".join(map(compressor.compress, texts)))
    assert "".join(texts_of(read(Corpus(path)))).encode() == b"".join(texts)


def test_skippable_frames_are_skipped(tmp_path: Path) -> None:
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


def parquet(path: Path) -> bytes:
    table = pa.table({"text": DOCUMENTS * 20, "n": range(len(DOCUMENTS) * 20)})
    pq.write_table(table, path, row_group_size=50, compression="zstd", write_page_checksum=True)
    return path.read_bytes()


def test_damaged_parquet_and_arrow_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    whole = parquet(path)
    for data in (whole[: len(whole) // 2], whole[:-1], b"PAR1", whole[:100] + bytes(100) + whole[200:]):
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
    for data in (sink.getvalue()[:300], b"ARROW1\0\0" + b"x" * 50):
        path.write_bytes(data)
        assert "damaged" in refusal(path)


def test_a_wrong_byte_in_a_parquet_page_with_a_checksum_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"This is story number {number}." for number in range(100)]

    def damaged(*, has_checksums: bool) -> None:
        options = {"compression": "none", "use_dictionary": False, "write_page_checksum": has_checksums}
        pq.write_table(pa.table({"text": texts}), path, **options)
        path.write_bytes(path.read_bytes().replace(b"number 50.", b"number 51."))

    damaged(has_checksums=True)
    assert "checksum" in refusal(path)
    damaged(has_checksums=False)
    assert len(texts_of(read(Corpus(path)))) == 100


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
    batches = read(Corpus(path, errors="replace"))
    assert texts_of(batches)[30:] == ["a\ufffdb", "\ufffd", "\ufffd"]
    assert batches[-1].after.counts.n_replaced == 3
    structs = [{"text": "a"}, None, {"text": None}, {"text": "b"}]
    pq.write_table(pa.table({"meta": pa.array(structs)}), path)
    batches = read(Corpus(path, field="meta.text", on_error="skip"))
    assert (texts_of(batches), batches[-1].after.counts.n_broken) == (["a", "b"], 2)
    pq.write_table(pa.table({"text": pa.nulls(3)}), path)
    with pytest.raises(CorpusError, match="row 1: column 'text' is missing"):
        read(Corpus(path))


def test_damaged_records_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(
        warc_record("warcinfo", b"") + warc_record("response", b"HTTP/1.1 200 OK\r\n\r\n<p>text")[:-9]
    )
    assert "record 2 is damaged" in refusal(path)
    whole = wet(DOCUMENTS)
    path.write_bytes(whole[: len(whole) - 20])
    assert "is damaged" in refusal(path)


def test_text_of_records_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.wet"
    path.write_bytes(wet(DOCUMENTS) + warc_record("conversion", b"a\xff"))
    with pytest.raises(CorpusError, match=rf"a\.wet: record {len(DOCUMENTS) + 2}: .*not valid UTF-8"):
        read(Corpus(path))
    batches = read(Corpus(path, on_error="skip"))
    assert (texts_of(batches), batches[-1].after.counts.n_broken) == (DOCUMENTS, 1)
    assert texts_of(read(Corpus(path, errors="skip"))) == [*DOCUMENTS, "a"]


def test_a_file_that_becomes_shorter_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(json_lines(DOCUMENTS)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bytemill.corpus.documents.BATCH_BYTES", 64)
        corpus = Corpus(path)
        batches = read(corpus)
        path.write_bytes(gzip.compress(json_lines(DOCUMENTS[:1])))
        corpus = Corpus(path)
        with pytest.raises(CorpusError, match="is shorter than when it was read before"):
            read(corpus, batches[-3].after)
