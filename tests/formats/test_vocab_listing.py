"""`.vocab` listings equal those of minbpe and simple-bpe byte for byte."""

import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill import Tokenizer
from bytemill.errors import TokenizerFileError
from bytemill.formats import registry, vocab_listing
from bytemill.formats.spec import TokenizerSpec

MakeSpec = Callable[..., TokenizerSpec]


def reference_listing(model: Path) -> str:
    """The listing of a model with one special token, as minbpe and simple-bpe write it."""

    def shown(token: bytes) -> str:
        text = token.decode("utf-8", "replace")
        return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c)[0] == "C" else c for c in text)

    special, *merges = model.read_text(encoding="utf-8").splitlines()[3:]
    tokens = [bytes([byte]) for byte in range(256)]
    lines = [f"[{shown(token)}] {token_id}" for token_id, token in enumerate(tokens)]
    for left, right in (map(int, merge.split()) for merge in merges):
        halves = f"[{shown(tokens[left])}][{shown(tokens[right])}]"
        tokens.append(tokens[left] + tokens[right])
        lines.append(f"{halves} -> [{shown(tokens[-1])}] {len(tokens) - 1}")
    name, token_id = special.split()
    return "\n".join([*lines, f"[{name}] {token_id}"]) + "\n"


def test_a_listing_is_that_of_minbpe_byte_for_byte(simple_bpe_model: Path) -> None:
    expected = reference_listing(simple_bpe_model)
    for tokenizer in (Tokenizer.load(simple_bpe_model), Tokenizer.from_spec(registry.read(simple_bpe_model))):
        assert vocab_listing.write(tokenizer.to_spec()) == expected


def test_a_listing_of_simple_bpe_itself_comes_out_byte_for_byte(full_data: Path) -> None:
    model = full_data / "tinystoriesv2-gpt4-train-2048.model"
    expected = model.with_suffix(".vocab").read_text(encoding="utf-8")
    assert vocab_listing.write(registry.read(model)) == expected == reference_listing(model)


def test_a_listing_is_refused_as_a_tokenizer(simple_bpe_model: Path, tmp_path: Path) -> None:
    listing = vocab_listing.write(registry.read(simple_bpe_model)).encode()
    assert vocab_listing.looks_like_listing(listing)
    (tmp_path / "t.vocab").write_bytes(listing)
    with pytest.raises(TokenizerFileError, match="a listing for people") as caught:
        Tokenizer.load(tmp_path / "t.vocab")
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


def test_controls_in_special_tokens_are_escaped_or_left(make_spec: MakeSpec) -> None:
    spec = make_spec(special_tokens={"a\u200bb": 300})
    assert vocab_listing.write(spec).splitlines()[-1] == "[a\\u200bb] 300"
    assert vocab_listing.write(spec, raw_special_tokens=True).splitlines()[-1] == "[a\u200bb] 300"


def test_ranks_are_listed_as_their_merges(make_spec: MakeSpec) -> None:
    spec = make_spec(special_tokens={})
    ranks = TokenizerSpec(
        pattern=spec.pattern, special_tokens={}, ranks={token: i for i, token in spec.vocab.items()}
    )
    assert vocab_listing.write(ranks) == vocab_listing.write(spec)


def test_a_token_that_no_merge_makes_stands_alone(make_spec: MakeSpec) -> None:
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
def test_a_listing_is_recognised_by_its_first_line(data: bytes, expected: bool) -> None:
    assert vocab_listing.looks_like_listing(data) is expected
