"""Encoding a corpus to shards: every token is there once, in order, and the manifest tells the truth."""

import hashlib
import io
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill import Corpus, Tokenizer
from bytemill._core import __version__
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

from .packed_documents import END, END_ID, TOKENIZER, Documents, names, tokenizer_of_bytes

MERGES = [
    (b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (b"\xe6", b"\x97"), (b"\xe6\x97", b"\xa5"), (b"\n", b"\n"),
]  # fmt: skip
"""One of them is in the middle of a character."""


@pytest.fixture(scope="module")
def small_tokenizer() -> Tokenizer:
    vocab = {i: bytes([i]) for i in range(256)}
    vocab |= {256 + rank: left + right for rank, (left, right) in enumerate(MERGES)}
    return Tokenizer(vocab, MERGES, special_tokens=[END])


def ids_of(text: str) -> list[int]:
    """What the byte tokenizer gives, written down a second time."""
    parts = [list(part.encode()) for part in text.split(END)]
    return parts[0] + [i for part in parts[1:] for i in (END_ID, *part)]


def tokens_in(folder: Path) -> list[int]:
    return np.concatenate([np.asarray(shard) for shard in TokenShards(folder).arrays]).tolist()


@pytest.mark.parametrize("shard_tokens", [1, 7, 36, 37, 38, 79, 80, 1000])
def test_shards_joined_are_the_whole_encoding_and_all_but_the_last_are_full(
    tmp_path: Path, corpus: Path, shard_tokens: int
) -> None:
    out, inputs = tmp_path / "out", str(corpus / "*.txt")
    manifest = encode_corpus(TOKENIZER, inputs, out, shard_tokens=shard_tokens, separators=False)
    expected = [i for name in ("a.txt", "b.txt") for i in ids_of((corpus / name).read_text("utf-8"))]
    assert tokens_in(out) == expected
    sizes = [shard.n_tokens for shard in manifest.shards]
    assert all(size == shard_tokens for size in sizes[:-1])
    assert 1 <= sizes[-1] <= shard_tokens
    assert sum(sizes) == manifest.n_tokens == len(expected)
    assert names(out) == ["manifest.json", *(f"shard_{i:05d}.npy" for i in range(len(sizes)))]
    assert verify(out) == []


PIECES = ["the", " the", "a", " ", "\n", "é", "日", "🎉", END, "<|end", "oftext|>"]


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
    small_tokenizer: Tokenizer,
    texts: list[str],
    shard_tokens: int,
    batch_chars: int,
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    files = [folder / f"{i}.txt" for i in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, "utf-8", newline="")
    shards: Any = None
    for number, inputs in enumerate((files, Corpus.from_texts(texts), Documents(texts, batch_chars))):
        out = folder / f"{number}"
        manifest = encode_corpus(small_tokenizer, inputs, out, shard_tokens=shard_tokens, separators=False)
        shards = shards or manifest.shards
        assert manifest.shards == shards
        assert manifest.n_documents == sum(map(bool, texts))
        assert manifest.n_empty_documents == texts.count("")
        assert tokens_in(out) == [i for text in texts for i in small_tokenizer.encode(text)]


def test_real_texts_give_the_same_shards_in_batches_as_whole(tmp_path: Path, shared_data: Path) -> None:
    vocab, merges = shared_data / "gpt2_vocab.json", shared_data / "gpt2_merges.txt"
    gpt2 = Tokenizer.from_files(vocab, merges, special_tokens=[END])
    files = [shared_data / "tinystories.txt", shared_data / "wagahai_ja.txt"]
    texts = [file.read_bytes().decode("utf-8", "replace") for file in files]
    options: dict[str, Any] = {"shard_tokens": 100_000, "document_index": True, "separators": False}
    manifest = encode_corpus(gpt2, Documents(texts, 100_003), tmp_path / "out", num_threads=2, **options)
    ids = [gpt2.encode(text) for text in texts]
    shards = TokenShards(tmp_path / "out")
    np.testing.assert_array_equal(shards[:], np.concatenate(ids))
    ends = shards.document_ends()
    assert ends is not None
    assert ends.tolist() == [len(ids[0]), len(ids[0]) + len(ids[1])]
    assert manifest.dtype == "uint16"
    assert manifest.n_bytes == sum(len(text.encode()) for text in texts)
    assert verify(tmp_path / "out") == []


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_numpy_reads_a_shard_by_itself(
    tmp_path: Path, corpus: Path, dtype: Literal["uint16", "uint32"]
) -> None:
    encode_corpus(tokenizer_of_bytes(dtype), corpus / "a.txt", tmp_path / "out", shard_tokens=20)
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


def test_the_manifest_tells_where_the_tokens_come_from(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "new" / "out"
    inputs = [corpus / "a.txt", corpus / "b.txt"]
    manifest = encode_corpus(TOKENIZER, inputs, out, shard_tokens=30, allowed_special=[END], separators=False)
    assert read_manifest(out) == manifest
    assert manifest.bytemill_version == __version__
    assert manifest.fingerprint == TOKENIZER.fingerprint
    assert (manifest.n_vocab, manifest.dtype, manifest.layout) == (257, "uint16", "npy")
    sizes = [path.stat().st_size for path in inputs]
    assert manifest.sources == tuple(
        SourceInfo(name=str(path), n_bytes=n_bytes) for path, n_bytes in zip(inputs, sizes, strict=True)
    )
    assert (manifest.n_bytes, manifest.n_documents, manifest.n_replaced) == (sum(sizes), 2, 0)
    assert manifest.settings == ShardSettings(
        shard_tokens=30,
        allowed_special=(END,),
        errors="strict",
        document_separator=None,
        append_separator=False,
    )
    assert (manifest.documents, manifest.part) == (None, None)
    for shard in manifest.shards:
        data = (out / shard.file).read_bytes()
        assert (shard.n_bytes, shard.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    document = json.loads((out / "manifest.json").read_text("utf-8"))
    assert (document["format"], document["version"]) == ("bytemill-shards", 3)


def test_a_separator_ends_documents_and_is_appended_where_it_is_missing(tmp_path: Path, corpus: Path) -> None:
    counted = encode_corpus(TOKENIZER, str(corpus / "*.txt"), tmp_path / "counted", documents=END)
    assert (counted.n_documents, counted.separator_id) == (3, END_ID)
    texts = Corpus.from_texts(["one", "", "two", f"four{END}", END])
    appended = encode_corpus(TOKENIZER, texts, tmp_path / "appended", documents=END, allowed_special={END})
    assert read_manifest(tmp_path / "appended") == appended
    assert tokens_in(tmp_path / "appended") == ids_of(f"one{END}two{END}four{END}{END}")
    assert (appended.n_documents, appended.n_empty_documents) == (4, 1)


def test_special_tokens_are_text_or_refused_where_asked(tmp_path: Path, small_tokenizer: Tokenizer) -> None:
    text = f"the{END}the"
    options: dict[str, Any] = {"allowed_special": "none", "separators": False}
    encode_corpus(small_tokenizer, Corpus.from_texts([text]), tmp_path / "none", **options)
    assert tokens_in(tmp_path / "none") == small_tokenizer.encode_ordinary(text)
    options["allowed_special"] = "none_raise"
    message = r"<texts>: special token .*endoftext.* at byte 3 of a document"
    with pytest.raises(SpecialTokenError, match=message):
        encode_corpus(small_tokenizer, Corpus.from_texts([text]), tmp_path / "raise", **options)
    assert not (tmp_path / "raise").exists()
    # Of many sources that may have it, four are named.
    for n_sources, named in (
        (4, r"0\.txt or .*1\.txt or .*3\.txt: "),
        (5, r"one of .*0\.txt and 4 others: "),
    ):
        files = [tmp_path / f"{number}.txt" for number in range(n_sources)]
        for file in files:
            file.write_text(text)
        with pytest.raises(SpecialTokenError, match=named):
            encode_corpus(small_tokenizer, files, tmp_path / "raise", **options)


def test_replacing_what_is_not_utf8_is_counted(tmp_path: Path) -> None:
    inputs = [tmp_path / "bad.txt", tmp_path / "good.txt"]
    inputs[0].write_bytes(b"caf\xe9 \xff na\xc3\xafve\xc3")
    inputs[1].write_bytes(b"good")
    text = "caf\ufffd \ufffd na\u00efve\ufffdgood"
    for out, manifest in (
        ("a", encode_corpus(TOKENIZER, inputs, tmp_path / "a", errors="replace", separators=False)),
        ("b", encode_corpus(TOKENIZER, Corpus(inputs, errors="replace"), tmp_path / "b", separators=False)),
    ):
        assert tokens_in(tmp_path / out) == ids_of(text)
        assert (manifest.n_replaced, manifest.n_bytes) == (3, len(text.encode()))
        assert manifest.settings.errors == "replace"


def test_standard_input_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"größer{END}日本"
    seen: list[EncodeProgress] = []
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    manifest = encode_corpus(TOKENIZER, "-", tmp_path / "out", progress=seen.append, separators=False)
    assert tokens_in(tmp_path / "out") == ids_of(text)
    assert manifest.sources == (SourceInfo(name="<stdin>", n_bytes=len(text.encode())),)
    assert seen[-1].total_bytes is None


def test_empty_files_among_others_give_no_tokens(tmp_path: Path, corpus: Path) -> None:
    (corpus / "empty.txt").write_bytes(b"")
    inputs = [corpus / "empty.txt", corpus / "b.txt", corpus / "empty.txt"]
    manifest = encode_corpus(TOKENIZER, inputs, tmp_path / "out", separators=False)
    assert tokens_in(tmp_path / "out") == ids_of((corpus / "b.txt").read_text("utf-8"))
    assert [source.n_bytes for source in manifest.sources] == [0, manifest.n_bytes, 0]


def test_progress_tells_bytes_tokens_and_shards_as_they_grow(tmp_path: Path) -> None:
    seen: list[EncodeProgress] = []
    documents = Documents(["abcdefg" * 1_000_000] * 2, 1_000_000)
    options: dict[str, Any] = {"shard_tokens": 3_000_000, "progress": seen.append, "separators": False}
    manifest = encode_corpus(TOKENIZER, documents, tmp_path / "out", **options)
    assert [step.n_bytes for step in seen] == sorted(step.n_bytes for step in seen)
    assert len({step.n_bytes for step in seen}) > 2
    assert {step.source for step in seen} == {"documents"}
    assert {step.total_bytes for step in seen} == {manifest.n_bytes}
    assert seen[-1] == EncodeProgress("documents", 14_000_000, 14_000_000, 14_000_000, 5)


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    """The tokens of 400 texts take 160 MB; what is on its way at one time, less than a quarter of it."""
    documents = Documents(["0123456789" * 20_000] * 400, 200_000)
    options: dict[str, Any] = {"shard_tokens": 20_000_000, "num_threads": 1, "separators": False}
    tracemalloc.start()
    manifest = encode_corpus(TOKENIZER, documents, tmp_path / "out", **options)
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
        *(({"shuffle_seed": seed}, ShardError, "shuffle_seed is") for seed in (-1, 1 << 64, 1.5, True)),
        ({"num_threads": 0}, ValueError, "num_threads must be 1"),
        ({"inputs": "absent.txt"}, CorpusError, "absent.txt"),
        ({"inputs": []}, CorpusError, "no input"),
        ({"inputs": Corpus.from_texts([""])}, CorpusError, "the corpus is empty"),
        ({"inputs": Corpus.from_texts([])}, CorpusError, "the corpus is empty"),
        ({"inputs": "-"}, CorpusError, "the corpus is empty"),
        ({"inputs": ["good.txt", "bad.txt"]}, CorpusError, "bad.txt"),
    ],
)
def test_what_is_wrong_is_refused_and_leaves_no_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    error: type[Exception],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    Path("good.txt").write_text("größer", "utf-8")
    Path("bad.txt").write_bytes("日本語".encode() + b"\xff")
    with pytest.raises(error) as caught:
        encode_corpus(TOKENIZER, **{"inputs": "good.txt", "out_folder": "out", **options})
    assert says in str(caught.value)
    assert not Path("out").exists()


def test_an_unknown_option_is_an_error() -> None:
    """`cluster.encode_corpus` passes its keywords on."""
    options: Any = {"shard_token": 5}
    with pytest.raises(TypeError, match="unexpected keyword argument 'shard_token'"):
        EncodeSettings(**options)
