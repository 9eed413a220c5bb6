"""The reference implementation against tiktoken, Hugging Face tokenizers, and its own slower versions."""

import sys
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import pytest
import tiktoken
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.support.oracles import huggingface_merges, huggingface_tokenizer, read_ranks

from bytemill.errors import BytemillError, SpecialTokenError, TokenizerError
from bytemill.formats.byte_level import text_to_bytes
from bytemill.reference import (
    PATTERNS,
    ReferenceTokenizer,
    apply_merges,
    build_vocab,
    encode_by_ranks,
    learn_merges,
    merge_by_rank,
    merge_pair,
    pretokenize,
    single_bytes,
    split_at_special_tokens,
    train,
    train_naive,
    train_unique,
)

TRAINERS = pytest.mark.parametrize("trainer", [train_naive, train_unique, train])
END = "<|endoftext|>"

HANDMADE = """It's 12345 o'clock, WE'LL see, HE'LLO x'Sy: camelCase, HTTPServer2 and 'Don't'!
	tabs\tand  blanks   \r\n\r\n  \u00a0 no-break, \u3000wide; naïve e\u0301tude, Straße, ǅungla, ʰmodifier
Жизнь — это ½ и Ⅷ٣٤٥٦; 今日は、世界。 ไทย हिन्दी עִבְרִית العَرَبِيَّة 한국어 👩‍👩‍👧 🏳️‍🌈 'ſ 'S 'LL //// \n\n
trailing blanks   \n """

# The expressions of tiktoken's encodings and of Llama 3's tokenizer, written down apart from `PATTERNS`.
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
EXPRESSIONS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "llama3": CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}

# Code points of the scripts that patterns tell apart. Python's tables know no later characters than those of
# `regex` and tiktoken, and U+0295 is left out, because Unicode has moved it from Ll to Lo.
any_text = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cn", "Cs"], exclude_characters="\u0295"), max_size=40
)
tricky_text = st.text("aAbZ's'llLLtT019 \u00a0\n\r\t/.-éßǅʰ\u0301\u0903世界дЖ٣½👩\u200d", max_size=40)
few_letters = st.text("ab ", max_size=30)


def rank_table(tokens: list[bytes]) -> dict[bytes, int]:
    """The 256 bytes, then `tokens` in order."""
    singles = [bytes([byte]) for byte in range(256)]
    return {
        token: rank for rank, token in enumerate([*singles, *dict.fromkeys(t for t in tokens if len(t) > 1)])
    }


def tiktoken_encoding(
    ranks: dict[bytes, int], pattern: str, special_tokens: dict[str, int] | None = None
) -> tiktoken.Encoding:
    return tiktoken.Encoding(
        "test",
        pat_str=EXPRESSIONS.get(pattern, pattern),
        mergeable_ranks=ranks,
        special_tokens=special_tokens or {},
    )


# Pre-tokens


@pytest.mark.parametrize("name", EXPRESSIONS)
@given(text=any_text | tricky_text)
def test_named_patterns_split_as_tiktoken_does(name: str, text: str) -> None:
    for sample in (text, HANDMADE):
        pretokens = [pretoken.encode() for pretoken in pretokenize(sample, name)]
        # With every pre-token a token of its own, and none beside them, the ids show where tiktoken cuts.
        ranks = rank_table(pretokens)
        assert tiktoken_encoding(ranks, name).encode_ordinary(sample) == [ranks[piece] for piece in pretokens]
        assert b"".join(pretokens) == sample.encode()


@given(
    text=any_text | few_letters,
    pattern=st.sampled_from(["a", "a+", "a*", "b??|a", "(?<=a)b", r"\p{L}+(?= )", "ab|", "^", "$"]),
)
def test_pretokens_tile_the_text_whatever_the_pattern(text: str, pattern: str) -> None:
    pretokens = pretokenize(text, pattern)
    assert "".join(pretokens) == text
    assert all(pretokens)


@pytest.mark.parametrize(
    ("text", "pattern", "pretokens"),
    [
        ("one, two", "[a-z]+", ["one", ", ", "two"]),
        ("--x--", "x", ["--", "x", "--"]),
        ("baab", "a*", ["b", "aa", "b"]),
        ("bb", "b??", ["bb"]),
        ("ab ab", "(?<=a)b", ["a", "b", " a", "b"]),
        ("a b\n", None, ["a b\n"]),
        ("", None, []),
        ("", "gpt2", []),
    ],
)
def test_pretokens_of(text: str, pattern: str | None, pretokens: list[str]) -> None:
    assert pretokenize(text, pattern) == pretokens


