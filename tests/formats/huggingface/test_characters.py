"""Files of SentencePiece-style BPE give the ids, texts and offsets of Hugging Face's library."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from bytemill import Tokenizer, TokenizerFileError
from bytemill.datasets import DECLARATION
from bytemill.formats import compiled_cache
from bytemill.formats.huggingface import tokenizer_json
from bytemill.formats.huggingface.characters import LINES
from bytemill.formats.registry import Content, from_bytes, load_content, load_with_core

META = "▁"
NAMES = [f"<0x{byte:02X}>" for byte in range(256)]
TO_META = {"type": "Replace", "pattern": {"String": " "}, "content": META}
PREPEND = {"type": "Prepend", "prepend": META}
FALLBACK_DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": META}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}

texts = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *(
                    " ",
                    "  ",
                    "   ",
                    META,
                    "\t",
                    "\n",
                    "\n\n",
                    "\u3000",
                    "\u00a0",
                    "a",
                    "the ",
                    "human rights",
                    "ﬁ",
                ),
                *(
                    "<s>",
                    "</s>",
                    "<unk>",
                    "<x y>",
                    "<X>",
                    "<0x0A>",
                    "日本",
                    "語",
                    "é",
                    "É",
                    "e\u0301",
                    "①",
                    "1234",
                ),
                *("😀", "👩‍👩‍👧", "सभी", "x", ".", "☃"),
            ]
        ),
        st.text(max_size=4),
    ),
    max_size=16,
).map("".join)


def added(content: str, token_id: int, **flags: bool) -> dict[str, Any]:
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": token_id, "content": content, **dict.fromkeys(names, False), **flags}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(steps)}


def metaspace(scheme: str, *, split: bool) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": META, "prepend_scheme": scheme, "split": split}


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    """A tokenizer.json that Hugging Face's trainer makes of three languages, with tokens of bytes."""
    lines: list[str] = []
    for language in ("eng", "fra", "jpn"):
        lines += (DECLARATION / f"udhr_{language}.txt").read_text(encoding="utf-8").splitlines()[:60]
    theirs = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    theirs.pre_tokenizer = pre_tokenizers.Metaspace()  # type: ignore[assignment]
    special = ["<unk>", "<s>", "</s>", *NAMES]
    theirs.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False)
    )
    document = json.loads(theirs.to_str())
    document["added_tokens"] = [token for token in document["added_tokens"] if token["content"] not in NAMES]
    return document | {"decoder": FALLBACK_DECODER}


def llama(document: dict[str, Any]) -> None:
    document |= {"normalizer": sequence(PREPEND, TO_META), "pre_tokenizer": None}


def llama_with_normalized_tokens(document: dict[str, Any]) -> None:
    llama(document)
    for token in document["added_tokens"]:
        token["normalized"] = True


def mistral(document: dict[str, Any]) -> None:
    document |= {"normalizer": None, "pre_tokenizer": metaspace("first", split=False)}


def gemma(document: dict[str, Any]) -> None:
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    document |= {"normalizer": TO_META, "pre_tokenizer": split}
    document["decoder"]["decoders"].pop()
    token = {"single_word": False, "lstrip": False, "rstrip": False, "special": False}
    vocab = document["model"]["vocab"]
    for text in (META * 2, "\n\n", "<x y>"):
        vocab.setdefault(text, len(vocab))
        document["added_tokens"].append(
            {"id": vocab[text], "content": text, "normalized": text[0] == "<"} | token
        )
    document["model"]["merges"].append([META, META])
    vocab.setdefault("\n", len(vocab))
    document["model"]["merges"].append(["\n", "\n"])


def every_space_splits(document: dict[str, Any]) -> None:
    document |= {"normalizer": None, "pre_tokenizer": metaspace("always", split=True)}
    document["decoder"] = metaspace("always", split=True)
    without_fallback(document)


def never_a_prefix(document: dict[str, Any]) -> None:
    document |= {"normalizer": None, "pre_tokenizer": metaspace("never", split=True)}
    document["decoder"]["decoders"].pop()


def without_fallback(document: dict[str, Any]) -> None:
    document["model"] |= {"byte_fallback": False, "fuse_unk": True}


def one_unknown_each(document: dict[str, Any]) -> None:
    llama(document)
    document["model"] |= {"byte_fallback": False, "fuse_unk": False}


def undeclared_unknown_token(document: dict[str, Any]) -> None:
    """The token for unknown characters is in the vocabulary alone, so that no text has it."""
    without_fallback(document)
    every_space_splits(document)
    document["added_tokens"] = []


