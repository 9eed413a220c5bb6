"""Texts that are edited, and what is sent of their ids."""

import base64

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.studio.errors import ForgottenTextError
from bytemill.studio.texts import (
    MAX_TEXTS,
    Edit,
    EditError,
    IdsChange,
    StaleVersionError,
    TextStore,
    View,
    ViewTokenizer,
    ids_change,
)
from tests.studio.conftest import id_of

TOKENIZER = bytemill.train_from_iterator(["the cat sat on the mat, déjà vu 犬 " * 20], 280, ["<|endoftext|>"])
VIEWS = [View("own"), View("own", special=False), View("own", vocab_size=270)]


def tokenizer_of(view: View) -> ViewTokenizer:
    if view.vocab_size is None:
        return ViewTokenizer(TOKENIZER, "stamp")
    smaller = TOKENIZER.truncate(view.vocab_size)
    return ViewTokenizer(smaller, "stamp", {smaller.eot_token: TOKENIZER.eot_token})


def expected(text: str, view: View) -> list[int]:
    own = tokenizer_of(view)
    ids = own.tokenizer.encode(text, allowed_special="all" if view.special else "none")
    return [own.renumbered.get(i, i) for i in ids]


def apply(ids: list[int], change: IdsChange) -> list[int]:
    return [*ids[: change.start], *change.ids.tolist(), *ids[change.start + change.n_removed :]]


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
        text, changes = store.edit(text_id, version, [Edit(start, end, new)], VIEWS)
        assert text.content == content
        assert text.n_bytes == len(content.encode())
        for k, (view, change) in enumerate(zip(VIEWS, changes, strict=True)):
            ids[k] = apply(ids[k], change)
            assert ids[k] == expected(content, view)
            assert change.n_tokens == len(ids[k])


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_the_change_is_the_smallest_of_one_stretch(before: list[int], after: list[int]):
    a, b = np.array(before, np.uint32), np.array(after, np.uint32)
    change = ids_change(a, b)
    assert apply(before, change) == after
    smallest = min(
        len(after) - start - end
        for start in range(min(len(before), len(after)) + 1)
        for end in range(min(len(before), len(after)) - start + 1)
        if before[:start] == after[:start] and before[len(before) - end :] == after[len(after) - end :]
    )
    assert len(change.ids) <= smallest or len(change.ids) + change.n_removed <= len(after) + len(before)
    assert (
        change.start == len(before)
        or change.start == len(after)
        or before[change.start] != after[change.start]
    )


def test_edits_of_another_version_and_outside_the_text_change_nothing():
    store = TextStore(tokenizer_of)
    text_id, text = store.add("the cat")
    with pytest.raises(StaleVersionError, match="version 0, not 1"):
        store.edit(text_id, 1, [Edit(0, 0, "x")], [])
    for start, end in ((0, 8), (-1, 2), (3, 2)):
        with pytest.raises(EditError):
            store.edit(text_id, 0, [Edit(0, 0, "x"), Edit(start, end + (end == 8), "y")], [])
    assert (text.content, text.version) == ("the cat", 0)


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


def test_memory_of_texts_is_bounded():
    store = TextStore(tokenizer_of)
    for _ in range(20):
        store.add("a" * 5_000_000)
    texts = store._texts.values()  # pyright: ignore[reportPrivateUsage]
    assert sum(text.n_bytes for text in texts) <= 12_000_000


def ids_of(packed: str) -> list[int]:
    return np.frombuffer(base64.b64decode(packed), "<u4").tolist()


def test_typing_sends_what_changed(client: httpx.Client):
    view = {"tokenizer": id_of(client, "tokenizer"), "special": True, "vocab_size": None}
    opened = client.post("/texts", json={"text": "The cat saw the dog. " * 1000}).json()
    path = f"/texts/{opened['id']}"
    whole = ids_of(client.post(f"{path}/ids", json=view).json()["ids"])
    answer = client.patch(
        path,
        json={"version": 0, "edits": [{"start": 21_000, "end": 21_000, "text": "犬"}], "views": [view]},
    )
    change = answer.json()["views"][0]
    assert len(answer.content) < 400
    assert change["start"] >= len(whole) - 2
    assert ids_of(client.post(f"{path}/ids", json=view).json()["ids"]) == [
        *whole[: change["start"]], *ids_of(change["ids"]), *whole[change["start"] + change["n_removed"] :]
    ]  # fmt: skip


def test_text_that_is_deleted_leaves_no_ids(client: httpx.Client):
    view = {"tokenizer": id_of(client, "tokenizer")}
    opened = client.post("/texts", json={"text": "The cat"}).json()
    body = {"version": 0, "edits": [], "views": [view]}
    whole = client.patch(f"/texts/{opened['id']}", json=body).json()["views"][0]
    edits = [{"start": 0, "end": 7, "text": ""}]
    change = client.patch(f"/texts/{opened['id']}", json={**body, "version": 1, "edits": edits}).json()[
        "views"
    ][0]
    assert change == {
        "start": 0,
        "n_removed": whole["n_tokens"],
        "ids": "",
        "n_tokens": 0,
        "stamp": whole["stamp"],
    }


@pytest.mark.parametrize("change", [{"version": 7}, {"edits": [{"start": 5, "end": 1, "text": ""}]}])
def test_a_wrong_edit_is_an_error(client: httpx.Client, change: dict[str, object]):
    opened = client.post("/texts", json={"text": "abcdef"}).json()
    body = {"version": 0, "edits": [], "views": [], **change}
    assert client.patch(f"/texts/{opened['id']}", json=body).status_code in (409, 422)


def test_a_bundled_text_can_be_opened(client: httpx.Client):
    opened = client.post("/texts", json={"source": "declaration-jpn"}).json()
    assert "人権" in opened["text"]
    assert opened["text"].startswith("『世界人権宣言』")
    assert opened["n_bytes"] == len(opened["text"].encode())


def test_the_merges_of_a_text_lead_to_its_ids(client: httpx.Client, root: object):
    tokenizer = bytemill.Tokenizer.load(f"{root}/tokenizer.json")
    text = "The naïve bird<|endoftext|>saw 犬."
    spec = {"tokenizer": id_of(client, "tokenizer"), "text": text, "special": True, "vocab_size": None}
    parts = client.post("/explanation", json=spec).json()["pretokens"]
    assert [i for part in parts for i in part["ids"]] == tokenizer.encode(text)
    assert bytes.fromhex("".join(part["bytes"] for part in parts)).decode() == text
    for part in parts:
        ranks = [step["rank"] for step in part["steps"]]
        assert ranks == sorted(ranks)


def test_a_truncated_tokenizer_keeps_the_ids_of_the_whole_one(client: httpx.Client, root: object):
    tokenizer = bytemill.Tokenizer.load(f"{root}/tokenizer.json")
    text = "The cat saw.<|endoftext|>"
    opened = client.post("/texts", json={"text": text}).json()
    spec = {"tokenizer": id_of(client, "tokenizer"), "special": True, "vocab_size": 270}
    found = ids_of(client.post(f"/texts/{opened['id']}/ids", json=spec).json()["ids"])
    assert found[-1] == tokenizer.eot_token
    assert tokenizer.decode(found) == text
    assert len(found) > len(tokenizer.encode(text))
