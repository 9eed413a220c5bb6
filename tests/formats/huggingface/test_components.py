"""Every component that the core runs, against Hugging Face's library: each row of the tables has documents with it."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.zoo.odd_files import (
    BYTE_LEVEL,
    CLIP,
    DIGITS,
    LLAMA_DECODER,
    META,
    Document,
    added,
    byte_level,
    clip,
    metaspace,
    replace,
    sequence,
    spaced,
    split,
    words,
)

from bytemill import Tokenizer
from bytemill.formats.huggingface.tokenizer_json import TABLES
from bytemill.formats.registry import Content, load_with_core

ROWS = [(table.kind, name) for table in TABLES for name in table.rows]
LATE = [
    added("<end>", 420),
    added("<MASK>", 421, normalized=True),
    added("Cafe", 422, normalized=True, special=False),
]
FLAGS = {name: st.booleans() for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
TEXTS = st.lists(
    st.sampled_from(
        [
            *(
                "The ",
                "houses",
                "café",
                "Cafe",
                "e\u0301",
                "ﬁ",
                "①",
                "Å",
                "İ",
                "ß",
                "ΑΣ",
                "犬",
                "カ\u3099",
                "x",
            ),
            *("don't", "'s", "12345", "٣½", "...", "!", "_", "<end>", "<MASK>", "<mask>", "<x>", "<a>", META),
            *(" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\x85", "\u2028", "\x00", "\x03"),
        ]
    )
    | st.text(max_size=4),
    max_size=12,
).map("".join)
LLAMA = sequence("normalizers", {"type": "Prepend", "prepend": META}, replace(" ", META))


def normalized(step: Document) -> st.SearchStrategy[Document]:
    """Files of bytes and of characters with a normalizer."""
    return st.sampled_from(
        [
            byte_level(normalizer=step, added_tokens=LATE),
            byte_level(normalizer=sequence("normalizers", {"type": "NFC"}, step, {"type": "Lowercase"})),
            spaced(normalizer=sequence("normalizers", step, *LLAMA["normalizers"]), pre_tokenizer=None),
        ]
    )


def split_by(*steps: Document) -> st.SearchStrategy[Document]:
    """Files of bytes and of characters with steps of a pre-tokenizer."""
    return st.sampled_from(
        [
            byte_level(pre_tokenizer=sequence("pretokenizers", *steps, BYTE_LEVEL)),
            byte_level(
                pre_tokenizer=sequence("pretokenizers", *steps, BYTE_LEVEL | {"add_prefix_space": True})
            ),
            byte_level(
                pre_tokenizer=sequence("pretokenizers", *steps, DIGITS, BYTE_LEVEL | {"use_regex": True})
            ),
            words(pre_tokenizer=sequence("pretokenizers", *steps)),
            words(pre_tokenizer=sequence("pretokenizers", *steps), model={"fuse_unk": True}),
            words(pre_tokenizer=sequence("pretokenizers", *steps), model={"unk_token": None}),
        ]
    )


def modelled(**options: Any) -> st.SearchStrategy[Document]:
    """Files of bytes and of characters with options of the model."""
    return st.sampled_from([byte_level(model=options), words(model=options), spaced(model=options)])


def framed(processor: Document) -> st.SearchStrategy[Document]:
    """A file with a post-processor."""
    tokens = [added("<a>", 420), added("<b>", 421)]
    return st.just(byte_level(post_processor=processor, added_tokens=tokens))


def decoded(*steps: Document, **fields: Any) -> st.SearchStrategy[Document]:
    """A file with `▁` and steps of a decoder."""
    decoder = steps[0] if len(steps) == 1 else sequence("decoders", *steps)
    return st.just(spaced(decoder=decoder, pre_tokenizer=None, normalizer=LLAMA, **fields))


def flagged(name: str) -> st.SearchStrategy[Document]:
    """A file with added tokens that have a flag, and any others."""
    flags = st.fixed_dictionaries(FLAGS)
    tokens = st.tuples(flags, flags).map(
        lambda both: [added("<x>", 420, **both[0] | {name: True}), added("don", 421, **both[1])]
    )
    normalizers = st.sampled_from([None, {"type": "Lowercase"}])
    return st.builds(
        lambda tokens, step: byte_level(added_tokens=tokens, normalizer=step), tokens, normalizers
    )


_SIDES = {"sep": ["<a>", 420], "cls": ["<b>", 421]}
_LLAMA_STEPS = LLAMA_DECODER["decoders"]
EXAMPLES: dict[tuple[str, str], st.SearchStrategy[Document]] = {
    **{
        ("normalizer", name): normalized({"type": name})
        for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")
    },
    ("normalizer", "Replace"): st.sampled_from(
        [
            replace("é", "e'"),
            replace("  ", ""),
            replace(" {2,}", " ", regex=True),
            replace(r"\s+", " ", regex=True),
            replace(r"\A +", "", regex=True),
        ]
    ).flatmap(normalized),
    ("normalizer", "Prepend"): st.sampled_from(["x ", " ", "日"]).flatmap(
        lambda text: normalized({"type": "Prepend", "prepend": text})
    ),
    ("normalizer", "Strip"): st.tuples(st.booleans(), st.booleans()).flatmap(
        lambda sides: normalized({"type": "Strip", "strip_left": sides[0], "strip_right": sides[1]})
    ),
    ("pre-tokenizer", "ByteLevel"): st.builds(
        lambda prefix, regex: byte_level(
            pre_tokenizer=BYTE_LEVEL | {"add_prefix_space": prefix, "use_regex": regex}, added_tokens=LATE
        ),
        st.booleans(),
        st.booleans(),
    ),
    ("pre-tokenizer", "Whitespace"): split_by({"type": "Whitespace"}),
    ("pre-tokenizer", "WhitespaceSplit"): split_by({"type": "WhitespaceSplit"}),
    ("pre-tokenizer", "BertPreTokenizer"): split_by({"type": "BertPreTokenizer"}),
    ("pre-tokenizer", "Metaspace"): st.builds(
        lambda scheme, is_split, fused: spaced(
            pre_tokenizer=metaspace(scheme, is_split=is_split),
            model={"byte_fallback": False, "fuse_unk": fused},
        ),
        st.sampled_from(["always", "first", "never"]),
        st.booleans(),
        st.booleans(),
    ),
    ("pre-tokenizer", "Punctuation"): st.sampled_from(["Isolated", "Contiguous"]).flatmap(
        lambda behavior: split_by({"type": "Punctuation", "behavior": behavior})
    ),
    ("pre-tokenizer", "Digits"): st.booleans().flatmap(
        lambda individual: split_by({"type": "Digits", "individual_digits": individual})
    ),
    ("pre-tokenizer", "Split"): st.sampled_from(
        [
            split(r"\d"),
            split(",", literal=True),
            split(r"\p{L}+|\s+", invert=True),
            split(r"\s+", "Removed"),
            split(r"\S+", "Removed", invert=True),
            split(CLIP, "Removed", invert=True),
        ]
    ).flatmap(split_by),
    ("option of the model", "type"): modelled(type="BPE"),
    ("option of the model", "continuing_subword_prefix"): modelled(continuing_subword_prefix=""),
    ("option of the model", "end_of_word_suffix"): st.sampled_from([clip(), clip() | {"normalizer": None}]),
    ("option of the model", "dropout"): st.sampled_from([None, 0.0, 0]).flatmap(
        lambda p: modelled(dropout=p)
    ),
    ("option of the model", "fuse_unk"): st.booleans().map(lambda fused: words(model={"fuse_unk": fused})),
    ("option of the model", "byte_fallback"): st.booleans().map(
        lambda yes: spaced(model={"byte_fallback": yes})
    ),
    ("option of the model", "ignore_merges"): st.sampled_from(
        [byte_level(model={"ignore_merges": True}), words(model={"ignore_merges": True})]
    ),
    ("option of the model", "unk_token"): st.sampled_from([None, "[UNK]"]).map(
        lambda token: words(model={"unk_token": token})
    ),
    **{("flag of added tokens", name): flagged(name) for name in FLAGS},
    ("post-processor", "ByteLevel"): framed(BYTE_LEVEL | {"trim_offsets": False}),
    ("post-processor", "TemplateProcessing"): framed(
        {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<a>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<a>": {"id": "<a>", "ids": [420], "tokens": ["<a>"]}},
        }
    ),
    ("post-processor", "RobertaProcessing"): framed(
        {"type": "RobertaProcessing", **_SIDES, "trim_offsets": True, "add_prefix_space": False}
    ),
    ("post-processor", "BertProcessing"): framed({"type": "BertProcessing", **_SIDES}),
    ("decoder", "ByteLevel"): st.sampled_from(
        [BYTE_LEVEL, sequence("decoders", BYTE_LEVEL, {"type": "Fuse"}), None]
    ).map(lambda decoder: byte_level(decoder=decoder)),
    ("decoder", "ByteFallback"): decoded(*_LLAMA_STEPS[:2]),
    ("decoder", "Fuse"): decoded(*_LLAMA_STEPS[:3]),
    ("decoder", "Replace"): decoded(*_LLAMA_STEPS[:3]),
    ("decoder", "Strip"): st.sampled_from([(0, 1, 2, 3), (0, 3, 1, 2)]).flatmap(
        lambda order: decoded(*(_LLAMA_STEPS[i] for i in order))
    ),
    ("decoder", "Metaspace"): st.sampled_from(["always", "never"]).flatmap(
        lambda scheme: decoded(metaspace(scheme, is_split=True), model={"byte_fallback": False})
    ),
}


@cache
def both(file: str) -> tuple[Tokenizer, Any, Any]:
    """The core's tokenizer, and the library's that recognizes special tokens or not."""
    loaded = load_with_core(Content(file.encode(), "t"))
    assert loaded is not None
    theirs, without = tokenizers.Tokenizer.from_str(file), tokenizers.Tokenizer.from_str(file)
    without.encode_special_tokens = True
    return Tokenizer._from_loaded(loaded), theirs, without


def encoded_by(theirs: Any, text: str) -> Any:
    """What the library gives for a text. It panics on a few texts that several normalizers change."""
    try:
        return theirs.encode(text, add_special_tokens=False)
    except BaseException as error:
        assume(type(error).__name__ != "PanicException")
        raise


@pytest.mark.parametrize(("kind", "name"), ROWS, ids=lambda part: part.replace(" ", "-"))
def test_each_component_gives_what_hugging_faces_library_gives(kind: str, name: str) -> None:
    assert (kind, name) in EXAMPLES, "a row of the tables needs documents here"

    @given(EXAMPLES[kind, name], TEXTS)
    def check(document: Document, text: str) -> None:
        ours, theirs, without = both(json.dumps(document | {"post_processor": None}))
        expected = encoded_by(theirs, text)
        encoded = ours.encode_with_offsets(text)
        assert encoded.ids.tolist() == expected.ids
        assert encoded.char_offsets.tolist() == [
            [min(start, len(text)), min(end, len(text))] for start, end in expected.offsets
        ]
        assert ours.encode(text, allowed_special="none") == without.encode(text, add_special_tokens=False).ids
        assert ours.count(text) == len(expected.ids)
        assert ours.decode(expected.ids) == theirs.decode(expected.ids, skip_special_tokens=False)
        stream = ours.stream_decoder()
        assert "".join(map(stream.feed, expected.ids)) + stream.finish() == ours.decode(expected.ids)
        if kind == "post-processor":
            file = json.dumps(document)
            framed = tokenizers.Tokenizer.from_str(file).encode(text)
            assert both(file)[0](text)["input_ids"] == framed.ids

    check()


def test_the_documentation_lists_the_components() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "formats.md").read_text(encoding="utf-8")
    section = guide.split("### Components that the core runs", 1)[1].split("\n#", 1)[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.*?) ?\|$", section, re.MULTILINE)[1:]
    assert rows == [
        (table.kind, f"`{name}`", row.settings.replace("|", r"\|") or "all")
        for table in TABLES
        for name, row in table.rows.items()
    ]
