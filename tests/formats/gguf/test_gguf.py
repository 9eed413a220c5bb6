"""GGUF files exchange with the `gguf` package and keep the ids."""

import json
import subprocess
import sys
import unicodedata
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from gguf import GGUFEndian, GGUFReader, GGUFWriter, TokenType
from hypothesis import given
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe
from tokenizers import Regex, pre_tokenizers

import bytemill
from bytemill import Tokenizer
from bytemill._core import NAMED_PATTERNS, pretoken_spans
from bytemill.errors import (
    MissingExtraError,
    OutputError,
    PreTokenizerWarning,
    TokenizerError,
    TokenizerFileError,
)
from bytemill.formats import gguf, gpt2, registry
from bytemill.formats.byte_level import bytes_to_text
from bytemill.formats.gguf_pre_tokenizers import PRE_TOKENIZERS
from bytemill.formats.spec import STEP_SEPARATOR, TokenFlags, TokenizerSpec
from bytemill.system.extras import install_hint

MakeSpec = Callable[..., TokenizerSpec]
MakeFile = Callable[..., Path]
TEXT = "abab é ab\r\n\n 12345 it's\u3000日本 😀<|endoftext|>\ufffd  "
BYTES = [bytes_to_text(bytes([byte])) for byte in range(256)]
NORMAL, CONTROL, USER = TokenType.NORMAL, TokenType.CONTROL, TokenType.USER_DEFINED
TOKENS = [*BYTES, "ab", "abab", "Ġab", "<|endoftext|>", "two words", "[PAD261]"]
TYPES = [*[NORMAL] * 259, CONTROL, USER, TokenType.UNUSED]
MERGES = ["a b", "ab ab", "Ġ ab"]


@pytest.fixture
def make_file(tmp_path: Path) -> MakeFile:
    """Writes a GGUF file with the library; keywords replace or (None) leave out keys of the tokenizer."""

    def make(endianess: GGUFEndian = GGUFEndian.LITTLE, **changes: Any) -> Path:
        path = tmp_path / "model.gguf"
        writer = GGUFWriter(path, "llama", endianess=endianess)
        writer.add_uint32("llama.context_length", 2048)
        writer.add_array("llama.odd", [1.5, 2.5])
        values = {"model": "gpt2", "pre": "gpt-2", "tokens": TOKENS, "token_type": TYPES, "merges": MERGES}
        for key, value in (values | changes).items():
            match value:
                case None:
                    pass
                case bool():
                    writer.add_bool(f"tokenizer.ggml.{key}", value)
                case int():
                    writer.add_uint32(f"tokenizer.ggml.{key}", value)
                case float():
                    writer.add_float32(f"tokenizer.ggml.{key}", value)
                case str():
                    writer.add_string(f"tokenizer.ggml.{key}", value)
                case _:
                    writer.add_array(f"tokenizer.ggml.{key}", value)
        writer.add_array("tokenizer.chat_templates", ["a", "b" * 3_000_000, "c"])
        writer.add_string("tokenizer.chat_template", "{{ x }}" * 1000)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return make


def written(spec: TokenizerSpec, path: Path, **options: Any) -> dict[str, Any]:
    """What the library reads in the file that is written for `spec`."""
    gguf.write(spec, path, **options)
    return {name: field.contents() for name, field in GGUFReader(path).fields.items()}


@pytest.mark.parametrize("endianess", list(GGUFEndian))
def test_files_written_by_the_gguf_package_are_read(make_file: MakeFile, endianess: GGUFEndian) -> None:
    spec = registry.read(make_file(endianess))
    assert spec.pattern == NAMED_PATTERNS["gpt2"]
    assert spec.special_tokens == {"<|endoftext|>": 259, "two words": 260}
    assert spec.merges == [(b"a", b"b"), (b"ab", b"ab"), (b" ", b"ab")]
    assert spec.vocab == {i: bytes([i]) for i in range(256)} | {256: b"ab", 257: b"abab", 258: b" ab"}
    assert not spec.ignore_merges


def test_only_gguf_versions_2_and_3_are_read(make_file: MakeFile) -> None:
    path = make_file()
    data = bytearray(path.read_bytes())
    expected = registry.read(path)
    for version in (1, 2, 4):
        data[4:8] = version.to_bytes(4, "little")
        if version == 2:
            assert registry.from_bytes(bytes(data), "f") == expected
        else:
            with pytest.raises(TokenizerFileError, match=f"f has GGUF version {version}"):
                registry.from_bytes(bytes(data), "f")


