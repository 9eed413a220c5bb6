"""Special tokens in a text are recognised, encoded as text, or refused; both options mean what tiktoken means."""

import random
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import reference
from bytemill.errors import SpecialTokenError, TokenizerError
from bytemill.formats.spec import TokenFlags, TokenizerSpec
from bytemill.tokenizer.encoding import AllowedSpecial

BYTES = {byte: bytes([byte]) for byte in range(256)}
MERGES = [(b"a", b"b"), (b"<", b"s"), (b"<s", b">")]
VOCAB = BYTES | {256: b"ab", 257: b"<s", 258: b"<s>"}

OVERLAPPING = ["<s>", "<s><s>", "ab", "bcd", "abc", "d<", "字", "字一", "  ", "\n"]


def both(special: Collection[str], pattern: str | None = "gpt2") -> tuple[bytemill.Tokenizer, Any]:
    """A tokenizer and its reference implementation, with the same ids for special tokens."""
    ours = bytemill.Tokenizer(BYTES, [], list(special), pattern=pattern)
    return ours, reference.ReferenceTokenizer(BYTES, [], ours.special_tokens, pattern=pattern)


def test_all_special_tokens_are_recognised_by_default(small: bytemill.Tokenizer) -> None:
    end, pad = small.special_tokens["<|endoftext|>"], small.special_tokens["<|pad|>"]
    ids = small.encode("<|pad|>fox<|endoftext|><|endoftext|> fox<|pad|>")
    assert [i for i in ids if i in (end, pad)] == [pad, end, end, pad]
    assert ids == small.encode("<|pad|>fox<|endoftext|><|endoftext|> fox<|pad|>", allowed_special="all")


def test_mode_none_encodes_special_tokens_as_text(small: bytemill.Tokenizer) -> None:
    text = "<|endoftext|> fox"
    ids = small.encode(text, allowed_special="none")
    assert small.special_tokens["<|endoftext|>"] not in ids
    assert ids == small.encode_ordinary(text) == small.encode(text, allowed_special=set())
    assert small.decode(ids) == text


def test_a_set_of_special_tokens_recognises_its_members_alone(small: bytemill.Tokenizer) -> None:
    end, pad = small.special_tokens["<|endoftext|>"], small.special_tokens["<|pad|>"]
    text = "<|endoftext|><|pad|>"
    for chosen in ({"<|pad|>"}, ["<|pad|>", "<|pad|>"], ("<|pad|>",), frozenset({"<|pad|>"}), {"<|pad|>": 1}):
        ids = small.encode(text, allowed_special=chosen)
        assert ids == [*small.encode_ordinary("<|endoftext|>"), pad]
        assert end not in ids


def test_a_member_that_overlaps_one_left_out_is_found() -> None:
    ours, _ = both(["<s><s>", "<s>"])
    longer, shorter = ours.special_tokens["<s><s>"], ours.special_tokens["<s>"]
    assert ours.encode("<s><s><s>") == [longer, shorter]
    assert ours.encode("<s><s><s>", allowed_special={"<s>"}) == [shorter] * 3


def test_none_raise_names_the_token_and_its_byte(small: bytemill.Tokenizer) -> None:
    assert small.encode("no such token", allowed_special="none_raise") == small.encode("no such token")
    with pytest.raises(SpecialTokenError) as caught:
        small.encode("éé<|pad|><|endoftext|>", allowed_special="none_raise")
    assert "<|pad|>" in str(caught.value)
    assert "byte 4" in str(caught.value)


def ways_to_encode(tokenizer: bytemill.Tokenizer) -> list[Callable[..., Any]]:
    return [
        tokenizer.encode,
        tokenizer.count,
        tokenizer.encode_to_numpy,
        lambda text, **options: tokenizer.encode_batch([text], **options),
        lambda text, **options: list(tokenizer.encode_iterable([text], **options)),
        tokenizer.explain,
    ]


