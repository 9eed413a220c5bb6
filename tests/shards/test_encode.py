"""Encoding a corpus to shards: every token is there once, in order, and the manifest tells the truth."""

import hashlib
import io
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bytemill.errors import CorpusError, ShardError, SpecialTokenError
from bytemill.shards import (
    EncodeProgress,
    ShardSettings,
    SourceInfo,
    TokenShards,
    encode_to_shards,
    open_shards,
    read_manifest,
    verify,
)

END = "<|endoftext|>"
END_ID = 256


def ids_of(text: str) -> list[int]:
    """What the byte tokenizer gives, written down a second time."""
    data, ids = text.encode(), []
    while data:
        if data.startswith(END.encode()):
            ids.append(END_ID)
            data = data[len(END) :]
        else:
            ids.append(data[0])
            data = data[1:]
    return ids


def tokens_in(folder: Path) -> list[int]:
    return np.concatenate([np.asarray(shard) for shard in open_shards(folder)]).tolist()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def small_blocks(monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
    """Feed files to the encoder in blocks so small that tokens and characters are cut."""
    from bytemill.corpus import read_blocks
    from bytemill.shards import encode

    monkeypatch.setattr(encode, "read_blocks", lambda source: read_blocks(source, block_bytes))


@pytest.mark.parametrize("shard_tokens", [*range(1, 12), 36, 37, 38, 79, 80, 1000])
def test_shards_joined_are_the_whole_encoding_and_all_but_the_last_are_full(
    tmp_path: Path, corpus: Path, byte_tokenizer: Any, shard_tokens: int
) -> None:
    out = tmp_path / "out"
    manifest = encode_to_shards(byte_tokenizer, str(corpus / "*.txt"), out, shard_tokens=shard_tokens)
    expected = [i for name in ("a.txt", "b.txt") for i in ids_of((corpus / name).read_text("utf-8"))]
    assert tokens_in(out) == expected
    sizes = [shard.n_tokens for shard in manifest.shards]
    assert all(size == shard_tokens for size in sizes[:-1])
    assert 1 <= sizes[-1] <= shard_tokens
    assert sum(sizes) == manifest.n_tokens == len(expected)
    assert names(out) == ["manifest.json", *(f"shard_{i:05d}.npy" for i in range(len(sizes)))]
    assert verify(out) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(
        st.lists(st.sampled_from(["a", "é", "日", "🎉", END, "<|end", "oftext|>"]), max_size=8).map("".join),
        min_size=1,
        max_size=4,
    ).filter(any),
    shard_tokens=st.integers(1, 20),
    block_bytes=st.integers(1, 12),
)
def test_files_and_texts_give_the_same_shards_wherever_blocks_and_shards_are_cut(
    *,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    byte_tokenizer: Any,
    texts: list[str],
    shard_tokens: int,
    block_bytes: int,
) -> None:
    small_blocks(monkeypatch, block_bytes)
    folder = tmp_path_factory.mktemp("cut")
    files = [folder / f"{i}.txt" for i in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, "utf-8", newline="")
    one = encode_to_shards(byte_tokenizer, files, folder / "files", shard_tokens=shard_tokens)
    two = encode_to_shards(byte_tokenizer, iter(texts), folder / "texts", shard_tokens=shard_tokens)
    assert one.shards == two.shards
    assert one.n_documents == two.n_documents == len(texts)
    assert tokens_in(folder / "files") == [i for text in texts for i in ids_of(text)]


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_numpy_reads_a_shard_by_itself(
    tmp_path: Path, corpus: Path, make_tokenizer: Callable[..., Any], dtype: str
) -> None:
    encode_to_shards(make_tokenizer(dtype), corpus / "a.txt", tmp_path / "out", shard_tokens=20)
    for name in ("shard_00000.npy", "shard_00001.npy"):
        path = tmp_path / "out" / name
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        assert array.dtype == np.dtype(dtype)
        assert array.ndim == 1
        data = path.read_bytes()
        assert data[:8] == b"\x93NUMPY\x01\x00"
        n_header = 10 + int.from_bytes(data[8:10], "little")
        assert n_header % 64 == 0
        assert np.frombuffer(data[n_header:], f"<u{array.itemsize}").tolist() == array.tolist()


