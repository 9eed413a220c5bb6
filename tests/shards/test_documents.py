"""Documents, what stands around them, and on which side of a split they fall, against plain Python."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from bytemill import Tokenizer
from bytemill.data.layouts import layout_named
from bytemill.errors import ShardError, SpecialTokenError
from bytemill.shards import TokenShards, encode_corpus, read_manifest, verify

from .packed_documents import END, Documents, tokenizer_of_bytes

START = "<s>"
TOKENIZER = tokenizer_of_bytes(start=START)
PIECES = [
    "the ",
    "größer",
    "日本語",
    "🎉",
    "\n",
    END,
    START,
    "<|end",
    "of",
    "text|>",
    "x" * 40,
    "हिन्दी",
    "العربية",
]


texts_of_documents = st.lists(
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join), min_size=1, max_size=12
).filter(any)


def slow_ids(text: str, *, append: bool, in_front: bool, prepend: str | None) -> list[int]:
    """The ids of one document, with what stands around it."""
    ids = TOKENIZER.encode(text)
    end = TOKENIZER.special_tokens[END]
    if not ids:
        return []
    front = [end] if in_front else []
    if in_front and ids[-1] == end:
        ids = ids[:-1]
    if prepend is not None and TOKENIZER.special_tokens[prepend] not in front:
        front.append(TOKENIZER.special_tokens[prepend])
    for n_missing in range(len(front) + 1):
        if ids[: len(front) - n_missing] == front[n_missing:]:
            ids = front[:n_missing] + ids
            break
    if append and not in_front and ids[-1] != end:
        ids.append(end)
    return ids


def slow_shards(documents: list[list[int]], shard_tokens: int, *, whole_documents: bool) -> list[list[int]]:
    """The ids of documents, cut into shards."""
    shards: list[list[int]] = [[]]
    for ids in documents:
        if whole_documents:
            shards[-1].extend(ids)
            if len(shards[-1]) >= shard_tokens:
                shards.append([])
            continue
        for token in ids:
            shards[-1].append(token)
            if len(shards[-1]) == shard_tokens:
                shards.append([])
    return shards if shards[-1] else shards[:-1]


@given(
    texts=texts_of_documents,
    batch_chars=st.integers(1, 60),
    layout=st.sampled_from(["npy", "bin", "llmc", "megatron", "datatrove"]),
    shard_tokens=st.integers(5, 200),
    separator=st.sampled_from([None, END]),
    prepend=st.sampled_from([None, START, END]),
    num_threads=st.integers(1, 3),
)
@example(
    texts=["12345", "123", "12", "1"],  # documents that end where a shard is full
    batch_chars=60,
    layout="megatron",
    shard_tokens=5,
    separator=None,
    prepend=None,
    num_threads=1,
)
def test_shards_and_their_index_are_what_each_document_gives_alone(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    texts: list[str],
    batch_chars: int,
    layout: str,
    shard_tokens: int,
    separator: str | None,
    prepend: str | None,
    num_threads: int,
) -> None:
    out = tmp_path_factory.mktemp("documents") / "out"
    manifest = encode_corpus(
        TOKENIZER,
        Documents(texts, batch_chars),
        out,
        layout=layout,
        shard_tokens=shard_tokens,
        document_index=True,
        documents=separator,
        separators=separator is not None,
        prepend=prepend or False,
        num_threads=num_threads,
    )
    kind = layout_named(layout)
    in_front = kind.separator_in_front and separator is not None
    documents = [
        slow_ids(text, append=separator is not None, in_front=in_front, prepend=prepend) for text in texts
    ]
    documents = [ids for ids in documents if ids]
    expected = slow_shards(documents, shard_tokens, whole_documents=kind.whole_documents)
    found = [
        kind.open(out / shard.file, manifest.dtype, shard.n_tokens).tolist() for shard in manifest.shards
    ]
    assert found == expected
    ends = TokenShards(out).document_ends()
    assert ends is not None
    assert ends.tolist() == np.cumsum([len(ids) for ids in documents]).tolist()
    assert (manifest.n_documents, manifest.n_empty_documents) == (len(documents), len(texts) - len(documents))
    assert manifest.n_bytes == sum(len(text.encode()) for text in texts)
    assert verify(out) == []


@given(
    texts=texts_of_documents,
    batch_chars=st.integers(1, 60),
    fraction=st.sampled_from([0.01, 0.3, 0.5, 0.9]),
    seed=st.integers(0, 2**64 - 1),
)
def test_documents_fall_on_the_side_that_the_hash_of_their_text_says(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], batch_chars: int, fraction: float, seed: int
) -> None:
    texts = [*texts, *texts[:3]]
    out = tmp_path_factory.mktemp("split") / "out"
    sides: dict[str, list[str]] = {"train": [], "validation": []}
    for text in texts:
        hashed = xxhash.xxh3_64_intdigest(text.encode(), seed)
        sides["validation" if hashed < int(fraction * 2**64) else "train"].append(text)
    options: dict[str, Any] = {"split_seed": seed, "document_index": True, "separators": False}
    options["validation_fraction"] = fraction
    if not all(map(any, sides.values())):
        with pytest.raises(ShardError, match="would be empty"):
            encode_corpus(TOKENIZER, Documents(texts, batch_chars), out, **options)
        return
    encode_corpus(TOKENIZER, Documents(texts, batch_chars), out, **options)
    for part, documents in sides.items():
        manifest = read_manifest(out / part)
        assert TokenShards(out / part)[:].tolist() == [
            i for text in documents for i in TOKENIZER.encode(text)
        ]
        assert manifest.part == part
        assert manifest.n_documents == sum(map(bool, documents))
        assert manifest.n_bytes == sum(len(text.encode()) for text in documents)
        assert verify(out / part) == []
    assert sorted(path.name for path in out.iterdir()) == ["train", "validation"]


def test_of_a_giant_document_the_first_mebibyte_decides(tmp_path: Path) -> None:
    head = "0123456789abcdef" * (1 << 16)
    texts = [head + "x" * 3_000_000, "y", head, head + "z", head[:-1]]
    options: dict[str, Any] = {"validation_fraction": 0.5, "split_seed": 3, "separators": False}
    encode_corpus(TOKENIZER, Documents(texts, 300_000), tmp_path / "out", **options)
    sides = {"train": 0, "validation": 0}
    for text in texts:
        hashed = xxhash.xxh3_64_intdigest(text.encode()[: 1 << 20], 3)
        sides["validation" if hashed < 1 << 63 else "train"] += len(text)
    assert {part: read_manifest(tmp_path / "out" / part).n_tokens for part in sides} == sides


def test_the_token_that_begins_documents_is_the_one_that_the_tokenizer_has(tmp_path: Path) -> None:
    plain, with_start, text = tokenizer_of_bytes(), tokenizer_of_bytes(start=START), Documents(["ab", "c"])
    encode_corpus(with_start, text, tmp_path / "start", prepend=True)
    assert TokenShards(tmp_path / "start")[:].tolist() == with_start.encode(f"{START}ab{END}{START}c{END}")
    encode_corpus(plain, text, tmp_path / "end", prepend=True)
    assert TokenShards(tmp_path / "end")[:].tolist() == plain.encode(f"{END}ab{END}c")
    without = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
    with pytest.raises(SpecialTokenError, match="no special token for the start of documents"):
        encode_corpus(without, text, tmp_path / "none", prepend=True)


def test_memoryviews_of_all_kinds_are_encoded(tmp_path: Path) -> None:
    """Of bytes without a copy, of what may change with one."""
    from bytemill._core import DocumentEncoder

    del tmp_path
    data = "größer".encode()
    for view in (
        data,
        memoryview(data),
        memoryview(b"x" + data)[1:],
        memoryview(bytearray(data)),
        memoryview(b""),
    ):
        encoder = DocumentEncoder(TOKENIZER.core, "all", 1, [])
        ends = np.array([len(view)])
        (pieces, found, n_bytes, n_empty), _ = encoder.encode([(view, ends, False)])
        assert [i for piece in pieces for i in piece.tolist()] == list(bytes(view))
        assert (found.tolist(), n_bytes, n_empty) == (
            [len(view)] if len(view) else [],
            [len(view)],
            not len(view),
        )
    for wrong, ends in ((b"\xff", [1]), ("é".encode(), [1, 2]), (b"ab", [1]), (b"ab", [-1, 2])):
        with pytest.raises(ValueError, match=r"utf-8|ends"):
            DocumentEncoder(TOKENIZER.core, "all", 1, []).encode([(wrong, np.array(ends), False)])
