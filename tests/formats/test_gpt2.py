"""GPT-2's vocab.json and merges.txt: reading, writing, and errors."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from tokenizers.models import BPE

from bytemill._core import NAMED_PATTERNS
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats import gpt2, registry
from bytemill.formats.byte_level import ALPHABET
from bytemill.formats.spec import TokenizerSpec

MakeSpec = Callable[..., TokenizerSpec]
Write = Callable[..., tuple[Path, Path]]


@pytest.fixture
def files(tmp_path: Path) -> Write:
    """Writes the two files; `more` adds to a vocabulary of the 256 bytes, whose ids count down."""

    def write(more: dict[str, object], merges: str) -> tuple[Path, Path]:
        vocab = {character: 255 - i for i, character in enumerate(ALPHABET)} | more
        paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
        paths[0].write_text(json.dumps(vocab), encoding="utf-8")
        paths[1].write_text(merges, encoding="utf-8", newline="")
        return paths

    return write


@pytest.mark.parametrize(
    "merges",
    [
        "#version: 0.2\na b\nĠ ab\n",
        "a b\nĠ ab",
        "#version: 0.2\r\na b\r\nĠ ab\r\n",
        "#version: 0.2\n\na b\n\n\nĠ ab\n\n",
        "\ufeff#version: 0.2\na b\nĠ ab\n",
    ],
)
def test_merges_are_read_with_and_without_header_and_blank_lines(files: Write, merges: str) -> None:
    spec = gpt2.read_pair(*files({"ab": 300, "Ġab": 299}, merges))
    assert spec.merges == [(b"a", b"b"), (b" ", b"ab")]
    assert spec.vocab[300] == b"ab"
    assert spec.vocab[299] == b" ab"
    assert spec.vocab[255 - 97] == b"a"
    assert spec.special_tokens == {}
    assert spec.pattern == NAMED_PATTERNS["gpt2"]


def test_a_merge_of_number_signs_is_not_taken_for_the_header(files: Write) -> None:
    spec = gpt2.read_pair(*files({"##": 300, "#v": 301}, "# #\n# v\n"))
    assert spec.merges == [(b"#", b"#"), (b"#", b"v")]


@pytest.mark.parametrize("text", ["<|endoftext|>", "<pad>", "[PAD]", "</s>", "日本", "a b", "<é日>"])
def test_a_bracketed_token_without_a_merge_is_special(files: Write, text: str) -> None:
    spec = gpt2.read_pair(*files({"ab": 300, text: 301}, "a b\n"))
    assert spec.special_tokens == {text: 301}
    assert 301 not in spec.vocab


def test_requested_special_tokens_keep_or_get_ids(files: Write) -> None:
    paths = files({"ab": 300, "EOS": 400, "<pad>": 2}, "a b\n")
    paths[0].write_text(
        paths[0].read_text().replace('"\\u00ff": 0', '"\\u00ff": 2000').replace(": 2,", ": 2001,", 1)
    )
    spec = gpt2.read_pair(*paths, special_tokens=["EOS", "<new>", "<newer>", "<new>"])
    assert spec.special_tokens == {"EOS": 400, "<new>": 2002, "<newer>": 2003, "<pad>": 2}


def test_a_requested_special_token_may_be_a_merge_product(files: Write) -> None:
    spec = gpt2.read_pair(*files({"ab": 300}, "a b\n"), special_tokens=["ab"])
    assert spec.special_tokens == {"ab": 300}
    assert spec.vocab[300] == b"ab"


@pytest.mark.parametrize("text", ["ing", "Ġthe", "EOS", "<>", "madeupword0000"])
def test_a_token_without_a_merge_is_refused_unless_requested_as_special(files: Write, text: str) -> None:
    paths = files({"ab": 300, text: 301}, "a b\n")
    with pytest.raises(
        TokenizerFileError, match=f"token '{text}' .*neither a single byte nor the product of a merge"
    ) as caught:
        gpt2.read_pair(*paths)
    assert "special_tokens" in (caught.value.hint or "")
    assert gpt2.read_pair(*paths, special_tokens=[text]).special_tokens == {text: 301}


@pytest.mark.parametrize(
    ("more", "merges", "said"),
    [
        ({"ab": 300}, "a b\nab\n", r"merges.txt:2: 'ab' is not two tokens"),
        ({"ab": 300}, "a b c\n", r"merges.txt:1: 'a b c' is not two tokens"),
        ({"ab": 300}, "#version: 0.2\na b\na  b\n", r"merges.txt:3: 'a  b' is not two tokens"),
        ({"ab": 300}, "a b\n b\n", r"merges.txt:2: ' b'"),
        ({"ab": 300}, "a b\n#version: 0.3\n", r"merges.txt:2: '#version:' is not an ordinary token"),
        ({"ab": 300}, "a b\n\na c\n", r"merges.txt:3: 'ac' is not an ordinary token"),
        ({"ab": 300}, "a b\na b\n", r"merges.txt:2: \('a', 'b'\) repeats .*merges.txt:1"),
        (
            {"ab": 300, "<x>": 301, "<x>a": 302},
            "a b\n<x> a\n",
            r"merges.txt:2: '<x>' is not an ordinary token",
        ),
        ({"ab": "300"}, "a b\n", r"vocab.json\['ab'\] is '300', not an id"),
        ({"ab": 97}, "a b\n", "have the same id 97"),
        ({"ab": -1}, "a b\n", r"vocab.json\['ab'\] is -1"),
        ({"ab": {}}, "a b\n", r"vocab.json\['ab'\] is an object"),
        ({"": 300}, "\n a b", "merges.txt:2"),
    ],
)
def test_damaged_files_are_refused_with_line_or_token(
    files: Write, more: dict[str, object], merges: str, said: str
) -> None:
    with pytest.raises(TokenizerFileError, match=said):
        gpt2.read_pair(*files(more, merges))


@pytest.mark.parametrize(
    ("vocab", "said"),
    [
        ("", "empty"),
        ("[]", "is an array, not an object"),
        ("{}", "is empty"),
        ('{"a": 1', "not valid JSON at line 1"),
        ('{"a": 1}', "lacks 242 of the 256 bytes"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_vocabulary_is_refused(files: Write, vocab: str, said: str) -> None:
    paths = files({}, "#version: 0.2\n")
    paths[0].write_text(vocab)
    with pytest.raises(TokenizerFileError, match=said) as caught:
        gpt2.read_pair(*paths)
    assert "vocab.json" in str(caught.value)


def test_files_that_cannot_be_read_are_named(files: Write, tmp_path: Path) -> None:
    vocab, merges = files({}, "#version: 0.2\n")
    with pytest.raises(TokenizerFileError, match=r"nowhere.json: no such file"):
        gpt2.read_pair(tmp_path / "nowhere.json", merges)
    with pytest.raises(TokenizerFileError, match="is a folder"):
        gpt2.read_pair(vocab, tmp_path)
    merges.write_bytes(b"#version: 0.2\n\xff\xfe")
    with pytest.raises(TokenizerFileError, match=r"merges.txt: not UTF-8: byte 0xff at offset 14"):
        gpt2.read_pair(vocab, merges)


def test_an_empty_special_token_is_refused(files: Write) -> None:
    with pytest.raises(TokenizerError, match="special token '' is not a text"):
        gpt2.read_pair(*files({}, "#version: 0.2\n"), special_tokens=[""])


def test_no_ids_left_for_special_tokens_is_refused(files: Write) -> None:
    with pytest.raises(TokenizerFileError, match="no ids are left"):
        gpt2.read_pair(*files({"<x>": 2**32 - 1}, "#version: 0.2\n"), special_tokens=["<y>"])


def test_a_gpt2_round_trip_works_here_and_in_hugging_face(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(special_tokens={"<|endoftext|>": 1000, "<日>": 500})
    vocab_json, merges_txt = gpt2.write(spec)
    paths = tmp_path / "a", tmp_path / "b"
    paths[0].write_text(vocab_json, encoding="utf-8")
    paths[1].write_text(merges_txt, encoding="utf-8")
    assert gpt2.read_pair(*paths) == spec
    theirs = tokenizers.Tokenizer(BPE.from_file(*map(str, paths)))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    assert theirs.encode('abab ab é"\\').ids == [257, 258, 32, 259, 260]
    assert theirs.token_to_id("<日>") == 500


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"pattern": None}, "imply GPT-2's pattern; this tokenizer's pattern is null"),
        ({"pattern": "cl100k"}, "imply GPT-2's pattern"),
        ({"merges": [(b"a", b"b")]}, "no sequence of merges produces token b'abab'"),
        (
            {
                "merges": [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")],
                "vocab": {i: bytes([i]) for i in range(256)} | {256: b"bc", 257: b"ab", 258: b"abc"},
                "ignore_merges": True,
            },
            "no sequence of merges produces token b'abc'",
        ),
        ({"special_tokens": {"a": 500}}, "written like the ordinary token"),
        (
            {"special_tokens": {" ": 32}},
            "special token ' ' is also the ordinary token with id 32, .* writes as 'Ġ'",
        ),
        ({"merges": [(b"a", b"q")]}, "b'aq' is not in the vocabulary"),
    ],
)
def test_tokenizers_beyond_the_two_files_are_refused(
    make_spec: MakeSpec, fields: dict[str, object], said: str
) -> None:
    with pytest.raises(TokenizerError, match=said):
        gpt2.write(make_spec(**fields))


def test_gpt2s_files_equal_its_rank_file(shared_data: Path) -> None:
    spec = gpt2.read_pair(shared_data / "gpt2_vocab.json", shared_data / "gpt2_merges.txt")
    assert spec.special_tokens == {"<|endoftext|>": 50256}
    assert len(spec.vocab) == 50256
    assert spec.merges is not None
    assert len(spec.merges) == 50000
    ranks = registry.read(shared_data / "r50k_base.tiktoken")
    assert ranks.ranks == {token: token_id for token_id, token in spec.vocab.items()}
    assert ranks.special_tokens == spec.special_tokens
    assert gpt2.write(ranks) == gpt2.write(spec)
    assert gpt2.write(spec)[1] == (shared_data / "gpt2_merges.txt").read_text(encoding="utf-8")
