"""Known patterns split as their expressions do in Python's `regex`."""

import random
import unicodedata
from collections.abc import Iterable, Iterator

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from bytemill import reference
from bytemill._core import NAMED_PATTERNS, UNICODE_VERSION, named_pattern, pretoken_spans

NAMES = sorted(NAMED_PATTERNS)

# In Python `$` also matches before a line feed at the end of the text; the core's engine means the very end.
BY_REGEX = {
    name: regex.compile(expression.replace("$", r"\Z")) for name, expression in NAMED_PATTERNS.items()
}

LETTERS = "aZsSſtTmMdDlLvVrReEkK\u212aéßẞİıµǅǲǈʰªº一한アﾊرאशกΑωЖԱა\U0001f150𝒜𞤀𐐨"
MARKS = "\u0301\u0300\u0345\u0903\u094d\u20dd\ufe0f\U0001f3fb\U000e0100"
NUMBERS = "0159²½٣Ⅷ〇五௰𝟘"
SPACES = " \t\v\f\x1c\x1f\x85\xa0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000"
NOT_SPACES = "\u180e\u200b\u2060\ufeff\x00\x08\x0e\x1b\x7f"
OTHERS = "'’.,;-_/\\!$€(〈。😀👩\u200d❤\U000e0041\ue000\uffff\U0010ffff"
ALPHABET = LETTERS + MARKS + NUMBERS + SPACES + "\r\n" + NOT_SPACES + OTHERS

SENTENCE = (
    "It's  HE'LL we've I'd'S 'ſ 123456 ½٣4\u00a0\u3000wide\r\n\r\n  \n\t x\n e\u0301te\u0301 Straße ǅ "
    "ungla ʰa कि\u094dन्दी 今日は、世界。 한국어 👩\u200d👩\u200d👧'll camelCase "
    "HTTPServer2 //\n/ !?\r\n…'' ' \u180ea \x85 \u2028z   "
)


def assert_same_pretokens(text: str, name: str) -> None:
    """The expressions leave nothing out, so equal pre-tokens lie at equal places."""
    data = text.encode()
    spans = pretoken_spans(text, name)
    ours = [data[start:end].decode() for start, end in spans]
    assert ours == BY_REGEX[name].findall(text)
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)]
    assert not spans or spans[-1][1] == len(data)


def test_regex_knows_the_unicode_version_of_the_core() -> None:
    assert UNICODE_VERSION == "16.0.0"
    letter = regex.compile(r"\p{L}")
    assert letter.fullmatch("\U000105c0"), "Todhri letters came with Unicode 16"
    assert not letter.fullmatch("\U00010940"), "Sidetic letters came with Unicode 17"


@pytest.mark.parametrize("name", NAMES)
def test_name_and_expression_mean_the_same(name: str) -> None:
    assert named_pattern(name) == named_pattern(NAMED_PATTERNS[name]) == name
    assert pretoken_spans(SENTENCE, name) == pretoken_spans(SENTENCE, NAMED_PATTERNS[name])
    assert NAMED_PATTERNS[name].replace("$", r"\Z") == reference.PATTERNS[name]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's I'M", ["It|'s| I|'|M", "It|'s| I|'M", "It|'s| I|'M", "It's| I'M"]),
        ("x'ſ", ["x|'|ſ", "x|'ſ", "x|'ſ", "x'ſ"]),
        ("12345", ["12345", "123|45", "123|45", "123|45"]),
        ("a\n  ", ["a|\n  ", "a|\n  ", "a|\n|  ", "a|\n|  "]),
        ("a  b", ["a| | b"] * 4),
        ("a \n\n b", ["a| \n\n| b"] * 4),
        ("camelCase", ["camelCase", "camelCase", "camelCase", "camel|Case"]),
        ("e\u0301t", ["e|\u0301|t", "e|\u0301t", "e|\u0301t", "e\u0301t"]),
        ("!!\r\n/x", ["!!|\r|\n|/|x", "!!\r\n|/x", "!!\r\n|/x", "!!\r\n/|x"]),
        ("a\u180eb", ["a|\u180e|b", "a|\u180eb", "a|\u180eb", "a|\u180eb"]),
        ("", [""] * 4),
    ],
)
def test_known_patterns_differ_as_documented(text: str, expected: list[str]) -> None:
    data = text.encode()
    for name, pretokens in zip(("gpt2", "cl100k", "llama3", "o200k"), expected, strict=True):
        spans = pretoken_spans(text, name)
        assert "|".join(data[start:end].decode() for start, end in spans) == pretokens, name


