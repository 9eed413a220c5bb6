"""Byte-level files with normalizers give the ids and offsets of Hugging Face's library."""

import json
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import Tokenizer
from bytemill.formats.huggingface import tokenizer_json
from bytemill.formats.huggingface.normalizers import from_normalizer, to_normalizer
from bytemill.formats.registry import Content, load_content, load_with_core

CORPUS = "The café naïve ﬁ Å ①② Ünïcödé 日本語 カタカナ ΑΒΓ Привет, world! 1234\n\n  end of text " * 3

STEPS: dict[str, dict[str, Any]] = {
    **{name: {"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")},
    "replace": {"type": "Replace", "pattern": {"String": "é"}, "content": "e'"},
    "remove": {"type": "Replace", "pattern": {"String": "  "}, "content": ""},
    "prepend": {"type": "Prepend", "prepend": "x "},
    "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "strip right": {"type": "Strip", "strip_left": False, "strip_right": True},
}

texts = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *(
                    "é",
                    "e\u0301",
                    "\u212b",
                    "A\u030a",
                    "ﬁ",
                    "①",
                    "Ⅷ",
                    "İ",
                    "ß",
                    "ΑΣ",
                    "ガ",
                    "カ\u3099",
                    "한",
                    "\u1112\u1161",
                ),
                *(" ", "  ", "\u00a0", "\u3000", "\n", "The ", "café", "<end>", "<Й>", "x", "1", "日本"),
            ]
        ),
        st.text(max_size=4),
    ),
    max_size=12,
).map("".join)

chains = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3, unique=True)


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    tokenizer = bytemill.train_from_iterator([CORPUS], vocab_size=300, pattern="gpt2")
    document = json.loads(tokenizer_json.write(tokenizer.to_spec()))
    token = {"single_word": False, "lstrip": False, "rstrip": False, "special": True}
    document["added_tokens"] = [
        {"id": 300, "content": "<end>", "normalized": False} | token,
        {"id": 301, "content": "<Й>", "normalized": True} | token,
    ]
    # The post-processor of a byte-level tokenizer moves offsets.
    return document | {"post_processor": None}


def test_ids_and_offsets_are_those_of_hugging_face(trained: dict[str, Any]) -> None:
    @given(chains, texts)
    def check(chain: list[str], text: str) -> None:
        normalizer = {"type": "Sequence", "normalizers": [STEPS[name] for name in chain]}
        file = json.dumps(trained | {"normalizer": normalizer})
        theirs = tokenizers.Tokenizer.from_str(file)
        fast = load_with_core(Content(file.encode(), "t"))
        assert fast is not None
        ours = Tokenizer._from_loaded(fast)
        expected = theirs.encode(text, add_special_tokens=False)
        encoded = ours.encode_with_offsets(text)
        assert encoded.ids.tolist() == expected.ids == ours.encode(text)
        assert encoded.char_offsets.tolist() == [list(span) for span in expected.offsets]
        written = tokenizer_json.write(ours.to_spec())
        assert Tokenizer.from_spec(tokenizer_json.from_text(written)).fingerprint == ours.fingerprint

    check()


@pytest.mark.parametrize("name", sorted(STEPS))
def test_tokens_found_in_normalized_text_are_decoded_as_they_are_there(
    trained: dict[str, Any], name: str
) -> None:
    # With a space: Hugging Face's decoder takes a token of letters for bytes.
    changed = trained["added_tokens"][1] | {"content": "É ﬁ A\u030a", "special": False}
    document = trained | {"normalizer": STEPS[name], "added_tokens": [trained["added_tokens"][0], changed]}
    theirs = tokenizers.Tokenizer.from_str(json.dumps(document))
    ours = Tokenizer.from_spec(tokenizer_json.from_text(json.dumps(document)))
    ids = [*ours.encode("a É ﬁ A\u030a<end>"), 301]
    expected = theirs.decode(ids, skip_special_tokens=False)
    assert ours.decode(ids) == expected
    assert ours.decode_batch([ids * 2000]) == [expected * 2000]
    decoder = ours.stream_decoder()
    assert "".join(map(decoder.feed, ids)) + decoder.finish() == expected
    assert ours.special_tokens["É ﬁ A\u030a"] == 301
    assert Tokenizer.from_spec(ours.to_spec()).decode(ids) == expected


@given(chains)
def test_steps_are_written_as_they_were_read(chain: list[str]) -> None:
    objects = [STEPS[name] for name in chain]
    steps = from_normalizer({"type": "Sequence", "normalizers": objects}, "t")
    written = to_normalizer(steps)
    assert written == (objects[0] if len(objects) == 1 else {"type": "Sequence", "normalizers": objects})
    assert from_normalizer(written, "t") == steps


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_long_text_in_chunks_has_the_ids_of_the_whole(trained: dict[str, Any], name: str) -> None:
    ours = Tokenizer.from_spec(tokenizer_json.from_text(json.dumps(trained | {"normalizer": STEPS[name]})))
    text = (
        "The cafe\u0301 naïve  ﬁ <end>Ünïcödé, Å 日本語 <Й> plain words in a row that are in lower case.\n"
        * 9000
    )
    expected = ours.encode(text, num_threads=1)
    assert ours.encode(text, num_threads=3) == expected
    assert list(ours.encode_iterable(text[i : i + 1009] for i in range(0, len(text), 1009))) == expected


def test_a_token_of_which_the_normalizer_leaves_nothing_is_for_the_library(trained: dict[str, Any]) -> None:
    token = {"id": 302, "content": "  ", "single_word": False, "lstrip": False, "rstrip": False}
    added = [*trained["added_tokens"], token | {"normalized": True, "special": False}]
    file = json.dumps(trained | {"normalizer": STEPS["strip"], "added_tokens": added})
    content = Content(file.encode(), "t")
    assert load_with_core(content) is None
    ours = Tokenizer._from_loaded(load_content(content))
    assert ours.engine == "tokenizers"
    theirs = tokenizers.Tokenizer.from_str(file)
    for text in ("a  b", "  ", "  a"):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids
