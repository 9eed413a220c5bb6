"""All files of one tokenizer have one fingerprint; tokenizers that give different ids have different ones."""

import hashlib
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, pre_tokenizers
from tokenizers.models import BPE

import bytemill
from bytemill._core import NAMED_PATTERNS
from bytemill.errors import PreTokenizerWarning
from bytemill.formats import gguf
from bytemill.formats.byte_level import bytes_to_text
from bytemill.formats.huggingface.pre_tokenizers import CL100K_FOR_ONIGURUMA
from bytemill.formats.ranks import merges_of_ranks
from bytemill.formats.spec import TokenFlags, TokenizerSpec

END = "<|endoftext|>"
BYTES = {byte: bytes([byte]) for byte in range(256)}
TEXT = f"the fox's 12345 foxes,\n\n  é 今日 abcd abc ab a<s>b {END}{END} internationalization aaaa <b>ab"


def spec(**fields: Any) -> bytemill.Tokenizer:
    return bytemill.Tokenizer.from_spec(
        TokenizerSpec(**({"pattern": "gpt2", "special_tokens": {}} | fields))  # type: ignore[arg-type]
    )


def by_merges(*tokens: bytes, **fields: Any) -> bytemill.Tokenizer:
    return spec(vocab=BYTES | dict(enumerate(tokens, 256)), **fields)


def by_ranks(*tokens: bytes, **fields: Any) -> bytemill.Tokenizer:
    return spec(ranks={token: i for i, token in enumerate([*BYTES.values(), *tokens])}, **fields)


# The reference implementation


def merged(
    data: bytes, ranks: dict[tuple[bytes, bytes], int]
) -> tuple[list[bytes], tuple[bytes, bytes] | None]:
    """What merging the lowest pair again and again leaves of `data`, and the last pair that was merged."""
    parts = [data[i : i + 1] for i in range(len(data))]
    last = None
    while True:
        known = [(ranks[pair], place) for place, pair in enumerate(pairwise(parts)) if pair in ranks]
        if not known:
            return parts, last
        place = min(known)[1]
        last = (parts[place], parts[place + 1])
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


def plain_fingerprint(tokenizer: bytemill.Tokenizer) -> str:
    """The fingerprint from what `to_spec` says, by merging the bytes of each token."""
    data = tokenizer.to_spec()
    if data.ranks is not None:
        ids = data.ranks
        every_split = {
            (token[:at], token[at:]): rank
            for token, rank in ids.items()
            for at in range(1, len(token))
            if token[:at] in ids and token[at:] in ids
        }
        in_order = sorted((token for token in ids if len(token) > 1), key=ids.__getitem__)
        lookup = True
    else:
        ids = {token: token_id for token_id, token in tokenizer.core.vocab().items()}
        every_split = {merge: rank for rank, merge in enumerate(data.merges or [])}
        in_order = [left + right for left, right in every_split]
        lookup = data.ignore_merges
    live = []
    for token in in_order:
        parts, last = merged(token, every_split)
        if parts == [token] and last is not None:
            live.append((last[0], last[1], token))
    made = {token for _, _, token in live}
    only_looked_up = {token: i for token, i in ids.items() if lookup and len(token) > 1 and token not in made}

    def number(value: int) -> bytes:
        return struct.pack("<I", value)

    def sized(value: bytes) -> bytes:
        return number(len(value)) + value

    def tokens(some: dict[bytes, int]) -> bytes:
        by_id = sorted(some.items(), key=lambda item: item[1])
        return number(len(some)) + b"".join(number(i) + sized(token) for token, i in by_id)

    form = b"bytemill tokenizer 2\n"
    form += number(0) if data.pattern is None else number(1) + sized(data.pattern.encode())
    form += tokens({text.encode(): i for text, i in data.special_tokens.items()})
    form += b"".join(number(ids[bytes([byte])]) for byte in range(256))
    form += number(len(live)) + b"".join(number(ids[part]) for merge in live for part in merge)
    return hashlib.sha256(form + tokens(only_looked_up)).hexdigest()