def test_gpt2_in_gguf_equals_gpt2s_own_files(shared_data: Path, tmp_path: Path, make_file: MakeFile) -> None:
    names = ("gpt2_vocab.json", "gpt2_merges.txt")
    vocab_text, merges_text = ((shared_data / name).read_text(encoding="utf-8") for name in names)
    merges = merges_text.splitlines()[1:1001]
    vocab = {token: i for token, i in json.loads(vocab_text).items() if i < 1256 or token == "<|endoftext|>"}
    vocab["<|endoftext|>"] = 1256
    tokens = sorted(vocab, key=vocab.__getitem__)
    types = [CONTROL if token == "<|endoftext|>" else NORMAL for token in tokens]
    path = make_file(tokens=tokens, token_type=types, merges=merges, eos_token_id=1256)
    spec = registry.read(path)
    assert spec.metadata is not None
    assert spec.metadata.config == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
    }
    pair = tmp_path / names[0], tmp_path / names[1]
    pair[0].write_text(json.dumps(vocab), encoding="utf-8")
    pair[1].write_text("\n".join(merges), encoding="utf-8")
    assert replace(spec, metadata=None) == gpt2.read_pair(*pair)


@pytest.mark.parametrize(
    ("file", "pattern", "pre"), [("r50k_base", "gpt2", "gpt-2"), ("cl100k_base", "cl100k", None)]
)
def test_published_vocabularies_keep_their_ids(
    shared_data: Path, tmp_path: Path, file: str, pattern: str, pre: str | None
) -> None:
    original = Tokenizer.load(shared_data / f"{file}.tiktoken")
    path = tmp_path / "x"
    with warnings.catch_warnings():
        warnings.simplefilter("error" if pre else "ignore")
        gguf.write(original.to_spec(), path)
    tokenizer = Tokenizer.load(path)
    assert tokenizer.pattern == NAMED_PATTERNS[pattern]
    assert tokenizer.fingerprint == original.fingerprint
    oracle = tiktoken.Encoding(
        file,
        pat_str=NAMED_PATTERNS[pattern],
        mergeable_ranks=load_tiktoken_bpe(str(shared_data / f"{file}.tiktoken")),
        special_tokens=original.special_tokens,
    )
    for name in ("botchan_en.txt", "wagahai_ja.txt"):
        text = (shared_data / name).read_text(encoding="utf-8")[:100_000] + TEXT
        assert tokenizer.encode(text) == oracle.encode(text, allowed_special="all")
    invalid = b"\xff\xc3(\x80 ab\xf0\x9f"
    assert tokenizer.core.encode_bytes(invalid) == original.core.encode_bytes(invalid)
    again = tmp_path / "again"
    with warnings.catch_warnings():
        warnings.simplefilter("error" if pre else "ignore")
        gguf.write(tokenizer.to_spec(), again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("pattern", "pre"), [("gpt2", "gpt-2"), ("llama3", "llama-bpe"), ("o200k", "gpt-4o"), ("cl100k", None)]
)
@pytest.mark.parametrize("ties", ["bytes", "huggingface"])
@pytest.mark.parametrize("special_ids", ["first", "last"])
def test_a_trained_tokenizer_survives_a_gguf_round_trip(
    tmp_path: Path, pattern: str, pre: str | None, ties: Any, special_ids: Any
) -> None:
    text = "the cat sat on the mat, the rat on 12345 hats; it's naïve 日本の猫" * 3
    trained = bytemill.train_from_iterator(
        iter([text]), 300, ["<|endoftext|>", "x y"], pattern=pattern, ties=ties, special_ids=special_ids
    )
    path = tmp_path / "t.gguf"
    if pre is None:
        with pytest.warns(PreTokenizerWarning, match="llama.cpp has no pre-tokenizer .* 'cl100k'"):
            fields = written(trained.to_spec(), path)
    else:
        fields = written(trained.to_spec(), path)
    loaded = Tokenizer.load(path)
    assert loaded.to_spec() == trained.to_spec()
    assert loaded.fingerprint == trained.fingerprint
    assert loaded.encode(TEXT + text) == trained.encode(TEXT + text)

    end = trained.special_tokens["<|endoftext|>"]
    assert fields["general.architecture"] == "gpt2"
    assert fields["tokenizer.ggml.model"] == "gpt2"
    assert fields.get("tokenizer.ggml.pre") == pre
    assert fields["tokenizer.ggml.eos_token_id"] == end
    assert fields["tokenizer.ggml.add_bos_token"] is False
    special = {i: text for text, i in trained.special_tokens.items()}
    assert fields["tokenizer.ggml.tokens"] == [
        special.get(i, bytes_to_text(token)) for i, token in trained.vocab.items()
    ]
    assert len(fields["tokenizer.ggml.token_type"]) == trained.n_vocab
    assert {i for i, kind in enumerate(fields["tokenizer.ggml.token_type"]) if kind == CONTROL} == set(
        trained.special_tokens.values()
    )
    assert fields["tokenizer.ggml.merges"] == [
        f"{bytes_to_text(left)} {bytes_to_text(right)}" for left, right in trained.merges
    ]


