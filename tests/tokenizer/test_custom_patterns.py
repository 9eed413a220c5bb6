"""Custom patterns: no text is lost between matches, and matching time is bounded."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import reference
from bytemill._core import check_pattern, named_pattern, pretoken_spans
from bytemill.errors import TokenizerError

NEVER_EMPTY = [
    r"\S+",
    r"\w+|\W",
    r"\p{L}+(?=\s)",
    r"(?<=a)b+|\d",
    r"(\w)\1",
    r"(?i)SS|[a-c]+?",
    r"\bé\w",
    r"[^\s\p{L}]{2,3}",
    r"\p{Han}|\p{Hiragana}+",
    r".",
    r"(?s:.)",
    r"x",
    r" ?\p{L}+| ?\p{N}+|\s+(?!\S)|\s+",
    "'s|'t| ?[a-zA-Z]+",
    r"^a|b$",
]
SOMETIMES_EMPTY = [r"a*", r"(?=b)", r"", r"|ab", r"\b", r"a??", r"(?<=a)|c", r"\s*"]

texts = st.text(st.sampled_from("aabbcCsSx 1!\n\u00a0éÉ一あ😀\u0301'"), max_size=30)


def pretokens(text: str, pattern: str | None) -> list[str]:
    data = text.encode()
    spans = pretoken_spans(text, pattern)
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)]
    return [data[start:end].decode() for start, end in spans]


def matches_and_gaps(text: str, expression: str) -> list[str]:
    """The matches by Python's engine, with the text between them as pieces of its own."""
    pieces: list[str] = []
    done = 0
    # `$` is the very end of the text in the core's engine, and also before a last line feed in Python's.
    for match in regex.finditer(expression.replace("$", r"\Z"), text):
        pieces += [text[done : match.start()], match.group()]
        done = match.end()
    pieces.append(text[done:])
    return [piece for piece in pieces if piece]


@given(text=texts)
def test_matches_and_the_gaps_between_them_are_the_pretokens(text: str) -> None:
    for expression in NEVER_EMPTY:
        assert pretokens(text, expression) == matches_and_gaps(text, expression), expression


@given(text=texts)
def test_empty_matches_count_for_nothing(text: str) -> None:
    for expression in SOMETIMES_EMPTY:
        assert pretokens(text, expression) == reference.pretokenize(text, expression), expression


def test_more_matches_than_a_block_holds_lose_nothing() -> None:
    text = "ab1, " * 2000 + "end"
    for expression in [*NEVER_EMPTY, *SOMETIMES_EMPTY]:
        assert "".join(pretokens(text, expression)) == text, expression
    assert pretokens(text, r"\w+") == matches_and_gaps(text, r"\w+")


def test_look_behind_sees_the_text_before_the_pretoken() -> None:
    assert pretokens("1a 2a a", r"(?<=\d)a") == ["1", "a", " 2", "a", " a"]


@given(text=st.text(max_size=100))
def test_without_a_pattern_the_text_is_one_pretoken(text: str) -> None:
    assert pretokens(text, None) == ([text] if text else [])


def test_without_a_pattern_merges_reach_over_blanks() -> None:
    vocab = {byte: bytes([byte]) for byte in range(256)} | {256: b"a ", 257: b"a b"}
    merges = [(b"a", b" "), (b"a ", b"b")]
    assert bytemill.Tokenizer(vocab, merges, pattern=None).encode("a ba b") == [257, 257]
    assert bytemill.Tokenizer(vocab, merges, pattern="gpt2").encode("a b") == [97, 32, 98]


def test_special_tokens_bound_the_pretokens_of_any_pattern() -> None:
    vocab = {byte: bytes([byte]) for byte in range(256)} | {256: b"ab"}
    for pattern in (None, r"\S+", r"(?<=<s>)ab"):
        tokenizer = bytemill.Tokenizer(
            vocab,
            [(b"a", b"b")],
            ["<s>"],
            pattern=pattern if pattern is None else bytemill.Pattern.regex(pattern),
        )
        assert tokenizer.encode("ab<s>ab<s>") == [256, 257, 256, 257]
        assert tokenizer.encode("a<s>b") == [97, 257, 98]


@pytest.mark.parametrize("pattern", ["(unclosed", r"\p{Foo}", "[z-a]", "*", r"\k<nothing>", "(" * 3000])
def test_a_pattern_that_does_not_compile_is_refused_by_name(pattern: str) -> None:
    vocab = {byte: bytes([byte]) for byte in range(256)}
    for refused in (
        lambda: bytemill.Tokenizer(vocab, [], pattern=bytemill.Pattern.regex(pattern)),
        lambda: pretoken_spans("text", pattern),
        lambda: check_pattern(pattern),
    ):
        with pytest.raises(TokenizerError) as caught:
            refused()
        assert pattern[:20] in str(caught.value).replace("\\\\", "\\")
    assert named_pattern(pattern) is None


def test_an_expression_too_large_to_compile_is_refused() -> None:
    with pytest.raises(TokenizerError, match="does not compile"):
        check_pattern(r"(\w{1000}){1000}")


def test_a_pattern_is_a_text_or_none() -> None:
    with pytest.raises(TypeError):
        check_pattern(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pretoken_spans("text", b"\\w+")  # type: ignore[arg-type]


def test_catastrophic_backtracking_ends_with_an_error() -> None:
    vocab = {byte: bytes([byte]) for byte in range(256)}
    pattern = r"(x+x+)+\1y"
    tokenizer = bytemill.Tokenizer(vocab, [], pattern=bytemill.Pattern.regex(pattern))
    with pytest.raises(TokenizerError, match="backtracking") as caught:
        tokenizer.encode("a" + "x" * 60)
    assert pattern.replace("\\", "\\\\") in str(caught.value)
    assert "byte 0" in str(caught.value)
    assert tokenizer.encode("xy") == [120, 121]


@pytest.mark.parametrize("pattern", [r"(x+x+)+y", r"(?=(x+x+)+y)x", r"(a|aa)+$", r"(\s*\S*)*!"])
def test_expressions_that_are_automata_never_take_exponential_time(pattern: str) -> None:
    # With backtracking, each further letter would double the number of steps, and this would never end.
    assert "".join(pretokens("x" * 5000, pattern)) == "x" * 5000