def test_an_expression_that_does_not_compile_is_named() -> None:
    with pytest.raises(TokenizerError, match=r"pattern '\(unclosed' is neither") as raised:
        pretokenize("text", "(unclosed")
    assert "gpt2" in str(raised.value.hint)


def test_without_regex_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "regex", None)
    with pytest.raises(BytemillError, match="'regex', which is not installed") as raised:
        pretokenize("text", "an expression that nothing has compiled before")
    assert raised.value.hint == "pip install regex"


# Special tokens


@given(
    text=st.text("<>ab", max_size=20),
    special_tokens=st.lists(st.text("<>ab", min_size=1, max_size=4), unique=True, max_size=4),
)
def test_a_split_takes_the_leftmost_special_token_and_the_longest_there(
    text: str, special_tokens: list[str]
) -> None:
    expected: list[tuple[str, bool]] = []
    plain = ""
    position = 0
    while position < len(text):
        here = max(
            (token for token in special_tokens if text.startswith(token, position)), key=len, default=None
        )
        if here is None:
            plain += text[position]
        else:
            expected += [(plain, False)] if plain else []
            expected.append((here, True))
            plain = ""
        position += len(here or "x")
    expected += [(plain, False)] if plain else []
    assert split_at_special_tokens(text, special_tokens) == expected


def test_special_tokens_are_plain_text_to_the_split_and_no_expressions() -> None:
    assert split_at_special_tokens("a.b*c.*", [".*", "."]) == [
        ("a", False), (".", True), ("b*c", False), (".*", True),
    ]  # fmt: skip


@TRAINERS
@pytest.mark.parametrize(
    ("special_tokens", "message"),
    [
        ("<s>", "the single text '<s>'"),
        ([""], "a special token is empty"),
        (["<s>", "<t>", "<s>"], "'<s>' occurs 2 times"),
    ],
)
def test_special_tokens_that_make_no_sense_are_refused(
    trainer: Callable[..., object], special_tokens: list[str], message: str
) -> None:
    with pytest.raises(TokenizerError, match=message):
        trainer("text", 300, special_tokens)


# Training


@TRAINERS
def test_the_example_of_the_paper(
    trainer: Callable[..., tuple[dict[int, bytes], list[tuple[bytes, bytes]]]],
) -> None:
    text = " ".join(["low"] * 5 + ["lower"] * 2 + ["widest"] * 3 + ["newest"] * 6)
    vocab, merges = trainer(text, 256 + 12, pattern=r"\S+")
    assert [f"{left.decode()} {right.decode()}" for left, right in merges] == [
        "s t", "e st", "o w", "l ow", "w est", "n e", "ne west", "w i", "wi d", "wid est", "low e", "lowe r",
    ]  # fmt: skip
    assert [vocab[256], vocab[262], vocab[267]] == [b"st", b"newest", b"lower"]
    six_merges = {pair: rank for rank, pair in enumerate(merges[:6])}
    assert apply_merges(b"newest", six_merges) == [b"ne", b"west"]


@given(
    documents=st.lists(st.text("ab", max_size=12) | st.text("aé世 \n", max_size=20) | any_text, max_size=4),
    vocab_size=st.integers(258, 290),
    special_tokens=st.sampled_from([(), ("a",), ("ab", "<s>")]),
    pattern=st.sampled_from(["gpt2", "o200k", None, "ab?"]),
    options=st.fixed_dictionaries(
        {"ties": st.sampled_from(["bytes", "huggingface"]), "min_frequency": st.integers(0, 3)}
    ),
)
def test_the_three_trainers_agree(documents, vocab_size, special_tokens, pattern, options) -> None:
    naive = train_naive(documents, vocab_size, special_tokens, pattern, **options)
    assert train_unique(documents, vocab_size, special_tokens, pattern, **options) == naive
    assert train(documents, vocab_size, special_tokens, pattern, **options) == naive