@st.composite
def merge_lists(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """Merges over three letters, many of which no text needs."""
    known, seen, merges = [b"a", b"b", b"c"], set[bytes](), list[tuple[bytes, bytes]]()
    for _ in range(draw(st.integers(0, 14))):
        left, right = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        if left + right not in seen and len(left + right) <= 8:
            seen.add(left + right)
            merges.append((left, right))
            known.append(left + right)
    return merges


specials = st.dictionaries(
    st.sampled_from([END, "<s>", "ab", "今日"]), st.integers(400, 420), max_size=3
).filter(lambda found: len(set(found.values())) == len(found))


@st.composite
def tokenizers_of_all_kinds(draw: st.DrawFn) -> bytemill.Tokenizer:
    pattern = draw(st.sampled_from(["gpt2", "cl100k", None, r"\w+|\W"]))
    special = draw(specials)
    orphans = draw(st.lists(st.sampled_from([b"abcabc", b"xyz", b"cba", b"ca"]), unique=True))
    if draw(st.booleans()):
        letters = st.text("abc", min_size=2, max_size=5).map(str.encode)
        tokens = draw(st.lists(letters, unique=True, max_size=12))
        return by_ranks(*tokens, pattern=pattern, special_tokens=special)
    merges = draw(merge_lists())
    made = [left + right for left, right in merges]
    tokens = [*made, *(token for token in orphans if token not in made)]
    tokens = draw(st.permutations(tokens)) if draw(st.booleans()) else tokens
    return by_merges(
        *tokens, merges=merges, pattern=pattern, special_tokens=special, ignore_merges=draw(st.booleans())
    )


TEXTS = ["abcabc", "abc cab bca", " ab a<s>b", "aaaa", "xyz 今日", "cba ca", "abcabcabcabc cbacba bbbb"]


@given(tokenizers_of_all_kinds())
def test_the_fingerprint_is_that_of_the_reference(ours: bytemill.Tokenizer) -> None:
    assert ours.fingerprint == plain_fingerprint(ours)
    assert bytemill.Tokenizer.from_spec(ours.to_spec()).fingerprint == ours.fingerprint


@given(
    tokenizers_of_all_kinds(), tokenizers_of_all_kinds(), st.lists(st.text("abc ", max_size=12), max_size=8)
)
def test_tokenizers_that_give_different_ids_differ(
    one: bytemill.Tokenizer, other: bytemill.Tokenizer, texts: list[str]
) -> None:
    if one.fingerprint == other.fingerprint:
        for text in [*TEXTS, *texts]:
            assert one.encode(text) == other.encode(text)
            assert one.encode_ordinary(text) == other.encode_ordinary(text)


@given(merge_lists(), st.integers(0, 13), st.integers(0, 13), st.text("abc", max_size=20))
def test_swapped_merges_change_the_fingerprint_only_if_ids_change(
    merges: list[tuple[bytes, bytes]], at: int, to: int, text: str
) -> None:
    changed = list(merges)
    if merges:
        changed.insert(to % len(merges), changed.pop(at % len(merges)))
    made = sorted({left + right for left, right in merges})
    one = by_merges(*made, merges=merges)
    try:
        other = by_merges(*made, merges=changed)
    except bytemill.TokenizerError:  # a part would come after its result
        return
    if one.fingerprint == other.fingerprint:
        assert one.encode(text) == other.encode(text)


# What decides and what does not


def test_everything_that_affects_ids_affects_the_fingerprint() -> None:
    vocab, merges = BYTES | {256: b"ab", 257: b"bc"}, [(b"a", b"b"), (b"b", b"c")]
    orphans = (b"ab", b"abc", b"abcd")
    different = [
        bytemill.Tokenizer(vocab, merges),
        bytemill.Tokenizer(vocab, merges[::-1]),
        bytemill.Tokenizer(BYTES | {257: b"ab", 256: b"bc"}, merges),
        bytemill.Tokenizer(vocab, merges[:1]),
        bytemill.Tokenizer(vocab, merges, [END]),
        bytemill.Tokenizer(vocab, merges, ["<s>"]),
        bytemill.Tokenizer(vocab, merges, {END: 300}),
        bytemill.Tokenizer(vocab, merges, {"ab": 256}),
        bytemill.Tokenizer(vocab, merges, {"ab": 300}),
        bytemill.Tokenizer(vocab, merges, pattern="cl100k"),
        bytemill.Tokenizer(vocab, merges, pattern="llama3"),
        bytemill.Tokenizer(vocab, merges, pattern=None),
        bytemill.Tokenizer(vocab, merges, pattern=bytemill.Pattern.regex("None")),
        bytemill.Tokenizer(vocab, merges, pattern=bytemill.Pattern.regex("")),
        by_merges(*orphans, merges=[(b"a", b"b")], ignore_merges=True),
        by_merges(*orphans[::-1], merges=[(b"a", b"b")], ignore_merges=True),
        by_merges(*orphans, merges=[], ignore_merges=True),
        by_ranks(*orphans),
        by_ranks(b"abcd", b"ab", b"cd"),
        by_ranks(b"abcd", b"cd", b"ab"),
        by_ranks(b"abcd", b"ab"),
        by_merges(b"abcd", b"ab", b"cd", merges=[], ignore_merges=True),
        bytemill.Tokenizer({255 - byte: token for byte, token in BYTES.items()} | {256: b"ab"}, merges[:1]),
        by_merges(b"ab", merges=merges[:1], normalizer=(("NFC",),)),
        *(
            by_merges(
                b"ab", merges=merges[:1], special_tokens={END: 300}, flags={END: TokenFlags(**{flag: True})}
            )
            for flag in ("lstrip", "rstrip", "single_word")
        ),
    ]
    assert len({tokenizer.fingerprint for tokenizer in different}) == len(different)


ALSO_GPT2 = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
]
"""Two more ways in which the field writes GPT-2's pattern."""