def test_every_way_to_encode_refuses(small: bytemill.Tokenizer) -> None:
    for encode in ways_to_encode(small):
        with pytest.raises(SpecialTokenError, match=r"<\|pad\|>"):
            encode("fox<|pad|>", allowed_special="none_raise")
        encode("fox", allowed_special="none_raise")


def test_every_way_to_encode_refuses_an_unknown_name(small: bytemill.Tokenizer) -> None:
    for encode in ways_to_encode(small):
        with pytest.raises(SpecialTokenError, match="<unknown>"):
            encode("fox", allowed_special={"<|pad|>", "<unknown>"})


@pytest.mark.parametrize("mode", ["<|pad|>", "ALL", "", "none_raise "])
def test_a_text_that_is_no_mode_is_refused(small: bytemill.Tokenizer, mode: Any) -> None:
    for encode in ways_to_encode(small):
        with pytest.raises(ValueError, match="allowed_special"):
            encode("fox", allowed_special=mode)


@pytest.mark.parametrize("options", [5, {5}, {b"<|pad|>"}, [None]])
def test_anything_but_a_set_of_strings_is_a_type_error(small: bytemill.Tokenizer, options: Any) -> None:
    for encode in ways_to_encode(small):
        with pytest.raises(TypeError):
            encode("fox", allowed_special=options)


def test_the_modes_are_those_of_the_reference() -> None:
    modes = get_args(get_args(AllowedSpecial)[0])
    assert set(modes) == {"all", "none", "none_raise"}


@given(data=st.data())
def test_the_leftmost_wins_and_of_those_the_longest(data: st.DataObject) -> None:
    special = data.draw(st.lists(st.sampled_from(OVERLAPPING), unique=True))
    text = "".join(data.draw(st.lists(st.sampled_from([*OVERLAPPING, *"abcd<s>字 x"]), max_size=20)))
    ours, oracle = both(special)
    assert ours.encode(text) == oracle.encode(text)
    chosen = set(data.draw(st.lists(st.sampled_from(special)))) if special else set()
    assert ours.encode(text, allowed_special=chosen) == oracle.encode(text, chosen)
    try:
        expected = oracle.encode(text, "none_raise")
    except SpecialTokenError:
        with pytest.raises(SpecialTokenError):
            ours.encode(text, allowed_special="none_raise")
    else:
        assert ours.encode(text, allowed_special="none_raise") == expected


def test_a_special_token_ends_the_text_before_it() -> None:
    ours, oracle = both(["<s>"], "cl100k")
    # White space before a special token stands at the end of a text, where cl100k takes it whole.
    for text in ("a \n  <s>  \n b", "<s> a", "it<s>'s", "  <s>  ", "<s>", "<s><s>", " <s>"):
        assert ours.encode(text) == oracle.encode(text)


def test_special_tokens_may_be_ordinary_words_and_blanks() -> None:
    ours, oracle = both(["the", " ", "t", "\u0301", "\r\n"])
    for text in ("the then", "t the\r\nthe\u0301", "  e\u0301", "tthe"):
        assert ours.encode(text) == oracle.encode(text)
        assert ours.decode(ours.encode(text)) == text


def test_thousands_of_special_tokens_are_told_apart() -> None:
    names = [f"<reserved_{n}>" for n in range(2000)]
    tokenizer = bytemill.Tokenizer(BYTES, [], names)
    text = "x".join(names)
    assert tokenizer.encode(text) == [i for n in range(2000) for i in (256 + n, ord("x"))][:-1]


# Ids of special tokens


def test_a_special_token_of_the_vocabulary_keeps_its_id_and_the_others_follow_in_order() -> None:
    vocab = VOCAB | {300: b"<known>"}
    tokenizer = bytemill.Tokenizer(vocab, MERGES, ["<z>", "<known>", "<a>"])
    assert tokenizer.special_tokens == {"<z>": 301, "<known>": 300, "<a>": 302}
    assert tokenizer.n_vocab == 303
    assert tokenizer.encode("<a><known><z>") == [302, 300, 301]
    assert tokenizer.encode_ordinary("<known>") == list(b"<known>")
    assert tokenizer.special_tokens_set == {"<z>", "<known>", "<a>"}
    assert tokenizer.is_special_token(300)
    assert not tokenizer.is_special_token(256)