@given(
    text=st.text(st.sampled_from(ALPHABET) | st.sampled_from("'' \n sSlL"), max_size=30)
    | st.text(max_size=50)
)
def test_any_text_splits_as_the_expression_says(text: str) -> None:
    for name in NAMES:
        assert_same_pretokens(text, name)


@pytest.mark.parametrize("name", NAMES)
def test_long_random_texts_split_as_the_expression_says(name: str) -> None:
    chance = random.Random(1)
    alphabets = [
        *(ALPHABET, LETTERS + " ", SPACES + "\r\na", "'sSlLdD ", NUMBERS + "a", MARKS + "aA-"),
        OTHERS + "\r\n/ ",
    ]
    for alphabet in alphabets:
        assert_same_pretokens("".join(chance.choices(alphabet, k=5_000)), name)


def context_texts(code_points: Iterable[int]) -> Iterator[str]:
    """Texts with every code point after and before a letter, a blank, an apostrophe, itself, and a number."""
    characters = [chr(code_point) for code_point in code_points]
    for context in ("a{}b", " {}", "'{}", "{0}{0} 1", "A{}"):
        for start in range(0, len(characters), 1 << 15):
            yield "".join(map(context.format, characters[start : start + (1 << 15)]))


def where_classes_change() -> Iterator[int]:
    """The first and last code point of each category in a row."""
    before = ""
    for code_point in range(0x110000):
        category = unicodedata.category(chr(code_point))
        if category != before:
            yield from {max(code_point - 1, 0), code_point} - set(range(0xD800, 0xE000))
        before = category


@pytest.mark.parametrize("name", NAMES)
def test_code_points_have_the_classes_of_the_expression(name: str) -> None:
    for text in context_texts([*where_classes_change(), *range(0x100)]):
        assert_same_pretokens(text, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_code_points_have_the_classes_of_the_expression(name: str) -> None:
    for text in context_texts(c for c in range(0x110000) if not 0xD800 <= c < 0xE000):
        assert_same_pretokens(text, name)


# Vectors of bytes are 16, 32 or 64 wide: what changes at their borders must change nothing.

REPRESENTATIVES = [
    "a", "Z", "é", "ǅ", "一", "𝒜", "\u0301", "7", "½", " ", "\u00a0", "\u3000", "\n", "'", "!", "/", "😀",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_class_changes_at_any_byte_offset_are_found(name: str) -> None:
    for left in REPRESENTATIVES:
        for right in REPRESENTATIVES:
            runs = [left * n + right * 3 + left for n in (*range(13, 19), *range(30, 35), *range(61, 67))]
            # With a line break between them every text is found at its own place in a block too.
            assert_same_pretokens("\n".join(runs), name)
            assert_same_pretokens(runs[-2], name)


@pytest.mark.parametrize("name", NAMES)
def test_a_text_may_start_and_end_at_any_byte_offset(name: str) -> None:
    for filler in "x é1!\n字😀":
        for n in range(132):
            assert_same_pretokens("." * (n % 4) + filler * n + SENTENCE, name)
    text = SENTENCE + "y" * 60 + SENTENCE
    for n in range(len(text)):
        assert_same_pretokens(text[:n], name)


@pytest.mark.parametrize("name", NAMES)
def test_runs_of_any_length_split_as_the_expression_says(name: str) -> None:
    for character in REPRESENTATIVES:
        for n in (1, 2, 3, 255, 256, 257, 1023):
            for text in (character * n, character * n + "a", "a" + character * n + " b"):
                assert_same_pretokens(text, name)
