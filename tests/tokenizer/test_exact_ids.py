"""Ids of texts that grow, ids that no text has, and division by chance."""

import json
import random
from collections import Counter
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

import bytemill
from bytemill.errors import SpecialTokenError, TokenizerError, UnknownTokenError
from bytemill.formats.registry import Content, load_content
from bytemill.tokenizer.exact_ids import CanonicalIds

from ..zoo.odd_files import odd_files
from ..zoo.test_odd_files import PARTS, opened, outcome
from .conftest import END, TRAINING_TEXT, Peer

WORDS = [
    *TRAINING_TEXT.split(" "),
    " ",
    "  ",
    "\n",
    "\n\n ",
    "'",
    "'s",
    "12",
    "345",
    "é",
    "\u0301",
    "字",
    "😀",
    END,
]
mixed_text = st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=60).map("".join)


def pieces(text: str, places: list[int]) -> list[str]:
    ends = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(ends)]


def assert_append_is_exact(tok: bytemill.Tokenizer, text: str, more: str, **options: Any) -> None:
    """For text that decoding returns."""
    ids = tok.encode(text, **options)
    n_kept, new = tok.append(ids, more, **options)
    assert ids[:n_kept] + new == tok.encode(tok.decode(ids) + more, **options)
    assert new[:1] != ids[n_kept : n_kept + 1] or not new


@given(
    text=mixed_text,
    more=mixed_text,
    times=st.sampled_from([1, 1, 20]),
    allowed=st.sampled_from(["all", "none"]),
)
def test_appending_gives_the_ids_of_the_whole(
    small: bytemill.Tokenizer, peer: Peer, text: str, more: str, times: int, allowed: str
) -> None:
    for tok in (small, peer.ours):
        assert_append_is_exact(tok, text * times, more, allowed_special=allowed)


@given(text=mixed_text, places=st.lists(st.integers(0, 1000), max_size=8))
def test_a_growing_text_has_the_ids_of_the_whole_at_every_moment(
    small: bytemill.Tokenizer, text: str, places: list[int]
) -> None:
    growing, ids, so_far = small.growing_text(), list[int](), ""
    for piece in pieces(text, places):
        n_certain = growing.n_certain
        n_kept, new = growing.append(piece)
        ids, so_far = ids[:n_kept] + new, so_far + piece
        assert n_kept >= n_certain
        assert ids == growing.ids == small.encode(so_far)
        assert len(growing) == len(ids)


def odd_tokenizer(name: str) -> bytemill.Tokenizer:
    content = Content(json.dumps(odd_files()[name]).encode(), "t.json")
    return bytemill.Tokenizer._from_loaded(load_content(content))


@pytest.mark.parametrize("name", [name for name, file in odd_files().items() if opened(file) is not None])
def test_texts_grow_in_files_of_every_kind(name: str) -> None:
    tok = odd_tokenizer(name)
    rng = random.Random(name)
    for _ in range(12):
        parts = ["".join(rng.choices(PARTS, k=rng.randint(1, 40))) for _ in range(3)]
        growing, so_far = tok.growing_text(), ""
        for part in parts:
            so_far += part
            expected = outcome(partial(tok.encode, so_far))
            found = outcome(partial(growing.append, part))
            if "an error" in (expected, found):
                assert expected == found
                break
            assert growing.ids == expected, so_far
        else:
            ids = tok.encode("".join(parts[:2]))
            # Where characters have no tokens, decoding may return part of one.
            is_text = outcome(partial(tok.decode, ids, "strict")) != "an error"
            if is_text and outcome(partial(tok.is_canonical, ids)) is True:
                n_kept, new = tok.append(ids, parts[2])
                assert ids[:n_kept] + new == tok.encode(tok.decode(ids) + parts[2])


