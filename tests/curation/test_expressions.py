"""Rules over measurements."""

import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.curation.expressions import Expression
from bytemill.errors import CurationError

VALUES: dict[str, Any] = {
    "words": 80,
    "ratio": 0.25,
    "label": "de",
    "zero": 0,
    "flag": True,
    "language": {"label": "en", "probability": 0.9},
}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("words < 100", True),
        ("words < 80", False),
        ("10 <= words <= 80", True),
        ("10 <= words < 80", False),
        ("words < 10 or ratio > 0.2", True),
        ("words > 10 and not ratio > 0.2", False),
        ("label in ['de', 'en']", True),
        ("label not in ('fr',)", True),
        ("language.label == 'en' and language.probability >= 0.9", True),
        ("words * ratio - 20 == 0", True),
        ("-words < 0", True),
        ("words / zero > 0", False),
        ("flag", True),
        ("  words\n< 100 ", True),
    ],
)
def test_an_expression_has_the_value_that_python_gives_it(source: str, expected: bool) -> None:
    assert Expression(source).value(VALUES) is expected


@pytest.mark.parametrize(
    "source",
    [
        "__import__('os')",
        "words.__class__()",
        "[x for x in words]",
        "lambda: 1",
        "words if flag else 0",
        "words ** 9",
        "words[0]",
        "f'{words}'",
        "words := 1",
        "words is flag",
        "words <",
        "",
        "1 +" * 600 + "1",
        "b'x' == label",
        "None",
    ],
)
def test_anything_else_is_refused(source: str) -> None:
    with pytest.raises(CurationError):
        Expression(source)


def test_what_was_not_measured_is_named() -> None:
    with pytest.raises(CurationError, match=r"language\.share was not measured"):
        Expression("language.share > 1").value(VALUES)
    with pytest.raises(CurationError, match="different types"):
        Expression("label > 1").value(VALUES)


@given(
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_comparisons_are_those_of_numbers(sign: str, left: float, right: float) -> None:
    functions = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
    expected = getattr(operator, functions[sign])(left, right)
    assert Expression(f"a {sign} b").value({"a": left, "b": right}) is expected
