"""Rank files: detection, line errors, and writing only if ranks give the same ids."""

import base64
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tiktoken as oracle
import tiktoken_ext.openai_public
from hypothesis import given
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe

from bytemill import Tokenizer
from bytemill._core import NAMED_PATTERNS
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats import gpt2, registry, tiktoken
from bytemill.formats.huggingface import tokenizer_json as huggingface
from bytemill.formats.spec import TokenizerSpec

MakeSpec = Callable[..., TokenizerSpec]
BYTES = "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256))
AB = base64.b64encode(b"ab").decode()


def read(text: str | bytes) -> TokenizerSpec:
    data = text if isinstance(text, bytes) else text.encode()
    return tiktoken.from_bytes(data, "t.tiktoken", pattern="gpt2")


@pytest.mark.parametrize(("mark", "ending"), [("", "\n"), ("", "\r\n"), ("\ufeff", "\n")])
def test_ranks_are_read_as_by_tiktoken(tmp_path: Path, mark: str, ending: str) -> None:
    text = mark + (BYTES + f"\n{AB} 300\n").replace("\n", ending)
    path = tmp_path / "t.tiktoken"
    path.write_text(text, newline="", encoding="utf-8")
    spec = registry.read(path, pattern="cl100k", special_tokens={"<x>": 400})
    assert spec.ranks == load_tiktoken_bpe(str(path))
    assert (spec.ranks or {})[b"ab"] == 300
    assert spec.pattern == NAMED_PATTERNS["cl100k"]
    assert spec.special_tokens == {"<x>": 400}
    assert spec.merges is None
    assert spec.ignore_merges


def test_the_pattern_is_a_name_an_expression_or_none() -> None:
    data = BYTES.encode()
    assert tiktoken.from_bytes(data, "t", pattern=r"\S+|\s").pattern == r"\S+|\s"
    assert tiktoken.from_bytes(data, "t", pattern=None).pattern is None
    with pytest.raises(TokenizerError, match=r"pattern '\('"):
        tiktoken.from_bytes(data, "t", pattern="(")


def test_an_unpublished_file_needs_a_pattern() -> None:
    with pytest.raises(
        TokenizerFileError, match="t: a rank file of 256 tokens that is not a published one"
    ) as caught:
        tiktoken.from_bytes(BYTES.encode(), "t")
    assert "cl100k" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("YWI=", "is not a base64 token and its rank"),
        ("YWI= 300 5", "is not a base64 token"),
        ("YWI= 3x", "is not a base64 token"),
        ("YWI= -3", "is not a base64 token"),
        ("YWI= +3", "is not a base64 token"),
        ("YWI= 1_0", "is not a base64 token"),
        ("YWI= 4294967296", "is not a base64 token"),
        ("YWI= " + "9" * 5000, "is not a base64 token"),
        ("YW 300", "is not a base64 token"),
        ("Y*I= 300", "is not a base64 token"),
        ("YWI=YWI= 300", "is not a base64 token"),
        ("日本 300", "is not a base64 token"),
        ("   ", "is not a base64 token"),
        ("YQ== 300", "token b'a' appears twice"),
    ],
)
def test_a_damaged_line_is_named_by_its_number(line: str, said: str) -> None:
    with pytest.raises(TokenizerFileError, match=said) as caught:
        read(f"{BYTES}\n{line}\n")
    assert str(caught.value).startswith("t.tiktoken:258: ")


def test_two_tokens_of_one_rank_are_refused() -> None:
    with pytest.raises(TokenizerFileError, match="tokens b'a' and b'ab' have the same rank 97"):
        read(f"{BYTES}{AB} 97\n")


def test_a_file_without_all_bytes_is_refused() -> None:
    with pytest.raises(TokenizerFileError, match=r"lacks 1 of the 256 bytes \(0x00\)"):
        read(BYTES.split("\n", 1)[1])


def test_an_empty_token_keeps_an_id_free() -> None:
    """Whisper's file has one."""
    spec = tiktoken.from_bytes((BYTES + "= 256\n").encode(), "t", "gpt2", {"<x>": 257})
    assert spec == tiktoken.from_bytes(BYTES.encode(), "t", "gpt2", {"<x>": 257})
    assert Tokenizer.from_spec(spec).encode("a<x>") == [97, 257]


def test_a_special_token_with_the_id_of_another_token_is_refused() -> None:
    with pytest.raises(TokenizerError, match="'<x>' has id 97, which belongs to another token"):
        tiktoken.from_bytes(BYTES.encode(), "t", pattern=None, special_tokens={"<x>": 97})


@pytest.mark.parametrize("known", tiktoken.KNOWN_FILES, ids=lambda known: known.name)
def test_published_files_have_the_checksums_of_tiktoken(known: tiktoken.KnownFile) -> None:
    if hasattr(tiktoken_ext.openai_public, known.name):
        assert known.sha256 in inspect.getsource(getattr(tiktoken_ext.openai_public, known.name))


