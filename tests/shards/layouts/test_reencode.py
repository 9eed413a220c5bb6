"""Re-encoded shards are what encoding the original documents with the other tokenizer gives."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shards.packed_documents import files_of

from bytemill import Corpus, Tokenizer
from bytemill.corpus.documents import Position
from bytemill.data.corpus_reader import ShardCorpus
from bytemill.data.layouts import LAYOUTS
from bytemill.data.manifest import Manifest
from bytemill.data.reencode import reencode_shards, shard_corpus
from bytemill.data.token_source import open_tokens
from bytemill.errors import CorpusError, ShardError, SpecialTokenError
from bytemill.shards import TokenShards, encode_corpus, read_manifest, verify

END = "<|endoftext|>"
USER = "<|user|>"
BEGIN = "<|begin|>"
DOCUMENTS = [
    "the first one",
    "x",
    "日本語のテキスト",
    "the thing 🦀 the other\n\n",
    "a <|user|> b",
    "das Ende",
]


def tokenizer(merges: list[tuple[bytes, bytes]], special: dict[str, int] | list[str]) -> Tokenizer:
    vocab = {i: bytes([i]) for i in range(256)}
    vocab |= {256 + rank: left + right for rank, (left, right) in enumerate(merges)}
    return Tokenizer(vocab, merges, special_tokens=special)


@pytest.fixture(scope="module")
def old() -> Tokenizer:
    """One merge goes through the middle of characters."""
    merges = [(b"t", b"h"), (b"th", b"e"), (b"\xe6", b"\x97"), (b" ", b"the"), (b"\xe3\x81"[:1], b"\x81")]
    return tokenizer(merges, [END, USER])


@pytest.fixture(scope="module")
def wide() -> Tokenizer:
    """Its ids do not fit in two bytes."""
    return tokenizer([(b"h", b"e"), (b"n", b"g"), (b"\n", b"\n")], {END: 70_000, BEGIN: 70_001})


@pytest.fixture(scope="module")
def new() -> Tokenizer:
    return tokenizer([(b"h", b"e"), (b"t", b"he")], [BEGIN, USER, END])


def write(out: Path, old: Tokenizer, documents: list[str], **options: Any) -> Manifest:
    """Shards of documents, with a separator behind each."""
    options = {"shard_tokens": 11, "documents": END} | options
    return encode_corpus(
        old, Corpus.from_texts(documents), out, allowed_special=options.pop("allowed", "none"), **options
    )


def documents_of(folder: Path) -> list[list[int]]:
    tokens = open_tokens(folder)
    block = tokens.read(0, tokens.n_tokens)
    starts = [0, *block.ends.tolist()]
    return [block.tokens[start:stop].tolist() for start, stop in pairwise(starts)]


def raw_shards(folder: Path, ids: list[int]) -> Path:
    """A file of another program."""
    folder.mkdir()
    np.save(folder / "ids.npy", np.array(ids, np.uint16))
    return folder / "ids.npy"


@pytest.mark.parametrize(
    ("layout", "indexed", "target_name"),
    [*((layout, False, "new") for layout in LAYOUTS), ("npy", True, "wide"), ("llmc", True, "wide")],
)
def test_every_document_is_encoded_anew(
    tmp_path: Path,
    old: Tokenizer,
    request: pytest.FixtureRequest,
    layout: str,
    indexed: bool,
    target_name: str,
) -> None:
    target: Tokenizer = request.getfixturevalue(target_name)
    write(tmp_path / "old", old, DOCUMENTS, layout=layout, document_index=indexed)
    corpus = shard_corpus(tmp_path / "old", old, target)
    manifest = reencode_shards(corpus, target, tmp_path / "new", layout="megatron")
    end = target.special_tokens[END]
    expected = [[*target.encode_ordinary(document), end] for document in DOCUMENTS]
    assert documents_of(tmp_path / "new") == expected
    assert manifest.fingerprint == target.fingerprint
    assert manifest.dtype == target.core.dtype == ("uint32" if target_name == "wide" else "uint16")
    assert manifest.n_bytes == sum(len(document.encode()) for document in DOCUMENTS)
    assert verify(tmp_path / "new") == []
    assert corpus.allowed_special == ()


def test_what_is_not_said_is_as_it_was(tmp_path: Path, old: Tokenizer, new: Tokenizer) -> None:
    before = write(tmp_path / "old", old, DOCUMENTS, layout="datatrove", document_index=True, prepend=USER)
    after = reencode_shards(shard_corpus(tmp_path / "old", old, new), new, tmp_path / "new")
    assert (after.layout, after.settings.shard_tokens) == ("datatrove", 11)
    assert after.settings.prepended == USER
    assert after.n_documents == before.n_documents == len(DOCUMENTS)
    begin, end = new.special_tokens[USER], new.special_tokens[END]
    expected = [[begin, *new.encode_ordinary(document), end] for document in DOCUMENTS]
    assert documents_of(tmp_path / "new") == expected
    ends = TokenShards(tmp_path / "new").document_ends()
    assert ends is not None
    assert len(ends) == len(DOCUMENTS)


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("around", [{"separators": False}, {"prepend": END}, {"layout": "llmc"}])
def test_what_documents_begin_with_tells_them_apart_too(
    tmp_path: Path, old: Tokenizer, new: Tokenizer, indexed: bool, around: dict[str, Any]
) -> None:
    options = {"prepend": USER} | around
    write(tmp_path / "old", old, DOCUMENTS, document_index=indexed, **options)
    reencode_shards(shard_corpus(tmp_path / "old", old, new), new, tmp_path / "new", document_index=True)
    write(tmp_path / "direct", new, DOCUMENTS, document_index=True, **options)
    assert TokenShards(tmp_path / "new")[:].tolist() == TokenShards(tmp_path / "direct")[:].tolist()


def test_there_and_back_is_where_it_began(tmp_path: Path, old: Tokenizer, wide: Tokenizer) -> None:
    write(tmp_path / "old", old, DOCUMENTS)
    first = reencode_shards(shard_corpus(tmp_path / "old", old, wide), wide, tmp_path / "wide")
    # A finished result is left as it is.
    events: list[Any] = []
    corpus = shard_corpus(tmp_path / "old", old, wide)
    assert reencode_shards(corpus, wide, tmp_path / "wide", progress=events.append) == first
    assert [event.already_complete for event in events] == [True]
    reencode_shards(shard_corpus(tmp_path / "wide", wide, old), old, tmp_path / "back")
    assert read_manifest(tmp_path / "back").shards == read_manifest(tmp_path / "old").shards


def test_special_tokens_inside_of_documents_are_recognised_again_or_become_text(
    tmp_path: Path, old: Tokenizer, new: Tokenizer, wide: Tokenizer
) -> None:
    texts = ["hi <|user|> the", "<|user|><|user|>"]
    write(tmp_path / "old", old, texts, allowed=[USER])
    for target, again, as_text in ((new, (USER,), {}), (wide, (), {USER: 3})):
        corpus = shard_corpus(tmp_path / "old", old, target)
        assert (corpus.allowed_special, corpus.special_as_text) == (again, as_text)
        reencode_shards(corpus, target, tmp_path / f"{target.n_vocab}", layout="megatron")
        found, end = documents_of(tmp_path / f"{target.n_vocab}"), target.special_tokens[END]
        assert found == [[*target.encode(text, allowed_special={*again}), end] for text in texts]
        assert (target.special_tokens.get(USER) in found[0]) == bool(again)


def test_text_that_looks_like_a_special_token_does_not_become_one(
    tmp_path: Path, old: Tokenizer, new: Tokenizer
) -> None:
    """Where no document uses the special token, nothing is recognised; where one does, the text is refused."""
    write(tmp_path / "plain", old, ["a <|user|> b", "the <|endoftext|> of"])
    reencode_shards(shard_corpus(tmp_path / "plain", old, new), new, tmp_path / "out", layout="megatron")
    end = new.special_tokens[END]
    assert documents_of(tmp_path / "out") == [
        [*new.encode_ordinary(document), end] for document in ("a <|user|> b", "the <|endoftext|> of")
    ]
    user = old.special_tokens[USER]
    ids = [*b"one", user, old.special_tokens[END], *b"<|user|>", old.special_tokens[END], *b"last"]
    mixed = raw_shards(tmp_path / "mixed", ids)
    with pytest.raises(
        CorpusError, match=r"document 2 contains text that looks like a special token"
    ) as caught:
        reencode_shards(shard_corpus(mixed, old, new), new, tmp_path / "none")
    assert "--on-error skip" in str(caught.value.hint)
    corpus = shard_corpus(mixed, old, new, on_error="skip")
    manifest = reencode_shards(corpus, new, tmp_path / "skipped", layout="megatron")
    assert manifest.n_broken_documents == 1
    assert documents_of(tmp_path / "skipped") == [
        [*b"one", new.special_tokens[USER], end],
        [*new.encode_ordinary("last"), end],
    ]


def test_what_reads_as_a_special_token_across_documents_is_none(
    tmp_path: Path, old: Tokenizer, new: Tokenizer
) -> None:
    user, end = old.special_tokens[USER], old.special_tokens[END]
    ids = [user, end, *b"<|us", end, *b"er|>", end]
    reencode_shards(
        shard_corpus(raw_shards(tmp_path / "raw", ids), old, new), new, tmp_path / "out", layout="megatron"
    )
    assert len(documents_of(tmp_path / "out")) == 3


def test_cut_characters_are_named_by_document(tmp_path: Path, old: Tokenizer, new: Tokenizer) -> None:
    end = old.special_tokens[END]
    ids = [*b"fine", end, *"é".encode()[:1], end, *"é".encode()[1:], *b"x", end, *"ü".encode()]
    raw = raw_shards(tmp_path / "raw", ids)
    with pytest.raises(CorpusError, match=r"document 2 is not UTF-8 \(byte 0") as caught:
        reencode_shards(shard_corpus(raw, old, new), new, tmp_path / "out")
    assert "--on-error skip" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()
    new_end = new.special_tokens[END]
    skipped = reencode_shards(
        shard_corpus(raw, old, new, on_error="skip"), new, tmp_path / "skip", layout="megatron"
    )
    assert (skipped.n_broken_documents, skipped.n_replaced, skipped.n_documents) == (2, 0, 2)
    assert documents_of(tmp_path / "skip") == [[*b"fine", new_end], [*"ü".encode(), new_end]]
    replaced = reencode_shards(
        shard_corpus(raw, old, new, on_error="replace"), new, tmp_path / "replace", layout="megatron"
    )
    assert (replaced.n_broken_documents, replaced.n_replaced, replaced.n_documents) == (0, 2, 4)
    assert documents_of(tmp_path / "replace")[1] == [*"\ufffd".encode(), new_end]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_all_documents_may_be_broken(tmp_path: Path, old: Tokenizer, new: Tokenizer, on_error: Any) -> None:
    end = old.special_tokens[END]
    raw = raw_shards(tmp_path / "raw", [0xFF, end, 0xC3, end])
    corpus = shard_corpus(raw, old, new, on_error=on_error)
    batches = list(corpus.read())
    counts = batches[-1].after.counts
    assert (counts.n_broken, counts.n_replaced) == ((2, 0) if on_error == "skip" else (0, 2))
    if on_error == "skip":
        with pytest.raises(CorpusError):
            reencode_shards(corpus, new, tmp_path / "out")


def test_the_tokenizer_has_to_be_that_of_the_shards(tmp_path: Path, old: Tokenizer, new: Tokenizer) -> None:
    write(tmp_path / "old", old, DOCUMENTS)
    with pytest.raises(ShardError, match="were encoded with tokenizer") as caught:
        shard_corpus(tmp_path / "old", new, old)
    assert "--from" in str(caught.value.hint)
    raw = raw_shards(tmp_path / "raw", [1, 2, 999])
    with pytest.raises(ShardError, match="contain the id 999, which the tokenizer does not have"):
        reencode_shards(shard_corpus(raw, old, new), new, tmp_path / "out")


def test_where_nothing_separates_documents_all_is_one(tmp_path: Path, old: Tokenizer, new: Tokenizer) -> None:
    text = "the thing 🦀 the other\n" * 5
    raw = raw_shards(tmp_path / "raw", old.encode_ordinary(text))
    corpus = ShardCorpus(open_tokens(raw), old, new.special_tokens, batch_tokens=7)
    assert _texts(list(corpus.read())) == [text.encode()]
    reencode_shards(corpus, new, tmp_path / "out")
    assert TokenShards(tmp_path / "out")[:].tolist() == new.encode_ordinary(text)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint32"])
def test_ids_of_any_integer_type_are_decoded(
    tmp_path: Path, old: Tokenizer, new: Tokenizer, dtype: str
) -> None:
    ids = [*old.encode_ordinary("the thing"), old.special_tokens[END]]
    np.save(tmp_path / "ids.npy", np.array(ids, dtype))
    reencode_shards(shard_corpus(tmp_path / "ids.npy", old, new), new, tmp_path / "out")
    assert TokenShards(tmp_path / "out")[:].tolist() == [
        *new.encode_ordinary("the thing"),
        new.special_tokens[END],
    ]
    if dtype != "uint32":
        np.save(tmp_path / "ids.npy", np.array([1, -1], dtype))
        with pytest.raises(ShardError, match="contain the id -1, which the tokenizer does not have"):
            reencode_shards(shard_corpus(tmp_path / "ids.npy", old, new), new, tmp_path / "bad")


def test_a_target_without_a_separator_is_asked_for_one(tmp_path: Path, old: Tokenizer) -> None:
    bare = tokenizer([], ["<stop>"])
    write(tmp_path / "old", old, DOCUMENTS)
    corpus = shard_corpus(tmp_path / "old", old, bare)
    with pytest.raises(SpecialTokenError, match="is not a special token of the new tokenizer") as caught:
        reencode_shards(corpus, bare, tmp_path / "out")
    assert "--documents" in str(caught.value.hint)
    reencode_shards(corpus, bare, tmp_path / "out", documents="<stop>", layout="megatron")
    assert all(document[-1] == 256 for document in documents_of(tmp_path / "out"))


@pytest.mark.parametrize("stop_at", [1, 4, 9])
def test_an_interrupted_run_goes_on_to_the_same_files(
    tmp_path: Path, old: Tokenizer, new: Tokenizer, stop_at: int
) -> None:
    documents = [f"{number} the thing 日本語 {'the other ' * (number % 7 * 3)}" for number in range(60)]
    write(tmp_path / "old", old, documents, shard_tokens=400)

    def corpus() -> ShardCorpus:
        tokens = open_tokens(tmp_path / "old")
        tokens.separate_at(old.special_tokens[END])
        return ShardCorpus(tokens, old, new.special_tokens, batch_tokens=90)

    def run(out: Path, progress: Any = None) -> None:
        options: dict[str, Any] = {"documents": END, "shard_tokens": 300}
        encode_corpus(
            new, corpus(), out, allowed_special="none", checkpoint_bytes=1, progress=progress, **options
        )

    run(tmp_path / "whole")
    events: list[Any] = []

    def interrupt(event: Any) -> None:
        events.append(event)
        if len(events) == stop_at:
            raise KeyboardInterrupt

    try:
        run(tmp_path / "out", interrupt)
    except KeyboardInterrupt:
        assert not (tmp_path / "out" / "manifest.json").exists()
    run(tmp_path / "out")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


texts = st.lists(st.text(st.sampled_from("theé日🦀 \n<|user|>"), max_size=12), min_size=1, max_size=8)


@given(
    documents=texts,
    layout=st.sampled_from(["npy", "llmc"]),
    batch_tokens=st.integers(1, 30),
    indexed=st.booleans(),
)
def test_batches_of_any_size_hold_the_documents(
    tmp_path_factory: pytest.TempPathFactory,
    old: Tokenizer,
    new: Tokenizer,
    documents: list[str],
    layout: str,
    batch_tokens: int,
    indexed: bool,
) -> None:
    if not any(documents):
        return
    folder = tmp_path_factory.mktemp("any") / "old"
    write(folder, old, documents, layout=layout, document_index=indexed, shard_tokens=40)
    tokens = open_tokens(folder)
    tokens.separate_at(old.special_tokens[END])
    corpus = ShardCorpus(tokens, old, new.special_tokens, batch_tokens=batch_tokens)
    batches = list(corpus.read())
    assert _texts(batches) == [document.encode() for document in documents if document]
    assert batches[-1].after.source == 1
    assert batches[-1].n_bytes_read == corpus.total_bytes
    for index, batch in enumerate(batches):
        position = Position(batch.after.source, json.loads(json.dumps(batch.after.state)), batch.after.counts)
        rest = list(corpus.read(position))
        assert [(b.data, b.is_open) for b in rest] == [(b.data, b.is_open) for b in batches[index + 1 :]]


@given(
    data=st.lists(st.sampled_from([*b"ab<|user|>", 0xC3, 0xA9, 0xFF, -1, -2]), min_size=1, max_size=60),
    batch_tokens=st.integers(1, 20),
    on_error=st.sampled_from(["skip", "replace"]),
)
def test_broken_documents_are_left_out_or_replaced_however_long(
    tmp_path_factory: pytest.TempPathFactory,
    old: Tokenizer,
    new: Tokenizer,
    data: list[int],
    batch_tokens: int,
    on_error: Any,
) -> None:
    """-1 stands for the separator, -2 for a special token; the twin goes through the documents one by one."""
    special = {-1: old.special_tokens[END], -2: old.special_tokens[USER]}
    raw = raw_shards(tmp_path_factory.mktemp("any") / "raw", [special.get(value, value) for value in data])
    tokens = open_tokens(raw)
    tokens.separate_at(old.special_tokens[END], in_front=False)
    corpus = ShardCorpus(tokens, old, new.special_tokens, on_error=on_error, batch_tokens=batch_tokens)
    documents: list[list[int]] = [[]]
    for value in data:
        documents[-1].append(value)
        if value == -1:
            documents.append([])
    expected: list[bytes] = []
    n_broken = 0
    refuses = -2 in data
    for document in filter(None, documents):
        ids = document[:-1] if document[-1] == -1 else document
        text = b"".join(USER.encode() if value == -2 else bytes([value]) for value in ids)
        plain = b"".join(b"\0" if value == -2 else bytes([value]) for value in ids)
        is_valid = text.decode("utf-8", "replace").encode() == text
        looks = refuses and USER.encode() in plain
        if on_error == "skip" and (looks or not is_valid):
            n_broken += 1
        elif looks:
            with pytest.raises(CorpusError, match="looks like a special token"):
                list(corpus.read())
            return
        else:
            expected.append(text.decode("utf-8", "replace").encode())
    batches = list(corpus.read())
    assert _texts(batches) == expected
    assert batches[-1].after.counts.n_broken == n_broken
    assert batches[-1].after.counts.n_documents == len(expected)


def _texts(batches: list[Any]) -> list[bytes]:
    texts: list[bytes] = []
    is_open = False
    for batch in batches:
        start = 0
        assert not len(batch.ends) or batch.ends[-1] == len(batch.data)
        for end in batch.ends.tolist():
            piece = bytes(batch.data[start:end])
            piece.decode()  # cut at a character
            if is_open and start == 0:
                texts[-1] += piece
            else:
                texts.append(piece)
            start = end
        is_open = batch.is_open
    assert not is_open
    return texts
