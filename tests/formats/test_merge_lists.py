"""Files with several merges per token, such as Llama 3's, give the ids of Hugging Face's library."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, decoders, pre_tokenizers
from tokenizers.models import BPE

import bytemill
from bytemill._core import NAMED_PATTERNS, needed_merges
from bytemill.errors import TokenizerError
from bytemill.formats.byte_level import bytes_to_text
from bytemill.formats.spec import TokenizerSpec

BYTES = {byte: bytes([byte]) for byte in range(256)}


def all_splits(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Every way to split every token into two, by the rank of the token: what conversions from ranks write."""
    in_order = sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__)
    return [
        (token[:at], token[at:])
        for token in in_order
        for at in range(1, len(token))
        if token[:at] in ranks and token[at:] in ranks
    ]


def hugging_face_file(path: Path, ranks: dict[bytes, int], pattern: str | None) -> tokenizers.Tokenizer:
    vocab = {bytes_to_text(token): i for token, i in ranks.items()}
    merges = [(bytes_to_text(left), bytes_to_text(right)) for left, right in all_splits(ranks)]
    theirs = tokenizers.Tokenizer(BPE(vocab=vocab, merges=merges, ignore_merges=True))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    theirs.pre_tokenizer = (  # type: ignore[assignment]
        byte_level
        if pattern is None
        else pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])
    )
    theirs.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    theirs.save(str(path), pretty=False)
    return theirs


@st.composite
def rank_lists(draw: st.DrawFn) -> dict[bytes, int]:
    """Ranks over few letters: tokens whose parts come later, tokens that nothing makes."""
    tokens = draw(st.lists(st.text("abé", min_size=2, max_size=5).map(str.encode), unique=True, max_size=14))
    return {token: rank for rank, token in enumerate([*BYTES.values(), *tokens])}


@given(rank_lists(), st.lists(st.text("abé ", max_size=16), min_size=1, max_size=8))
def test_merges_of_all_splits_equal_the_ranks(
    tmp_path_factory: pytest.TempPathFactory, ranks: dict[bytes, int], texts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("splits") / "tokenizer.json"
    theirs = hugging_face_file(path, ranks, NAMED_PATTERNS["llama3"])
    ours = bytemill.Tokenizer.from_spec(TokenizerSpec(pattern="llama3", special_tokens={}, ranks=ranks))
    loaded = bytemill.Tokenizer.load(path)
    assert loaded.fingerprint == ours.fingerprint
    for text in [*texts, "abab éé abé bbaa"]:
        assert loaded.encode(text) == theirs.encode(text).ids == ours.encode(text)


def test_a_published_vocabulary_with_all_splits_gives_the_same_ids(shared_data: Path, tmp_path: Path) -> None:
    ours = bytemill.Tokenizer.load(shared_data / "r50k_base.tiktoken", pattern="llama3", special_tokens={})
    ranks = {token: i for i, token in ours.vocab.items()}
    # Two tokens that nothing makes, as Llama 3 has hundreds.
    ranks |= {" благодаря".encode(): 60_000, "ılmış".encode(): 60_001}
    path = tmp_path / "tokenizer.json"
    theirs = hugging_face_file(path, ranks, NAMED_PATTERNS["llama3"])
    assert len(json.loads(path.read_text(encoding="utf-8"))["model"]["merges"]) > 100_000
    loaded = bytemill.Tokenizer.load(path)
    by_ranks = TokenizerSpec(pattern="llama3", special_tokens={}, ranks=ranks)
    assert loaded.fingerprint == bytemill.Tokenizer.from_spec(by_ranks).fingerprint != ours.fingerprint
    names = ["tinystories.txt", "wagahai_ja.txt", "udhr/udhr_rus.txt", "botchan_en.txt"]
    texts = [(shared_data / name).read_text(encoding="utf-8")[:5000] for name in names]
    for text in [*texts, "благодаря благодаря yapılmış ılmış"]:
        assert loaded.encode(text) == theirs.encode(text).ids
    loaded.save(tmp_path / "again.json")
    assert bytemill.Tokenizer.load(tmp_path / "again.json").fingerprint == loaded.fingerprint


MERGES = [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc"), (b"ab", b"c")]
VOCAB = BYTES | {256: b"ab", 257: b"bc", 258: b"abc"}


def test_unused_merges_before_their_parts_are_dropped() -> None:
    ours = bytemill.Tokenizer(VOCAB, [(b"a", b"bc"), (b"a", b"b"), (b"b", b"c")])
    assert ours.merges == [(b"a", b"b"), (b"b", b"c")]
    assert ours.encode("abc bc") == [256, 99, 32, 257]


def test_the_constructor_accepts_merges_of_all_splits() -> None:
    ours = bytemill.Tokenizer(VOCAB, MERGES)
    assert ours.merges == [MERGES[0], MERGES[1], MERGES[3]]
    assert ours.encode("abc bc ab") == [258, 32, 257, 32, 256]
    assert ours.token(258).parts == (256, 99)


def test_a_merge_may_come_before_those_of_its_parts() -> None:
    ours = bytemill.Tokenizer(VOCAB, [(b"ab", b"c"), (b"a", b"bc"), (b"a", b"b")])
    assert ours.merges == [(b"ab", b"c"), (b"a", b"b")]
    assert ours.encode("abc bc ab") == [258, 32, 98, 99, 32, 256]


@pytest.mark.parametrize(
    "merges",
    [
        [*MERGES, MERGES[0]],
        [MERGES[0], (b"a", b"bcd")],
        [(b"a", b"b"), (b"c", b"a")],
        [*MERGES, (b"x", b"yz")],
    ],
)
def test_contradictory_merge_lists_are_refused(merges: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(TokenizerError):
        bytemill.Tokenizer(VOCAB, merges)


def merged(data: bytes, merges: list[tuple[bytes, bytes]]) -> list[bytes]:
    parts = [data[at : at + 1] for at in range(len(data))]
    while True:
        found = [(merges.index(pair), place) for place, pair in enumerate(pairwise(parts)) if pair in merges]
        if not found:
            return parts
        place = min(found)[1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


@given(rank_lists(), st.randoms(use_true_random=False), st.text("abé", max_size=12).map(str.encode))
def test_unneeded_merges_do_not_affect_ids(ranks: dict[bytes, int], chance: object, data: bytes) -> None:
    merges = all_splits(ranks)
    chance.shuffle(merges)  # type: ignore[attr-defined]
    places = needed_merges(merges)
    assert places == sorted(set(places))
    needed = [merges[place] for place in places]
    assert merged(data, needed) == merged(data, merges)
