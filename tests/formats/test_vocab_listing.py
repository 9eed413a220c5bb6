"""`.vocab` listings equal those of minbpe and simple-bpe byte for byte."""

import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill import Tokenizer
from bytemill.errors import TokenizerFileError
from bytemill.formats import detect, vocab_listing
from bytemill.formats.spec import TokenizerSpec

MakeSpec = Callable[..., TokenizerSpec]


def test_simple_bpe_listing_is_reproduced_byte_for_byte(shared_data: Path) -> None:
    model = shared_data / "tinystoriesv2-gpt4-train-2048.model"
    expected = model.with_suffix(".vocab").read_bytes()
    for tokenizer in (Tokenizer.load(model), Tokenizer.from_spec(detect.read(model))):
        assert vocab_listing.write(tokenizer.to_spec()).encode() == expected
    assert vocab_listing.looks_like_listing(expected)
    with pytest.raises(TokenizerFileError, match="a listing for people") as caught:
        Tokenizer.load(model.with_suffix(".vocab"))
    assert ".model" in (caught.value.hint or "")


def test_a_listing_shows_bytes_merges_and_special_tokens(make_spec: MakeSpec) -> None:
    lines = vocab_listing.write(make_spec(special_tokens={"<|b|>": 300, "<|a|>": 261})).splitlines()
    assert lines[0] == "[\\u0000] 0"
    assert lines[10] == "[\\u000a] 10"
    assert lines[32] == "[ ] 32"
    assert lines[127] == "[\\u007f] 127"
    assert lines[128] == lines[255].replace("255", "128") == "[\ufffd] 128"
    assert lines[256:] == [
        "[a][b] -> [ab] 256",
        "[ab][ab] -> [abab] 257",
        "[ ][ab] -> [ ab] 258",
        "[\ufffd][\ufffd] -> [é] 259",
        '["][\\] -> ["\\] 260',
        "[<|b|>] 300",
        "[<|a|>] 261",
    ]


def test_control_characters_in_special_tokens_are_escaped_unless_raw(make_spec: MakeSpec) -> None:
    spec = make_spec(special_tokens={"a\u200bb": 300})
    assert vocab_listing.write(spec).splitlines()[-1] == "[a\\u200bb] 300"
    assert vocab_listing.write(spec, raw_special_tokens=True).splitlines()[-1] == "[a\u200bb] 300"


def test_ranks_are_listed_as_their_merges(make_spec: MakeSpec) -> None:
    spec = make_spec(special_tokens={})
    ranks = TokenizerSpec(
        pattern=spec.pattern, special_tokens={}, ranks={token: i for i, token in spec.vocab.items()}
    )
    assert vocab_listing.write(ranks) == vocab_listing.write(spec)


def test_a_token_without_a_merge_is_listed_without_parts(make_spec: MakeSpec) -> None:
    spec = make_spec(merges=[], ignore_merges=True)
    assert vocab_listing.write(spec).splitlines()[256] == "[ab] 256"


@given(st.text())
def test_every_character_of_category_c_and_no_other_is_escaped(text: str) -> None:
    expected = "".join(
        f"\\u{ord(character):04x}" if unicodedata.category(character)[0] == "C" else character
        for character in text
    )
    assert vocab_listing._render(text) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"[\\u0000] 0\n", True),
        (b"\xef\xbb\xbf[\\u0000] 0\r\n[", True),
        (b"[ ][t] -> [ t] 256", True),
        (b"[1, 2]\n", False),
        (b"{}\n", False),
        (b"[a] b\n", False),
        (b"", False),
    ],
)
def test_a_listing_is_recognized_by_its_first_line(data: bytes, expected: bool) -> None:
    assert vocab_listing.looks_like_listing(data) is expected