@given(
    counts=st.dictionaries(st.text("ab", max_size=8).map(str.encode), st.integers(1, 4), max_size=6),
    ties=st.sampled_from(["bytes", "huggingface"]),
)
def test_each_merge_has_the_greatest_count_at_its_time_and_no_token_is_made_twice(counts, ties) -> None:
    merges, merge_counts = learn_merges(counts, 50, ties)
    words = [(single_bytes(pretoken), count) for pretoken, count in counts.items()]
    for merge, merge_count in zip(merges, merge_counts, strict=True):
        pair_counts = Counter[tuple[bytes, bytes]]()
        for tokens, count in words:
            for pair in pairwise(tokens):
                pair_counts[pair] += count
        assert merge_count == pair_counts[merge] == max(pair_counts.values())
        if ties == "bytes":
            assert merge == max(pair for pair, count in pair_counts.items() if count == merge_count)
        words = [(merge_pair(tokens, merge), count) for tokens, count in words]
    assert all(len(tokens) <= 1 for tokens, _ in words), "50 merges use up every pair of these words"
    assert len({left + right for left, right in merges}) == len(merges)


def test_overlapping_pairs_count_each_and_merge_from_the_left() -> None:
    # "aaa" has two pairs (a, a), so 2 x 2 of them beat the 3 of (x, y); then (aa, a) stands twice.
    merges, merge_counts = learn_merges({b"aaa": 2, b"xy": 3}, 10)
    assert merges == [(b"a", b"a"), (b"x", b"y"), (b"aa", b"a")]
    assert merge_counts == [4, 3, 2]


@pytest.mark.parametrize(
    ("counts", "ties", "first"),
    [
        ({b"az": 1, b"za": 1, b"zA": 1}, "bytes", (b"z", b"a")),
        ({b"a\xff": 1, b"a\x7f": 1}, "bytes", (b"a", b"\xff")),
        ({b"az": 1, b"za": 1, b"zA": 1}, "huggingface", (b"a", b"z")),
        # The blank is written Ġ (U+0120) and so comes after every printable byte, and after ÿ (U+00FF).
        ({b" a": 1, b"\xffa": 1}, "huggingface", (b"\xff", b"a")),
        ({b" a": 1, b"\xffa": 1}, "bytes", (b"\xff", b"a")),
        ({b"\xada": 1, b"\x00a": 1}, "huggingface", (b"\x00", b"a")),
    ],
)
def test_ties_fall_to(counts: dict[bytes, int], ties, first: tuple[bytes, bytes]) -> None:
    assert learn_merges(counts, 1, ties)[0] == [first]


def test_a_longer_token_is_greater_than_its_beginning() -> None:
    # After a+b and b+c, the pairs (ab, c) and (a, bc) cannot stand together, but (a, x) and (ab, x) can.
    merges, _ = learn_merges({b"ab": 3, b"abx": 1, b"ax": 1}, 3)
    assert merges == [(b"a", b"b"), (b"ab", b"x"), (b"a", b"x")]


@TRAINERS
def test_training_stops_if_no_pair_is_frequent_enough(trainer: Callable[..., object]) -> None:
    text = "abc abc ab"
    vocab = {**build_vocab([], []), 256: b"ab", 257: b"abc"}
    assert trainer(text, 1000, pattern="[a-z]+", min_frequency=2) == (vocab, [(b"a", b"b"), (b"ab", b"c")])
    assert trainer(text, 1000, pattern="[a-z]+", min_frequency=3) == (
        {**build_vocab([], []), 256: b"ab"},
        [(b"a", b"b")],
    )
    assert trainer(text, 1000, pattern="[a-z]+", min_frequency=4) == (build_vocab([], []), [])
    assert learn_merges({b"ab": 0, b"": 5, b"c": 7}, 10, min_frequency=0) == ([], [])
    assert trainer("", 1000) == trainer([], 1000) == trainer("x", 1000) == (build_vocab([], []), [])


@TRAINERS
def test_documents_and_special_tokens_are_borders(trainer: Callable[..., object]) -> None:
    split = trainer(["ab", "ab", "c"], 300, [END], None)
    assert split == trainer(f"{END}ab{END}ab{END}{END}c", 300, [END], None)
    assert split == ({**build_vocab([(b"a", b"b")], []), 257: END.encode()}, [(b"a", b"b")])
    assert trainer("ababc", 300, [END], None) != split


