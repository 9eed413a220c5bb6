"""Patterns as `pre_tokenizer` objects split alike in Hugging Face's library, and survive a round trip."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE

from bytemill import _core
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.huggingface.pre_tokenizers import from_pre_tokenizer, to_pre_tokenizer
from bytemill.reference import pretoken_bytes
from bytemill.reference.pretokens import BYTE_CHARACTERS

NAMES = sorted(_core.NAMED_PATTERNS)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
# GPT-4's pattern before tiktoken 0.7, which is Llama 3's; published conversions of GPT-4's vocabulary have
# it.
GPT4_OF_OLD = _core.NAMED_PATTERNS["llama3"]

WORDS = st.sampled_from(
    [
        "It's",
        "WE'LL",
        "'ſ",
        "'re",
        " 12345",
        "٣½Ⅷ",
        " the",
        "HTTPServer2",
        "naïve",
        "e\u0301",
        "ǅ",
        "ʰ",
        "日本",
        "😀",
    ]
)
BLANKS = st.sampled_from(
    [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\x85", "\u2028", " \n ", "\n\n  "]
)
SIGNS = st.sampled_from(["!", "...", "//\n", "-", "_", "'", "’s", "\x00", "\u200b", "<|x|>"])
TEXTS = st.lists(WORDS | BLANKS | SIGNS | st.characters(exclude_categories=["Cs", "Cn"]), max_size=10).map(
    "".join
)


def split_by_hugging_face(pre_tokenizer: dict[str, Any] | None) -> Callable[[str], list[str]]:
    document = json.loads(Tokenizer(BPE()).to_str()) | {"pre_tokenizer": pre_tokenizer}
    steps = Tokenizer.from_str(json.dumps(document)).pre_tokenizer
    assert steps is not None
    return lambda text: [text[start:end] for _, (start, end) in steps.pre_tokenize_str(text)]


def split_here(pattern: str | None) -> Callable[[str], list[str]]:
    def split(text: str) -> list[str]:
        data = text.encode()
        return [data[start:end].decode() for start, end in _core.pretoken_spans(text, pattern)]

    return split


def split_first(expression: str, **fields: object) -> dict[str, Any]:
    split = {
        "type": "Split",
        "pattern": {"Regex": expression},
        "behavior": "Isolated",
        "invert": False,
    } | fields
    return {"type": "Sequence", "pretokenizers": [split, BYTE_LEVEL]}


def parts_by_hugging_face(pre_tokenizer: dict[str, Any] | None) -> Callable[[str], list[str]]:
    """The pre-tokens in the characters that ByteLevel gives to bytes. Their offsets are those of whole characters."""
    document = json.loads(Tokenizer(BPE()).to_str()) | {"pre_tokenizer": pre_tokenizer}
    steps = Tokenizer.from_str(json.dumps(document)).pre_tokenizer
    assert steps is not None
    return lambda text: [part for part, _ in steps.pre_tokenize_str(text)]


def parts_here(pattern: str | None) -> Callable[[str], list[str]]:
    def split(text: str) -> list[str]:
        data = text.encode()
        spans = _core.pretoken_spans(text, pattern)
        return ["".join(BYTE_CHARACTERS[byte] for byte in data[start:end]) for start, end in spans]

    return split


def after(*steps: dict[str, Any]) -> dict[str, Any]:
    """These steps, then ByteLevel without a pattern of its own."""
    return {"type": "Sequence", "pretokenizers": [*steps, BYTE_LEVEL]}


def split(expression: str) -> dict[str, Any]:
    return split_first(expression)["pretokenizers"][0]


def after_bytes(*steps: dict[str, Any], use_regex: bool = False) -> dict[str, Any]:
    """ByteLevel, then these steps."""
    return {"type": "Sequence", "pretokenizers": [BYTE_LEVEL | {"use_regex": use_regex}, *steps]}


DIGITS = {"type": "Digits", "individual_digits": False}
FALCON = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Punctuation", "behavior": "Contiguous"},
        *after_bytes(DIGITS, split("[0-9][0-9][0-9]"), use_regex=True)["pretokenizers"],
    ],
}


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        FALCON,
        after_bytes(DIGITS),
        after_bytes(DIGITS | {"individual_digits": True}, use_regex=True),
        after_bytes({"type": "Punctuation", "behavior": "Isolated"}, use_regex=True),
        after_bytes({"type": "Punctuation"}),
        after_bytes(split("Ġ?[a-zÃ]+"), split("[²³]|±")),
        after({"type": "Punctuation", "behavior": "Contiguous"}),
        after({"type": "Punctuation"}, DIGITS),
    ],
    ids=lambda value: "+".join(step["type"] for step in value["pretokenizers"]),
)
@given(text=TEXTS | st.text("ò²³¹¼½¾ó1234ab !?«»\u2e42\u166d\U000111c9\u2e43é", max_size=20))
def test_steps_on_bytes_and_punctuation_split_as_in_hugging_face(
    pre_tokenizer: dict[str, Any], text: str
) -> None:
    pattern = from_pre_tokenizer(pre_tokenizer, "f")
    assert pattern is not None
    parts = parts_by_hugging_face(pre_tokenizer)(text)
    assert parts_here(pattern)(text) == parts
    again = to_pre_tokenizer(pattern)
    assert parts_by_hugging_face(again)(text) == parts
    assert from_pre_tokenizer(again, "f") == pattern
    if "Age" not in pattern:  # which the package regex does not know
        found = pretoken_bytes(text, pattern)
        assert ["".join(BYTE_CHARACTERS[byte] for byte in part) for part in found] == parts


def test_all_characters_are_punctuation_or_not_as_in_hugging_face() -> None:
    characters = map(chr, (*range(0xD800), *range(0xE000, 0x110000)))
    text = "a" + "a".join(characters) + "a"
    pre_tokenizer = after({"type": "Punctuation"})
    assert split_here(from_pre_tokenizer(pre_tokenizer, "f"))(text) == split_by_hugging_face(pre_tokenizer)(
        text
    )


@pytest.mark.parametrize("pattern", [*NAMES, None, r"\p{N}{1,2}|\s+$|\S+|\s"])
def test_a_pattern_splits_the_same_in_hugging_face(pattern: str | None) -> None:
    theirs, ours = split_by_hugging_face(to_pre_tokenizer(pattern)), split_here(pattern)

    @example("a\n  ")
    @example("a \n \n x\n\n  ")
    @example("12345678 '٣٣٣٣")
    @example("it'ſ 'S IT'LL x'K\u212a")
    @given(TEXTS)
    def check(text: str) -> None:
        assert theirs(text) == ours(text)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_a_known_pattern_survives_a_round_trip(name: str) -> None:
    assert from_pre_tokenizer(to_pre_tokenizer(name), "f") == _core.NAMED_PATTERNS[name]
    assert to_pre_tokenizer(_core.NAMED_PATTERNS[name]) == to_pre_tokenizer(name)


def test_no_pattern_survives_a_round_trip() -> None:
    assert from_pre_tokenizer(to_pre_tokenizer(None), "f") is None


def test_trailing_white_space_distinguishes_cl100k_from_llama3() -> None:
    text = "a\n  "
    assert split_by_hugging_face(to_pre_tokenizer("cl100k"))(text) == ["a", "\n  "]
    assert split_by_hugging_face(to_pre_tokenizer("llama3"))(text) == ["a", "\n", "  "]


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True},
        {"type": "Sequence", "pretokenizers": [BYTE_LEVEL | {"use_regex": True}]},
    ],
)
def test_equivalent_forms_of_gpt2s_pattern_are_recognized(pre_tokenizer: dict[str, Any]) -> None:
    assert from_pre_tokenizer(pre_tokenizer, "f") == _core.NAMED_PATTERNS["gpt2"]


@pytest.mark.parametrize(
    ("pre_tokenizer", "name"),
    [
        (split_first(GPT4_OF_OLD), "llama3"),
        (split_first(GPT4_OF_OLD, behavior="Removed", invert=True), "llama3"),
        (split_first(GPT4_OF_OLD, invert=True), "llama3"),
        (split_first(_core.NAMED_PATTERNS["o200k"]), "o200k"),
        (split_first(_core.NAMED_PATTERNS["o200k"], behavior="Removed", invert=True), "o200k"),
        (split_first(_core.NAMED_PATTERNS["gpt2"]), "gpt2"),
        ({"type": "Sequence", "pretokenizers": [split_first(GPT4_OF_OLD)]}, "llama3"),
    ],
)
def test_pre_tokenizers_of_published_files_are_recognized(pre_tokenizer: dict[str, Any], name: str) -> None:
    assert from_pre_tokenizer(pre_tokenizer, "f") == _core.NAMED_PATTERNS[name]
    theirs, ours = split_by_hugging_face(pre_tokenizer), split_here(name)

    @given(TEXTS)
    def check(text: str) -> None:
        assert theirs(text) == ours(text)

    check()


def test_tiktokens_own_expression_is_read_as_oniguruma_reads_it() -> None:
    # There, {1,3}+ takes any number of digits and $ is the end of a line: not GPT-4's pattern any more.
    pre_tokenizer = split_first(_core.NAMED_PATTERNS["cl100k"])
    pattern = from_pre_tokenizer(pre_tokenizer, "f")
    assert pattern is not None
    assert _core.named_pattern(pattern) is None
    theirs, ours = split_by_hugging_face(pre_tokenizer), split_here(pattern)
    assert ours("12345678") == theirs("12345678") == ["12345678"]

    @given(TEXTS)
    def check(text: str) -> None:
        assert theirs(text) == ours(text)

    check()


@pytest.mark.parametrize(
    ("pre_tokenizer", "said"),
    [
        (None, "f is null, not a pre-tokenizer"),
        ("ByteLevel", "f is 'ByteLevel'"),
        ({}, r"f is null, which is not supported"),
        ({"type": "Whitespace"}, "leaves out white space"),
        ({"type": "Metaspace", "replacement": "▁"}, "Metaspace"),
        ({"type": "Sequence"}, "f.pretokenizers is null, not an array"),
        ({"type": "Sequence", "pretokenizers": [None]}, r"f.pretokenizers\[0\] is null"),
        (
            {
                "type": "Sequence",
                "pretokenizers": [split("a"), {"type": "ByteLevel", "add_prefix_space": True}],
            },
            "f: ByteLevel with add_prefix_space after another step, and a further split",
        ),
        (
            {"type": "Sequence", "pretokenizers": [split("a"), {"type": "ByteLevel"}]},
            "f: ByteLevel with add_prefix_space after another step, and a further split",
        ),
        (split_first("a", behavior="Removed"), r"pretokenizers\[0\]: a Split with behavior 'Removed'"),
        (split_first(r"[^ ]+", behavior="Removed", invert=True), "behavior 'Removed' and invert True"),
        (split_first("a", behavior="MergedWithNext"), "MergedWithNext"),
        (split_first("a", behavior="Contiguous"), "Contiguous"),
        (split_first("a", pattern={"String": ""}), "pattern is neither {'Regex'"),
        (split_first("a", pattern={"Regex": "a", "String": "a"}), "pattern is neither {'Regex'"),
        (split_first("a", pattern="a"), "pattern is neither {'Regex'"),
        (split_first("a", invert=1), r"pretokenizers\[0\].invert is 1, not true or false"),
        (split_first("a", behavior=[]), "behavior an array"),
        (split_first(r"\w+|\W+"), r"pattern.Regex: .* has no exact equivalent"),
        (split_first(r"\p{Klingon}+"), "has no exact equivalent"),
        (split_first("a|"), "empty string"),
        (split_first("(" * 3000), "nested more than"),
        (after({"type": "Punctuation", "behavior": "Removed"}), "Punctuation with behavior 'Removed'"),
        (after({"type": "Punctuation", "behavior": []}), "Punctuation with behavior an array"),
        (after({"type": "Metaspace"}), "is 'Metaspace', which is not supported beside"),
        (after({"type": ["Split"]}), "is an array, which is not supported"),
        (after({"type": "Digits", "individual_digits": "yes"}), "individual_digits is 'yes'"),
        ({"type": "ByteLevel", "add_prefix_space": 0}, "add_prefix_space is 0, not true or false"),
        (BYTE_LEVEL | {"use_regex": None}, "use_regex is null, not true or false"),
        (after(BYTE_LEVEL), "f: these steps after ByteLevel are not supported"),
        (after_bytes(split("a*b")), 'f: after ByteLevel, the steps on bytes "a\\*b" need'),
        (after_bytes({"type": "Whitespace"}), "f: these steps after ByteLevel are not supported"),
    ],
)
def test_unsupported_pre_tokenizers_are_refused_by_name(pre_tokenizer: Any, said: str) -> None:
    with pytest.raises(TokenizerFileError, match=said):
        from_pre_tokenizer(pre_tokenizer, "f")


def test_a_pattern_without_exact_equivalent_is_refused() -> None:
    with pytest.raises(TokenizerError, match=r"has no exact equivalent .*: '\\\\w'") as caught:
        to_pre_tokenizer(r"\w+|\W")
    assert caught.value.hint is not None