def test_only_the_end_of_long_ids_is_looked_at(small: bytemill.Tokenizer) -> None:
    ids = small.encode("the quick fox " * 2000)
    # A token that is not the text's, far before the end, is not seen.
    ids[0] = small.encode("!")[0]
    n_kept, new = small.append(ids, "es")
    assert ids[:n_kept] + new == [ids[0], *small.encode("the quick fox " * 2000 + "es")[1:]]
    assert n_kept >= len(ids) - 2


def test_ids_that_end_inside_a_character_or_belong_to_no_text_are_refused(small: bytemill.Tokenizer) -> None:
    half = small.encode("a 😀")[:-1] if len(small.encode("😀")) > 1 else [*small.encode("a"), 0xF0]
    with pytest.raises(TokenizerError, match="not UTF-8"):
        small.append(half, "b")
    with pytest.raises(TokenizerError, match="not UTF-8"):
        small.append(small.encode("the fox " * 200) + half, "b")
    with pytest.raises(UnknownTokenError):
        small.append([10**6], "b")
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"x "}
    tok = bytemill.Tokenizer(vocab, [(b"x", b" ")])
    with pytest.raises(TokenizerError, match="not those that the tokenizer gives for their text"):
        tok.append([*tok.encode("the fox " * 40), 256], "b")


def test_a_refused_special_token_leaves_a_growing_text_as_it_was(small: bytemill.Tokenizer) -> None:
    growing = small.growing_text("the fox", allowed_special="none_raise")
    before = growing.ids
    with pytest.raises(SpecialTokenError):
        growing.append(f" and {END}")
    assert growing.ids == before
    assert growing.append("es").n_kept <= len(before)
    assert growing.ids == small.encode("the foxes")


@given(text=mixed_text, cuts=st.lists(st.integers(0, 1000), max_size=6))
def test_ids_of_parts_become_those_of_the_whole(
    small: bytemill.Tokenizer, text: str, cuts: list[int]
) -> None:
    whole = small.encode(text)
    assert small.canonicalize(whole) == CanonicalIds(whole, [])
    parts = [i for piece in pieces(text, cuts) for i in small.encode(piece)]
    found = small.canonicalize(parts)
    assert found.ids == whole
    assert small.is_canonical(parts) == (parts == whole)
    changed, position = list[int](), 0
    for change in found.changes:
        assert change.start >= position
        assert parts[change.start : change.stop] != change.ids
        assert small.decode_bytes(parts[change.start : change.stop]) == small.decode_bytes(change.ids)
        changed += parts[position : change.start] + change.ids
        position = change.stop
    assert changed + parts[position:] == whole


@given(data=st.lists(st.integers(0, 255), max_size=40), place=st.integers(0, 40))
def test_bytes_that_are_no_text_keep_their_special_tokens(
    small: bytemill.Tokenizer, data: list[int], place: int
) -> None:
    by_byte = {small.core.token_bytes(i): i for i in small.vocab if len(small.core.token_bytes(i)) == 1}
    ids = [by_byte[bytes([byte])] for byte in data]
    ids.insert(min(place, len(ids)), small.special_tokens[END])
    found = small.canonicalize(ids).ids
    assert small.decode_bytes(found) == small.decode_bytes(ids)
    assert small.special_tokens[END] in found
    assert small.canonicalize(found).ids == found


@given(prefix=st.sampled_from(["", "t", " the", "x" * 40, "é"]) | st.text(max_size=2))
def test_tokens_with_a_prefix(small: bytemill.Tokenizer, prefix: str) -> None:
    data = prefix.encode("utf-8", "replace")
    special = set(small.special_tokens.values())
    expected = sorted((t, i) for i, t in small.vocab.items() if i not in special and t.startswith(data))
    assert small.prefix_ids(data) == [i for _, i in expected]