@TRAINERS
def test_a_vocabulary_without_room_is_refused_and_one_that_just_fits_is_not(
    trainer: Callable[..., object],
) -> None:
    with pytest.raises(
        TokenizerError, match="vocab_size 257 has no room for 256 bytes and 2 special"
    ) as raised:
        trainer("text", 257, ["<a>", "<b>"])
    assert raised.value.hint == "use at least 258"
    assert trainer("text text", 258, ["<b>", "<a>"]) == (
        {**{byte: bytes([byte]) for byte in range(256)}, 256: b"<b>", 257: b"<a>"}, []
    )  # fmt: skip


@TRAINERS
def test_an_unknown_rule_for_ties_is_refused(trainer: Callable[..., object]) -> None:
    with pytest.raises(TokenizerError, match="ties is 'first'"):
        trainer("text", 300, ties="first")


# Training and encoding against Hugging Face


@given(
    documents=st.lists(
        st.text("ab", max_size=15) | st.text("aab \n\u00ad", max_size=25) | tricky_text | any_text, max_size=5
    ),
    vocab_size=st.integers(257, 320),
)
def test_merges_equal_those_of_hugging_face(documents: list[str], vocab_size: int) -> None:
    theirs = huggingface_merges(huggingface_tokenizer(documents, vocab_size, [END]))
    assert train(documents, vocab_size, [END], ties="huggingface")[1] == theirs


@pytest.mark.parametrize("name", ["tinystories.txt", "udhr/udhr_amh.txt"])
def test_merges_of_real_text_equal_those_of_hugging_face(shared_data: Path, name: str) -> None:
    text = (shared_data / name).read_text(encoding="utf-8")[:10_000].replace(END, "")
    theirs = huggingface_merges(huggingface_tokenizer([text], 800, [END]))
    assert len(theirs) == 800 - 257
    assert train(text, 800, [END], ties="huggingface")[1] == theirs


@lru_cache
def handmade_pair() -> tuple[tokenizers.Tokenizer, ReferenceTokenizer]:
    """One tokenizer trained on a small text of many scripts, theirs and ours."""
    theirs = huggingface_tokenizer([HANDMADE * 2], 500, [END])
    vocab = {token_id: text_to_bytes(token) for token, token_id in theirs.get_vocab().items() if token != END}
    return theirs, ReferenceTokenizer(vocab, huggingface_merges(theirs), {END: 0})


@given(parts=st.lists(any_text | tricky_text | st.sampled_from([*HANDMADE.split(), END]), max_size=8))
def test_ids_equal_those_of_hugging_face(parts: list[str]) -> None:
    theirs, ours = handmade_pair()
    text = " ".join(parts)
    assert ours.encode(text) == theirs.encode(text).ids


# Encoding


def test_merges_apply_one_at_a_time_lowest_rank_and_then_leftmost() -> None:
    # The first a+b makes (ab, a) possible, which has the lower rank and so goes before the second a+b.
    ranks = {(b"ab", b"a"): 0, (b"a", b"b"): 1}
    assert apply_merges(b"abab", ranks) == [b"aba", b"b"]
    assert apply_merges(b"aaa", {(b"a", b"a"): 0}) == [b"aa", b"a"]
    tokens, steps = merge_by_rank(b"xabab", lambda left, right: ranks.get((left, right)))
    assert tokens == [b"x", b"aba", b"b"]
    assert [tuple(step) for step in steps] == [(1, b"a", b"b", 1), (0, b"ab", b"a", 1)]


@given(
    documents=st.lists(st.text("ab", max_size=12) | any_text, min_size=1, max_size=4),
    text=st.text("ab", max_size=12),
)
def test_encoding_applies_the_merges_in_order(documents: list[str], text: str) -> None:
    _, merges = train(documents, 280, pattern=None)
    tokens = single_bytes(text.encode())
    for merge in merges:
        tokens = merge_pair(tokens, merge)
    assert apply_merges(text.encode(), {pair: rank for rank, pair in enumerate(merges)}) == tokens


