"""Explanations have every merge in order and end in the ids of `encode`."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.patterns import as_pattern

import bytemill
from bytemill import reference
from bytemill.formats.spec import TokenizerSpec
from bytemill.tokenizer.explanation import Explanation, show_bytes, show_token

END = "<|endoftext|>"
BYTES = {byte: bytes([byte]) for byte in range(256)}
TRAINING = "the quick fox's foxes, 123 e\u0301 今日は 😀 internationalization aaaaaaaa  \n\n " * 3


def by_ranks(*tokens: bytes, pattern: str = r"\S+|\s+") -> bytemill.Tokenizer:
    ranks = {token: i for i, token in enumerate([*BYTES.values(), *tokens])}
    return bytemill.Tokenizer.from_spec(
        TokenizerSpec(pattern=pattern, special_tokens={END: 999}, ranks=ranks)
    )


TOKENIZERS = {
    **{
        str(pattern): bytemill.train_from_iterator(
            iter([TRAINING]),
            vocab_size=285,
            special_tokens=[END, "<|end", " fox"],
            pattern=as_pattern(pattern),
        )
        for pattern in ("gpt2", "cl100k", "o200k", r"\w+(?!z)|\W", None)
    },
    "ranks that merges make": by_ranks(b"ab", b"abc", b"aa", b"th", b"the"),
    "ranks that no merges make": by_ranks(b"abc", b"ab", b"bc", b"aaa", b"aa", b"the", b"th"),
}

PIECES = [
    "the", " fox", "'s", "abc", "aaa", "b", END, "<|end", "\n", "  ", "e\u0301", "今", "😀", "a" * 70, "x",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=12).map("".join)


def replayed(part: Explanation) -> list[bytes]:
    """The tokens that the steps lead to, starting from single bytes."""
    parts = [bytes([byte]) for byte in part.text.encode()]
    for step in part.steps:
        assert (parts[step.at], parts[step.at + 1]) == (step.left, step.right)
        parts[step.at : step.at + 2] = [step.left + step.right]
    return parts


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=texts)
def test_explanations_add_up_to_the_encoding(name: str, text: str) -> None:
    ours = TOKENIZERS[name]
    for allowed in ("all", "none", {END}):
        parts = ours.explain(text, allowed_special=allowed)
        assert [i for part in parts for i in part.ids] == ours.encode(text, allowed_special=allowed)
        assert "".join(part.text for part in parts) == text
        for part in parts:
            assert part.tokens == [ours.decode_single_token_bytes(i) for i in part.ids]
            assert b"".join(part.tokens).decode() == part.text
            if part.special:
                assert part.ids == [ours.special_tokens[part.text]]
                assert part.steps == []
            else:
                assert replayed(part) == part.tokens or part.steps == []
                assert str(part)


@pytest.mark.parametrize("name", ["gpt2", "cl100k", "o200k", "None"])
@given(text=texts)
def test_pretokens_and_merge_steps_are_those_of_the_reference(name: str, text: str) -> None:
    ours = TOKENIZERS[name]
    rank_of = {merge: rank for rank, merge in enumerate(ours.merges)}
    parts = ours.explain(text, allowed_special="none")
    assert [part.text for part in parts] == reference.pretokenize(text, None if name == "None" else name)
    for part in parts:
        tokens, steps = reference.merge_by_rank(
            part.text.encode(), lambda left, right: rank_of.get((left, right))
        )
        assert part.tokens == tokens
        assert [(s.rank, s.left, s.right, s.at) for s in part.steps] == [tuple(step) for step in steps]


def test_odd_texts_are_explained_as_encoded() -> None:
    pattern = bytemill.Pattern.regex(r"(?<=1)a|\w+")
    looks_behind = bytemill.Tokenizer(BYTES | {256: b"ab"}, [(b"a", b"b")], pattern=pattern)
    for ours, texts in (
        (looks_behind, ["1ab", "ab", "1 ab", "11ab"]),
        (TOKENIZERS["gpt2"], ["a\ud800b", "\ud83d\ude00", "\ufeff\udc00", "\ufeffa"]),
    ):
        for text in texts:
            assert [i for part in ours.explain(text) for i in part.ids] == ours.encode(text)
    # A pre-token that is looked up whole has no steps.
    (part,) = TOKENIZERS["ranks that no merges make"].explain("abc")
    assert (part.ids, part.tokens, part.steps) == ([256], [b"abc"], [])


def test_explanations_print_tokens_ids_and_merges() -> None:
    ours = bytemill.Tokenizer(BYTES | {256: b"th", 257: b"the"}, [(b"t", b"h"), (b"th", b"e")], [END])
    assert [str(part) for part in ours.explain(f"the é\n{END}")] == [
        "'the' -> 'the' (257): t+h, th+e",
        "' é' -> ' ' ⟨c3⟩ ⟨a9⟩ (32 195 169): no merges",
        "'\\n' -> '\\n' (10): no merges",
        "'<|endoftext|>' -> '<|endoftext|>' (258): special token",
    ]
    assert ours.explain("") == []


@given(token=st.binary(max_size=6))
def test_tokens_are_shown_without_line_breaks(token: bytes) -> None:
    assert show_bytes(token).isprintable()
    assert show_token(token).isprintable()


# What is known of one token


def test_token_describes_bytes_rank_parts_and_count() -> None:
    ours = bytemill.train_from_iterator(["low low lower newer"] * 2, vocab_size=262, special_tokens=[END])
    assert ours.merge_counts is not None
    for rank, (left, right) in enumerate(ours.merges):
        token = ours.token(ours.encode_single_token(left + right))
        assert token.bytes == left + right
        assert token.rank == rank
        assert token.parts == (ours.encode_single_token(left), ours.encode_single_token(right))
        assert token.count == ours.merge_counts[rank]
        assert not token.special
    byte = ours.token(ours.encode_single_token(b"l"))
    assert (byte.bytes, byte.rank, byte.parts, byte.count, byte.special) == (b"l", None, None, None, False)
    end = ours.token(ours.eot_token)
    assert (end.bytes, end.rank, end.parts, end.count, end.special) == (END.encode(), None, None, None, True)
    for unknown in (262, 1 << 40, -1):
        with pytest.raises(KeyError):
            ours.token(unknown)
    with pytest.raises(TypeError):
        ours.token("l")  # type: ignore[arg-type]


def test_tokens_of_ranks_have_the_parts_of_their_merge() -> None:
    made = TOKENIZERS["ranks that merges make"]
    assert made.token(257).parts == (256, ord("c"))
    assert made.token(257).rank == 1
    assert made.merges[1] == (b"ab", b"c")
    looked_up = TOKENIZERS["ranks that no merges make"]
    assert looked_up.merges == []
    assert looked_up.token(256).bytes == b"abc"
    assert (looked_up.token(256).rank, looked_up.token(256).parts) == (0, (257, ord("c")))
    never_made = by_ranks(b"abcd", b"bc")
    assert (never_made.token(256).rank, never_made.token(256).parts) == (None, None)


class Spans(HTMLParser):
    """Collects the texts of all spans; fails on tags that tokens must not introduce."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self._inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.tags.add(tag)
        self._inside = tag == "span"
        if self._inside:
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        del tag
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[-1] += data