@pytest.mark.parametrize(
    "pattern", [None, r"\p{N}{1,2}|\S+|\s", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+"]
)
def test_a_pattern_without_a_name_is_recorded(
    make_spec: MakeSpec, tmp_path: Path, pattern: str | None
) -> None:
    spec = make_spec(pattern=pattern, ties="bytes", merge_counts=[5, 4, 3, 2, 1])
    with pytest.warns(PreTokenizerWarning) as caught:
        gguf.write(spec, tmp_path / "t")
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    assert caught[0].filename == __file__
    assert registry.read(tmp_path / "t") == spec


def test_an_expression_equivalent_to_a_known_pattern_is_kept(make_spec: MakeSpec, tmp_path: Path) -> None:
    synonym = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    spec = make_spec(pattern=synonym)
    assert written(spec, tmp_path / "t")["tokenizer.ggml.pre"] == "gpt-2"
    assert registry.read(tmp_path / "t") == spec


def test_a_changed_pre_tokenizer_name_overrides_the_record(make_spec: MakeSpec, tmp_path: Path) -> None:
    with pytest.warns(
        PreTokenizerWarning, match="'qwen2' is not known to be the pre-tokenizer for the pattern 'gpt2'"
    ):
        gguf.write(make_spec(), tmp_path / "t", pre="qwen2")
    data = (tmp_path / "t").read_bytes()
    assert data.count(b"qwen2") == 2  # the name and the record
    changed = data.replace(b"qwen2", b"gpt-2", 1)
    assert registry.from_bytes(changed, "t").pattern == NAMED_PATTERNS["gpt2"]
    assert registry.from_bytes(data, "t").pattern == PRE_TOKENIZERS["qwen2"].pattern


def test_the_pre_tokenizer_name_decides_ignore_merges(
    make_file: MakeFile, make_spec: MakeSpec, tmp_path: Path
) -> None:
    for name, whole in (("llama-bpe", True), ("tekken", True), ("gpt-2", False), ("gpt-4o", False)):
        assert registry.read(make_file(pre=name)).ignore_merges is whole
    # "ba" is in the vocabulary and no merge makes it: only a look-up gives it.
    spec = make_spec(pattern="llama3", vocab=make_spec().vocab | {262: b"ba"}, ignore_merges=True)
    assert written(spec, tmp_path / "whole")["tokenizer.ggml.pre"] == "llama-bpe"
    assert Tokenizer.load(tmp_path / "whole").encode("ba") == [262]
    spec = make_spec(pattern="llama3", vocab=make_spec().vocab | {262: b"ba"}, ignore_merges=False)
    assert written(spec, tmp_path / "parts")["tokenizer.ggml.pre"] == "smaug-bpe"
    assert Tokenizer.load(tmp_path / "parts").encode("ba") == [98, 97]
    spec = make_spec(vocab=make_spec().vocab | {262: b"ba"}, ignore_merges=True)
    with pytest.warns(PreTokenizerWarning):
        assert "tokenizer.ggml.pre" not in written(spec, tmp_path / "none")


def test_an_unknown_pre_tokenizer_is_refused_unless_a_pattern_is_given(make_file: MakeFile) -> None:
    path = make_file(pre="unheard-of")
    with pytest.raises(TokenizerFileError, match=r"tokenizer\.ggml\.pre is 'unheard-of'") as caught:
        Tokenizer.load(path)
    assert "pattern" in (caught.value.hint or "")
    for name in ("unheard-of", None):
        path = make_file(pre=name)
        assert Tokenizer.load(path, pattern="cl100k").pattern == NAMED_PATTERNS["cl100k"]
        assert Tokenizer.load(path, pattern=None).pattern is None
    with pytest.warns(PreTokenizerWarning, match="split as llama"):
        assert Tokenizer.load(path).pattern == PRE_TOKENIZERS["default"].pattern
    with pytest.raises(TokenizerError, match="unknown pattern '\\(unknown'"):
        Tokenizer.load(path, pattern="(unknown")
    with pytest.raises(TokenizerFileError, match="stores its pattern and special tokens"):
        Tokenizer.load(path, special_tokens={"<x>": 400})


@pytest.mark.parametrize("model", ["rwkv", "plamo2", "no_vocab"])
def test_other_models_are_refused_by_name(make_file: MakeFile, model: str) -> None:
    with pytest.raises(TokenizerFileError, match=f"tokenizer.ggml.model is '{model}'"):
        Tokenizer.load(make_file(model=model))


def test_a_file_without_a_tokenizer_is_refused(make_file: MakeFile) -> None:
    with pytest.raises(TokenizerFileError, match=r"contains no tokenizer: tokenizer\.ggml\.model is missing"):
        Tokenizer.load(make_file(model=None))


def test_user_defined_tokens_are_found_in_every_text(
    make_file: MakeFile, make_spec: MakeSpec, tmp_path: Path
) -> None:
    """But for names that llama.cpp takes for control tokens."""
    tokens = [*TOKENS[:260], "  ", "<|im_end|>"]
    path = make_file(tokens=tokens, token_type=[*TYPES[:260], USER, USER])
    tok = Tokenizer.load(path)
    assert tok.engine == "core"
    assert tok.encode("ab  ab<|im_end|>", allowed_special="none")[:3] == [256, 260, 256]
    assert tok.encode("ab  ab<|im_end|>") == [256, 260, 256, 261]
    spec = registry.read(path)
    assert spec == tok.to_spec()
    assert spec.flags == {"  ": TokenFlags(special=False)}
    assert written(spec, tmp_path / "again")["tokenizer.ggml.token_type"][-2:] == [USER, CONTROL]
    assert registry.read(tmp_path / "again") == spec
    assert Tokenizer.load(path).to_huggingface().encode("ab  ab", add_special_tokens=False).ids == [
        256,
        260,
        256,
    ]


def test_a_vocabulary_that_lacks_bytes_is_written_as_it_was(make_file: MakeFile, tmp_path: Path) -> None:
    """As in the file of SmolLM2."""
    tokens = ["[PAD4]" if token == BYTES[4] else token for token in TOKENS[:260]]
    types = [
        TokenType.UNUSED if token == "[PAD4]" else kind for token, kind in zip(tokens, TYPES, strict=False)
    ]
    path = make_file(tokens=tokens, token_type=types, pre="smollm", eos_token_id=259)
    tok = Tokenizer.load(path)
    assert tok.engine == "core"
    tok.save(tmp_path / "tokenizer.json")
    spec = Tokenizer.load(tmp_path / "tokenizer.json").to_spec()
    gguf.write(spec, tmp_path / "again.gguf")
    found, original = (GGUFReader(file).fields for file in (tmp_path / "again.gguf", path))
    for name in ("tokens", "token_type", "merges", "pre", "eos_token_id"):
        key = f"tokenizer.ggml.{name}"
        assert found[key].contents() == original[key].contents(), key
    assert Tokenizer.load(tmp_path / "again.gguf").encode(TEXT) == tok.encode(TEXT)


def test_bytes_that_no_text_has_may_be_special_tokens(make_file: MakeFile) -> None:
    """As in the file of DeepSeek-Coder."""
    path = make_file(token_type=[*TYPES[:0xF5], USER, *TYPES[0xF6:]])
    tok = Tokenizer.load(path)
    assert tok.engine == "core"
    assert tok.special_tokens["õ"] == 0xF5
    assert tok.encode("aõ") == [97, 0xF5]
    assert tok.decode([0xF5]) == "õ"
    assert tok.to_spec() == registry.read(path)


def test_tokens_named_in_id_keys_are_special(make_file: MakeFile) -> None:
    types = [*TYPES[:259], NORMAL, USER, TokenType.UNUSED]
    spec = registry.read(
        make_file(token_type=types, eos_token_id=259, bos_token_id=97, padding_token_id=9999)
    )
    # One that is a byte stays one, and one that no token has is nobody's.
    assert spec.special_tokens == {"<|endoftext|>": 259, "two words": 260}
    path = make_file(token_type=[*TYPES[:260], NORMAL, TokenType.UNUSED])
    with pytest.raises(
        TokenizerFileError, match=r"tokens\['two words'\]: ' ' is not one of the 256 characters"
    ):
        registry.read(path)


def test_without_types_special_tokens_are_guessed_from_their_text(make_file: MakeFile) -> None:
    spec = registry.read(make_file(token_type=None))
    assert spec.special_tokens == {"<|endoftext|>": 259, "two words": 260, "[PAD261]": 261}


def test_id_gaps_are_written_as_unused_tokens_and_dropped_on_reading(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    spec = make_spec(special_tokens={"<|endoftext|>": 270, "[PAD265]": 261})
    fields = written(spec, tmp_path / "t")
    assert fields["tokenizer.ggml.tokens"][264:271] == [
        *("[PAD264]", "[PAD265]]", "[PAD266]", "[PAD267]", "[PAD268]", "[PAD269]", "<|endoftext|>")
    ]
    assert fields["tokenizer.ggml.token_type"][265] == TokenType.UNUSED
    assert registry.read(tmp_path / "t") == spec
    with pytest.raises(TokenizerError, match="the highest id is 4000000000"):
        gguf.write(make_spec(special_tokens={"<|endoftext|>": 4_000_000_000}), tmp_path / "u")
    assert not (tmp_path / "u").exists()


def test_bos_and_eos_tokens_can_be_chosen(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(special_tokens={"<a>": 261, "<b>": 262})
    fields = written(spec, tmp_path / "t")
    assert "tokenizer.ggml.eos_token_id" not in fields
    fields = written(spec, tmp_path / "t", bos_token="<b>", eos_token="<a>", architecture="llama")
    assert fields["tokenizer.ggml.bos_token_id"] == 262
    assert fields["tokenizer.ggml.eos_token_id"] == 261
    assert fields["general.architecture"] == "llama"
    with pytest.raises(TokenizerError, match="'<c>' is not a special token"):
        gguf.write(spec, tmp_path / "t", eos_token="<c>")


def test_a_failed_write_leaves_no_file(make_spec: MakeSpec, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"):
        gguf.write(make_spec(), tmp_path / "nowhere" / "t")
    with pytest.raises(TokenizerError, match="a tokenizer without merges"):
        gguf.write(make_spec(merges=[], vocab={i: bytes([i]) for i in range(256)}), tmp_path / "t")
    with pytest.raises(TokenizerError, match="written like the ordinary token"):
        gguf.write(make_spec(special_tokens={"Ġab": 261}), tmp_path / "t")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_named(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf.write(make_spec(), tmp_path / "t")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match="gguf") as caught:
        gguf.write(make_spec(), tmp_path / "u")
    assert caught.value.hint == install_hint("formats")
    assert registry.read(tmp_path / "t") == make_spec()  # reading needs none


def test_reading_imports_no_library(make_file: MakeFile) -> None:
    program = (
        "import sys, bytemill; bytemill.Tokenizer.load(sys.argv[1]); "
        "print([name for name in ('gguf', 'numpy') if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, make_file()], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


ODD = [
    "It's", "'ſ", " 12345", "٣½Ⅷ", " the", "HTTPServer2", "e\u0301", "ǅ", "日本", "😀", "//\n", "हिन्दी",
    "1 2", "-",
]  # fmt: skip
BLANKS = [" ", "  ", "\n", "\r\n", "\t", "\u3000", "\x85", " \n "]
TEXTS = st.lists(
    st.sampled_from(ODD + BLANKS) | st.characters(exclude_categories=["Cs", "Cn"]), max_size=10
).map("".join)


def test_starcoders_expression_equals_digits_followed_by_gpt2() -> None:
    theirs = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )

    @given(TEXTS)
    def check(text: str) -> None:
        data = text.encode()
        spans = pretoken_spans(text, PRE_TOKENIZERS["starcoder"].pattern)
        expected = [text[start:end] for _, (start, end) in theirs.pre_tokenize_str(text)]
        assert [data[start:end].decode() for start, end in spans] == expected

    check()


def split_by(*expressions: str, text: str) -> list[str]:
    """Return what Hugging Face's splits leave of a text, one after the other."""
    splits = [pre_tokenizers.Split(Regex(each), "isolated") for each in expressions]
    return [piece for piece, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(text)]  # type: ignore[arg-type]


def pieces(text: str, name: str) -> list[str]:
    data = text.encode()
    return [
        data[start:end].decode()
        for start, end in pretoken_spans(text, PRE_TOKENIZERS[name].pattern)
        if end > start
    ]


@given(st.text("0123456789", max_size=12) | TEXTS)
def test_superbpe_cuts_numbers_where_llama_cpp_does(text: str) -> None:
    expected = split_by(r"\p{N}+", "(?=([0-9]{3})+(?![0-9]))", text=text)
    assert pieces(text, "superbpe") == expected


def afmoe_numbers(text: str) -> list[str]:
    """What `unicode_regex_split_custom_afmoe` of llama.cpp does, written alike."""
    ends, position = [0], 0
    while position < len(text):
        start = position
        while position < len(text) and unicodedata.category(text[position])[0] == "N":
            position += 1
        n_digits = position - start
        ends += [start + n for n in range(n_digits % 3 or 3, n_digits + 1, 3)]
        position += not n_digits
    return [text[start:end] for start, end in pairwise([*ends, len(text)]) if end > start]


@given(TEXTS)
def test_afmoe_joins_numbers_with_the_text_before_them_as_llama_cpp_does(text: str) -> None:
    rest = PRE_TOKENIZERS["afmoe"].pattern.split(STEP_SEPARATOR)[1:]
    expected = [piece for part in afmoe_numbers(text) for piece in split_by(*rest, text=part)]
    assert pieces(text, "afmoe") == expected
    assert afmoe_numbers("ab1234 5") == ["ab1", "234", " 5"]


@given(TEXTS)
def test_spark_splits_as_hugging_face_does(text: str) -> None:
    steps = PRE_TOKENIZERS["spark2_5"].pattern.split(STEP_SEPARATOR)
    assert pieces(text, "spark2_5") == split_by(*steps, text=text)


@given(TEXTS | st.text("'sStT aé\u0301\u200c\u200d12.\r\n", max_size=20))
def test_k2_horizon_joins_marks_and_joiners_to_words_as_hugging_face_does(text: str) -> None:
    # Its expression in MBZUAI-IFM's llama.cpp, with both joiners as characters.
    expression = (
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?(?:\p{L}|\p{M}|"
        "\u200c|\u200d"
        r")+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    assert pieces(text, "k2-horizon") == split_by(expression, text=text)


@pytest.mark.parametrize("name", ["gemma4", "granite-embed-multi-311m", "sarvam-moe"])
def test_names_of_bpe_over_characters_are_read_as_that(make_file: MakeFile, name: str) -> None:
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"ab▁", "ab", "▁ab"]
    types = [TokenType.UNKNOWN, *[TokenType.BYTE] * 256, *[NORMAL] * 5]
    path = make_file(pre=name, tokens=tokens, token_type=types, merges=["a b", "▁ ab"])
    tok = Tokenizer.load(path)
    assert tok.engine == "core"
    assert tok.encode("ab ab\n") == [260, 261, 1 + 0x0A]
    assert tok.decode(tok.encode(" ab\u00e9")) == " ab\u00e9"


@pytest.mark.parametrize("pattern", sorted({known.pattern for known in PRE_TOKENIZERS.values()}))
def test_every_pre_tokenizer_pattern_matches_all_text(pattern: str) -> None:
    @given(TEXTS)
    def check(text: str) -> None:
        ends = [end for _, end in pretoken_spans(text, pattern)]
        assert (ends or [0])[-1] == len(text.encode())

    check()


@st.composite
def specs(draw: st.DrawFn) -> TokenizerSpec:
    """Tokenizers with any merges, special tokens and ids."""
    parts, merges = [b"a", b" ", b"\xc3", b'"', b"\x00", b"\n"], []
    for _ in range(draw(st.integers(0, 10))):
        merge = draw(st.sampled_from(parts)), draw(st.sampled_from(parts))
        if merge[0] + merge[1] not in parts:
            merges.append(merge)
            parts.append(merge[0] + merge[1])
    tokens = [*(bytes([byte]) for byte in range(256)), *(left + right for left, right in merges)]
    special = draw(st.lists(st.text(min_size=2, max_size=6), unique=True, max_size=4))
    ids = draw(st.permutations(range(len(tokens) + len(special) + draw(st.integers(0, 5)))))
    counts = st.lists(st.integers(0, 2**60), min_size=len(merges), max_size=len(merges))
    return TokenizerSpec(
        pattern=draw(
            st.sampled_from([*NAMED_PATTERNS.values(), None, r"\S+|\s+", PRE_TOKENIZERS["qwen2"].pattern])
        ),
        special_tokens=dict(zip(special, ids[len(tokens) :], strict=False)),
        vocab=dict(sorted(zip(ids, tokens, strict=False))),
        merges=merges,
        ignore_merges=draw(st.booleans()),
        ties=draw(st.sampled_from(["bytes", "huggingface", None])),
        merge_counts=draw(st.none() | counts),
    )


def test_any_spec_survives_a_gguf_round_trip(tmp_path: Path) -> None:
    @given(specs())
    def check(spec: TokenizerSpec) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PreTokenizerWarning)
            try:
                gguf.write(spec, tmp_path / "t")
            except TokenizerError as error:
                # A special token in GPT-2's spelling of another one, or of bytes that could be a pre-token.
                assert "written" in str(error) or not spec.merges  # noqa: PT017
                return
        read = registry.read(tmp_path / "t")
        assert replace(read, special_tokens=dict(sorted(read.special_tokens.items()))) == replace(
            spec, special_tokens=dict(sorted(spec.special_tokens.items()))
        )
        assert Tokenizer.from_spec(read).fingerprint == Tokenizer.from_spec(spec).fingerprint
        loaded = Tokenizer.load(tmp_path / "t")
        assert loaded.to_spec() == Tokenizer.from_spec(read).to_spec()

    check()


def test_the_core_makes_the_vocabulary_of_a_file_that_lists_every_split(
    make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of Llama 3 do, some splits before the merges of their parts."""
    words = ["ab", "bc", "abc", "cd", "abcd", "Ġab"]
    known = {*BYTES, *words}
    splits = [(word[:at], word[at:]) for word in words for at in range(1, len(word))]
    merges = [" ".join(pair) for pair in splits if known.issuperset(pair)]
    assert len(merges) > len(words)
    tokens = [*BYTES, *words, "<|end|>"]
    path = make_file(pre="llama-bpe", tokens=tokens, token_type=[NORMAL] * 262 + [CONTROL], merges=merges)
    expected = Tokenizer.from_spec(registry.read(path))
    # Python's reader, which makes objects of all merges, is not asked.
    monkeypatch.setattr(gguf, "tokens_and_merges", None)
    loaded = Tokenizer.load(path)
    assert loaded.fingerprint == expected.fingerprint
    assert (loaded.vocab, loaded.special_tokens) == (expected.vocab, {"<|end|>": 262})
    assert loaded.encode("abcd ab<|end|>") == expected.encode("abcd ab<|end|>")


def test_the_record_is_checked(make_file: MakeFile, make_spec: MakeSpec, tmp_path: Path) -> None:
    gguf.write(make_spec(), tmp_path / "t")
    data = (tmp_path / "t").read_bytes()
    start = data.index(b'{"format": 1')
    length = int.from_bytes(data[start - 8 : start], "little")
    record = json.loads(data[start : start + length])
    for change, said in (
        ({"format": 2}, "format is 2; this version of bytemill reads up to 1"),
        ({"ties": "x"}, "ties is 'x'"),
        ({"pattern": "("}, "pattern: '\\('"),
        ({"pattern": 5}, "pattern: 5"),
        ({"ignore_merges": None}, "ignore_merges is null"),
        ({"merge_counts": [1]}, "merge_counts has 1 counts for 5 merges"),
    ):
        new = json.dumps(record | change).encode()
        damaged = data[: start - 8] + len(new).to_bytes(8, "little") + new + data[start + length :]
        with pytest.raises(TokenizerFileError, match=f"f: bytemill.record.{said}"):
            registry.from_bytes(damaged, "f")
    for text in ("[1]", "x", '{"a":' * 100_000):
        new = text.encode()
        damaged = data[: start - 8] + len(new).to_bytes(8, "little") + new + data[start + length :]
        with pytest.raises(TokenizerFileError, match=r"f: bytemill\.record"):
            registry.from_bytes(damaged, "f")