def test_the_manifest_tells_where_the_tokens_come_from(
    tmp_path: Path, corpus: Path, byte_tokenizer: Any
) -> None:
    from bytemill._core import __version__

    out = tmp_path / "new" / "out"
    inputs = [corpus / "a.txt", corpus / "b.txt"]
    manifest = encode_to_shards(byte_tokenizer, inputs, out, shard_tokens=30, allowed_special=[END])
    assert read_manifest(out) == manifest
    assert manifest.bytemill_version == __version__
    assert (manifest.fingerprint, manifest.n_vocab, manifest.dtype) == ("bytes-1", 257, "uint16")
    assert manifest.sources == tuple(SourceInfo(str(path), path.stat().st_size) for path in inputs)
    assert manifest.n_bytes == sum(source.n_bytes for source in manifest.sources)
    assert (manifest.n_documents, manifest.n_replaced) == (2, 0)
    assert manifest.settings == ShardSettings(30, (END,), "strict", None, append_separator=False)
    for shard in manifest.shards:
        data = (out / shard.file).read_bytes()
        assert (shard.n_bytes, shard.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    document = json.loads((out / "manifest.json").read_text("utf-8"))
    assert (document["format"], document["version"]) == ("bytemill-shards", 1)


def test_documents_are_counted_by_separators_where_one_is_named(
    tmp_path: Path, corpus: Path, byte_tokenizer: Any
) -> None:
    inputs = str(corpus / "*.txt")
    counted = encode_to_shards(byte_tokenizer, inputs, tmp_path / "counted", document_separator=END)
    assert counted.n_documents == 2
    texts = ["one", "", f"two{END}three", f"four{END}", END]
    appended = encode_to_shards(
        byte_tokenizer, iter(texts), tmp_path / "appended", document_separator=END, append_separator=True
    )
    assert tokens_in(tmp_path / "appended") == ids_of(f"one{END}two{END}three{END}four{END}{END}")
    assert appended.n_documents == 5


def test_replacing_what_is_not_utf8_is_counted(tmp_path: Path, byte_tokenizer: Any) -> None:
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9 \xff na\xc3\xafve\xc3")
    (tmp_path / "good.txt").write_bytes(b"good")
    inputs = [tmp_path / "bad.txt", tmp_path / "good.txt"]
    manifest = encode_to_shards(byte_tokenizer, inputs, tmp_path / "out", errors="replace")
    assert tokens_in(tmp_path / "out") == ids_of("caf\ufffd \ufffd na\u00efve\ufffdgood")
    assert (manifest.n_replaced, manifest.n_bytes) == (3, 18)
    assert manifest.settings.errors == "replace"


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize(
    ("data", "offset", "value"),
    [
        (b"caf\xe9 au lait", 3, "0xe9"),
        ("日本語".encode() + b"\xff", 9, "0xff"),
        ("日本語".encode()[:-1], 6, "0xe8"),
    ],
)
def test_what_is_not_utf8_is_named_by_file_and_offset_wherever_blocks_are_cut(
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    byte_tokenizer: Any,
    data: bytes,
    offset: int,
    value: str,
    block_bytes: int,
) -> None:
    small_blocks(monkeypatch, block_bytes)
    (tmp_path / "good.txt").write_text("größer", "utf-8")
    bad = tmp_path / "bad.txt"
    bad.write_bytes(data)
    with pytest.raises(CorpusError) as caught:
        encode_to_shards(byte_tokenizer, [tmp_path / "good.txt", bad], tmp_path / "out")
    assert str(caught.value) == f"{bad}: byte offset {offset} ({value}) is not valid UTF-8"
    assert isinstance(caught.value.__cause__, UnicodeDecodeError)
    assert not (tmp_path / "out").exists()


def test_standard_input_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, byte_tokenizer: Any
) -> None:
    text = f"größer{END}日本"
    seen: list[EncodeProgress] = []
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    manifest = encode_to_shards(byte_tokenizer, "-", tmp_path / "out", progress=seen.append)
    assert tokens_in(tmp_path / "out") == ids_of(text)
    assert manifest.sources == (SourceInfo("<stdin>", len(text.encode())),)
    assert seen[-1].total_bytes is None


