"""Built-in formats: one module each that recognizes its own files; files and folders are found by their content."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from bytemill import Tokenizer
from bytemill._core import NAMED_PATTERNS
from bytemill.errors import TokenizerFileError
from bytemill.formats import gpt2, tiktoken
from bytemill.formats.huggingface import tokenizer_json as huggingface
from bytemill.formats.registry import FORMATS, Content, WrittenFormat, format_of_name, writable_formats
from bytemill.formats.registry import read as load
from bytemill.formats.spec import TokenizerSpec

MODULES = {
    name: import_module(f"bytemill.formats.{each.module}")  # type: ignore[attr-defined]
    for name, each in FORMATS.items()
    if hasattr(each, "module")
}


@pytest.mark.parametrize("name", MODULES)
def test_a_format_has_the_functions_of_a_format(name: str) -> None:
    functions = {"recognize", "read"} | ({"render", "left_out"} if name in writable_formats() else set())
    assert {each for each in functions if not callable(getattr(MODULES[name], each, None))} == set()


def test_the_command_line_offers_what_can_be_written() -> None:
    assert get_args(WrittenFormat) == tuple(writable_formats())
    assert set(MODULES) - set(writable_formats()) == {"sentencepiece", "tekken"}


@pytest.mark.parametrize("name", writable_formats())
def test_a_written_file_is_recognized_by_its_format_alone(name: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")], ["<e>"])
    suffix = FORMATS[name].suffixes[0]
    path = tmp_path / (f"t{suffix}" if suffix.startswith(".") else suffix)
    assert format_of_name(path) == name
    tokenizer.save(path, format=name)
    for file in tmp_path.iterdir():
        if file.name.endswith(".tiktoken.json"):
            continue
        content = Content(file.read_bytes(), str(file))
        # A GGUF file is no text: the formats that parse texts would report that.
        others = [other for other in MODULES if name != "gguf" or other not in ("gpt2", "huggingface")]
        assert [other for other in others if MODULES[other].recognize(content)] == [name]


MakeSpec = Callable[..., TokenizerSpec]


@pytest.fixture
def spec(make_spec: MakeSpec) -> TokenizerSpec:
    return make_spec()


@pytest.mark.parametrize("name", ["tokenizer.json", "stories.tiktoken", "x", "vocab.json", "merges.txt"])
@pytest.mark.parametrize("prefix", ["", "\ufeff", "\n \n"])
def test_a_tokenizer_json_is_recognised_under_any_name(
    spec: TokenizerSpec, tmp_path: Path, name: str, prefix: str
) -> None:
    path = tmp_path / name
    path.write_text(prefix + huggingface.write(spec), encoding="utf-8")
    assert load(path) == spec
    assert load(str(path)) == spec


@pytest.mark.parametrize("name", ["t.tiktoken", "tokenizer.json", "merges.txt"])
def test_a_rank_file_is_recognised_under_any_name(spec: TokenizerSpec, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(tiktoken.write(spec))
    loaded = load(path, pattern="gpt2", special_tokens={"<|endoftext|>": 261})
    assert loaded.ranks == {token: token_id for token_id, token in spec.vocab.items()}
    assert loaded.pattern == NAMED_PATTERNS["gpt2"]
    assert loaded.special_tokens == {"<|endoftext|>": 261}
    with pytest.raises(TokenizerFileError, match="not a published one"):
        load(path)


def test_a_published_rank_file_needs_no_pattern(shared_data: Path) -> None:
    assert load(shared_data / "r50k_base.tiktoken").special_tokens == {"<|endoftext|>": 50256}


@pytest.mark.parametrize(("vocab", "merges"), [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
def test_a_folder_with_gpt2s_files_is_a_tokenizer(
    spec: TokenizerSpec, tmp_path: Path, vocab: str, merges: str
) -> None:
    texts = gpt2.write(spec)
    (tmp_path / vocab).write_text(texts[0], encoding="utf-8")
    with pytest.raises(TokenizerFileError, match=f"contains {vocab} but not {merges}"):
        load(tmp_path)
    (tmp_path / merges).write_text(texts[1], encoding="utf-8")
    assert load(tmp_path) == spec
    (tmp_path / vocab).unlink()
    with pytest.raises(TokenizerFileError, match=f"contains {merges} but not {vocab}"):
        load(tmp_path)


def test_in_a_folder_tokenizer_json_comes_first(
    spec: TokenizerSpec, make_spec: MakeSpec, tmp_path: Path
) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text(huggingface.write(spec), encoding="utf-8")
    assert load(tmp_path) == spec


def test_one_of_gpt2s_files_alone_is_refused(spec: TokenizerSpec, tmp_path: Path) -> None:
    vocab, merges = tmp_path / "a", tmp_path / "b"
    texts = gpt2.write(spec)
    vocab.write_text(texts[0], encoding="utf-8")
    merges.write_text(texts[1], encoding="utf-8")
    with pytest.raises(TokenizerFileError, match="a: a vocabulary without its merges") as caught:
        load(vocab)
    assert "merges.txt" in (caught.value.hint or "")
    with pytest.raises(TokenizerFileError, match="b: merges without their vocabulary") as caught:
        load(merges)
    assert "vocab.json" in (caught.value.hint or "")
    merges.write_text(texts[1].split("\n", 1)[1], encoding="utf-8")
    with pytest.raises(TokenizerFileError, match="b: merges without their vocabulary"):
        load(merges)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b" \n\t\n", "the file is empty"),
        (b"hello world\n", "unknown format"),
        (b"simple-bpe v1\n", ":2: the file ends before the number of special tokens"),
        (b"minbpe v2\n\n0\n", "unknown format"),
        (b"[\\u0000] 0\n[\\u0001] 1\n", "a listing for people"),
        (b"[ ][t] -> [ t] 256\n", "a listing for people"),
        (b'{"a": "b"}', "unknown format"),
        (b"{}", "unknown format"),
        (b"[1, 2]", "unknown format"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n", "is a Git LFS pointer"),
        (b"<!DOCTYPE html>\n<html></html>", "is an HTML page, not a tokenizer"),
        (b"\x0a\x0e\x0a\x05<unk>\xff\x00", "not a SentencePiece model: 14 bytes are announced"),
        (b'{"model": ', "not valid JSON at line 1 column 11"),
        (b'{"model": "x"}', "no 'model' object"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"IQ== 0\nIg= 1\n", ":2: b'Ig= 1' is not a base64 token"),
    ],
)
def test_other_files_are_refused_with_their_name(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "some file"
    path.write_bytes(content)
    with pytest.raises(TokenizerFileError, match=said) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))


def test_the_hint_lists_the_supported_files(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("hello")
    for place in (path, tmp_path):
        with pytest.raises(TokenizerFileError) as caught:
            load(place)
        for format_name in ("tokenizer.json", ".tiktoken", "vocab.json", "merges.txt"):
            assert format_name in (caught.value.hint or "")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerFileError, match="nowhere: no such file"):
        load(tmp_path / "nowhere")


def test_a_file_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "x").write_text("content")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(TokenizerFileError, match="x: cannot be read: Permission denied"):
        load(tmp_path / "x")


def test_an_invalid_path_is_refused() -> None:
    with pytest.raises(TokenizerFileError, match="cannot be read"):
        load("a\0b")


def test_pattern_and_special_tokens_are_refused_for_files_that_store_them(
    spec: TokenizerSpec, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(huggingface.write(spec), encoding="utf-8")
    with pytest.raises(TokenizerFileError, match="stores its pattern and special tokens"):
        load(path, pattern=None)
    with pytest.raises(TokenizerFileError, match="stores its pattern and special tokens"):
        load(tmp_path, special_tokens={})


def test_other_json_files_of_a_tokenizer_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024}))
    with pytest.raises(TokenizerFileError, match="unknown format"):
        load(path)