@given(
    tokens=st.lists(st.text("abc", min_size=2, max_size=5).map(str.encode), max_size=12),
    text=st.text("abc", max_size=30) | st.text("ab", min_size=100, max_size=150),
)
def test_any_table_of_ranks_encodes_as_tiktoken_does(tokens: list[bytes], text: str) -> None:
    ranks = rank_table(tokens)
    expected = tiktoken_encoding(ranks, r"(?s:.+)").encode_ordinary(text)
    assert (encode_by_ranks(text.encode(), ranks) if text else []) == expected


def test_a_pretoken_that_is_a_token_is_taken_at_once_by_ranks_and_not_by_merges() -> None:
    ranks = rank_table([b"bc", b"abc"]) | {b"abcd": 300}  # a+bc makes abc, and nothing makes abcd but abc+d
    assert encode_by_ranks(b"abcd", ranks) == [300]
    unreachable = rank_table([b"abcd"])
    assert encode_by_ranks(b"abcd", unreachable) == [256]
    assert encode_by_ranks(b"abcdx", unreachable) == [*b"abcdx"]
    tokenizer = ReferenceTokenizer({rank: token for token, rank in unreachable.items()}, [], pattern=None)
    assert tokenizer.encode("abcd") == [*b"abcd"]


@lru_cache
def small_rank_pair(pattern: str) -> tuple[tiktoken.Encoding, ReferenceTokenizer]:
    vocab, _ = train(HANDMADE * 2, 600, pattern=pattern)
    ranks = {token: rank for rank, token in vocab.items()}
    theirs = tiktoken_encoding(ranks, pattern, {END: 700})
    return theirs, ReferenceTokenizer(vocab, None, {END: 700}, pattern)


@pytest.mark.parametrize("pattern", EXPRESSIONS)
@given(parts=st.lists(any_text | tricky_text | st.sampled_from([*HANDMADE.split(), END]), max_size=8))
def test_ids_equal_those_of_tiktoken(pattern: str, parts: list[str]) -> None:
    theirs, ours = small_rank_pair(pattern)
    text = " ".join(parts)
    assert ours.encode(text) == theirs.encode(text, allowed_special="all")
    assert ours.encode(text, "none") == theirs.encode_ordinary(text)
    assert ours.decode_bytes(ours.encode(text)) == text.encode()
    assert ours.n_vocab == theirs.n_vocab == 701


@pytest.mark.parametrize(
    ("name", "pattern"), [("r50k", "gpt2"), pytest.param("o200k", "o200k", marks=pytest.mark.slow)]
)
def test_real_rank_files_encode_as_tiktoken_does(shared_data: Path, name: str, pattern: str) -> None:
    ranks = read_ranks(shared_data / f"{name}_base.tiktoken")
    special_tokens = {END: len(ranks)}
    theirs = tiktoken_encoding(ranks, pattern, special_tokens)
    ours = ReferenceTokenizer({rank: token for token, rank in ranks.items()}, None, special_tokens, pattern)
    declarations = sorted((shared_data / "udhr").glob("*.txt"))
    assert declarations
    for sample in [HANDMADE, *(path.read_text(encoding="utf-8")[:400] for path in declarations)]:
        assert ours.encode(sample + END + sample) == theirs.encode(
            sample + END + sample, allowed_special="all"
        )


@given(text=any_text | tricky_text, pattern=st.sampled_from([*PATTERNS, None, "[a-z]*"]))
def test_decoding_gives_back_what_was_encoded(text: str, pattern: str | None) -> None:
    vocab, merges = train([HANDMADE, text], 300, [END], pattern)
    tokenizer = ReferenceTokenizer(vocab, merges, [END], pattern)
    sample = text + END + text
    ids = tokenizer.encode(sample)
    assert tokenizer.decode(ids) == sample
    assert ids.count(tokenizer.special_tokens[END]) == 1
    assert b"".join(tokenizer.decode_tokens_bytes(ids)) == tokenizer.decode_bytes(ids) == sample.encode()
    assert tokenizer.decode(tokenizer.encode(sample, "none")) == sample


# The modes of special tokens

SPECIAL = {"<a>": 300, "<a><b>": 301, "<c>": 302}


def bytes_tokenizer() -> ReferenceTokenizer:
    return ReferenceTokenizer(build_vocab([], []), [], SPECIAL)