def test_an_empty_stream_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, byte_tokenizer: Any
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    for inputs in ("-", iter([""]), iter([])):
        with pytest.raises(CorpusError, match="the corpus is empty"):
            encode_to_shards(byte_tokenizer, inputs, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_empty_files_among_others_give_no_tokens(tmp_path: Path, corpus: Path, byte_tokenizer: Any) -> None:
    (corpus / "empty.txt").write_bytes(b"")
    inputs = [corpus / "empty.txt", corpus / "b.txt", corpus / "empty.txt"]
    manifest = encode_to_shards(byte_tokenizer, inputs, tmp_path / "out")
    assert tokens_in(tmp_path / "out") == ids_of((corpus / "b.txt").read_text("utf-8"))
    assert [source.n_bytes for source in manifest.sources] == [0, manifest.n_bytes, 0]


def test_progress_tells_bytes_tokens_and_shards_as_they_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: Path, byte_tokenizer: Any
) -> None:
    small_blocks(monkeypatch, 7)
    seen: list[EncodeProgress] = []
    manifest = encode_to_shards(
        byte_tokenizer, str(corpus / "*.txt"), tmp_path / "out", shard_tokens=10, progress=seen.append
    )
    assert [step.n_bytes for step in seen] == sorted(step.n_bytes for step in seen)
    assert {step.source for step in seen} == {source.name for source in manifest.sources}
    assert {step.total_bytes for step in seen} == {manifest.n_bytes}
    assert seen[0].n_bytes == 7
    last = EncodeProgress(
        manifest.sources[-1].name,
        manifest.n_bytes,
        manifest.n_bytes,
        manifest.n_tokens,
        manifest.n_tokens // 10,
    )
    assert seen[-1] == last


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens alone would take 64 MB; blocks of 256 KiB and their ids take about 2 MB."""

    class Stream:
        n_replaced = 0

        def feed(self, data: str | bytes, /) -> NDArray[np.uint16]:
            assert isinstance(data, bytes)
            return np.frombuffer(data, np.uint8).astype(np.uint16)

        def finish(self) -> NDArray[np.uint16]:
            return np.empty(0, np.uint16)

    class Core:
        dtype = "uint16"
        n_vocab = 256

        def stream(self, *_: object) -> Stream:
            return Stream()

    class Tokenizer:
        core = Core()
        fingerprint = "zeros"
        special_tokens: dict[str, int] = {}  # noqa: RUF012

    small_blocks(monkeypatch, 256 << 10)
    path = tmp_path / "zeros.txt"
    with path.open("wb") as file:
        file.truncate(32 << 20)
    tracemalloc.start()
    tokenizer: Any = Tokenizer()
    manifest = encode_to_shards(tokenizer, path, tmp_path / "out", shard_tokens=20_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert manifest.n_tokens == 32 << 20
    assert [shard.n_tokens for shard in manifest.shards] == [20_000_000, (32 << 20) - 20_000_000]
    assert peak < 6 << 20
    assert TokenShards(tmp_path / "out").read(0, 5).tolist() == [0] * 5


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"shard_tokens": 0}, ShardError, "shard_tokens is 0"),
        ({"errors": "ignore"}, ShardError, "errors is 'ignore'"),
        ({"document_separator": "<|eot|>"}, SpecialTokenError, "'<|eot|>' is no special token"),
        ({"append_separator": True}, SpecialTokenError, "no document separator to append"),
        ({"allowed_special": "some"}, ValueError, "'some'"),
    ],
)
def test_wrong_options_are_refused_before_the_folder_is_touched(
    *,
    tmp_path: Path,
    corpus: Path,
    byte_tokenizer: Any,
    options: dict[str, Any],
    error: type[Exception],
    says: str,
) -> None:
    with pytest.raises(error) as caught:
        encode_to_shards(byte_tokenizer, corpus / "a.txt", tmp_path / "out", **options)
    assert says in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_wrong_corpus_is_refused_before_the_folder_is_touched(
    tmp_path: Path, corpus: Path, byte_tokenizer: Any
) -> None:
    for inputs in (corpus, corpus / "absent.txt", []):
        with pytest.raises(CorpusError):
            encode_to_shards(byte_tokenizer, inputs, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_texts_that_utf8_cannot_write_are_named_by_their_place(tmp_path: Path, byte_tokenizer: Any) -> None:
    texts = iter(["fine", "ab\ud800"])
    with pytest.raises(CorpusError, match="item 1 of the corpus holds a lone surrogate at character 2"):
        encode_to_shards(byte_tokenizer, texts, tmp_path / "out")
    assert not (tmp_path / "out").exists()