def test_a_mapping_says_the_ids() -> None:
    tokenizer = bytemill.Tokenizer(VOCAB, MERGES, {"<x>": 1000, "<y>": 400})
    assert tokenizer.encode("<x><y>") == [1000, 400]
    assert tokenizer.n_vocab == 1001
    with pytest.raises(KeyError):
        tokenizer.decode([401])


def test_a_token_that_merges_make_may_be_special() -> None:
    tokenizer = bytemill.Tokenizer(VOCAB, MERGES, ["ab"])
    assert tokenizer.special_tokens == {"ab": 256}
    assert tokenizer.encode("xab ab") == [120, 256, 32, 256]
    assert tokenizer.encode_ordinary("xab ab") == [120, 256, 32, 256]
    assert tokenizer.decode([256, 258]) == "ab<s>"


def test_a_single_byte_may_be_a_special_token() -> None:
    tokenizer = bytemill.Tokenizer(VOCAB, MERGES, ["a"])
    assert tokenizer.special_tokens == {"a": 97}
    assert tokenizer.encode("abab") == [97, 98, 97, 98]
    assert tokenizer.encode_ordinary("abab") == [256, 256]


def test_a_special_token_with_the_bytes_of_an_ordinary_one_may_have_an_id_of_its_own() -> None:
    tokenizer = bytemill.Tokenizer(VOCAB, MERGES, {"ab": 500})
    assert tokenizer.encode("ab") == [500]
    assert tokenizer.encode_ordinary("ab") == [256]
    assert tokenizer.decode([500, 256]) == "abab"
    assert tokenizer.token_to_id("ab") == 500
    assert tokenizer.token_to_id(b"ab") == 256


def test_bytes_that_are_no_text_are_no_special_token() -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [], ["\ufffd"])
    assert tokenizer.token_to_id("\ufffd".encode()) == tokenizer.token_to_id("\ufffd") == 256
    assert tokenizer.token_to_id(b"\xe4\xbb") is None
    with pytest.raises(KeyError):
        tokenizer.encode_single_token(b"\xe4\xbb")


def test_end_of_text_is_found_by_name(small: bytemill.Tokenizer) -> None:
    assert small.eot_token == small.special_tokens["<|endoftext|>"]
    with pytest.raises(KeyError):
        _ = bytemill.Tokenizer(BYTES, []).eot_token


