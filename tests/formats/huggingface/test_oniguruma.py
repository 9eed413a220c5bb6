"""Translated expressions match the same text in Oniguruma (in Hugging Face's library) and here."""

import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from bytemill import _core
from bytemill.formats.huggingface.oniguruma import ExpressionError, from_oniguruma, to_oniguruma

# Letters that fold to one another, digits of several kinds, blanks of several kinds, marks, punctuation.
TEXTS = st.text(
    alphabet="aabbxsSſkKKßﬁtTéÉЖ漢ǅʰª\u0301 01٣½Ⅷ²'’.!-_<]  \n\n\r\t\x0b\x85\xa0\u2028\u3000\u200b😀\x00",
    max_size=14,
)


def found_by_oniguruma(expression: str) -> Callable[[str], list[str]]:
    split = Split(Regex(expression), "isolated")
    return lambda text: [piece for piece, _ in split.pre_tokenize_str(text)]


def found_by_bytemill(expression: str) -> Callable[[str], list[str]]:
    def find(text: str) -> list[str]:
        data = text.encode()
        return [data[start:end].decode() for start, end in _core.pretoken_spans(text, expression)]

    return find


@pytest.mark.parametrize(
    "expression",
    [
        *_core.NAMED_PATTERNS.values(),
        r"\p{N}{1,2}+|\s+$|\S+?$|[^\s]|\s",
        r"a{2}?|b{1,3}?|.|\n",
        r"(?i:'s|k|\x{73}x?)|[a-s]{2,3}|[^\p{L}]+|\p{L}",
        r"^.|[\s\S]",
        r"\p{Lu}\p{Ll}+(?=\s)|(?<=a)b|(?<!x)\d|(?>a+)b|\S|\s+",
        r"[^\r\n\p{L}\p{N}]?+\p{L}+",
        r"(a|(b{2})+)x|\pL+|\PL",
        r"[\-\]\^\]a\x{62}\u0078]{2}|\.|\!|[^^]",
        r"\x{2e}|\x5d+|a\z|\Aa|\S+?",
    ],
)
def test_rust_expressions_split_the_same_in_oniguruma(expression: str) -> None:
    theirs, ours = found_by_oniguruma(to_oniguruma(expression)), found_by_bytemill(expression)

    @given(TEXTS)
    def check(text: str) -> None:
        assert theirs(text) == ours(text)

    check()


@pytest.mark.parametrize(
    "expression",
    [
        *(_core.NAMED_PATTERNS.values()),
        r"a{2}+|b|x$|x|[^abx]",
        r"a{2}?b|a|b|[^ab]",
        r"\s+$|\s|\S+",
        r"b{,2}a|[\s\S]",
        r"(?i:'s|k)|[\s\S]",
        r"a{1,2}?b|\p{^L}|\p{L}",
    ],
)
def test_oniguruma_expressions_split_the_same_in_rust(expression: str) -> None:
    theirs, ours = found_by_oniguruma(expression), found_by_bytemill(from_oniguruma(expression))

    @given(TEXTS)
    def check(text: str) -> None:
        assert theirs(text) == ours(text)

    check()


# Parts with which random expressions are built; each alone means the same or is refused.
ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "x",
        ".",
        r"\s",
        r"\S",
        r"\p{L}",
        r"\P{N}",
        "[ab]",
        "[^a]",
        r"[\sx]",
        r"[a[bx]]",
        r"[^[ab][^ax]]",
        r"[\S&&[^a]]",
        r"[^ab&&\p{L}]",
        r"[a-x&&b-z]",
        "(a|b)",
        "(?:ab)",
        "(?i:k)",
    ]
)
QUANTIFIERS = st.sampled_from(
    ["", "", "+", "++", "+?", "{2}", "{2}+", "{2}?", "{1,2}", "{1,2}+", "{1,2}?", "?", "*+"]
)
ENDS = st.sampled_from(["", "", "", "$", r"\z", "(?!a)", r"(?=\s)"])


