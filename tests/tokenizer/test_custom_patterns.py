"""Custom patterns: no text is lost between matches, matching time is bounded, and last steps may split bytes."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import Pattern, Tokenizer, reference
from bytemill._core import check_pattern, named_pattern, pretoken_spans
from bytemill.errors import TokenizerError

NEVER_EMPTY = [
    r"\S+", r"\w+|\W", r"\p{L}+(?=\s)", r"(?<=a)b+|\d", r"(\w)\1", r"(?i)SS|[a-c]+?", r"\bé\w",
    r"[^\s\p{L}]{2,3}", r"\p{Han}|\p{Hiragana}+", r".", r"(?s:.)", r"x",
    r" ?\p{L}+| ?\p{N}+|\s+(?!\S)|\s+", "'s|'t| ?[a-zA-Z]+", r"^a|b$",
]  # fmt: skip
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
    text = "ab1, " * 400 + "end"
    for expression in [*NEVER_EMPTY, *SOMETIMES_EMPTY]:
        assert "".join(pretokens(text, expression)) == text, expression
    assert pretokens(text, r"\w+") == matches_and_gaps(text, r"\w+")


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


@pytest.mark.slow  # a hundred million steps
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


EXPRESSION = r"gpt2(?#bytes)\p{N}+(?#then)[0-9][0-9][0-9]"
TEXTS = ["ò 12345²! An é in 2026, a ² or ½ of 1000000 «òò²³»", "ò²³¹¼½¾ é " * 40, "12 123 1234 12345 " * 30]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return bytemill.train_from_iterator(TEXTS, 270, ["<|end|>"], pattern=Pattern.regex(EXPRESSION))


@pytest.fixture(scope="module")
def by_definition() -> reference.ReferenceTokenizer:
    vocab, merges = reference.train(TEXTS, 270, special_tokens=["<|end|>"], pattern=EXPRESSION)
    return reference.ReferenceTokenizer(vocab, merges, ["<|end|>"], pattern=EXPRESSION)


def test_the_same_merges_are_learned(tokenizer: Tokenizer, by_definition: reference.ReferenceTokenizer):
    assert dict(tokenizer.vocab) == by_definition.vocab
    # No token has the two bytes of ò, of which the second is ² in GPT-2's table.
    assert not any("ò".encode() in token for token in tokenizer.vocab.values())
    assert any("é".encode() in token for token in tokenizer.vocab.values())


@given(text=st.text("ò²³¹¼½¾óé12ab !<|end>", max_size=60) | st.text(max_size=20))
def test_ids_are_those_by_definition(
    tokenizer: Tokenizer, by_definition: reference.ReferenceTokenizer, text: str
):
    expected = by_definition.encode(text)
    assert tokenizer.encode(text) == expected
    assert list(tokenizer.encode_iterable([text])) == expected
    assert tokenizer.decode(expected) == text
    assert [token_id for part in tokenizer.explain(text) for token_id in part.ids] == expected
    assert b"".join(token for part in tokenizer.explain(text) for token in part.tokens) == text.encode()


def test_a_divided_character_is_explained(tokenizer: Tokenizer):
    assert [part.text for part in tokenizer.explain("aò")] == ["a�", "�"]
    assert [len(part.tokens) for part in tokenizer.explain("aò")] == [2, 1]


@pytest.mark.parametrize("after", ["a*b", "(?=a)b", "("])
def test_steps_on_bytes_are_bounded(after: str):
    with pytest.raises(TokenizerError, match="the steps on bytes"):
        Pattern.regex(f"gpt2(?#bytes){after}")