def test_the_fingerprint_ignores_what_does_not_affect_ids() -> None:
    vocab, merges = BYTES | {256: b"ab"}, [(b"a", b"b")]
    same = [
        bytemill.Tokenizer(vocab, merges, [END]),
        bytemill.Tokenizer(dict(reversed(vocab.items())), merges, [END], pattern=NAMED_PATTERNS["gpt2"]),
        *(bytemill.Tokenizer(vocab, merges, [END], pattern=expression) for expression in ALSO_GPT2),
        # The special token in the vocabulary, or not.
        bytemill.Tokenizer(vocab | {257: END.encode()}, merges, [END]),
        bytemill.Tokenizer(vocab, merges, {END: 257}),
        # Ranks, and a look-up of whole pre-tokens that finds nothing which merging does not.
        by_ranks(b"ab", special_tokens={END: 257}),
        by_merges(b"ab", merges=merges, special_tokens={END: 257}, ignore_merges=True),
        # A token that nothing leads to.
        bytemill.Tokenizer(vocab | {300: b"abc"}, merges, {END: 257}),
        # A merge that is never done: where "abb" stands, "ab" is merged before "bb".
        bytemill.Tokenizer(
            vocab | {300: b"bb", 301: b"abb"}, [*merges, (b"b", b"b"), (b"a", b"bb")], {END: 257}
        ).truncate(258),
        # How often pairs stood in the corpus, and how ties were broken.
        by_merges(b"ab", merges=merges, special_tokens={END: 257}, merge_counts=[5], ties="huggingface"),
    ]
    # A token that is part of the text whatever special tokens are allowed.
    ordinary = by_merges(
        b"ab", merges=merges, special_tokens={END: 257}, flags={END: TokenFlags(special=False)}
    )
    assert ordinary.fingerprint != same[0].fingerprint
    assert ordinary.encode_ordinary(END) == [257] != same[0].encode_ordinary(END)
    assert len({tokenizer.fingerprint for tokenizer in same}) == 1
    assert len({tuple(tokenizer.encode(TEXT)) for tokenizer in same}) == 1
    assert len(same[0].fingerprint) == 64


def test_ranks_with_later_parts_have_the_fingerprint_of_their_merges() -> None:
    ours = by_ranks(b"abcd", b"ab", b"cd", b"xyz")
    assert ours.core.ranked
    assert ours.fingerprint == plain_fingerprint(ours)
    assert merges_of_ranks(ours.to_spec().ranks or {}) == [(b"ab", b"cd"), (b"a", b"b"), (b"c", b"d")]
    assert bytes(ours.core.canonical_form()).endswith(struct.pack("<III", 1, 259, 3) + b"xyz")


# All formats