def test_tokens_are_shown_escaped_with_visible_white_space() -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [], ["<script>"])
    text = "<b>&\"' \n\té<script>"
    expected = [*"<b>&\"'·↵⇥", "⟨c3⟩", "⟨a9⟩", "<script>"]
    for result in (tokenizer.encode_with_offsets(text), tokenizer.explain(text)):
        spans = Spans(result._repr_html_())
        assert spans.texts == expected
        assert "more</em>" not in result._repr_html_()
        assert spans.tags <= {"div", "span", "wbr", "small", "em"}


def test_output_is_bounded() -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [], ["x" * 10_000])
    for result in (tokenizer.encode_with_offsets("a " * 50_000), tokenizer.explain("a " * 5_000)):
        html = result._repr_html_()
        assert len(Spans(html).texts) == 300
        assert "more</em>" in html
        assert len(html) < 300 * 400
    assert len(tokenizer.encode_with_offsets("x" * 10_000)._repr_html_()) < 1000
    assert len(tokenizer._repr_html_()) < 2000


def test_a_tokenizer_shows_its_sizes_and_escapes_its_special_tokens() -> None:
    html = bytemill.Tokenizer(BYTES, [], ["<|endoftext|>", "<i>"])._repr_html_()
    assert all(part in html for part in ("258", "gpt2", "&lt;i&gt;"))
    assert "<i>" not in html
    for empty in (
        bytemill.Tokenizer(BYTES, []).encode_with_offsets(""),
        bytemill.Tokenizer(BYTES, []).explain(""),
    ):
        assert "0 tokens" in empty._repr_html_()