@given(text=mixed_text, dropout=st.floats(0, 1), seed=st.integers(0, 2**64 - 1))
def test_dropout_keeps_the_text_and_depends_on_the_seed_alone(
    small: bytemill.Tokenizer, text: str, dropout: float, seed: int
) -> None:
    ids = small.encode(text, dropout=dropout, seed=seed)
    assert small.decode_bytes(ids) == text.encode("utf-8", "replace")
    assert ids == small.encode(text, dropout=dropout, seed=seed, num_threads=3)
    assert small.encode(text, dropout=0, seed=seed) == small.encode(text)
    n_special = text.count(END)
    bytes_left = small.encode(text.replace(END, ""), dropout=1, seed=seed)
    assert len(bytes_left) == len(text.replace(END, "").encode("utf-8", "replace"))
    assert ids.count(small.special_tokens[END]) == n_special


def test_dropout_divides_words_as_often_as_hugging_face_does(small: bytemill.Tokenizer) -> None:
    theirs = small.to_huggingface()
    theirs.model.dropout = 0.3
    word = " internationalization"
    n = 3000
    ours = Counter(tuple(small.encode(word, dropout=0.3, seed=seed)) for seed in range(n))
    other = Counter(tuple(theirs.encode(word).ids) for _ in range(n))
    often = [key for key in ours | other if ours[key] + other[key] >= 20]
    assert len(often) > 5
    table = [[each[key] for key in often] for each in (ours, other)]
    table = [[*row, n - sum(row)] for row in table]
    result: Any = chi2_contingency(table)
    assert result.pvalue > 1e-6


def test_dropout_out_of_range_or_without_merges_is_refused(small: bytemill.Tokenizer) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        small.encode("a", dropout=1.5)
    with pytest.raises(ValueError, match="from 0 to 1"):
        small.encode("a", dropout=float("nan"))
    with pytest.raises(OverflowError):
        small.encode("a", dropout=0.5, seed=-1)
    characters = next(
        t for name in odd_files() if "metaspace" in name and (t := odd_tokenizer(name)).characters
    )
    with pytest.raises(TokenizerError, match="dropout needs byte-level"):
        characters.encode("a", dropout=0.5)


CHAT = "{% for m in messages %}<|pad|>{{ m.role }}\n{{ m.content }}<|endoftext|>\n{% endfor %}"


@given(answer=mixed_text, cuts=st.lists(st.integers(0, 1000), max_size=6))
def test_sampled_ids_stay_in_a_conversation(small: bytemill.Tokenizer, answer: str, cuts: list[int]) -> None:
    answer = answer.encode("utf-8", "replace").decode()
    question = {"role": "user", "content": "the fox?"}
    begun = small.apply_chat_template([question], chat_template=CHAT, tokenize=False) + "<|pad|>assistant\n"
    sampled = small.encode(begun) + [i for piece in pieces(answer, cuts) for i in small.encode(piece)]
    messages = [question, {"role": "assistant", "content": answer}, {"role": "user", "content": "and?"}]
    inputs = small.apply_chat_template(messages, chat_template=CHAT, prefix_ids=sampled)
    ids = inputs["input_ids"]
    assert ids[: len(sampled)] == sampled
    assert inputs["attention_mask"] == [1] * len(ids)
    text = small.apply_chat_template(messages, chat_template=CHAT, tokenize=False)
    assert small.decode(ids) == text
    assert (inputs["prefix_changes"] == []) == (ids == small.encode(text))
    arrays = small.apply_chat_template(messages, chat_template=CHAT, prefix_ids=sampled, return_tensors="np")
    assert arrays["input_ids"].tolist() == [ids]


def test_ids_of_another_conversation_are_refused(small: bytemill.Tokenizer) -> None:
    messages = [{"role": "user", "content": "the fox?"}]
    with pytest.raises(TokenizerError, match=r"at character 12, 'quick' in the ids and 'the fox\?<"):
        small.apply_chat_template(messages, chat_template=CHAT, prefix_ids=small.encode("<|pad|>user\nquick"))
    with pytest.raises(TypeError, match="prefix_ids is for one conversation"):
        small.apply_chat_template([messages], chat_template=CHAT, prefix_ids=[1])