def hugging_face_file(
    folder: Path, ours: bytemill.Tokenizer, *, ignore_merges: bool, split: str | None
) -> Path:
    """A tokenizer.json made by Hugging Face's library alone from vocabulary and merges."""
    ordinary = {i: token for i, token in ours.vocab.items() if i not in ours.special_tokens.values()}
    vocab = {bytes_to_text(token): i for i, token in ordinary.items()}
    merges = [(bytes_to_text(left), bytes_to_text(right)) for left, right in ours.merges]
    in_order = sorted(ours.special_tokens.items(), key=lambda item: item[1])
    vocab |= dict(in_order)
    theirs = tokenizers.Tokenizer(BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    theirs.pre_tokenizer = (  # type: ignore[assignment]
        byte_level
        if split is None
        else pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"), byte_level])
    )
    theirs.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    theirs.add_special_tokens([AddedToken(text, special=True, normalized=False) for text, _ in in_order])
    path = folder / f"tokenizer-{ignore_merges}.json"
    theirs.save(str(path), pretty=False)
    return path


def test_gpt2_has_one_fingerprint_in_every_format(
    peer_of: Callable[[str], Any], shared_data: Path, tmp_path: Path
) -> None:
    whole = peer_of("gpt2").ours
    names = shared_data / "gpt2_vocab.json", shared_data / "gpt2_merges.txt"
    assert bytemill.Tokenizer.from_files(*names, [END]).fingerprint == whole.fingerprint
    ours = whole.truncate(4000)
    ours.save(tmp_path / "tokenizer.json")
    paths = [tmp_path / "tokenizer.json"]
    paths += [hugging_face_file(tmp_path, ours, ignore_merges=each, split=None) for each in (False, True)]
    same = [bytemill.Tokenizer.load(path) for path in paths]
    assert {tokenizer.fingerprint for tokenizer in same} == {ours.fingerprint}
    text = (shared_data / "botchan_en.txt").read_text(encoding="utf-8")[:20_000] + TEXT
    assert len({tuple(tokenizer.encode(text)) for tokenizer in (ours, *same)}) == 1


def test_the_beginning_of_cl100k_has_one_fingerprint_in_every_format(
    peer_of: Callable[[str], Any], shared_data: Path, tmp_path: Path
) -> None:
    ours = peer_of("cl100k").ours.truncate(4000)
    ours.save(tmp_path / "tokenizer.json")
    # llama.cpp has no name for the pattern; bytemill's own record has it
    with pytest.warns(PreTokenizerWarning):
        gguf.write(ours.to_spec(), tmp_path / "tokenizer.gguf")
    split = CL100K_FOR_ONIGURUMA
    same = [
        bytemill.Tokenizer.load(tmp_path / "tokenizer.gguf"),
        bytemill.Tokenizer.load(tmp_path / "tokenizer.json"),
        by_ranks_of(ours),
        bytemill.Tokenizer.load(hugging_face_file(tmp_path, ours, ignore_merges=False, split=split)),
    ]
    assert {tokenizer.fingerprint for tokenizer in same} == {ours.fingerprint}
    text = (shared_data / "wagahai_ja.txt").read_text(encoding="utf-8")[:5000] + TEXT + " 1234567 \n\n"
    assert all(tokenizer.encode(text) == ours.encode(text) for tokenizer in same)
    # What Hugging Face's engine makes of tiktoken's expression takes any number of digits: that is another tokenizer.
    path = hugging_face_file(tmp_path, ours, ignore_merges=True, split=NAMED_PATTERNS["cl100k"])
    other = bytemill.Tokenizer.load(path)
    assert other.fingerprint != ours.fingerprint
    theirs = tokenizers.Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).ids
    assert other.encode(text) == theirs != ours.encode(text)


def by_ranks_of(ours: bytemill.Tokenizer) -> bytemill.Tokenizer:
    ranks = {token: i for i, token in ours.vocab.items() if i not in ours.special_tokens.values()}
    return spec(ranks=ranks, pattern="cl100k", special_tokens=ours.special_tokens)


def test_published_fingerprints_are_those_of_the_reference(peer_of: Callable[[str], Any]) -> None:
    small = peer_of("gpt2").ours.truncate(1000)
    assert small.fingerprint == plain_fingerprint(small)
