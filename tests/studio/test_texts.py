"""Texts that are edited, and what is sent of their ids; vocabularies as columns."""

import base64
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.errors import TokenizerError
from bytemill.studio.library import OpenedTokenizer
from bytemill.studio.routes.tokenizers import NO_TOKEN, smallest_size, vocabulary_table
from bytemill.studio.schemas import EditSpec, ViewSpec
from bytemill.studio.texts import (
    MAX_TEXTS,
    EditError,
    Encoded,
    ForgottenTextError,
    IdsChange,
    StaleVersionError,
    TextStore,
    ids_change,
)
from tests.studio.conftest import id_of

TOKENIZER = bytemill.train_from_iterator(["the cat sat on the mat, déjà vu 犬 " * 20], 280, ["<|endoftext|>"])
VIEWS = [ViewSpec(tokenizer="own", special=special, vocab_size=size)
         for special, size in ((True, None), (False, None), (True, 270))]  # fmt: skip


def tokenizer_of(_: str, vocab_size: int | None) -> OpenedTokenizer:
    if vocab_size is None:
        return OpenedTokenizer(TOKENIZER, "stamp")
    smaller = TOKENIZER.truncate(vocab_size)
    return OpenedTokenizer(smaller, "stamp", {smaller.eot_token: TOKENIZER.eot_token})


def expected(text: str, view: ViewSpec) -> list[int]:
    own = tokenizer_of("own", view.vocab_size)
    ids = own.tokenizer.encode(text, allowed_special="all" if view.special else "none")
    return [own.renumbered.get(i, i) for i in ids]


def edit(start: int, end: int, text: str) -> EditSpec:
    return EditSpec(start=start, end=end, text=text)


def apply(ids: list[int], change: IdsChange) -> list[int]:
    return [*ids[: change.start], *change.ids.tolist(), *ids[change.start + change.n_removed :]]


def ids_of(packed: str) -> list[int]:
    return np.frombuffer(base64.b64decode(packed), "<u4").tolist()


ALPHABET = st.sampled_from(["the", " cat", "é", "犬", "👩‍💻", "<|endoftext|>", "\n", "\0", "a", " "])
TEXTS = st.lists(ALPHABET, max_size=12).map("".join)


@given(first=TEXTS, edits=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), TEXTS), max_size=6))
def test_changes_give_the_ids_of_the_edited_text(first: str, edits: list[tuple[float, float, str]]):
    store = TextStore(tokenizer_of)
    text_id, _ = store.add(first)
    content = first
    ids = [store.ids(text_id, view)[1].ids.tolist() for view in VIEWS]
    for version, (a, b, new) in enumerate(edits):
        start, end = sorted((round(a * len(content)), round(b * len(content))))
        content = content[:start] + new + content[end:]
        text, changes = store.edit(text_id, version, [edit(start, end, new)], VIEWS)
        assert (text.content, text.n_bytes) == (content, len(content.encode()))
        for k, (view, change) in enumerate(zip(VIEWS, changes, strict=True)):
            ids[k] = apply(ids[k], change)
            assert ids[k] == expected(content, view)
            assert change.n_tokens == len(ids[k])


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_the_change_is_the_smallest_of_one_stretch(before: list[int], after: list[int]):
    change = ids_change(Encoded(np.array(before, np.uint32), "a"), Encoded(np.array(after, np.uint32), "a"))
    assert apply(before, change) == after
    n = min(len(before), len(after))
    start = next((i for i in range(n) if before[i] != after[i]), n)
    n_end = next((i for i in range(n - start) if before[-1 - i] != after[-1 - i]), n - start)
    assert (change.start, len(change.ids)) == (start, len(after) - start - n_end)


def test_edits_of_another_version_and_outside_the_text_change_nothing(client: httpx.Client):
    store = TextStore(tokenizer_of)
    text_id, text = store.add("the cat")
    with pytest.raises(StaleVersionError, match="version 0, not 1"):
        store.edit(text_id, 1, [edit(0, 0, "x")], [])
    for start, end in ((0, 9), (3, 2)):
        with pytest.raises(EditError):
            store.edit(text_id, 0, [edit(0, 0, "x"), edit(start, end, "y")], [])
    assert (text.content, text.version) == ("the cat", 0)
    path = f"/texts/{client.post('/texts', json={'text': 'abcdef'}).json()['id']}"
    for change, status in (({"version": 7}, 409), ({"edits": [{"start": 5, "end": 1, "text": ""}]}, 422)):
        answer = client.patch(path, json={"version": 0, "edits": [], "views": [], **change})
        assert answer.status_code == status


def test_texts_make_room_for_newer_ones():
    store = TextStore(tokenizer_of)
    first, _ = store.add("first")
    second, _ = store.add("second")
    for i in range(MAX_TEXTS - 2):
        store.add(str(i))
    store.get(first)
    store.add("one more")
    assert store.get(first).content == "first"
    with pytest.raises(ForgottenTextError):
        store.get(second)
    for _ in range(4):
        store.add("a" * 5_000_000)
    texts = store._texts.values()  # pyright: ignore[reportPrivateUsage]
    assert sum(text.n_bytes for text in texts) <= 12_000_000