@pytest.mark.parametrize("name", ["r50k_base", "cl100k_base", "o200k_base"])
def test_published_files_are_recognised_under_any_name(
    shared_data: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shared_data / f"{name}.tiktoken"
    spec = tiktoken.from_bytes(path.read_bytes(), "renamed.txt")
    monkeypatch.setattr(
        tiktoken_ext.openai_public, "load_tiktoken_bpe", lambda *_, **__: load_tiktoken_bpe(str(path))
    )
    theirs = getattr(tiktoken_ext.openai_public, name)()
    assert spec.ranks == theirs["mergeable_ranks"]
    assert spec.special_tokens == theirs["special_tokens"]
    named = {"r50k_base": "gpt2", "cl100k_base": "cl100k", "o200k_base": "o200k"}[name]
    assert spec.pattern == NAMED_PATTERNS[named]
    assert tiktoken.from_bytes(path.read_bytes().replace(b"\n", b"\r\n"), "crlf") == spec
    assert tiktoken.write(spec).encode() == path.read_bytes()
    # One token less, and it is another file.
    with pytest.raises(TokenizerFileError, match="not a published one"):
        tiktoken.from_bytes(path.read_bytes().rsplit(b"\n", 2)[0], "cut")


def test_gpt2s_merges_are_written_as_its_rank_file(shared_data: Path) -> None:
    spec = gpt2.read_pair(shared_data / "gpt2_vocab.json", shared_data / "gpt2_merges.txt")
    assert tiktoken.write(spec).encode() == (shared_data / "r50k_base.tiktoken").read_bytes()


def test_a_tokenizer_of_merges_is_written_as_equivalent_ranks(make_spec: MakeSpec) -> None:
    spec = make_spec()
    back = read(tiktoken.write(spec))
    assert back.ranks == {token: token_id for token_id, token in spec.vocab.items()}
    assert huggingface.from_text(huggingface.write(back)).merges == spec.merges
    theirs = oracle.Encoding(
        "t",
        pat_str=NAMED_PATTERNS["gpt2"],
        mergeable_ranks=back.ranks or {},
        special_tokens=spec.special_tokens,
    )
    assert theirs.encode_ordinary("abab ab") == [257, 258]


def test_bytes_may_have_any_ids(make_spec: MakeSpec) -> None:
    spec = make_spec()
    vocab = {
        **{1000 - i: bytes([i]) for i in range(256)},
        **{i + 1000: t for i, t in spec.vocab.items() if i > 255},
    }
    assert read(tiktoken.write(replace(spec, vocab=vocab, special_tokens={}))).ranks == {
        t: i for i, t in vocab.items()
    }


ALL_BYTES = {i: bytes([i]) for i in range(256)}


@pytest.mark.parametrize(
    ("tokens", "merges", "whole", "said"),
    [
        (
            [b"cd", b"ab"],
            [(b"a", b"b"), (b"c", b"d")],
            False,
            "do not follow the order of the merges: merge 1",
        ),
        # By merges "abc" is a+bc; by ranks "ab" comes before "bc", so it is ab+c.
        ([b"ab", b"bc", b"abc"], [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc")], False, ", not from"),
        # Two ways to one token: a rank file knows one.
        (
            [b"ab", b"bc", b"abc"],
            [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc")],
            False,
            "an earlier one",
        ),
        # "ab" has no merge, but by ranks it would be merged.
        ([b"ab"], [], True, "no merge produces token b'ab'"),
        # "abc" never arises, and is not looked up either; tiktoken would look it up.
        ([b"bc", b"abcc"], [(b"b", b"c")], False, "no merge produces token b'abcc'"),
        ([b"ab"], [(b"a", b"q")], False, "b'aq' is not in the vocabulary"),
    ],
)
def test_tokenizers_that_ranks_cannot_represent_are_refused(
    tokens: list[bytes], merges: list[tuple[bytes, bytes]], whole: bool, said: str
) -> None:
    vocab = ALL_BYTES | {256 + i: token for i, token in enumerate(tokens)}
    spec = TokenizerSpec(pattern=None, special_tokens={}, vocab=vocab, merges=merges, ignore_merges=whole)
    with pytest.raises(TokenizerError, match=said):
        tiktoken.write(spec)


def test_a_token_that_is_only_looked_up_can_be_written() -> None:
    vocab = ALL_BYTES | {256: b"bc", 257: b"abcc"}
    spec = TokenizerSpec(
        pattern=None, special_tokens={}, vocab=vocab, merges=[(b"b", b"c")], ignore_merges=True
    )
    assert read(tiktoken.write(spec)).ranks == {token: token_id for token_id, token in vocab.items()}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"IQ== 0\nIg== 1\n", True),
        (b"\n\nIQ== 0", True),
        (b"t 1\n", False),
        (b"#version: 0.2\n", False),
        (b"{}", False),
        (b"\n", False),
        (b"\xff\xfe\x00", False),
    ],
)
def test_rank_files_are_recognized_by_their_first_line(data: bytes, expected: bool) -> None:
    assert tiktoken.looks_like_ranks(data) is expected


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n"]), max_size=12))
def test_line_numbers_count_all_line_breaks(parts: list[bytes]) -> None:
    data = b"".join(parts) + b"x"
    assert tiktoken._line_number(data, len(data) - 1) == len(data.splitlines())