@pytest.mark.parametrize(
    ("special", "message"),
    [
        ("<s>", "is a str"),
        ([""], "empty"),
        (["<s>", "<s>"], "twice"),
        ({"<x>": 97}, "the id 97 belongs to two tokens"),
        ({"<x>": 300, "<y>": 300}, "the id 300 belongs to two tokens"),
        ({"<x>": -1}, "-1"),
        ({"<x>": 1 << 32}, str(1 << 32)),
        ({"<x>": (1 << 32) - 1}, "out of all proportion"),
        ({"<x>": "7"}, "'7'"),
        (["\ud800"], "ud800"),
    ],
)
def test_special_tokens_that_cannot_be_are_refused(special: Any, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        bytemill.Tokenizer(BYTES, [], special)


@pytest.mark.parametrize("special", [[5], [b"<s>"], [None], 5, {5: 300}])
def test_special_tokens_are_texts(special: Any) -> None:
    with pytest.raises(TypeError):
        bytemill.Tokenizer(BYTES, [], special)


def test_random_texts_with_many_overlapping_special_tokens() -> None:
    chance = random.Random(3)
    pieces = ["a", "b", "<", ">", "aa", "ab", "<a", "a>"]
    for _ in range(60):
        special = {"".join(chance.choices(pieces, k=chance.randint(1, 4))) for _ in range(6)}
        ours, oracle = both(special)
        text = "".join(chance.choices(pieces, k=60))
        assert ours.encode(text) == oracle.encode(text)


CHAT = "ab<|im_start|>user\nIt's ab<|im_end|><s><|im_start|>"


def test_added_special_tokens_have_the_ids_of_tiktokens_recipe() -> None:
    base = bytemill.Tokenizer(VOCAB, MERGES, {"<|end|>": 300})
    ours = base.with_special_tokens({"<|im_start|>": 264, "<|im_end|>": 310})
    old = base.to_tiktoken()
    theirs = tiktoken.Encoding(
        name="chat",
        pat_str=old._pat_str,
        mergeable_ranks=old._mergeable_ranks,
        special_tokens={**old._special_tokens, "<|im_start|>": 264, "<|im_end|>": 310},
    )
    assert ours.encode(CHAT) == theirs.encode(CHAT, allowed_special="all")
    assert (ours.n_vocab, base.n_vocab) == (theirs.n_vocab, 301)
    assert ours.encode_ordinary(CHAT) == base.encode(CHAT)
    assert ours.decode(ours.encode(CHAT)) == CHAT


def test_added_special_tokens_have_the_ids_of_transformers(tmp_path: Path, transformers: Any) -> None:
    base = bytemill.Tokenizer(VOCAB, MERGES, {"<|end|>": 300})
    ours = base.with_special_tokens(["<|im_start|>", "<s>", "<|end|>", "<|im_end|>"])
    theirs = base.to_transformers()
    theirs.add_tokens(["<|im_start|>", "<s>", "<|end|>", "<|im_end|>"], special_tokens=True)
    assert ours.special_tokens == {"<|end|>": 300, "<|im_start|>": 301, "<s>": 258, "<|im_end|>": 302}
    assert ours.encode(CHAT) == theirs.encode(CHAT, add_special_tokens=False)
    ours.save(f"{tmp_path}/chat/")
    opened = transformers.AutoTokenizer.from_pretrained(tmp_path / "chat")
    assert ours.encode(CHAT) == opened.encode(CHAT, add_special_tokens=False)
    assert bytemill.Tokenizer.load(tmp_path / "chat").fingerprint == ours.fingerprint


@pytest.mark.parametrize(
    ("special", "message"),
    [
        ({"<|x|>": 256}, r"the id 256 of '<\|x\|>' belongs to the token b'ab'"),
        ({"<|x|>": 300}, r"the id 300 of '<\|x\|>' belongs to the token b'<\|end\|>'"),
        ({"<|end|>": 301}, r"'<\|end\|>' has the id 300, not 301"),
        ({"<s>": 301}, "'<s>' has the id 258, not 301"),
        ({"<|x|>": 301, "<|y|>": 301}, "301"),
        (["<|x|>", "<|x|>"], "twice"),
        ("<|x|>", "is a str, not a list"),
    ],
)
def test_special_tokens_that_contradict_the_tokenizer_are_not_added(special: Any, message: str) -> None:
    base = bytemill.Tokenizer(VOCAB, MERGES, {"<|end|>": 300})
    with pytest.raises(TokenizerError, match=message):
        base.with_special_tokens(special)


def test_many_and_long_special_tokens_take_time_in_proportion() -> None:
    """Before, a token of 100,000 equal bytes took a minute, and a set of 10,000 with rules was searched for each."""
    long = "a" * 100_000
    tokenizer = bytemill.Tokenizer(BYTES, [], [long, "<end>"])
    text = long[:-1] + "<end>" + long + "a"
    assert tokenizer.encode(text) == [97] * 99_999 + [257, 256, 97]
    assert 256 not in tokenizer.encode(text, allowed_special={"<end>"}, disallowed_special=())
    many = [f"<|{number}|>" for number in range(10_000)]
    flags = dict.fromkeys(many, TokenFlags(rstrip=True))
    tokenizer = bytemill.Tokenizer.from_spec(
        replace(bytemill.Tokenizer(BYTES, [], many).to_spec(), flags=flags)
    )
    assert tokenizer.encode("<|9999|> <|5|>x") == [256 + 9_999, 256 + 5, 120]
    assert [tokenizer.id_to_token(256 + number) for number in range(10_000)] == many
    assert all(map(tokenizer.is_special_token, tokenizer.special_tokens.values()))


RANKS = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b" a": 257}
SPECIAL = {"<x>": 300, "<y>": 301, "<|endoftext|>": 302}
OURS = bytemill.Tokenizer.from_spec(TokenizerSpec(pattern="gpt2", special_tokens=SPECIAL, ranks=RANKS))
THEIRS = tiktoken.Encoding("t", pat_str=OURS.pattern or "", mergeable_ranks=RANKS, special_tokens=SPECIAL)
PIECES = ["a", "ab", " ", "<x>", "<y>", "<", "x>", "<|endoftext|>", "!"]