@pytest.mark.parametrize(
    ("allowed", "ids"),
    [
        ("all", [301, *b"x", 300, 302]),
        ("none", [*b"<a><b>x<a><c>"]),
        ({"<a>"}, [300, *b"<b>x", 300, *b"<c>"]),
        (["<c>", "<a><b>"], [301, *b"x<a>", 302]),
        (set(), [*b"<a><b>x<a><c>"]),
    ],
)
def test_special_tokens_are_recognised_where_allowed_the_longer_first(allowed, ids: list[int]) -> None:
    tokenizer = bytes_tokenizer()
    assert tokenizer.encode("<a><b>x<a><c>", allowed) == ids
    assert tokenizer.decode(ids) == "<a><b>x<a><c>"


@pytest.mark.parametrize(
    ("text", "allowed", "message"),
    [
        ("é世 <a><b><c>", "none_raise", "special token '<a><b>' at character 3"),
        ("plain", {"<a>", "<x>"}, "names '<x>', which is not a special token"),
        ("plain", "<a>", "allowed_special is '<a>'"),
    ],
)
def test_refused_tokens_and_unknown_modes_are_named(text: str, allowed, message: str) -> None:
    assert bytes_tokenizer().encode("<b><a", "none_raise") == [*b"<b><a"]
    with pytest.raises(SpecialTokenError, match=message):
        bytes_tokenizer().encode(text, allowed)


# What a tokenizer is built from, and decoding


def test_special_tokens_without_ids_find_theirs_in_the_vocabulary_or_get_the_next() -> None:
    merges = [(b"a", b"b")]
    vocab = build_vocab(merges, ["a"])
    tokenizer = ReferenceTokenizer(vocab, merges, ["a", "<new>"], None)
    assert tokenizer.special_tokens == {"a": 257, "<new>": 258}
    assert tokenizer.encode("a", "none") == [97]
    assert tokenizer.encode("a<new>") == [257, 258]
    assert tokenizer.n_vocab == 259


def test_special_tokens_among_merges_and_ranks() -> None:
    vocab = build_vocab([(b"a", b"b")], [])
    merged = ReferenceTokenizer(vocab, [(b"a", b"b")], ["ab"], None)
    assert merged.special_tokens == {"ab": 256}
    assert merged.encode("ab", "none") == merged.encode("ab") == [256]
    by_ranks = ReferenceTokenizer(vocab, None, {"ab": 256}, None)
    assert (by_ranks.encode("ab", "none"), by_ranks.encode("ab")) == ([97, 98], [256])


@pytest.mark.parametrize(
    ("vocab", "merges", "special_tokens", "message"),
    [
        (
            {0: b"a", 1: b"b"},
            [(b"a", b"b")],
            [],
            "merge 0 of b'a' and b'b': the vocabulary has no token b'ab'",
        ),
        ({0: b"a", 1: b"ab"}, [(b"a", b"b")], [], "no token b'b'"),
        ({0: b"a"}, [], {"<s>": 0}, "special token '<s>' has id 0, which token b'a' has"),
        ({0: b"a"}, [], {"<s>": 1, "<t>": 1}, "special token '<t>' has id 1, which token b'<s>' has"),
        ({0: b"a"}, [], ["<s>", "<s>"], "occurs 2 times"),
    ],
)
def test_contradictions_are_refused(vocab, merges, special_tokens, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        ReferenceTokenizer(vocab, merges, special_tokens)


def test_what_cannot_be_encoded_or_decoded_is_named() -> None:
    tokenizer = bytes_tokenizer()
    assert tokenizer.decode([97, 0xE4, 0xB8, 98]) == "a\ufffdb"
    assert tokenizer.decode_bytes([97, 0xE4, 0xB8, 98]) == b"a\xe4\xb8b"
    refused: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: tokenizer.decode([97, 256, 999]), KeyError, "256"),
        (lambda: tokenizer.decode_bytes([-1]), KeyError, "-1"),
        (lambda: train("a\ud800", 300), UnicodeEncodeError, "surrogates"),
        (lambda: tokenizer.encode("a\ud800"), UnicodeEncodeError, "surrogates"),
        *(
            (lambda m=merges: ReferenceTokenizer({0: b"a"}, m).encode("ab"), TokenizerError, "no token b'b'")
            for merges in ([], None)
        ),
    ]
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            call()