@st.composite
def expressions(draw: st.DrawFn) -> str:
    # No part twice in a branch: the engine (fancy-regex 0.20) finds a lone "x" with x+a?x+, in either syntax.
    branches = [
        "".join(
            atom + draw(QUANTIFIERS) for atom in draw(st.lists(ATOMS, min_size=1, max_size=3, unique=True))
        )
        + draw(ENDS)
        for _ in range(draw(st.integers(1, 3)))
    ]
    return "|".join([*branches, r"[\s\S]"])


@given(expressions(), st.lists(TEXTS, min_size=1, max_size=4))
def test_random_expressions_split_the_same_or_are_refused(expression: str, texts: list[str]) -> None:
    try:
        written, read = to_oniguruma(expression), from_oniguruma(expression)
    except ExpressionError as error:
        assert "empty string" in str(error)  # noqa: PT017 - the only reason there is for these parts
        return
    for text in texts:
        assert found_by_oniguruma(written)(text) == found_by_bytemill(expression)(text)
        assert found_by_oniguruma(expression)(text) == found_by_bytemill(read)(text)


def test_both_engines_know_the_same_letters_digits_marks_and_blanks() -> None:
    every_character = "".join(map(chr, [*range(0xD800), *range(0xE000, sys.maxunicode + 1)]))
    classes = ["Lu", "Ll", "Lt", "Lm", "Lo", "M", "N"]
    expression = "|".join([*(rf"\p{{{name}}}+" for name in classes), r"\s+", r"[^\p{L}\p{M}\p{N}\s]+"])
    assert found_by_oniguruma(expression)(every_character) == found_by_bytemill(expression)(every_character)


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        (r"\w+", r"'\\\\w' at character 0"),
        (r"a\b", r"'\\\\b' at character 1"),
        (r"a\<b", r"'\\\\<'"),
        (r"\x{110000}", "not a character"),
        (r"\p{Alpha}", "Alpha"),
        (r"\p{Script=Greek}", r"\\\\p"),
        (r"[[:alpha:]]", r"'\[:' in a class"),
        (r"[a--b]", "'--' in a class"),
        (r"[]a]", "start of a class"),
        (r"[a", "class at character 0 is not closed"),
        (r"(a", "group at character 0 is not closed"),
        (r"a)", "unbalanced"),
        (r"(?m:a)", r"'\(\?m:'"),
        (r"(?i)a", r"'\(\?i\)'"),
        (r"(?<name>a)", r"'\(\?<n'"),
        (r"a**", "quantifier of a quantifier"),
        (r"*a", r"'\*' near"),
        (r"a{b}", "'{' near"),
        (r"(?=a)+b", "repeated assertion"),
        (r"$+b", "repeated assertion"),
        (r"(?i:ss)", "'ss' in a case-insensitive group"),
        (r"(?i:Fi)", "'fi' in a case-insensitive group"),
        (r"(?i:é)", "'é' in a case-insensitive group"),
        (r"(?i:[à-é])", "in a case-insensitive group"),
        (r"(?i:\p{Lu})", "Lu"),
        (r"a?", "empty string"),
        (r"a|", "empty string"),
        (r"(a*|b)c*", "empty string"),
        (r"a{0}", "empty string"),
        (r"(?=a)", "empty string"),
        ("a\\", "backslash at the end"),
        ("(" * 1000 + "a" + ")" * 1000, "nested more than"),
    ],
)
def test_parts_with_different_meanings_are_refused_by_name(expression: str, named: str) -> None:
    for translate in (to_oniguruma, from_oniguruma):
        with pytest.raises(ExpressionError, match=named):
            translate(expression)


def test_parts_that_one_syntax_lacks_are_refused() -> None:
    with pytest.raises(ExpressionError, match=r"\{,3\}"):
        to_oniguruma("a{,3}b")
    with pytest.raises(ExpressionError, match=r"'\^'"):
        from_oniguruma("^a")
