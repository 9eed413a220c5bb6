"""Conversion to `tokenizers` and `transformers` and back, and folders for `AutoTokenizer`."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import bytemill
from bytemill import Tokenizer
from bytemill.errors import MissingExtraError, OutputError, TokenizerError, TokenizerFileError
from bytemill.formats import registry
from bytemill.formats.byte_level import bytes_to_text
from bytemill.formats.huggingface.exchange import sidecar_files
from bytemill.formats.spec import TokenFlags, TokenizerMetadata
from bytemill.system.extras import install_hint

CORPUS = "the cat sat on the mat and the cat's 12345 mats; naïve 日本語 😀 the end.\n"
SPECIAL = ["<|endoftext|>", "<pad>", "<mask>"]
TEXTS = ["", " ", "the cat", "the cat<mask> on<|endoftext|>", "naïve 日本語 😀!", "x\ny  \n", "é" * 3]
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"


@pytest.fixture(scope="module")
def ours() -> Tokenizer:
    return bytemill.train_from_iterator([CORPUS] * 5, vocab_size=290, special_tokens=SPECIAL)


@pytest.fixture
def with_config(ours: Tokenizer) -> Callable[..., Tokenizer]:
    """Return a copy of `ours` with metadata."""

    def make(**fields: Any) -> Tokenizer:
        spec = ours.to_spec()
        return Tokenizer.from_spec(replace(spec, metadata=TokenizerMetadata(**fields)))

    return make


# tokenizers


def test_conversion_to_hugging_face_and_back_keeps_the_fingerprint(ours: Tokenizer) -> None:
    theirs = ours.to_huggingface()
    assert isinstance(theirs, tokenizers.Tokenizer)
    for text in TEXTS:
        assert theirs.encode(text, add_special_tokens=False).ids == ours.encode(text)
        assert theirs.decode(ours.encode(text), skip_special_tokens=False) == ours.decode(ours.encode(text))
    assert Tokenizer.from_huggingface(theirs).fingerprint == ours.fingerprint


def test_settings_of_the_object_are_refused_or_kept(ours: Tokenizer) -> None:
    theirs = ours.to_huggingface()
    theirs.enable_truncation(5)
    cut = Tokenizer.from_huggingface(theirs)
    assert cut.metadata
    assert cut.metadata.truncation
    assert cut.metadata.truncation["max_length"] == 5
    assert cut.to_huggingface().truncation == theirs.truncation
    theirs.no_truncation()
    theirs.add_tokens([tokenizers.AddedToken("cat", single_word=True, lstrip=True)])
    back = Tokenizer.from_huggingface(theirs)
    assert back.token_flags["cat"] == TokenFlags(
        special=False, single_word=True, lstrip=True, normalized=True
    )
    for text in ["the cat", "the   cats cat", "cat_"]:
        assert back.encode(text) == theirs.encode(text).ids
    theirs.normalizer = tokenizers.normalizers.Nmt()  # type: ignore[assignment]
    other = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    for tokenizer, reason in ((theirs, "normalizer is 'Nmt'"), (other, "model.type is 'WordLevel'")):
        run = Tokenizer.from_huggingface(tokenizer)
        assert run.engine == "tokenizers"
        assert (run.engine_reason or "").startswith(reason)


@pytest.mark.parametrize("thing", [None, "tokenizer.json", 5])
def test_other_objects_raise_a_type_error(thing: object) -> None:
    with pytest.raises(TypeError, match=r"expects a tokenizers.Tokenizer or a PreTrainedTokenizerFast, not"):
        Tokenizer.from_huggingface(thing)


def test_a_library_that_is_missing_is_named(ours: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tokenizers", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match="needs the package tokenizers") as caught:
        ours.to_huggingface()
    assert caught.value.hint == install_hint("any")
    with pytest.raises(MissingExtraError, match="needs the package transformers"):
        ours.to_transformers()


def test_tokens_have_hugging_faces_names(ours: Tokenizer) -> None:
    theirs = ours.to_huggingface()
    assert ours.get_vocab() == theirs.get_vocab()
    assert list(ours.get_vocab().values()) == sorted(theirs.get_vocab().values())
    assert ours.get_vocab_size() == theirs.get_vocab_size() == ours.n_vocab == 290
    assert ours.get_vocab_size(with_added_tokens=False) == len(ours.get_vocab(False)) == 287
    for i in range(-1, 292):
        assert ours.id_to_token(i) == (theirs.id_to_token(i) if i >= 0 else None)
    for token in [*theirs.get_vocab(), "Ġno such token", "<|none|>", ""]:
        assert ours.token_to_id(token) == theirs.token_to_id(token)
    # Beyond theirs: text that no spelling can be, and bytes.
    assert ours.token_to_id(" the") == ours.token_to_id(b" the") == theirs.token_to_id("Ġthe")
    assert ours.token_to_id("é") == theirs.token_to_id("é") == 0xE9
    assert ours.token_to_id("é".encode()) == theirs.token_to_id(bytes_to_text("é".encode()))


# Folders


def test_a_folder_survives_a_round_trip_unchanged(
    with_config: Callable[..., Tokenizer], tmp_path: Path
) -> None:
    config = {"chat_template": TEMPLATE, "model_max_length": 64, "pad_token": "<pad>", "x": [1, {"é": None}]}
    kept = with_config(config=config, special_tokens_map={"pad_token": "<pad>"}, chat_template="{{ é }}\n")
    kept.save(f"{tmp_path}/new/")
    first = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert set(first) == {
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"
    }  # fmt: skip
    assert json.loads(first["tokenizer_config.json"]) == config
    assert first["chat_template.jinja"].decode() == "{{ é }}\n"
    for place in (tmp_path / "new", tmp_path / "new" / "tokenizer.json"):
        again = Tokenizer.load(place)
        assert again.to_spec() == kept.to_spec() == Tokenizer.from_spec(registry.read(place)).to_spec()
        assert again.metadata == kept.metadata
        again.save(tmp_path)
        assert {name: (tmp_path / name).read_bytes() for name in first} == first
    # A file alone has what tokenizer.json holds.
    kept.save(tmp_path / "alone.json")
    assert Tokenizer.load(tmp_path / "alone.json").metadata is None


def test_copies_keep_the_metadata(with_config: Callable[..., Tokenizer]) -> None:
    import pickle

    kept = with_config(config={"pad_token": "<pad>"})
    assert pickle.loads(pickle.dumps(kept)).metadata == kept.metadata  # noqa: S301
    assert kept.fingerprint == with_config().fingerprint


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer_config.json", "{", "not valid JSON at line 1"),
        ("tokenizer_config.json", "[]", "is an array, not an object"),
        ("tokenizer_config.json", '{"a":' * 100_000, "nested too deeply"),
        ("tokenizer_config.json", '{"a":' + "[" * 40 + "]" * 40 + "}", "nested more than 30 deep"),
        ("tokenizer_config.json", "", "the file is empty"),
        ("special_tokens_map.json", "3", "is 3, not an object"),
        ("chat_template.jinja", b"\xff\xfe{{", "not UTF-8: byte 0xff at offset 0"),
    ],
)
def test_a_damaged_sidecar_file_is_refused_by_name(
    ours: Tokenizer, tmp_path: Path, name: str, content: str | bytes, said: str
) -> None:
    ours.save(tmp_path)
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for load in (Tokenizer.load, registry.read):
        with pytest.raises(TokenizerFileError, match=said) as caught:
            load(tmp_path)
        assert name in str(caught.value)


def with_post_processor(ours: Tokenizer, *processors: dict[str, Any]) -> Tokenizer:
    metadata = TokenizerMetadata(post_processor={"type": "Sequence", "processors": list(processors)})
    return Tokenizer.from_spec(replace(ours.to_spec(), metadata=metadata))


def template(token: str, token_id: int) -> dict[str, Any]:
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}},
    }


def test_truncation_updates_the_ids_of_the_post_processor(ours: Tokenizer) -> None:
    pad, mask = ours.special_tokens["<pad>"], ours.special_tokens["<mask>"]
    sides = {"type": "BertProcessing", "sep": ["<pad>", pad], "cls": ["<mask>", mask]}
    smaller = with_post_processor(ours, template("<pad>", pad), sides).truncate(265)
    assert smaller.metadata is not None
    assert smaller.metadata.post_processor is not None
    first, second = smaller.metadata.post_processor["processors"]
    assert first["special_tokens"]["<pad>"]["ids"] == [smaller.special_tokens["<pad>"]] != [pad]
    assert second["cls"] == ["<mask>", smaller.special_tokens["<mask>"]]
    last = len(ours.vocab) - len(SPECIAL) - 1
    with pytest.raises(TokenizerError, match="adds 'last', which is not a token any more"):
        with_post_processor(ours, template("last", last)).truncate(265)


@pytest.mark.parametrize("token", ["<pad>", "<no token>"])
@pytest.mark.parametrize("token_id", [5, 999])
def test_a_post_processor_keeps_its_own_ids(
    ours: Tokenizer, tmp_path: Path, token: str, token_id: int
) -> None:
    with_post_processor(ours, template(token, token_id)).save(tmp_path / "first.json")
    again = Tokenizer.load(tmp_path / "first.json")
    again.save(tmp_path / "second.json")
    for name in ("first.json", "second.json"):
        theirs = tokenizers.Tokenizer.from_file(str(tmp_path / name))
        assert theirs.encode("the").ids == again("the")["input_ids"] == [token_id, *ours.encode("the")]


def test_changed_ids_are_updated_in_the_configuration(ours: Tokenizer) -> None:
    metadata = TokenizerMetadata(config={"added_tokens_decoder": {"5": {"content": "<pad>"}}})
    spec = replace(ours.to_spec(), metadata=metadata)
    decoder = json.loads(sidecar_files(spec)["tokenizer_config.json"])["added_tokens_decoder"]
    assert {i: token["content"] for i, token in decoder.items()} == {
        "287": SPECIAL[0],
        "288": "<pad>",
        "289": "<mask>",
    }


def test_a_folder_that_cannot_be_created_is_an_output_error(ours: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        ours.save(f"{tmp_path}/file/inside/")


# transformers


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without what transformers itself warns of."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def test_transformers_behaves_as_with_the_original_tokenizer(
    ours: Tokenizer, transformers: Any, tmp_path: Path, quiet: None
) -> None:
    fast = ours.to_transformers(
        pad_token="<pad>", mask_token="<mask>", model_max_length=64, chat_template=TEMPLATE
    )
    assert isinstance(fast, transformers.PreTrainedTokenizerFast)
    fast.save_pretrained(tmp_path / "theirs")
    ours.save(f"{tmp_path}/ours/")
    pad = ours.special_tokens["<pad>"]
    for tokenizer in (fast, transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")):
        assert tokenizer.is_fast
        assert (tokenizer.eos_token, tokenizer.pad_token, len(tokenizer)) == ("<|endoftext|>", "<pad>", 290)
        for text in TEXTS:
            ids = ours.encode(text)
            assert tokenizer(text)["input_ids"] == ids
            assert tokenizer.decode(ids) == ours.decode(ids)
        # Padding, truncation, offsets.
        batch = tokenizer(["the cat", "the cat sat on the mat"], padding=True, truncation=True, max_length=4)
        full = ours.encode("the cat sat on the mat")
        short = ours.encode("the cat")
        assert batch["input_ids"] == [short + [pad] * (4 - len(short)), full[:4]]
        assert batch["attention_mask"] == [[1] * len(short) + [0] * (4 - len(short)), [1] * 4]
        text = "the naïve cat<mask>"
        offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
        joined = "".join(text[start:end] for start, end in dict.fromkeys(offsets))
        assert joined.replace("ïï", "ï") == text
        assert tokenizer.decode(ours.encode("the<pad> cat"), skip_special_tokens=True) == "the cat"
        messages = [{"role": "user", "content": "the cat"}]
        said = "user: the cat<|endoftext|>"
        assert tokenizer.apply_chat_template(messages, tokenize=False) == said
        assert tokenizer.apply_chat_template(messages, return_dict=False) == ours.encode(said)
        back = Tokenizer.from_huggingface(tokenizer)
        assert back.fingerprint == ours.fingerprint
        assert back.metadata is not None
        assert back.metadata.chat_template == TEMPLATE
        assert back.to_transformers().apply_chat_template(messages, tokenize=False) == said
    # Written here, without a configuration of its own.
    plain = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert (plain.eos_token, plain.pad_token) == ("<|endoftext|>", None)
    assert plain("the cat<mask>")["input_ids"] == ours.encode("the cat<mask>")


def test_truncation_and_padding_of_a_call_are_not_kept(
    ours: Tokenizer, transformers: Any, quiet: None
) -> None:
    fast = ours.to_transformers(pad_token="<pad>")
    fast(["the cat", "the"], truncation=True, max_length=1, padding=True)
    assert fast.backend_tokenizer.truncation is not None
    assert Tokenizer.from_huggingface(fast).encode("the cat sat") == ours.encode("the cat sat")
    assert fast.backend_tokenizer.truncation is not None


def test_arguments_override_the_configuration(
    with_config: Callable[..., Tokenizer], transformers: Any, quiet: None
) -> None:
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": {"288": {"content": "<pad>"}},
        "model_max_length": 77,
        "eos_token": {"__type": "AddedToken", "content": "<pad>", "lstrip": False, "normalized": False},
        "chat_template": [
            {"name": "default", "template": TEMPLATE},
            {"name": "short", "template": "{{ messages[0].content }}"},
        ],
    }
    kept = with_config(config=config, special_tokens_map={"mask_token": "<mask>", "eos_token": "<mask>"})
    fast = kept.to_transformers(model_max_length=5)
    assert (fast.model_max_length, fast.eos_token, fast.mask_token) == (5, "<pad>", "<mask>")
    assert len(fast) == 290
    messages = [{"role": "user", "content": "hi"}]
    assert fast.apply_chat_template(messages, chat_template="short", tokenize=False) == "hi"
    assert fast.apply_chat_template(messages, tokenize=False) == "user: hi<pad>"
