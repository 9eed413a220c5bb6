"""Encodings by name and by model."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tiktoken
import tiktoken.model
from hypothesis import example, given
from hypothesis import strategies as st

import bytemill
from bytemill.compat import tiktoken as ours


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that `from_pretrained` was asked for; it gives bytes alone for each."""
    names: list[str] = []

    def from_pretrained(name: str) -> bytemill.Tokenizer:
        names.append(name)
        return bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])

    monkeypatch.setattr(bytemill.Tokenizer, "from_pretrained", from_pretrained, raising=False)
    monkeypatch.setattr(ours, "_ENCODINGS", {})
    return names


def test_models_have_the_encodings_of_tiktoken() -> None:
    known = [*tiktoken.model.MODEL_TO_ENCODING]
    dated = [f"{beginning}x" for beginning in tiktoken.model.MODEL_PREFIX_TO_ENCODING]
    for model in [*known, *dated, "gpt-4o-2024-05-13", "ft:gpt-4o-mini:org", "gpt-4.1-nano", "gpt-5-mini"]:
        assert ours.encoding_name_for_model(model) == tiktoken.encoding_name_for_model(model), model


@pytest.mark.parametrize("model", ["", "nope", "gpt-6", "gpt-4x", "o1x"])
def test_an_unknown_model_is_a_key_error(model: str) -> None:
    for module in (tiktoken, ours):
        with pytest.raises(KeyError):
            module.encoding_name_for_model(model)
        with pytest.raises(KeyError):
            module.encoding_for_model(model)


def test_encoding_names_are_those_of_tiktoken() -> None:
    assert sorted(ours.list_encoding_names()) == sorted(tiktoken.list_encoding_names())


@pytest.mark.parametrize("name", ["nope", 5, None])
def test_an_unknown_name_is_a_value_error(name: Any) -> None:
    for module in (tiktoken, ours):
        with pytest.raises(ValueError, match=r"nope|str"):
            module.get_encoding(name)


def test_get_encoding_returns_the_same_object_on_all_threads(asked: list[str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ours.get_encoding, ["cl100k_base"] * 20, timeout=60))
    assert asked == ["cl100k_base"]
    assert len(set(map(id, found))) == 1
    assert ours.encoding_for_model("gpt-4") is found[0]
    assert found[0].name == "cl100k_base"
    assert found[0].encode("ab") == [97, 98]


def test_a_published_encoding_is_pickled_by_name(asked: list[str]) -> None:
    enc = ours.get_encoding("gpt2")
    data = pickle.dumps(enc)
    assert len(data) < 200
    assert pickle.loads(data) is enc  # noqa: S301
    assert asked == ["gpt2"]


def test_harmony_is_o200k_with_more_special_tokens(
    published: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = published("o200k_harmony")
    base = bytemill.Tokenizer.from_tiktoken(published("o200k_base").ours)
    monkeypatch.setattr(bytemill.Tokenizer, "from_pretrained", lambda name: {"o200k_base": base}[name])
    monkeypatch.setattr(ours, "_ENCODINGS", {})
    named = ours.get_encoding("o200k_harmony")
    text = "<|start|>user<|message|>Grüße<|end|><|endofprompt|><|reserved_200018|>"
    for enc in (pair.ours, named):
        ids = enc.encode(text, allowed_special="all")
        assert ids == pair.theirs.encode(text, allowed_special="all")
        assert ids[-2:] == [200018, 200018]
        assert enc.decode(ids) == text.replace("<|reserved_200018|>", "<|endofprompt|>")
        assert enc.special_tokens_set == pair.theirs.special_tokens_set
        assert enc.n_vocab == pair.theirs.n_vocab == 201088
        assert enc.encode("a<|call|>", allowed_special={"<|call|>"}) == [64, 200012]


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base"])
def test_bytes_cut_off_inside_a_character_have_tiktokens_ids(
    published: Callable[[str], Any], name: str
) -> None:
    pair = published(name)

    @given(st.binary(max_size=12) | st.text(max_size=12).map(lambda text: text.encode()[:-1]))
    @example("日本語のテキスト ".encode()[:-3])
    @example(b"the  cat \xe6\x97 sat <|endoftext|>")
    @example(b"   \xf0\x9f")
    def check(data: bytes) -> None:
        assert pair.ours._encode_bytes(data) == pair.theirs._encode_bytes(data)

    check()