def test_typing_sends_what_changed(client: httpx.Client):
    view = {"tokenizer": id_of(client, "tokenizer"), "special": True, "vocab_size": None}
    text = "The cat saw the dog. " * 1000
    path = f"/texts/{client.post('/texts', json={'text': text}).json()['id']}"
    whole = ids_of(client.post(f"{path}/ids", json=view).json()["ids"])

    def edited(version: int, start: int, end: int, text: str) -> httpx.Response:
        edits = [{"start": start, "end": end, "text": text}]
        return client.patch(path, json={"version": version, "edits": edits, "views": [view]})

    answer = edited(0, 21_000, 21_000, "犬")
    assert len(answer.content) < 400
    (change,) = answer.json()["views"]
    assert change["start"] >= len(whole) - 2
    after = [
        *whole[: change["start"]],
        *ids_of(change["ids"]),
        *whole[change["start"] + change["n_removed"] :],
    ]
    assert ids_of(client.post(f"{path}/ids", json=view).json()["ids"]) == after
    (deleted,) = edited(1, 0, 21_001, "").json()["views"]
    assert {**deleted, "stamp": ""} == {
        "start": 0, "n_removed": len(after), "ids": "", "n_tokens": 0, "stamp": "",
    }  # fmt: skip


def test_a_bundled_text_can_be_opened(client: httpx.Client):
    opened = client.post("/texts", json={"source": "declaration-jpn"}).json()
    assert "人権" in opened["text"]
    assert opened["text"].startswith("『世界人権宣言』")
    assert opened["n_bytes"] == len(opened["text"].encode())


@pytest.mark.parametrize("vocab_size", [None, 270])
def test_the_merges_of_a_text_lead_to_its_ids(client: httpx.Client, root: Path, vocab_size: int | None):
    tokenizer = bytemill.Tokenizer.load(root / "tokenizer.json")
    text = "The naïve bird saw 犬.<|endoftext|>"
    view = {"tokenizer": id_of(client, "tokenizer"), "special": True, "vocab_size": vocab_size}
    opened = client.post("/texts", json={"text": text}).json()
    ids = ids_of(client.post(f"/texts/{opened['id']}/ids", json=view).json()["ids"])
    assert ids[-1] == tokenizer.eot_token  # a truncated tokenizer keeps the ids of the whole one
    assert tokenizer.decode(ids) == text
    own = tokenizer if vocab_size is None else tokenizer.truncate(vocab_size)
    assert ids[:-1] == own.encode(text)[:-1]
    parts = client.post("/explanation", json={**view, "text": text}).json()["pretokens"]
    assert [i for part in parts for i in part["ids"]] == ids
    assert bytes.fromhex("".join(part["bytes"] for part in parts)).decode() == text
    for part in parts:
        ranks = [step["rank"] for step in part["steps"]]
        assert ranks == sorted(ranks)


BYTES = {i: bytes([i]) for i in range(256)}
PERMUTED = {(i + 7) % 256: bytes([i]) for i in range(256)}
MERGES = [(b"t", b"h"), (b"th", b"e")]
SPECIAL = {"<s>": 257, "<e>": 300}


def of_merges(vocab: dict[int, bytes], special: dict[str, int] | None = None) -> bytemill.Tokenizer:
    return bytemill.Tokenizer(vocab, MERGES, special)


@pytest.mark.parametrize(
    "tokenizer",
    [TOKENIZER, of_merges(BYTES | {256: b"th", 257: b"the"}), of_merges(BYTES | {300: b"th", 301: b"the"})],
)
def test_columns_hold_every_token(tokenizer: bytemill.Tokenizer):
    table: dict[str, Any] = vocabulary_table(tokenizer)
    starts = np.concatenate([[0], table["lengths"].cumsum()]).astype(int)
    assert len(table["lengths"]) == tokenizer.n_vocab
    vocab = tokenizer.vocab
    for i in range(tokenizer.n_vocab):
        assert table["data"][starts[i] : starts[i + 1]] == vocab.get(i, b"")
        rank = None if table["ranks"][i] == NO_TOKEN else table["ranks"][i]
        if i in vocab:
            info = tokenizer.token(i)
            assert rank == info.rank
            assert info.parts in (None, (table["left"][i], table["right"][i]))
            assert info.count is None or info.count == table["counts"][rank]
        else:
            assert rank is None


@pytest.mark.parametrize(
    ("tokenizer", "size"),
    [
        (TOKENIZER, 257),
        (of_merges(BYTES | {256: b"th", 258: b"the"}, SPECIAL), 258),
        (of_merges(PERMUTED | {256: b"th", 257: b"the"}), 256),
        (of_merges(BYTES | {256: b"th", 257: b"the", 258: b"zz"}), None),
        (of_merges(BYTES | {256: b"the", 257: b"th"}), None),
        (of_merges({i + 2: bytes([i]) for i in range(256)} | {0: b"th", 1: b"the"}), None),
    ],
)
def test_the_smallest_size_is_the_one_that_truncation_takes(tokenizer: bytemill.Tokenizer, size: int | None):
    assert smallest_size(tokenizer) == size
    if size is None:
        with pytest.raises(TokenizerError, match="cannot truncate"):
            tokenizer.truncate(len(tokenizer) - 1)
    else:
        assert len(tokenizer.truncate(size)) == size
        with pytest.raises(TokenizerError, match="too small"):
            tokenizer.truncate(size - 1)


@pytest.mark.slow  # the vocabularies are large
@pytest.mark.parametrize(("file", "size"), [("gpt2_vocab.json", 257), ("cl100k_base.tiktoken", 261)])
def test_the_smallest_size_of_published_vocabularies(file: str, size: int, shared_data: Path):
    assert smallest_size(bytemill.Tokenizer.load(shared_data / file)) == size