ways = pytest.mark.parametrize(
    "way",
    [
        lambda enc, text, **options: enc.encode(text, **options),
        lambda enc, text, **options: enc.encode_batch([text, "a"], **options),
        lambda enc, text, **options: enc.encode_to_numpy(text, **options).tolist(),
    ],
    ids=["encode", "encode_batch", "encode_to_numpy"],
)


@ways
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=10),
    allowed=st.sampled_from([None, "all", set[str](), {"<x>"}, {"<y>", "nothing"}]),
    disallowed=st.sampled_from(["all", (), ["<y>"], {"!", "a"}, "<"]),
)
def test_both_options_mean_what_tiktoken_means(
    way: Callable[..., Any], pieces: list[str], allowed: Any, disallowed: Any
) -> None:
    text, options = "".join(pieces), {"disallowed_special": disallowed}
    if allowed is not None:
        options["allowed_special"] = allowed
    try:
        expected = way(THEIRS, text, **options)
    except ValueError:
        with pytest.raises(SpecialTokenError, match="contains the disallowed special token"):
            way(OURS, text, **options)
    else:
        assert way(OURS, text, **options) == expected


@ways
def test_special_tokens_are_recognized_without_disallowed_special(way: Callable[..., Any]) -> None:
    assert way(OURS, "a<x>!") == way(THEIRS, "a<x>!", allowed_special="all")
    # A set recognises its members, and the others are text; tiktoken refuses those.
    expected = way(THEIRS, "<x><y>!", allowed_special={"<x>"}, disallowed_special=())
    assert way(OURS, "<x><y>!", allowed_special={"<x>"}) == expected


@ways
def test_none_and_none_raise_combine_with_disallowed_special(way: Callable[..., Any]) -> None:
    plain = way(THEIRS, "a<x>!", disallowed_special=())
    assert way(OURS, "a<x>!", allowed_special="none", disallowed_special=()) == plain
    assert way(OURS, "a<x>!", allowed_special="none", disallowed_special=["<y>"]) == plain
    for disallowed in ((), "all", ["!"]):
        with pytest.raises(SpecialTokenError, match="'<x>' at character 1"):
            way(OURS, "a<x>!", allowed_special="none_raise", disallowed_special=disallowed)
    assert way(OURS, "a<x>!", allowed_special=["<x>"], disallowed_special="all") == way(OURS, "a<x>!")
    with pytest.raises(ValueError, match="allowed_special must be"):
        way(OURS, "a", allowed_special="some", disallowed_special=())


def test_the_error_has_the_position_and_a_hint() -> None:
    with pytest.raises(SpecialTokenError) as caught:
        OURS.encode("é<y>", disallowed_special="all")
    assert "'<y>' at character 1" in str(caught.value)
    assert "allowed_special={'<y>'}" in str(caught.value.hint)


def test_the_error_names_the_leftmost_longest_string() -> None:
    with pytest.raises(SpecialTokenError, match="'abc' at character 1"):
        OURS.encode("xabcd", disallowed_special=["b", "ab", "abc", "d"])
