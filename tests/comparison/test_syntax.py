"""Syntax boundaries: those of tree-sitter's leaves, with white space on either side of a token boundary."""

from __future__ import annotations

import io
import sys
import tokenize
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.comparison import compare
from bytemill.comparison.counting import LANGUAGES, _parser, leaf_boundaries  # pyright: ignore[reportPrivateUsage]

if TYPE_CHECKING:
    from pathlib import Path

CODE = "def f(x, y):\n    return x+1  # add\n\nclass A:\n    b = f(2, 'ä') if 3 else None\n"
SAMPLES = {
    "python": b"x = f(1)\n",
    "javascript": b"let x = f(1);\n",
    "rust": b"fn f() { g(1); }\n",
    "c": b"int x = f(1);\n",
    "java": b"class A { int x = 1; }\n",
    "go": b"package a\nvar x = 1\n",
}


def test_leaves_of_python_are_its_tokens():
    """Compare with Python's tokenizer, whose strings and comments are single tokens too."""
    code = CODE.replace("'ä'", "3")  # a string is several leaves
    data = code.encode()
    expected: set[int] = set()
    lines = code.splitlines(keepends=True)
    starts = [sum(map(len, lines[:n])) for n in range(len(lines) + 1)]
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.string.strip():
            expected |= {starts[row - 1] + column for row, column in (token.start, token.end)}
    ranges = leaf_boundaries(data, _parser("python"))
    assert ranges == sorted(set(ranges))
    for offset in expected - {0, len(code.rstrip())}:
        assert any(first <= offset <= last for first, last in ranges)
    for first, last in ranges:
        assert expected & {first, last}
        assert code[first:last].strip() == ""


@pytest.mark.parametrize("language", sorted(set(LANGUAGES.values())))
def test_every_language_has_a_parser(language: str):
    assert leaf_boundaries(SAMPLES[language], _parser(language))


@given(st.binary(max_size=60))
def test_any_bytes_have_boundaries_inside_them(code: bytes):
    for first, last in leaf_boundaries(code, _parser("python")):
        assert 0 < first <= last < len(code)


def test_the_share_is_that_of_plain_python(tmp_path: Path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(CODE * 3, encoding="utf-8")
    (tmp_path / "c.txt").write_text(CODE, encoding="utf-8")  # not code by its name
    tokenizers = {
        "bytes": bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, []),
        "own": bytemill.train_from_iterator([CODE] * 4, 290, pattern=None),
        "words": bytemill.train_from_iterator([CODE] * 4, 290),
    }
    values = compare(tokenizers, [str(tmp_path / "*")]).values["text"]["syntax_boundaries"]
    data = (CODE * 3).encode()
    ranges = leaf_boundaries(data, _parser("python"))
    for name, tokenizer in tokenizers.items():
        ends: set[int] = set()
        for token in tokenizer.encode_ordinary(CODE * 3):
            ends.add(max(ends, default=0) + len(tokenizer.vocab[token]))
        kept = [any(offset in ends for offset in range(first, last + 1)) for first, last in ranges]
        assert values[name].value == sum(kept) / len(kept)
        assert values[name].low is not None
    assert values["bytes"].value == 1
    assert (values["words"].value or 0) > (values["own"].value or 0)


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tokenizers = {name: bytemill.train_from_iterator([CODE], 260 + n) for n, name in enumerate("ab")}
    (tmp_path / "a.py").write_text(CODE, encoding="utf-8")
    plain = compare(tokenizers, bytemill.Corpus.from_texts([CODE])).values["text"]["syntax_boundaries"]
    assert plain["a"].note == "no code by the names of the files"
    monkeypatch.setattr("bytemill.comparison.counting._parsers", {})
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    without = compare(tokenizers, str(tmp_path / "a.py")).values["text"]["syntax_boundaries"]
    assert without["a"].value is None
    assert without["a"].note == "needs the extra code"
