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
from hypothesis import given
from hypothesis import strategies as st

from bytemill import Corpus
from bytemill.errors import CorpusError, ShardError, SpecialTokenError
from bytemill.shards import (
    EncodeProgress,
    EncodeSettings,
    ShardSettings,
    SourceInfo,
    TokenShards,
    encode_corpus,
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
    return np.concatenate([np.asarray(shard) for shard in TokenShards(folder).arrays]).tolist()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("shard_tokens", [*range(1, 12), 36, 37, 38, 79, 80, 1000])
def test_shards_joined_are_the_whole_encoding_and_all_but_the_last_are_full(
    tmp_path: Path, corpus: Path, byte_tokenizer: Any, shard_tokens: int
) -> None:
    out = tmp_path / "out"
    manifest = encode_corpus(
        byte_tokenizer, str(corpus / "*.txt"), out, shard_tokens=shard_tokens, separators=False
    )
    expected = [i for name in ("a.txt", "b.txt") for i in ids_of((corpus / name).read_text("utf-8"))]
    assert tokens_in(out) == expected
    sizes = [shard.n_tokens for shard in manifest.shards]
    assert all(size == shard_tokens for size in sizes[:-1])
    assert 1 <= sizes[-1] <= shard_tokens
    assert sum(sizes) == manifest.n_tokens == len(expected)
    assert names(out) == ["manifest.json", *(f"shard_{i:05d}.npy" for i in range(len(sizes)))]
    assert verify(out) == []


PIECES = ["a", "é", "日", "🎉", END, "<|end", "oftext|>"]


@given(
    texts=st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), min_size=1, max_size=4).filter(
        any
    ),
    shard_tokens=st.integers(1, 20),
    batch_chars=st.integers(1, 12),
)
def test_files_texts_and_batches_give_the_same_shards_wherever_they_are_cut(
    *,
    tmp_path_factory: pytest.TempPathFactory,
    byte_tokenizer: Any,
    make_documents: Callable[..., Any],
    texts: list[str],
    shard_tokens: int,
    batch_chars: int,
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    files = [folder / f"{i}.txt" for i in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, "utf-8", newline="")
    inputs = {
        "files": files,
        "texts": Corpus.from_texts(texts),
        "batches": make_documents(texts, batch_chars),
    }
    made = {
        name: encode_corpus(byte_tokenizer, given, folder / name, shard_tokens=shard_tokens, separators=False)
        for name, given in inputs.items()
    }
    for name, manifest in made.items():
        assert manifest.shards == made["files"].shards
        assert manifest.n_documents == sum(map(bool, texts))
        assert manifest.n_empty_documents == texts.count("")
        assert tokens_in(folder / name) == [i for text in texts for i in ids_of(text)]


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_numpy_reads_a_shard_by_itself(
    tmp_path: Path, corpus: Path, make_tokenizer: Callable[..., Any], dtype: str
) -> None:
    encode_corpus(make_tokenizer(dtype), corpus / "a.txt", tmp_path / "out", shard_tokens=20)
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
    manifest = encode_corpus(
        byte_tokenizer, inputs, out, shard_tokens=30, allowed_special=[END], separators=False
    )
    assert read_manifest(out) == manifest
    assert manifest.bytemill_version == __version__
    assert (manifest.fingerprint, manifest.n_vocab, manifest.dtype) == (
        byte_tokenizer.fingerprint,
        257,
        "uint16",
    )
    assert manifest.sources == tuple(
        SourceInfo(name=str(path), n_bytes=path.stat().st_size) for path in inputs
    )
    assert manifest.n_bytes == sum(source.n_bytes for source in manifest.sources)
    assert (manifest.n_documents, manifest.n_replaced) == (2, 0)
    assert manifest.settings == ShardSettings(
        shard_tokens=30,
        allowed_special=(END,),
        errors="strict",
        document_separator=None,
        append_separator=False,
    )
    assert (manifest.layout, manifest.documents, manifest.part) == ("npy", None, None)
    for shard in manifest.shards:
        data = (out / shard.file).read_bytes()
        assert (shard.n_bytes, shard.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    document = json.loads((out / "manifest.json").read_text("utf-8"))
    assert (document["format"], document["version"]) == ("bytemill-shards", 3)


def test_a_separator_ends_documents_and_is_appended_where_it_is_missing(
    tmp_path: Path, corpus: Path, byte_tokenizer: Any
) -> None:
    inputs = str(corpus / "*.txt")
    counted = encode_corpus(byte_tokenizer, inputs, tmp_path / "counted", documents=END)
    assert counted.n_documents == 3
    assert counted.separator_id == END_ID
    texts = ["one", "", "two", f"four{END}", END]
    appended = encode_corpus(
        byte_tokenizer,
        Corpus.from_texts(texts),
        tmp_path / "appended",
        documents=END,
    )
    assert tokens_in(tmp_path / "appended") == ids_of(f"one{END}two{END}four{END}{END}")
    assert (appended.n_documents, appended.n_empty_documents) == (4, 1)


def test_replacing_what_is_not_utf8_is_counted(tmp_path: Path, byte_tokenizer: Any) -> None:
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9 \xff na\xc3\xafve\xc3")
    (tmp_path / "good.txt").write_bytes(b"good")
    inputs = [tmp_path / "bad.txt", tmp_path / "good.txt"]
    manifest = encode_corpus(byte_tokenizer, inputs, tmp_path / "out", errors="replace", separators=False)
    text = "caf\ufffd \ufffd na\u00efve\ufffdgood"
    assert tokens_in(tmp_path / "out") == ids_of(text)
    assert (manifest.n_replaced, manifest.n_bytes) == (3, len(text.encode()))
    assert manifest.settings.errors == "replace"


def test_what_is_not_utf8_leaves_no_folder(tmp_path: Path, byte_tokenizer: Any) -> None:
    (tmp_path / "good.txt").write_text("größer", "utf-8")
    bad = tmp_path / "bad.txt"
    bad.write_bytes("日本語".encode() + b"\xff")
    with pytest.raises(CorpusError, match=r"bad\.txt"):
        encode_corpus(byte_tokenizer, [tmp_path / "good.txt", bad], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_standard_input_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, byte_tokenizer: Any
) -> None:
    text = f"größer{END}日本"
    seen: list[EncodeProgress] = []
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    manifest = encode_corpus(byte_tokenizer, "-", tmp_path / "out", progress=seen.append, separators=False)
    assert tokens_in(tmp_path / "out") == ids_of(text)
    assert manifest.sources == (SourceInfo(name="<stdin>", n_bytes=len(text.encode())),)
    assert seen[-1].total_bytes is None


def test_an_empty_stream_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, byte_tokenizer: Any
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    for inputs in ("-", Corpus.from_texts([""]), Corpus.from_texts([])):
        with pytest.raises(CorpusError, match="the corpus is empty"):
            encode_corpus(byte_tokenizer, inputs, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_empty_files_among_others_give_no_tokens(tmp_path: Path, corpus: Path, byte_tokenizer: Any) -> None:
    (corpus / "empty.txt").write_bytes(b"")
    inputs = [corpus / "empty.txt", corpus / "b.txt", corpus / "empty.txt"]
    manifest = encode_corpus(byte_tokenizer, inputs, tmp_path / "out", separators=False)
    assert tokens_in(tmp_path / "out") == ids_of((corpus / "b.txt").read_text("utf-8"))
    assert [source.n_bytes for source in manifest.sources] == [0, manifest.n_bytes, 0]


def test_progress_tells_bytes_tokens_and_shards_as_they_grow(
    tmp_path: Path, byte_tokenizer: Any, make_documents: Callable[..., Any]
) -> None:
    seen: list[EncodeProgress] = []
    documents = make_documents(["abcdefg" * 1_000_000] * 2, 1_000_000)
    manifest = encode_corpus(
        byte_tokenizer,
        documents,
        tmp_path / "out",
        shard_tokens=3_000_000,
        progress=seen.append,
        separators=False,
    )
    assert [step.n_bytes for step in seen] == sorted(step.n_bytes for step in seen)
    assert len({step.n_bytes for step in seen}) > 2
    assert {step.source for step in seen} == {"documents"}
    assert {step.total_bytes for step in seen} == {manifest.n_bytes}
    assert seen[-1] == EncodeProgress("documents", 14_000_000, 14_000_000, 14_000_000, 5)


def test_memory_does_not_grow_with_the_corpus(
    tmp_path: Path, byte_tokenizer: Any, make_documents: Callable[..., Any]
) -> None:
    """The tokens of 400 texts take 160 MB; what is on its way at one time, less than a quarter of it."""
    documents = make_documents(["0123456789" * 20_000] * 400, 200_000)
    tracemalloc.start()
    manifest = encode_corpus(
        byte_tokenizer, documents, tmp_path / "out", shard_tokens=20_000_000, num_threads=1, separators=False
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert manifest.n_tokens == 80_000_000
    assert [shard.n_tokens for shard in manifest.shards] == [20_000_000] * 4
    assert peak < 40 << 20


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"shard_tokens": 0}, ShardError, "shard_tokens is 0"),
        ({"errors": "ignore"}, ShardError, "errors is 'ignore'"),
        ({"documents": "<|eot|>"}, SpecialTokenError, "documents is '<|eot|>', which is not a special token"),
        ({"allowed_special": "some"}, ValueError, "some"),
        ({"layout": "csv"}, ShardError, "there is no layout 'csv'"),
        ({"prepend": "<s>"}, SpecialTokenError, "'<s>' is not a special token"),
        ({"validation_fraction": 1.0}, ShardError, "validation_fraction is 1.0"),
        ({"split_seed": -1}, ShardError, "split_seed is -1"),
        ({"num_threads": 0}, ValueError, "num_threads must be 1"),
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
        encode_corpus(byte_tokenizer, corpus / "a.txt", tmp_path / "out", **options)
    assert says in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_wrong_corpus_is_refused_before_the_folder_is_touched(
    tmp_path: Path, corpus: Path, byte_tokenizer: Any
) -> None:
    for inputs in (corpus / "absent.txt", []):
        with pytest.raises(CorpusError):
            encode_corpus(byte_tokenizer, inputs, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_option_is_an_error(corpus: Path, byte_tokenizer: Any) -> None:
    """`cluster.encode_corpus` passes its keywords on."""
    options: Any = {"shard_token": 5}
    with pytest.raises(TypeError, match="unexpected keyword argument 'shard_token'"):
        EncodeSettings(**options)
