"""What tokens look like: nothing is hidden, nothing moves the cursor, nothing is lost."""

import io
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import bytemill
from bytemill.analysis.inspection import inspect, merge_history, visible, visible_parts
from bytemill.cli.tokenizer_views import explanation_lines, running_text, totals, with_ids
from bytemill.errors import CorpusError

BYTES = {byte: bytes([byte]) for byte in range(256)}
ESCAPE = re.compile("\x1b\\[[0-9;]*m")


@pytest.fixture(scope="module")
def tokenizer() -> bytemill.Tokenizer:
    text = "the cat sat on the mat and the rat ate the hat; naïve café → déjà vu. " * 9
    return bytemill.train_from_iterator([text], 290, ["<|endoftext|>"])


def undone(token: bytes) -> bytes:
    """The bytes of a token from its visible parts."""
    data = b""
    for part in visible_parts(token):
        if part.kind == "bytes":
            data += bytes.fromhex(part.shown.strip("⟨⟩"))
        elif part.kind == "line end":
            data += b"\n"
        elif part.kind == "control":
            for shown in re.findall("⟨U\\+[0-9A-F]+⟩|.", part.shown):
                code = int(shown[3:-1], 16) if len(shown) > 1 else ord(shown) - 0x2400
                data += chr(0x7F if code == 0x21 else code).encode()
        else:
            data += part.shown.removeprefix("◌").encode()
    return data


@given(st.binary(max_size=40))
def test_visible_parts_hold_every_byte(token: bytes):
    assert undone(token) == token


@given(st.text(max_size=40).map(str.encode) | st.binary(max_size=40))
def test_what_is_shown_is_printable_and_on_one_line(token: bytes):
    assert visible(token).isprintable()


def test_bytes_that_are_part_of_characters_stand_together():
    assert visible("€".encode()[:2]) == "⟨e2 82⟩"
    assert visible("€".encode()[2:] + b"uro \xff\xfe!") == "⟨ac⟩uro ⟨ff fe⟩!"
    assert visible(b"\xed\xa0\x80") == "⟨ed a0 80⟩"  # a surrogate, which UTF-8 does not have


def test_a_combining_mark_at_the_beginning_gets_a_dotted_circle():
    assert visible("\u0301e".encode()) == "◌\u0301e"
    assert visible("e\u0301".encode()) == "e\u0301"


@given(st.text(min_size=1, max_size=60).filter(lambda text: text.isprintable() or "\n" in text))
def test_tokens_tile_the_text(text: str):
    tokenizer = bytemill.Tokenizer(BYTES | {256: b"th", 257: b"the"}, [(b"t", b"h"), (b"th", b"e")])
    inspection = inspect(tokenizer, text)
    assert b"".join(token.bytes for token in inspection.tokens) == text.encode()
    assert [token.start for token in inspection.tokens] == [
        sum(len(token.bytes) for token in inspection.tokens[:n]) for n in range(inspection.n_tokens)
    ]
    assert (inspection.n_bytes, inspection.n_characters) == (len(text.encode()), len(text))


def test_bytes_are_those_of_the_text_and_not_what_a_normalizer_makes_of_it(tokenizer: bytemill.Tokenizer):
    spec = replace(tokenizer.to_spec(), normalizer=(("Prepend", " "),))
    inspection = inspect(bytemill.Tokenizer.from_spec(spec), "the cat")
    assert b"".join(token.bytes for token in inspection.tokens) == b" the cat"
    assert inspection.n_bytes == 7
    assert inspection.metrics["bytes_per_token"] == 7 / inspection.n_tokens


def test_special_tokens_are_marked(tokenizer: bytemill.Tokenizer):
    tokens = inspect(tokenizer, "a<|endoftext|>").tokens
    assert [token.special for token in tokens] == [False, True]
    plain = inspect(tokenizer, "a<|endoftext|>", allowed_special="none").tokens
    assert not any(token.special for token in plain)


def test_an_empty_text_has_nothing_to_show(tokenizer: bytemill.Tokenizer):
    with pytest.raises(CorpusError, match="the text is empty"):
        inspect(tokenizer, "")


def test_colours_change_from_token_to_token_and_end_before_the_line(tokenizer: bytemill.Tokenizer):
    shown = "".join(running_text(inspect(tokenizer, "the cat\n\nsat").tokens, colour=True))
    plain = ESCAPE.sub("", shown)
    assert plain == "the cat↵\n↵\nsat"
    for line in shown.split("\n"):
        assert line.endswith("\x1b[0m")
    styles = [code for code in ESCAPE.findall(shown) if code != "\x1b[0m"]
    assert all(one != other for one, other in pairwise(styles))


def test_ids_stand_below_tokens_in_the_width_there_is(tokenizer: bytemill.Tokenizer):
    text = "the 日本 cat sat on the mat and more\nthe cat"
    tokens = inspect(tokenizer, text).tokens
    lines = list(with_ids(tokens, colour=False, width=24))
    assert all(cell_len(line) <= 25 for line in lines)
    ids = [int(number) for line in lines[1::2] for number in line.split()]
    assert ids == [token.id for token in tokens]
    for shown, numbers in zip(lines[0::2], lines[1::2], strict=True):
        assert len(shown.split()) == len(numbers.split())
    coloured = [ESCAPE.sub("", line) for line in with_ids(tokens, colour=True, width=24)]
    assert [line.split() for line in coloured[1::2]] == [line.split() for line in lines[1::2]]


def test_merge_history_ends_with_the_tokens(tokenizer: bytemill.Tokenizer):
    for explanation in tokenizer.explain("the naïve cat → <|endoftext|>"):
        history = merge_history(explanation)
        assert history[-1] == explanation.tokens
        assert len(history) == len(explanation.steps) + 1
        assert all(b"".join(parts) == explanation.text.encode() for parts in history)


def test_equal_pretokens_are_explained_once(tokenizer: bytemill.Tokenizer):
    lines = list(explanation_lines(tokenizer.explain("the cat the cat<|endoftext|><|endoftext|>")))
    assert sum(line.startswith("·cat → ") for line in lines) == 1
    assert next(line for line in lines if line.startswith("·cat → ")).endswith(", 2 times")
    assert lines[-1] == f"<|endoftext|> ({tokenizer.eot_token}): special token, 2 times"


def test_totals_name_each_unit_apart():
    tokenizer = bytemill.Tokenizer(BYTES, [])
    assert totals(inspect(tokenizer, "€1")) == "4 tokens, 4 bytes, 2 characters, 1.00 bytes/token"


def test_long_texts_are_shown_token_by_token(tokenizer: bytemill.Tokenizer):
    stream = io.StringIO()
    tokens = inspect(tokenizer, "the cat\n" * 2_000).tokens
    stretches = running_text(tokens, colour=False)
    stream.write(next(stretches))
    assert stream.getvalue() == "the"
