"""Conversion between all formats gives the same tokenizer or is refused with the reason, and leaves no partial file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import tiktoken as oracle
import tokenizers
from tiktoken.load import load_tiktoken_bpe
from tokenizers.models import BPE

import bytemill
from bytemill import Tokenizer
from bytemill._core import NAMED_PATTERNS
from bytemill.errors import OutputError, TokenizerError, TokenizerFileError
from bytemill.formats import registry as writing
from bytemill.formats import tiktoken
from bytemill.formats.huggingface import tokenizer_json as huggingface
from bytemill.formats.spec import TokenizerSpec
from bytemill.tokenizer import conversion
from bytemill.tokenizer.conversion import convert

MakeSpec = Callable[..., TokenizerSpec]

NAMES = {
    "huggingface": "t.json", "tiktoken": "t.tiktoken", "gpt2": "folder", "minbpe": "t.model"
}  # fmt: skip

ODD_TEXTS = [
    "", "<|endoftext|>", "a<|endoftext|><|endoftext|> b <|endoftext", "   \t\n\n \r\n  x",
    "def f(x):\n\treturn {x: [1, 2.5e-3]}  # ok\n\n\n", "日本語の文章。漢字とかな、한국어 中文",
    "👩‍👩‍👧 😀 e\u0301 \u200d\ufeff\u3000", "it's we'LL I'm 1234567 ½ ٣", "\x00\x1f\x7f\u2028\U0010ffff",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    """700 tokens of Python's documentation with GPT-2's pattern, which every format can say."""
    text = " ".join(str(thing.__doc__) for thing in (str, dict, int, list, Path, json, complex, bytes, float))
    return bytemill.train_from_iterator(
        iter([text + "日本語 naïve 😀 "] * 3), vocab_size=700, special_tokens=["<|endoftext|>"]
    )


@pytest.fixture
def source(trained: Tokenizer, tmp_path: Path) -> Path:
    path = tmp_path / "source.json"
    trained.save(path)
    return path


def texts_of(shared_data: Path) -> list[str]:
    files = sorted([*shared_data.glob("*.txt"), *(shared_data / "udhr").iterdir()])
    return ODD_TEXTS + [path.read_text(encoding="utf-8")[:3_000] for path in files]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("first", NAMES)
@pytest.mark.parametrize("second", NAMES)
def test_every_format_converts_to_every_other(source: Path, tmp_path: Path, first: Any, second: Any) -> None:
    original = Tokenizer.load(source)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    between = convert(source, tmp_path / "a" / NAMES[first])
    assert (between.written_format, between.proof) == (first, "fingerprint")
    result = convert(tmp_path / "a" / NAMES[first], tmp_path / "b" / NAMES[second])
    assert (result.written_format, result.proof) == (second, "fingerprint")
    again = Tokenizer.load(tmp_path / "b" / NAMES[second])
    assert again.fingerprint == original.fingerprint
    assert [again.encode(text) for text in ODD_TEXTS] == [original.encode(text) for text in ODD_TEXTS]
    # Read and written again, it is the same file, byte for byte.
    convert(tmp_path / "b" / NAMES[second], tmp_path / "c" / NAMES[second])
    assert contents(tmp_path / "b") == contents(tmp_path / "c")
    assert set(tmp_path.rglob("*.tmp")) == set()


def test_converted_files_give_the_same_ids_in_the_original_tools(
    trained: Tokenizer, source: Path, tmp_path: Path, shared_data: Path
) -> None:
    texts = texts_of(shared_data)
    expected = [trained.encode(text) for text in texts]

    ranks = convert(source, tmp_path / "t.tiktoken").files
    settings = json.loads(ranks[1].read_text(encoding="utf-8"))
    encoding = oracle.Encoding(**settings, mergeable_ranks=load_tiktoken_bpe(str(ranks[0])))
    assert [encoding.encode(text, allowed_special="all") for text in texts] == expected

    vocab, merges = convert(source, tmp_path / "gpt2").files
    theirs = tokenizers.Tokenizer(BPE.from_file(str(vocab), str(merges)))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    theirs.add_special_tokens(["<|endoftext|>"])
    assert [encoded.ids for encoded in theirs.encode_batch(texts)] == expected

    (json_file,) = convert(tmp_path / "gpt2", tmp_path / "t.json").files
    theirs = tokenizers.Tokenizer.from_file(str(json_file))
    assert [encoded.ids for encoded in theirs.encode_batch(texts)] == expected


def test_a_model_of_simple_bpe_goes_through_every_format(simple_bpe_model: Path, tmp_path: Path) -> None:
    listing = convert(simple_bpe_model, tmp_path / "t.vocab")
    assert listing.proof == "none"
    assert len(listing.files[0].read_text(encoding="utf-8").splitlines()) == 2049
    path = simple_bpe_model
    for name in ("t.json", "t.tiktoken", "gpt2", "t.model"):
        assert convert(path, tmp_path / name).proof == "fingerprint"
        path = tmp_path / name
    assert path.read_text().split("\n")[1:] == simple_bpe_model.read_text().split("\n")[1:]


def test_simple_bpe_listings_do_not_escape_special_tokens(tmp_path: Path) -> None:
    for header, shown in (("minbpe", "\\u200b"), ("simple-bpe", "\u200b")):
        model = tmp_path / f"{header}.model"
        model.write_text(f"{header} v1\n\n1\n\u200b 256\n", encoding="utf-8")
        (listing,) = convert(model, tmp_path / f"{header}.vocab").files
        assert listing.read_text(encoding="utf-8").splitlines()[-1] == f"[{shown}] 256"


def test_published_ranks_convert_to_gpt2s_files_and_back(shared_data: Path, tmp_path: Path) -> None:
    result = convert(shared_data / "gpt2_vocab.json", tmp_path / "t.tiktoken")
    assert result.files == [tmp_path / "t.tiktoken"]
    assert result.files[0].read_bytes() == (shared_data / "r50k_base.tiktoken").read_bytes()
    convert(shared_data / "r50k_base.tiktoken", tmp_path / "gpt2_merges.txt")
    for name in ("gpt2_vocab.json", "gpt2_merges.txt"):
        theirs, ours = (shared_data / name).read_text(), (tmp_path / name).read_text()
        same: Any = json.loads if name.endswith(".json") else str
        assert same(ours) == same(theirs)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(("a/vocab.json", "gpt2"), ("x-vocab.json", "gpt2"), ("merges.txt", "gpt2"), ("folder", "gpt2")),
        *(("x.json", "huggingface"), ("vocab.tokenizer.json", "huggingface"), ("x.tiktoken", "tiktoken")),
        *(("x.model", "minbpe"), ("x.vocab", "vocab"), ("x.gguf", "gguf")),
    ],
)
def test_the_file_name_decides_the_format(name: str, expected: str) -> None:
    assert writing.format_of_name(Path(name)) == expected


def test_other_file_names_need_an_explicit_format(source: Path, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"no output format has files named \*.bin") as caught:
        convert(source, tmp_path / "x.bin")
    assert all(name in (caught.value.hint or "") for name in get_args(writing.WrittenFormat))
    assert convert(source, tmp_path / "x.bin", "minbpe").files == [tmp_path / "x.bin"]
    (tmp_path / "folder").mkdir()
    (file,) = convert(source, tmp_path / "folder", "huggingface").files
    assert file == tmp_path / "folder" / "tokenizer.json"


def test_an_existing_file_stays_unless_overwrite_is_set(source: Path, tmp_path: Path) -> None:
    (tmp_path / "gpt2").mkdir()
    merges = tmp_path / "gpt2" / "merges.txt"
    merges.write_text("mine")
    with pytest.raises(OutputError, match=r"merges.txt already exists"):
        convert(source, tmp_path / "gpt2")
    assert contents(tmp_path / "gpt2") == {"merges.txt": b"mine"}
    convert(source, tmp_path / "gpt2", overwrite=True)
    assert Tokenizer.load(merges).fingerprint == Tokenizer.load(source).fingerprint
    before = source.read_bytes()
    with pytest.raises(OutputError, match="is an input"):
        convert(source, source, overwrite=True)
    assert source.read_bytes() == before
    with pytest.raises(OutputError, match="to standard output"):
        convert(source, "-")


def test_the_result_lists_what_the_format_leaves_out(make_spec: MakeSpec, tmp_path: Path) -> None:
    source = tmp_path / "s.json"
    spec = make_spec(special_tokens={"END": 261, "<x>": 262}, ties="bytes", merge_counts=[5, 4, 3, 2, 1])
    source.write_text(huggingface.write(spec), encoding="utf-8")
    training = ["the tie-breaking rule of training", "the count of each merge's pair in the training corpus"]
    assert convert(source, tmp_path / "again.json").left_out == []
    assert convert(source, tmp_path / "t.tiktoken").left_out == training
    gpt2 = convert(source, tmp_path / "gpt2")
    assert gpt2.left_out == ["that these tokens are special: 'END'", *training]
    assert gpt2.proof == "fingerprint"
    with pytest.raises(
        TokenizerFileError, match=r"token 'END' .* neither a single byte nor the product of a merge"
    ):
        Tokenizer.load(tmp_path / "gpt2")
    named = Tokenizer.load(tmp_path / "gpt2", special_tokens=["END"])
    assert named.fingerprint == Tokenizer.load(source).fingerprint
    assert gpt2.to_dict() == {
        "input": str(source),
        "output": [str(tmp_path / "gpt2" / name) for name in ("vocab.json", "merges.txt")],
        "format": "gpt2",
        "n_vocab": 263,
        "fingerprint": named.fingerprint,
        "proof": "fingerprint",
        "left_out": gpt2.left_out,
        "warnings": [],
    }


def test_overlapping_special_tokens_are_reported_for_tiktoken(make_spec: MakeSpec, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_spec(make_spec(special_tokens={"<x>y": 300, "<x>": 301}))
    tokenizer.save(tmp_path / "s.json")
    assert convert(tmp_path / "s.json", tmp_path / "t.tiktoken").left_out == [
        "that '<x>y' takes precedence over '<x>', its prefix"
    ]


def test_what_the_source_lacks_can_be_set_explicitly(make_spec: MakeSpec, tmp_path: Path) -> None:
    (tmp_path / "t.tiktoken").write_text(tiktoken.write(make_spec()))
    with pytest.raises(TokenizerFileError, match="not a published one"):
        convert(tmp_path / "t.tiktoken", tmp_path / "t.json")
    given: Any = {"pattern": "o200k", "special_tokens": {"<x>": 300}}
    result = convert(tmp_path / "t.tiktoken", tmp_path / "t.json", **given)
    assert result.tokenizer.special_tokens == {"<x>": 300}
    assert Tokenizer.load(tmp_path / "t.json").special_tokens == {"<x>": 300}
    with pytest.raises(TokenizerError, match="imply GPT-2's pattern"):
        convert(tmp_path / "t.json", tmp_path / "gpt2")
    assert not (tmp_path / "gpt2").exists()


def test_gpt2s_files_take_a_pattern_and_ids_of_special_tokens(make_spec: MakeSpec, tmp_path: Path) -> None:
    Tokenizer.from_spec(make_spec(special_tokens={})).save(tmp_path / "g", format="gpt2")
    given: Any = {"pattern": "cl100k", "special_tokens": {"<x>": 400, "ab": 256}}
    tokenizer = Tokenizer.load(tmp_path / "g", **given)
    assert (tokenizer.pattern, tokenizer.special_tokens) == (
        NAMED_PATTERNS["cl100k"],
        {"<x>": 400, "ab": 256},
    )
    with pytest.raises(TokenizerError, match=r"special token 'ab' has id 256 in .*, not 300"):
        Tokenizer.load(tmp_path / "g", special_tokens={"ab": 300})


def test_output_that_fails_verification_is_not_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_spec: MakeSpec
) -> None:
    other = Tokenizer.from_spec(make_spec())
    monkeypatch.setattr(conversion, "_reload", lambda *_: other)
    with pytest.raises(TokenizerError, match="the rank file would be another tokenizer"):
        convert(source, tmp_path / "t.tiktoken")
    assert not (tmp_path / "t.tiktoken").exists()


def test_ids_are_compared_if_only_the_fingerprint_differs(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_splits = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    source = tmp_path / "s.json"
    Tokenizer.from_spec(make_spec()).save(source)
    monkeypatch.setattr(Tokenizer, "fingerprint", property(id))
    differences: list[tuple[dict[str, Any], str | None]] = [
        ({"pattern": same_splits}, None),
        ({"pattern": NAMED_PATTERNS["cl100k"]}, "different pre-tokens for a text that begins with"),
        ({"special_tokens": {"<|endoftext|>": 262}}, "different special tokens"),
        ({"vocab": {i: bytes([i]) for i in range(256)}, "merges": []}, "different tokens"),
        ({"merges": [(b"a", b"b")]}, "different ids for"),
    ]
    for fields, difference in differences:
        other = Tokenizer.from_spec(make_spec(**fields))
        monkeypatch.setattr(conversion, "_reload", lambda *_, other=other: other)
        if difference is None:
            assert convert(source, tmp_path / "t.json").proof == "ids"
        else:
            with pytest.raises(TokenizerError, match=difference):
                convert(source, tmp_path / "u.json")
    assert not (tmp_path / "u.json").exists()