def undeclared_unknown_letter(document: dict[str, Any]) -> None:
    one_unknown_each(document)
    document["added_tokens"] = []
    document["model"]["vocab"]["☃"] = len(document["model"]["vocab"])
    document["model"]["unk_token"] = "☃"


def lower_case(document: dict[str, Any]) -> None:
    steps = [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]
    document |= {"normalizer": sequence(*steps, PREPEND, TO_META), "pre_tokenizer": None}


def compatibility_forms(document: dict[str, Any]) -> None:
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": META}
    document |= {
        "normalizer": sequence({"type": "NFKC"}, strip, spaces),
        "pre_tokenizer": metaspace("always", split=True),
    }


def every_split_in_any_order(document: dict[str, Any]) -> None:
    llama(document)
    vocab = document["model"]["vocab"]
    splits = ((text[:at], text[at:]) for text in vocab if text not in NAMES for at in range(1, len(text)))
    merges = [list(pair) for pair in splits if vocab.keys() >= {*pair}]
    document["model"]["merges"] = Random(0).sample(merges, len(merges))


def strip_before_fuse(document: dict[str, Any]) -> None:
    """As in Yi's file: decoding removes a space from every token, and an added token is there twice."""
    document |= {"normalizer": TO_META, "pre_tokenizer": None}
    document["decoder"]["decoders"].insert(1, document["decoder"]["decoders"].pop())
    document["added_tokens"].append(document["added_tokens"][-1])


def without_bytes_of_tokens(document: dict[str, Any]) -> None:
    """As in the file of Gemma 2, where a byte is missing because its character is a token."""
    gemma(document)
    vocab = document["model"]["vocab"]
    for byte in (0x0A, 0x20, 0x65):
        del vocab[f"<0x{byte:02X}>"]
    document["added_tokens"] = [
        token | {"id": vocab.setdefault(token["content"], token["id"])} for token in document["added_tokens"]
    ]


def lines_apart(document: dict[str, Any]) -> None:
    """As llama.cpp's pre-tokenizer for Gemma 4."""
    split = {"type": "Split", "pattern": {"Regex": LINES}, "behavior": "Isolated", "invert": False}
    document |= {"normalizer": TO_META, "pre_tokenizer": split}
    document["decoder"]["decoders"].pop()


SHAPES = (
    *(without_bytes_of_tokens, lines_apart, undeclared_unknown_token, undeclared_unknown_letter),
    *(llama, llama_with_normalized_tokens, mistral, gemma, every_space_splits, never_a_prefix),
    *(one_unknown_each, lower_case, compatibility_forms, every_split_in_any_order, strip_before_fuse),
)


TEXT = "human rights <s> 日本語 ▁▁ é 😀 <x y>\n\nthe  end <0x0A>" + "".join(map(chr, range(300)))


