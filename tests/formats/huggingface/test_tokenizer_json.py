"""tokenizer.json: round trips, compatibility with Hugging Face's library, and errors with paths."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiktoken_ext.openai_public
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from bytemill import Tokenizer
from bytemill._core import NAMED_PATTERNS
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.huggingface import tokenizer_json as huggingface
from bytemill.formats.huggingface.parts import DECODER
from bytemill.formats.spec import TokenizerSpec

MakeSpec = Callable[..., TokenizerSpec]


@pytest.fixture
def document(make_spec: MakeSpec) -> dict[str, Any]:
    """A small tokenizer.json as parsed JSON, to be damaged."""
    return json.loads(huggingface.write(make_spec(ties="bytes", merge_counts=[5, 4, 3, 2, 1])))


def read(document: Any) -> TokenizerSpec:
    return huggingface.from_document(document, "t.json")


# What is written


def test_a_spec_survives_a_round_trip(make_spec: MakeSpec) -> None:
    spec = make_spec(ties="huggingface", merge_counts=[50, 40, 30, 20, 10])
    assert huggingface.from_text(huggingface.write(spec)) == spec


# tiktoken's words for GPT-2's pattern: the same splits in another expression, which is what must come back.
GPT2_IN_TIKTOKEN = tiktoken_ext.openai_public.r50k_pat_str


@pytest.mark.parametrize(
    "pattern", [*NAMED_PATTERNS.values(), None, GPT2_IN_TIKTOKEN, r"\p{N}{1,2}+|\s+$|\S+|\s"]
)
@pytest.mark.parametrize("ignore_merges", [True, False])
def test_patterns_and_ignore_merges_survive_a_round_trip(
    make_spec: MakeSpec, pattern: str | None, ignore_merges: bool
) -> None:
    spec = make_spec(pattern=pattern, ignore_merges=ignore_merges)
    text = huggingface.write(spec)
    assert huggingface.from_text(text) == spec
    assert tokenizers.Tokenizer.from_str(text).get_vocab_size() == 262


def test_a_file_without_bytemills_record_gives_the_same_tokenizer(
    make_spec: MakeSpec, document: dict[str, Any]
) -> None:
    del document["model"]["bytemill"]
    assert read(document) == make_spec()


def test_hugging_face_loads_the_file_and_keeps_all_but_the_record(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    text = huggingface.write(make_spec(ties="bytes", merge_counts=[5, 4, 3, 2, 1]))
    path = tmp_path / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    theirs = tokenizers.Tokenizer.from_file(str(path))
    ours = json.loads(text)
    assert "bytemill" in ours["model"]
    del ours["model"]["bytemill"]
    assert json.loads(theirs.to_str()) == ours
    assert theirs.encode('abab ab<|endoftext|>é"\\').ids == [257, 258, 261, 259, 260]
    assert (
        theirs.get_vocab_size(with_added_tokens=True) == theirs.get_vocab_size(with_added_tokens=False) == 262
    )
    assert (
        huggingface.from_text(theirs.to_str(pretty=True))
        == huggingface.from_text(theirs.to_str())
        == make_spec()
    )


def test_equal_specs_have_equal_texts(make_spec: MakeSpec) -> None:
    spec = make_spec(special_tokens={"<a>": 300, "<b>": 290})
    other_order = replace(
        spec,
        vocab=dict(reversed(spec.vocab.items())),
        special_tokens=dict(reversed(spec.special_tokens.items())),
    )
    assert huggingface.write(spec) == huggingface.write(other_order)


def test_the_text_has_a_line_per_token_and_merge(make_spec: MakeSpec) -> None:
    lines = huggingface.write(make_spec(merge_counts=[5, 4, 3, 2, 1])).splitlines()
    assert '      "Ġ": 32,' in lines
    assert '      ["Ġ", "ab"],' in lines
    assert '      ["\\"", "\\\\"]' in lines
    assert "        5, 4, 3, 2, 1" in lines
    assert huggingface.write(make_spec(merges=[], vocab={i: bytes([i]) for i in range(256)})).endswith(
        '"merges": []\n  }\n}\n'
    )


def test_ids_of_special_tokens_with_gaps_or_in_front_are_kept_by_hugging_face(make_spec: MakeSpec) -> None:
    spec = make_spec(special_tokens={"<x>": 1000, "<y>": 290})
    assert tokenizers.Tokenizer.from_str(huggingface.write(spec)).encode("<y>ab<x>").ids == [290, 256, 1000]
    in_front = make_spec(
        vocab={i + 2: token for i, token in spec.vocab.items()}, special_tokens={"<x>": 0, "<y>": 1}
    )
    text = huggingface.write(in_front)
    assert tokenizers.Tokenizer.from_str(text).encode("<y>ab<x>").ids == [1, 258, 0]
    assert huggingface.from_text(text) == in_front


@pytest.mark.parametrize("first", ["<|a|>", "<|a|><|b|>", "|>", "<|b|>"])
def test_of_overlapping_special_tokens_the_leftmost_longest_wins_in_hugging_face(
    make_spec: MakeSpec, first: str
) -> None:
    texts = [first, *sorted({"<|a|>", "<|a|><|b|>", "|>", "<|b|>"} - {first})]
    special = {text: 261 + i for i, text in enumerate(texts)}
    theirs = tokenizers.Tokenizer.from_str(huggingface.write(make_spec(special_tokens=special)))
    assert theirs.encode("<|a|><|b|><|a|><|a|>|>").tokens == ["<|a|><|b|>", "<|a|>", "<|a|>", "|>"]


def test_special_tokens_may_hold_any_characters(make_spec: MakeSpec) -> None:
    special = {"a b\n": 261, 'qu"o\\te': 262, "日本": 263, "\x00": 264, "é": 265, "😀": 266, " ": 267}
    # "é" is also how the byte 0xe9 is spelled, so no file can hold this special token.
    with pytest.raises(
        TokenizerError, match=r"'é' \(id 265\) is written like the ordinary token with id 233"
    ):
        huggingface.write(make_spec(special_tokens=special))
    del special["é"]
    spec = make_spec(special_tokens=special)
    text = huggingface.write(spec)
    assert huggingface.from_text(text) == spec
    theirs = tokenizers.Tokenizer.from_str(text)
    assert theirs.encode('xa b\n日本\x00😀 qu"o\\te').ids == [ord("x"), 261, 263, 264, 266, 267, 262]


def test_a_special_token_may_be_an_ordinary_token_of_the_same_id(make_spec: MakeSpec) -> None:
    spec = make_spec(special_tokens={"ab": 256, "c": 99})
    text = huggingface.write(spec)
    assert huggingface.from_text(text) == spec
    assert tokenizers.Tokenizer.from_str(text).encode("abab ab c").ids == [256, 256, 32, 256, 32, 99]
    without = {i: token for i, token in spec.vocab.items() if i not in {99, 256}}
    assert huggingface.write(replace(spec, vocab=without)) == text


def test_ranks_are_written_as_merges_that_give_the_same_ids(make_spec: MakeSpec) -> None:
    tokens = [bytes([i]) for i in range(256)] + [b"ab", b"abab", b"zqz"]
    spec = make_spec(merges=None, vocab={}, ranks={t: i for i, t in enumerate(tokens)}, ignore_merges=True)
    text = huggingface.write(spec)
    back = huggingface.from_text(text)
    assert back.merges == [(b"a", b"b"), (b"ab", b"ab")]
    assert back.ignore_merges
    # No merge makes "zqz": it is there as a whole pre-token alone.
    assert tokenizers.Tokenizer.from_str(text).encode("zqz zqz").ids == [258, 32, *b"zqz"]


@st.composite
def specs(draw: st.DrawFn) -> TokenizerSpec:
    """Any merges of any bytes, ids in any order, with gaps."""
    tokens = [bytes([byte]) for byte in range(256)]
    merges: list[tuple[bytes, bytes]] = []
    for _ in range(draw(st.integers(0, 12))):
        merge = (draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens)))
        if merge[0] + merge[1] not in tokens:
            merges.append(merge)
            tokens.append(merge[0] + merge[1])
    special = draw(st.lists(st.text(min_size=1).filter(lambda t: not t.isspace()), unique=True, max_size=3))
    ids = draw(st.permutations(range(len(tokens) + len(special) + 5)))
    vocab = dict(zip(ids, tokens, strict=False))
    return TokenizerSpec(
        pattern=draw(st.sampled_from([None, *NAMED_PATTERNS.values()])),
        special_tokens={f"<{text}日>": ids[len(tokens) + i] for i, text in enumerate(special)},
        vocab=vocab,
        merges=merges,
        ignore_merges=draw(st.booleans()),
        ties=draw(st.sampled_from([None, "bytes", "huggingface"])),
        merge_counts=draw(st.none() | st.just([7] * len(merges))),
    )


@given(specs())
def test_any_spec_survives_a_round_trip_also_through_hugging_face(spec: TokenizerSpec) -> None:
    text = huggingface.write(spec)
    assert huggingface.from_text(text) == spec
    theirs = tokenizers.Tokenizer.from_str(text)
    assert huggingface.from_text(theirs.to_str()) == replace(spec, ties=None, merge_counts=None)
    assert theirs.get_vocab_size() == len(spec.vocab) + len(spec.special_tokens)
    for special, token_id in spec.special_tokens.items():
        assert theirs.encode(special).ids == [token_id]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"merges": None}, "either merges or ranks"),
        ({"ranks": {b"a": 0}}, "either merges or ranks"),
        ({"merges": [(b"a", b"c")]}, r"merge 0 \(b'a', b'c'\): b'ac' is not in the vocabulary"),
        ({"merges": [(b"a", b"b"), (b"a", b"b")]}, "merges 0 and 1 are the same"),
        ({"vocab": {0: b"a"}}, "lacks"),
        (
            {"vocab": {i: bytes([i]) for i in range(256)} | {256: b"a"}},
            "ids 97 and 256 are the same token b'a'",
        ),
        ({"special_tokens": {"": 300}}, "a special token is empty"),
        ({"special_tokens": {"\ud800": 300}}, "lone surrogate"),
        ({"special_tokens": {"<a>": 97}}, "special token '<a>' and ordinary token b'a' have the same id 97"),
        ({"special_tokens": {"<a>": 300, "<b>": 300}}, "'<a>' and '<b>' have the same id 300"),
        ({"special_tokens": {"<a>": -1}}, "token id -1 is not between"),
        ({"special_tokens": {"<a>": 2**32}}, "token id 4294967296 is not between"),
        ({"special_tokens": {"a": 300}}, r"'a' \(id 300\) is written like the ordinary token with id 97"),
        ({"special_tokens": {"Ġx": 300}, "ignore_merges": True}, r"is written like the bytes b' x'"),
        ({"merge_counts": [1]}, "5 merges have 1 counts"),
        ({"pattern": r"\w+"}, "has no exact equivalent"),
    ],
)
def test_contradictory_specs_are_refused(make_spec: MakeSpec, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(TokenizerError, match=said):
        huggingface.write(make_spec(**fields))


# What is read


def test_merges_as_strings_are_read(make_spec: MakeSpec, document: dict[str, Any]) -> None:
    document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    assert read(document).merges == make_spec().merges


def test_a_changed_pre_tokenizer_overrides_the_record(document: dict[str, Any]) -> None:
    document["pre_tokenizer"]["use_regex"] = False
    assert read(document).pattern is None


def test_an_unknown_pattern_in_the_record_is_ignored(document: dict[str, Any]) -> None:
    document["model"]["bytemill"]["pattern"] = "(((("
    assert read(document).pattern == NAMED_PATTERNS["gpt2"]


@pytest.mark.parametrize(
    "change",
    [
        {"post_processor": None},
        {"decoder": {"type": "Sequence", "decoders": [DECODER, {"type": "Fuse"}]}},
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                ],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {
                    "<|endoftext|>": {"id": "<|endoftext|>", "ids": [261], "tokens": ["<|endoftext|>"]}
                },
            }
        },
        {"normalizer": {"type": "Sequence", "normalizers": []}},
    ],
)
def test_settings_that_do_not_affect_ids_are_accepted(
    make_spec: MakeSpec, document: dict[str, Any], change: dict[str, Any]
) -> None:
    changed = document | change
    assert read(changed).vocab == make_spec().vocab
    theirs = tokenizers.Tokenizer.from_str(json.dumps(changed))
    assert theirs.encode("abab<|endoftext|>", add_special_tokens=False).ids == [257, 261]


@pytest.mark.parametrize("field", ["unk_token", "fuse_unk", "byte_fallback"])
def test_unk_token_has_no_effect_if_every_byte_has_a_token(
    make_spec: MakeSpec, document: dict[str, Any], field: str
) -> None:
    document["model"][field] = "<|endoftext|>" if field == "unk_token" else True
    assert read(document).vocab == make_spec().vocab
    theirs = tokenizers.Tokenizer.from_str(json.dumps(document))
    assert theirs.encode("\x00日").ids == [0, *"日".encode()]


def added(text: str, token_id: int, **flags: object) -> dict[str, object]:
    token = {"id": token_id, "content": text, "single_word": False, "lstrip": False, "rstrip": False}
    return token | {"normalized": False, "special": True} | flags


@pytest.mark.parametrize(
    "flags", [{"special": False}, {"normalized": True}, {"special": False, "normalized": True}]
)
def test_added_tokens_of_other_kinds_give_the_same_ids(
    document: dict[str, Any], flags: dict[str, object]
) -> None:
    document["added_tokens"] += [added("<one>", 262, **flags), added("b<two>", 263, **flags)]
    assert read(document).special_tokens == {"<|endoftext|>": 261, "<one>": 262, "b<two>": 263}
    theirs = tokenizers.Tokenizer.from_str(json.dumps(document))
    assert theirs.encode("ab<two><one><|endoftext|>").ids == [97, 263, 262, 261]


@pytest.mark.parametrize("flag", ["single_word", "lstrip", "rstrip", "normalized", "special"])
def test_an_added_token_without_a_flag_is_refused_as_by_hugging_face(
    document: dict[str, Any], flag: str
) -> None:
    del document["added_tokens"][0][flag]
    with pytest.raises(TokenizerFileError, match=rf"added_tokens\[0\]: '{flag}' is missing"):
        read(document)
    with pytest.raises(Exception, match=f"missing field `{flag}`"):
        tokenizers.Tokenizer.from_str(json.dumps(document))


def test_unknown_fields_are_refused_or_ignored_as_by_hugging_face(
    make_spec: MakeSpec, document: dict[str, Any]
) -> None:
    for place in (
        document["model"],
        document["added_tokens"][0],
        document["decoder"],
        document["pre_tokenizer"],
    ):
        place["unheard_of"] = 1
    assert read(document).vocab == make_spec().vocab
    theirs = tokenizers.Tokenizer.from_str(json.dumps(document))
    assert theirs.encode("abab").ids == [257]
    document["unheard_of"] = 1
    with pytest.raises(TokenizerFileError, match="unknown field 'unheard_of'"):
        read(document)
    with pytest.raises(Exception, match="expected `,` or `}`"):
        tokenizers.Tokenizer.from_str(json.dumps(document))


def test_added_tokens_outside_the_vocabulary_have_the_ids_that_hugging_face_gives(
    document: dict[str, Any],
) -> None:
    document["added_tokens"] += [added("<one>", 262), added("<two>", 263)]
    theirs = tokenizers.Tokenizer.from_str(json.dumps(document))
    assert {text: theirs.token_to_id(text) for text in read(document).special_tokens} == read(
        document
    ).special_tokens
    document["added_tokens"][1]["id"] = 270
    theirs = tokenizers.Tokenizer.from_str(json.dumps(document))
    assert theirs.token_to_id("<one>") == 262
    with pytest.raises(
        TokenizerFileError, match=r"added_tokens\[1\].id is 270 for '<one>', but .* gives it 262"
    ):
        read(document)


def without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in document.items() if k != key}


def nested(depth: int) -> Any:
    value: Any = {"type": "Sequence", "processors": []}
    for _ in range(depth):
        value = {"type": "Sequence", "processors": [value]}
    return value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "2.0"}, "version is '2.0'"),
        ({"truncation": 5}, "truncation"),
        ({"padding": [0]}, "padding"),
        ({"normalizer": {"type": "Nmt"}}, "normalizer is 'Nmt'"),
        ({"normalizer": "NFC"}, "normalizer is 'NFC'"),
        ({"pre_tokenizer": None}, r"decoder has the steps \['ByteLevel'\], which is not supported"),
        ({"model": None}, "not a tokenizer.json"),
        ({"added_tokens": {}}, "added_tokens is an object, not an array"),
        ({"added_tokens": [None]}, r"added_tokens\[0\] is null, not an object"),
        ({"added_tokens": [added("", 261)]}, r"added_tokens\[0\].content is ''"),
        ({"added_tokens": [added("\ud800", 262)]}, r"added_tokens\[0\].content is '\\ud800'"),
        ({"added_tokens": [{"id": 1}]}, r"added_tokens\[0\].content is null"),
        ({"added_tokens": [added("<|endoftext|>", 261) | {"id": "261"}]}, r"added_tokens\[0\].id is '261'"),
        ({"added_tokens": [added("<|endoftext|>", 5)]}, "is 5 for '<|endoftext|>', but .* gives it 261"),
        (
            {"added_tokens": [added("<|endoftext|>", 261), added("<|endoftext|>", 261, lstrip=True)]},
            r"added_tokens\[1\]: .* appears twice",
        ),
        (
            {"added_tokens": [added("<x>", 262, lstrip=1)]},
            r"added_tokens\[0\].lstrip is 1, not true or false",
        ),
        ({"added_tokens": [added("<x>", 262, special=None)]}, r"added_tokens\[0\].special is null"),
        ({"added_tokens": [added("<x>", 262, normalized="no")]}, r"added_tokens\[0\].normalized is 'no'"),
        ({"post_processor": 5}, "post_processor is 5, not a post-processor"),
        ({"post_processor": {}}, "post_processor is null, which"),
        ({"post_processor": {"type": "Sequence", "processors": [{"type": "X"}]}}, r"processors\[0\] is 'X'"),
        ({"post_processor": {"type": "Sequence"}}, "post_processor.processors is null, not an array"),
        ({"post_processor": {"type": "TemplateProcessing"}}, "special_tokens is null, not an object"),
        (
            {"post_processor": {"type": "TemplateProcessing", "special_tokens": {"<a>": {"ids": ["1"]}}}},
            r"post_processor.special_tokens\['<a>'\] is not a token with its ids",
        ),
        (
            {"post_processor": {"type": "BertProcessing", "sep": ["a", 1], "cls": "a"}},
            "is not a valid BertProcessing",
        ),
        ({"post_processor": nested(40)}, "post_processor is nested more than 30 deep"),
        ({"decoder": "ByteLevel"}, "decoder is 'ByteLevel' and has no type"),
        ({"decoder": {"type": "Sequence", "decoders": nested(40)}}, "decoder is nested more than 30 deep"),
    ],
)
def test_unsupported_settings_are_refused_with_their_path(
    document: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    with pytest.raises(TokenizerFileError, match=said.replace("|", r"\|").replace(r"\\|", r"\|")) as caught:
        read(document | change)
    assert str(caught.value).startswith("t.json: ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"type": "WordPiece"}, "model.type is 'WordPiece'"),
        ({"type": "Unigram"}, "model.type is 'Unigram'"),
        ({"dropout": 0.1}, "model.dropout is 0.1"),
        ({"continuing_subword_prefix": "##"}, "model.continuing_subword_prefix is '##'"),
        ({"end_of_word_suffix": 5}, "model.end_of_word_suffix is 5"),
        ({"byte_fallback": "no"}, "model.byte_fallback is 'no', not true or false"),
        ({"fuse_unk": 1}, "model.fuse_unk is 1, not true or false"),
        ({"unk_token": 0}, "model.unk_token is 0, not a string or null"),
        ({"dropout": True}, "model.dropout is True"),
        ({"continuing_subword_prefix": False}, "model.continuing_subword_prefix is False"),
        ({"ignore_merges": "yes"}, "model.ignore_merges is 'yes'"),
        ({"vocab": None}, "model.vocab is null"),
        ({"vocab": []}, "model.vocab is an array"),
        ({"vocab": {}}, "model.vocab is empty"),
        ({"merges": None}, "model.merges is null"),
        ({"merges": {}}, "model.merges is an object"),
        ({"merges": [["a", "b", "c"]]}, r"model.merges\[0\] is an array, not a pair"),
        ({"merges": [["a", "b"], ["a", 1]]}, r"model.merges\[1\]"),
        ({"merges": ["a b", "ab"]}, r"model.merges\[1\] is 'ab', not a pair"),
        ({"merges": ["a b c"]}, r"model.merges\[0\]"),
        ({"merges": [["a", "b"], None]}, r"model.merges\[1\] is null"),
        ({"merges": [["a", "b"], ["a", "q"]]}, r"model.merges\[1\]: 'aq' is not an ordinary token"),
        ({"merges": [["a", "b"], ["日", "a"]]}, r"model.merges\[1\]: '日' is not an ordinary token"),
        ({"merges": [["a", "b"], ["a", "b"]]}, r"model.merges\[1\]: \('a', 'b'\) repeats .*\[0\]"),
        ({"bytemill": []}, "model.bytemill is an array"),
        ({"bytemill": {}}, "model.bytemill.format is null"),
        ({"bytemill": {"format": 2}}, "model.bytemill.format is 2; this version of bytemill reads up to 1"),
        ({"bytemill": {"format": 1, "ties": "x"}}, "model.bytemill.ties is 'x'"),
        ({"bytemill": {"format": 1, "ties": []}}, "model.bytemill.ties is an array"),
        ({"bytemill": {"format": 1, "merge_counts": [1]}}, "has 1 counts for 5 merges"),
        ({"bytemill": {"format": 1, "merge_counts": [1, 2, 3, 4, "5"]}}, "not an array of integers"),
    ],
)
def test_a_damaged_or_unsupported_model_is_refused_with_its_path(
    document: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    with pytest.raises(TokenizerFileError, match=said) as caught:
        read(document | {"model": document["model"] | change})
    assert str(caught.value).startswith("t.json: model.")


@pytest.mark.parametrize(
    ("token", "token_id", "said"),
    [
        ("zz", "5", r"model.vocab\['zz'\] is '5', not an id"),
        ("zz", True, r"model.vocab\['zz'\] is True"),
        ("zz", 3.5, r"model.vocab\['zz'\] is 3.5"),
        ("zz", -1, r"model.vocab\['zz'\] is -1"),
        ("zz", 2**32, r"model.vocab\['zz'\] is 4294967296"),
        ("zz", 97, "'a' and 'zz' have the same id 97"),
        ("a b", 500, r"model.vocab\['a b'\]: ' ' is not one of the 256 characters"),
        ("日本", 500, "'日' is not one of the 256"),
        ("\ud800", 500, r"'\\ud800' is not one of the 256"),
        ("", 500, "a token is empty"),
    ],
)
def test_a_damaged_token_is_refused_by_name(
    document: dict[str, Any], token: str, token_id: object, said: str
) -> None:
    document["model"]["vocab"][token] = token_id
    with pytest.raises(TokenizerFileError, match=said):
        read(document)


def test_a_vocabulary_without_all_bytes_is_refused_if_another_token_stands_for_them(
    document: dict[str, Any],
) -> None:
    del document["model"]["vocab"]["Ā"]
    tok = Tokenizer.from_spec(read(document))
    theirs = tokenizers.Tokenizer.from_str(json.dumps(document))
    assert tok.encode("a\x00b \x00") == theirs.encode("a\x00b \x00", add_special_tokens=False).ids
    document["model"]["unk_token"] = "a"
    with pytest.raises(TokenizerFileError, match=r"lacks 1 of the 256 bytes \(0x00\)"):
        read(document)


def test_an_added_token_that_is_byte_level_text_of_other_bytes_is_refused(document: dict[str, Any]) -> None:
    document["added_tokens"].append(added("é", 233))
    with pytest.raises(TokenizerFileError, match=r"id 233 is both the bytes b'\\xe9' and a special token"):
        read(document)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"model": ', "line 1 column 11"),
        ("{", "not valid JSON"),
        ('{"model": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"model": {"a":' * 50_000, "nested too deeply"),
        (
            '{"model": {"type": "BPE", "merges": [], "vocab": {"a": ' + "9" * 5000 + "}}}",
            "not valid JSON: Exceeds the limit",
        ),
        ('{"a": 1}', "no 'model' object"),
    ],
)
def test_damaged_text_is_refused(text: str, said: str) -> None:
    with pytest.raises(TokenizerFileError, match=said):
        huggingface.from_text(text)


def test_a_truncated_file_is_refused(make_spec: MakeSpec) -> None:
    text = huggingface.write(make_spec()).rstrip()
    for n_characters in range(1, len(text), 97):
        with pytest.raises(TokenizerFileError, match="not valid JSON"):
            huggingface.from_text(text[:n_characters])


@given(st.data())
def test_a_file_with_any_value_replaced_is_read_or_refused(data: st.DataObject) -> None:
    spec = TokenizerSpec(
        pattern=None, special_tokens={"<x>": 256}, vocab={i: bytes([i]) for i in range(256)}, merges=[]
    )
    document = json.loads(huggingface.write(spec))
    place: Any = document
    for _ in range(data.draw(st.integers(0, 3))):
        inner = [key for key in place if isinstance(place[key], dict)]
        if inner:
            place = place[data.draw(st.sampled_from(inner))]
    junk = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    junk |= st.lists(junk, max_size=3) | st.dictionaries(st.text(max_size=5), junk, max_size=3)
    place[data.draw(st.sampled_from(list(place)))] = data.draw(junk)
    try:
        read(document)
    except TokenizerFileError as error:
        assert str(error).startswith("t.json: ")  # noqa: PT017 - reading it is as good
