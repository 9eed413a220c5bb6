"""Special tokens in a text are recognised, encoded as text, or refused; both options mean what tiktoken means."""

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

OVERLAPPING = ["<s>", "<s><s>", "ab", "bcd", "abc", "d<", "字", "字一", "  ", "\n", "a", "<"]


def both(special: Collection[str], pattern: str | None = "gpt2") -> tuple[bytemill.Tokenizer, Any]:
    """A tokenizer and its reference implementation, with the same ids for special tokens."""
    ours = bytemill.Tokenizer(BYTES, [], list(special), pattern=pattern)
    return ours, reference.ReferenceTokenizer(BYTES, [], ours.special_tokens, pattern=pattern)


def test_modes_recognise_all_none_or_a_set(small: bytemill.Tokenizer) -> None:
    end, pad = small.special_tokens["<|endoftext|>"], small.special_tokens["<|pad|>"]
    text = "<|pad|>fox<|endoftext|><|endoftext|> fox<|pad|>"
    ids = small.encode(text)
    assert [i for i in ids if i in (end, pad)] == [pad, end, end, pad]
    assert ids == small.encode(text, allowed_special="all")
    plain = small.encode(text, allowed_special="none")
    assert not {end, pad} & set(plain)
    assert plain == small.encode_ordinary(text) == small.encode(text, allowed_special=set())
    assert small.decode(plain) == small.decode(ids) == text
    for chosen in ({"<|pad|>"}, ["<|pad|>", "<|pad|>"], ("<|pad|>",), frozenset({"<|pad|>"}), {"<|pad|>": 1}):
        found = small.encode("<|endoftext|><|pad|>", allowed_special=chosen)
        assert found == [*small.encode_ordinary("<|endoftext|>"), pad]
    assert set(get_args(get_args(AllowedSpecial)[0])) == {"all", "none", "none_raise"}


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
    refused: list[tuple[Any, type[Exception], str]] = [
        ("none_raise", SpecialTokenError, r"<\|pad\|>.*byte 4"),
        ({"<|pad|>", "<unknown>"}, SpecialTokenError, "<unknown>"),
        *((mode, ValueError, "allowed_special") for mode in ("<|pad|>", "ALL", "", "none_raise ")),
        *((options, TypeError, "is not") for options in (5, {5}, {b"<|pad|>"}, [None])),
    ]
    for encode in ways_to_encode(small):
        for allowed, error, message in refused:
            with pytest.raises(error, match=message):
                encode("éé<|pad|><|endoftext|>", allowed_special=allowed)
        encode("no such token", allowed_special="none_raise")


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


@pytest.mark.parametrize(
    ("special", "pattern", "texts"),
    [
        # White space before a special token stands at the end of a text, where cl100k takes it whole.
        (["<s>"], "cl100k", ["a \n  <s>  \n b", "<s> a", "it<s>'s", "  <s>  ", "<s>", "<s><s>", " <s>"]),
        (
            ["the", " ", "t", "\u0301", "\r\n"],
            "gpt2",
            ["the then", "t the\r\nthe\u0301", "  e\u0301", "tthe"],
        ),
        (
            [f"<reserved_{n}>" for n in range(2000)],
            "gpt2",
            ["x".join(f"<reserved_{n}>" for n in range(2000))],
        ),
    ],
    ids=["ends a text", "words and blanks", "thousands"],
)
def test_special_tokens_of_every_kind_have_the_ids_of_the_reference(
    special: list[str], pattern: str, texts: list[str]
) -> None:
    ours, oracle = both(special, pattern)
    for text in texts:
        assert ours.encode(text) == oracle.encode(text)
        assert ours.decode(ours.encode(text)) == text


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


def test_a_special_token_may_have_the_bytes_of_an_ordinary_one() -> None:
    own = bytemill.Tokenizer(VOCAB, MERGES, {"ab": 500, "<y>": 400})
    assert (own.encode("ab<y>"), own.encode_ordinary("ab"), own.n_vocab) == ([500, 400], [256], 501)
    assert own.decode([500, 256]) == "abab"
    assert (own.token_to_id("ab"), own.token_to_id(b"ab")) == (500, 256)
    with pytest.raises(KeyError):
        own.decode([401])
    merged = bytemill.Tokenizer(VOCAB, MERGES, ["ab"])
    assert merged.special_tokens == {"ab": 256}
    assert merged.encode("xab ab") == merged.encode_ordinary("xab ab") == [120, 256, 32, 256]
    assert merged.decode([256, 258]) == "ab<s>"
    byte = bytemill.Tokenizer(VOCAB, MERGES, ["a"])
    assert byte.special_tokens == {"a": 97}
    assert (byte.encode("abab"), byte.encode_ordinary("abab")) == ([97, 98, 97, 98], [256, 256])
    replacement = bytemill.Tokenizer(BYTES, [], ["\ufffd"])
    assert replacement.token_to_id("\ufffd".encode()) == replacement.token_to_id("\ufffd") == 256
    assert replacement.token_to_id(b"\xe4\xbb") is None
    with pytest.raises(KeyError):
        replacement.encode_single_token(b"\xe4\xbb")


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
def test_modes_combine_with_disallowed_special(way: Callable[..., Any]) -> None:
    assert way(OURS, "a<x>!") == way(THEIRS, "a<x>!", allowed_special="all")
    # A set recognises its members, and the others are text; tiktoken refuses those.
    expected = way(THEIRS, "<x><y>!", allowed_special={"<x>"}, disallowed_special=())
    assert way(OURS, "<x><y>!", allowed_special={"<x>"}) == expected
    plain = way(THEIRS, "a<x>!", disallowed_special=())
    for disallowed in ((), ["<y>"]):
        assert way(OURS, "a<x>!", allowed_special="none", disallowed_special=disallowed) == plain
    for disallowed in ((), "all", ["!"]):
        with pytest.raises(SpecialTokenError, match="'<x>' at character 1"):
            way(OURS, "a<x>!", allowed_special="none_raise", disallowed_special=disallowed)
    assert way(OURS, "a<x>!", allowed_special=["<x>"], disallowed_special="all") == way(OURS, "a<x>!")
    with pytest.raises(ValueError, match="allowed_special must be"):
        way(OURS, "a", allowed_special="some", disallowed_special=())


def test_the_error_names_the_leftmost_longest_string_with_a_hint() -> None:
    with pytest.raises(SpecialTokenError, match="'<y>' at character 1") as caught:
        OURS.encode("é<y>", disallowed_special="all")
    assert "allowed_special={'<y>'}" in str(caught.value.hint)
    with pytest.raises(SpecialTokenError, match="'abc' at character 1"):
        OURS.encode("xabcd", disallowed_special=["b", "ab", "abc", "d"])