def by_the_core(text: str) -> list[Tokenizer]:
    """Load a file with the core, and again from what it compiles of the vocabulary."""
    loaded = [load_with_core(Content(text.encode(), "t")), load_with_core(Content(text.encode(), "t"))]
    assert None not in loaded
    return [Tokenizer._from_loaded(one) for one in loaded if one is not None]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_gives_the_ids_texts_and_offsets_of_hugging_face(
    trained: dict[str, Any], shape: Callable[[dict[str, Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_cache, "MIN_BYTES", 1)
    document = json.loads(json.dumps(trained))
    shape(document)
    text = json.dumps(document)
    theirs = tokenizers.Tokenizer.from_str(text)
    ours = Tokenizer.from_spec(tokenizer_json.from_text(text))
    written = tokenizer_json.write(ours.to_spec())
    again = Tokenizer.from_spec(tokenizer_json.from_text(written))
    assert again.fingerprint == ours.fingerprint
    for loaded in by_the_core(text):
        assert loaded.fingerprint == ours.fingerprint
        assert loaded.to_spec() == ours.to_spec()
        assert loaded.encode(TEXT) == theirs.encode(TEXT, add_special_tokens=False).ids
    rewritten = tokenizers.Tokenizer.from_str(written)

    @given(texts)
    def check(text: str) -> None:
        expected = theirs.encode(text, add_special_tokens=False)
        encoded = ours.encode_with_offsets(text)
        assert encoded.ids.tolist() == expected.ids
        assert ours.encode(text) == expected.ids
        assert encoded.char_offsets.tolist() == [list(span) for span in expected.offsets]
        assert rewritten.encode(text, add_special_tokens=False).ids == expected.ids
        assert again.decode(expected.ids) == ours.decode(expected.ids)
        # Tokens that are searched in normalized text are decoded as they are there.
        decoded = theirs.decode(expected.ids, skip_special_tokens=False)
        assert ours.decode(expected.ids) == decoded

    check()


@pytest.mark.parametrize("by_core", [True, False])
def test_an_undeclared_unknown_token_is_an_ordinary_token(trained: dict[str, Any], *, by_core: bool) -> None:
    document = json.loads(json.dumps(trained))
    undeclared_unknown_token(document)
    text = json.dumps(document)
    theirs = tokenizers.Tokenizer.from_str(text)
    spec = tokenizer_json.from_text(text)
    ours = by_the_core(text)[0] if by_core else Tokenizer.from_spec(spec)
    unknown = theirs.token_to_id("<unk>")
    assert unknown is not None
    assert (ours.token_to_id("<unk>"), ours.id_to_token(unknown)) == (unknown, "<unk>")
    assert ours.vocab[unknown] == b"<unk>"
    assert (len(ours), ours.vocab_size, ours.special_tokens) == (
        theirs.get_vocab_size(),
        len(theirs.get_vocab()),
        {},
    )
    assert ours.decode([unknown]) == theirs.decode([unknown]) == "<unk>"
    rewritten = json.loads(tokenizer_json.write(ours.to_spec()))
    assert (rewritten["model"]["unk_token"], rewritten["added_tokens"]) == ("<unk>", [])


@pytest.mark.parametrize(
    ("unknown", "fuse", "reason"),
    [
        ("☃", True, "is also a character of texts"),
        (f"{META}d", False, "'▁d' is in merges"),
        ("d", False, "'d' is in merges"),
    ],
)
def test_an_unknown_token_that_texts_have_too_is_left_to_the_library(
    trained: dict[str, Any], unknown: str, reason: str, *, fuse: bool
) -> None:
    document = json.loads(json.dumps(trained))
    without_fallback(document)
    document["added_tokens"] = []
    document["model"] |= {"unk_token": unknown, "fuse_unk": fuse}
    document["model"]["vocab"].setdefault(unknown, len(document["model"]["vocab"]))
    text = json.dumps(document)
    with pytest.raises(TokenizerFileError, match=reason):
        tokenizer_json.from_text(text)
    ours = Tokenizer._from_loaded(load_content(Content(text.encode(), "t")))
    assert ours.engine == "tokenizers"
    theirs = tokenizers.Tokenizer.from_str(text)
    assert ours.encode("d☃♠♠☃ the d♠ d☃") == theirs.encode("d☃♠♠☃ the d♠ d☃", add_special_tokens=False).ids


@given(
    st.lists(st.text("aab▁語", min_size=2, max_size=5), unique=True, max_size=14),
    st.data(),
)
def test_merges_in_any_order_give_the_ids_of_hugging_face(longer: list[str], data: st.DataObject) -> None:
    tokens = [*"ab▁語", *longer]
    splits = [(text[:at], text[at:]) for text in longer for at in range(1, len(text))]
    merges = data.draw(st.permutations([pair for pair in splits if {*tokens} >= {*pair}]))
    merges = merges[: data.draw(st.integers(0, len(merges)))]
    document = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": TO_META,
        "pre_tokenizer": None,
        "decoder": FALLBACK_DECODER,
        "model": {
            "type": "BPE",
            "unk_token": None,
            "byte_fallback": True,
            "vocab": {text: index for index, text in enumerate([*NAMES, *tokens])},
            "merges": [list(pair) for pair in merges],
        },
    }
    text = json.dumps(document)
    theirs = tokenizers.Tokenizer.from_str(text)
    ours = Tokenizer.from_spec(tokenizer_json.from_text(text))
    written = tokenizers.Tokenizer.from_str(tokenizer_json.write(ours.to_spec()))
    for each in data.draw(st.lists(st.text("aab 語x", max_size=24), min_size=1, max_size=8)):
        expected = theirs.encode(each).ids
        assert ours.encode(each) == written.encode(each).ids == expected
        assert ours.encode(each * 9) == theirs.encode(each * 9).ids


def test_a_folder_with_such_a_file_opens(trained: dict[str, Any]) -> None:
    llama(trained)
    spec = from_bytes(json.dumps(trained).encode(), "tokenizer.json")
    assert spec.characters is not None
    assert Tokenizer.from_spec(spec).decode(Tokenizer.from_spec(spec).encode("a b")) == "a b"


def test_metaspace_of_earlier_versions_is_read(trained: dict[str, Any]) -> None:
    for prefix, scheme in ((True, "always"), (False, "never")):
        old = trained | {
            "normalizer": None,
            "pre_tokenizer": {"type": "Metaspace", "replacement": META, "add_prefix_space": prefix},
        }
        new = trained | {"normalizer": None, "pre_tokenizer": metaspace(scheme, split=True)}
        assert tokenizer_json.from_text(json.dumps(old)) == tokenizer_json.from_text(json.dumps(new))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"pre_tokenizer": {"type": "Whitespace"}, "normalizer": TO_META},
            "pre_tokenizer is 'Whitespace', which is not supported",
        ),
        ({"pre_tokenizer": metaspace("last", split=True)}, "prepend_scheme is 'last'"),
        ({"pre_tokenizer": metaspace("first", split=True) | {"split": 1}}, "split is 1"),
        ({"normalizer": sequence(TO_META, {"type": "NFC"})}, "a step after the one that replaces spaces"),
        ({"decoder": {"type": "CTC"}}, "decoder is 'CTC', which is not supported"),
        (
            {"decoder": {"type": "ByteFallback"}},
            r"decoder has the steps \['ByteFallback'\], which is not supported",
        ),
        (
            {"added_tokens": [added("<0x0A>", 13)], "normalizer": TO_META, "pre_tokenizer": None},
            r"added_tokens\[0\] is '<0x0A>', which is decoded as a byte",
        ),
        (
            {"added_tokens": [added("<unk>", 0, normalized=True, lstrip=True)]},
            "absorbs white space, but no space that became",
        ),
        ({"model": {"ignore_merges": True}}, "has 'byte_fallback' and 'ignore_merges'"),
        (
            {"normalizer": {"type": "StripAccents"}, "pre_tokenizer": metaspace("first", split=False)},
            "prepend_scheme is 'first', which is not supported after StripAccents",
        ),
        (
            {"model": {"byte_fallback": False, "unk_token": None}},
            "stands for spaces, which is not supported where unknown characters vanish",
        ),
        ({"model": {"byte_fallback": False, "unk_token": "<no>"}}, "'<no>' is not in the vocabulary"),
        ({"model": {"merges": [["t", "zz"]]}}, r"merges\[0\]: 'zz' is not a token of the vocabulary"),
        ({"model": {"vocab": {"<unk>": 0, "a": 1}, "merges": []}}, "vocab lacks <0x00>"),
        ({"model": {"type": "Unigram"}}, "model.type is 'Unigram'; only BPE is supported"),
        ({"model": {"type": "WordPiece"}}, "model.type is 'WordPiece'; only BPE is supported"),
    ],
)
def test_what_is_not_supported_is_refused_with_its_path(
    trained: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    document = json.loads(json.dumps(trained))
    document["added_tokens"] = []
    model = document["model"] | change.get("model", {})
    with pytest.raises(TokenizerFileError, match=said):
        tokenizer_json.from_text(json.dumps(document | change | {"model": model}))


def test_a_token_with_a_space_and_one_with_its_sign_are_refused(trained: dict[str, Any]) -> None:
    document = json.loads(json.dumps(trained))
    document["model"]["vocab"][" t"] = len(document["model"]["vocab"])
    document["model"]["vocab"].setdefault("▁t", len(document["model"]["vocab"]))
    with pytest.raises(TokenizerFileError, match="has ' t' with a space and with '▁', which means one"):
        tokenizer_json.from_text(json.dumps(document))


def test_the_byte_of_a_space_is_kept_where_tokens_lose_theirs(trained: dict[str, Any]) -> None:
    document = json.loads(json.dumps(trained))
    strip_before_fuse(document)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(document))
    ours = Tokenizer.from_spec(tokenizer_json.from_text(json.dumps(document)))
    space = document["model"]["vocab"]["<0x20>"]
    ids = [space, *ours.encode("the rights"), space, space]
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
    decoder = ours.stream_decoder()
    assert "".join(map(decoder.feed, ids)) + decoder.finish() == ours.decode(ids)


def test_decoders_metaspace(trained: dict[str, Any]) -> None:
    """The decoder takes all spaces of the first token away."""
    document = json.loads(json.dumps(trained))
    every_space_splits(document)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(document))
    theirs.decoder = decoders.Metaspace()  # type: ignore[assignment]
    ours = Tokenizer.from_spec(tokenizer_json.from_text(theirs.to_str()))
    ids = ours.encode("  the  rights")
    assert ours.decode(ids) == theirs.decode(ids)
