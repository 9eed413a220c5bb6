"""Odd but valid tokenizer.json files, as they are found in the wild: small vocabularies, every kind of component."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

Document = dict[str, Any]

META = "\N{LOWER ONE EIGHTH BLOCK}"
CORPUS = [
    "The unaffordable houses of the northern towns were sold, one after another, to people from elsewhere.",
    "Hello, world! naïve café 犬も歩けば棒に当たる 12345 can't won't DON'T they'll the the the in on",
    "def f(x):\n    return x ** 2  # squared\n\n\tclass A:  pass\r\n",
    "ÀÉÎÕÜ àéîõü ﬁ ① Å ǅ Straße ΣΟΦΟΣ İstanbul ½ ٣٤ <s> </s> [MASK] http://example.com/a_b-c?d=e&f",
    "for the and that with this from have been will would there their what about which when",
]


def added(text: str, token_id: int, **flags: bool) -> Document:
    """An entry of `added_tokens`."""
    default = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": token_id, "content": text, **default, **flags}


@cache
def _byte_level() -> str:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = tokenizers.decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer.to_str()


@cache
def _words(suffix: str = "", prefix: str = "", *, is_byte_level: bool = False) -> str:
    """BPE over characters, or bytes, of words."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="[UNK]"))
    steps: list[Any] = [pre_tokenizers.Whitespace()]
    steps += [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)] * is_byte_level
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)  # type: ignore[assignment]
    affixes: Document = {"end_of_word_suffix": suffix, "continuing_subword_prefix": prefix}
    affixes = {name: affix for name, affix in affixes.items() if affix}
    trainer = trainers.BpeTrainer(vocab_size=260, special_tokens=["[UNK]"], show_progress=False, **affixes)
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer.to_str()


@cache
def _spaced(*, is_split: bool) -> str:
    """BPE over characters with `▁` for spaces; without a pre-tokenizer if texts are not split."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=is_split)  # type: ignore[assignment]
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=460, special_tokens=special, show_progress=False, limit_alphabet=70
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = document["added_tokens"][:3]
    document["decoder"] = LLAMA_DECODER
    return json.dumps(document)


def sequence(field: str, *steps: Document) -> Document:
    """Several components in a row."""
    return {"type": "Sequence", field: list(steps)}


def split(
    expression: str, behavior: str = "Isolated", *, invert: bool = False, literal: bool = False
) -> Document:
    """A Split of a pre-tokenizer."""
    pattern = {"String" if literal else "Regex": expression}
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def replace(before: str, after: str, *, regex: bool = False) -> Document:
    """A Replace, of a normalizer or a decoder."""
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": before}, "content": after}


LLAMA_DECODER = sequence(
    "decoders",
    replace(META, " "),
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
)
DIGITS = {"type": "Digits", "individual_digits": False}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BERT_NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}


def byte_level(*, model: Document | None = None, **fields: Any) -> Document:
    """A byte-level file with other fields."""
    document = json.loads(_byte_level()) | copy.deepcopy(fields)
    document["model"] |= copy.deepcopy(model or {})
    return document


def words(
    suffix: str = "",
    prefix: str = "",
    *,
    model: Document | None = None,
    is_byte_level: bool = False,
    **fields: Any,
) -> Document:
    """A file of words with other fields."""
    document = json.loads(_words(suffix, prefix, is_byte_level=is_byte_level)) | copy.deepcopy(fields)
    document["model"] |= copy.deepcopy(model or {})
    return document


def spaced(*, is_split: bool = False, model: Document | None = None, **fields: Any) -> Document:
    """A file with `▁` and other fields."""
    document = json.loads(_spaced(is_split=is_split)) | copy.deepcopy(fields)
    document["model"] |= copy.deepcopy(model or {})
    return document


def metaspace(scheme: str, *, is_split: bool) -> Document:
    """A Metaspace of a pre-tokenizer or a decoder."""
    return {"type": "Metaspace", "replacement": META, "prepend_scheme": scheme, "split": is_split}


def _with_vocabulary(document: Document, change: Any) -> Document:
    change(document["model"]["vocab"], document["model"]["merges"])
    return document


def _holes(vocab: dict[str, int], _: Any) -> None:
    for token in vocab:
        vocab[token] *= 3


def _no_byte(vocab: dict[str, int], merges: list[Any]) -> None:
    for token in [token for token in vocab if "!" in token or "Ã" in token]:
        del vocab[token]
    merges[:] = [pair for pair in merges if "".join(pair) in vocab]


def _clip(document: Document) -> Document:
    """A byte-level vocabulary of words, each byte also at the end of one."""
    vocab: dict[str, int] = {}
    for token in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab[token] = len(vocab)
    for token in list(vocab):
        vocab[f"{token}</w>"] = len(vocab)
    merges: list[str] = []
    pairs = (
        "t h,i n,th e</w>,a n,e r</w>,o n</w>,in g</w>,an d</w>,o r,in </w>,Ã ©,c a,ca f,Ã ©</w>,caf Ã©</w>"
    )
    for pair in pairs.split(","):
        left, _, right = pair.partition(" ")
        if left in vocab and right in vocab and left + right not in vocab:
            merges.append(f"{left} {right}")
            vocab[left + right] = len(vocab)
    end = len(vocab)
    vocab |= {"<|startoftext|>": end, "<|endoftext|>": end + 1}
    document["added_tokens"] = [
        added("<|startoftext|>", end, normalized=True),
        added("<|endoftext|>", end + 1),
    ]
    document["model"] |= {
        "vocab": vocab,
        "merges": merges,
        "unk_token": "<|endoftext|>",
        "end_of_word_suffix": "</w>",
        "continuing_subword_prefix": "",
    }
    return document


def clip() -> Document:
    """A file like CLIP's."""
    steps = sequence("pretokenizers", split(CLIP, "Removed", invert=True), BYTE_LEVEL | {"use_regex": True})
    lower = sequence("normalizers", {"type": "NFC"}, replace(r"\s+", " ", regex=True), {"type": "Lowercase"})
    return _clip(byte_level(normalizer=lower, pre_tokenizer=steps))


def _of_normalizers() -> dict[str, Document]:
    late = [
        added("<MASK>", 420, normalized=True),
        added("Cafe", 421, normalized=True, special=False),
        added("e-x", 422, special=False),
    ]
    becomes_bytes = [*late, added("\u212b", 423, normalized=True)]
    chains: dict[str, Document] = {
        "lower": {"type": "Lowercase"},
        "nfkc strip accents": sequence(
            "normalizers",
            {"type": "NFKC"},
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "NFD"},
            {"type": "StripAccents"},
        ),
        "nested": sequence(
            "normalizers",
            sequence("normalizers", {"type": "NFD"}, sequence("normalizers", {"type": "Lowercase"})),
            sequence("normalizers"),
        ),
        "white space": sequence(
            "normalizers", {"type": "NFC"}, replace(r"\s+", " ", regex=True), {"type": "Lowercase"}
        ),
        "regex": replace(r"[0-9]", "0", regex=True),
        "regex of lines": replace(r"\r\n|\n", " ", regex=True),
        "quotes": sequence(
            "normalizers", replace("``", '"'), replace("''", '"'), replace(" {2,}", " ", regex=True)
        ),
        "empty replacement": replace("e", ""),
        "bert": BERT_NORMALIZER,
        "bert as it is": BERT_NORMALIZER | {"lowercase": False, "handle_chinese_chars": False},
        "nmt": sequence("normalizers", {"type": "Nmt"}, {"type": "NFKC"}),
        "byte level": {"type": "ByteLevel"},
        "prepend": {"type": "Prepend", "prepend": META},
        "trim": replace(r"\A\s+|\s+\z", "", regex=True),
        "prepend nothing": {"type": "Prepend", "prepend": ""},
        "strip right": {"type": "Strip", "strip_left": False, "strip_right": True},
        "strip nothing": {"type": "Strip", "strip_left": False, "strip_right": False},
        "nothing": sequence("normalizers"),
    }
    files = {
        f"normalizer {name}": byte_level(normalizer=chain, added_tokens=late)
        for name, chain in chains.items()
    }
    files["normalizer lower, a token becomes bytes"] = byte_level(
        normalizer={"type": "Lowercase"}, added_tokens=becomes_bytes
    )
    files["normalizer byte level alone"] = byte_level(normalizer={"type": "ByteLevel"}, pre_tokenizer=None)
    return files


def _of_pre_tokenizers() -> dict[str, Document]:
    steps: dict[str, Document | None] = {
        "none": None,
        "whitespace": sequence("pretokenizers", {"type": "Whitespace"}, BYTE_LEVEL),
        "whitespace split": sequence("pretokenizers", {"type": "WhitespaceSplit"}, BYTE_LEVEL),
        "space before each word": sequence(
            "pretokenizers", {"type": "Whitespace"}, BYTE_LEVEL | {"add_prefix_space": True}
        ),
        "space before each part": sequence(
            "pretokenizers",
            {"type": "WhitespaceSplit"},
            BYTE_LEVEL | {"add_prefix_space": True, "use_regex": True},
        ),
        "bert": sequence("pretokenizers", {"type": "BertPreTokenizer"}, BYTE_LEVEL),
        "digits": sequence(
            "pretokenizers", {"type": "Digits", "individual_digits": True}, BYTE_LEVEL | {"use_regex": True}
        ),
        "digits in a row": sequence("pretokenizers", DIGITS, BYTE_LEVEL),
        "falcon": sequence(
            "pretokenizers",
            {"type": "Punctuation", "behavior": "Contiguous"},
            BYTE_LEVEL | {"use_regex": True},
            DIGITS,
            split("[0-9][0-9][0-9]"),
        ),
        "character": sequence("pretokenizers", {"type": "CharDelimiterSplit", "delimiter": " "}, BYTE_LEVEL),
        "scripts": sequence("pretokenizers", {"type": "UnicodeScripts"}, BYTE_LEVEL),
        "fixed length": sequence("pretokenizers", {"type": "FixedLength", "length": 5}, BYTE_LEVEL),
        "prefix space": BYTE_LEVEL | {"add_prefix_space": True, "use_regex": True},
        "few fields": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False},
        "nested": sequence(
            "pretokenizers", sequence("pretokenizers", split(r"\d"), sequence("pretokenizers", BYTE_LEVEL))
        ),
        "clip": sequence(
            "pretokenizers", split(CLIP, "Removed", invert=True), BYTE_LEVEL | {"use_regex": True}
        ),
        "clip without bytes' pattern": sequence(
            "pretokenizers", split(CLIP, "Removed", invert=True), BYTE_LEVEL
        ),
        "empty": sequence("pretokenizers"),
        "bytes twice": sequence("pretokenizers", BYTE_LEVEL, BYTE_LEVEL),
        "metaspace before bytes": sequence("pretokenizers", metaspace("always", is_split=True), BYTE_LEVEL),
    }
    files = {f"pre-tokenizer {name}": byte_level(pre_tokenizer=step) for name, step in steps.items()}
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            for expression in (r"\s+", r"\d", ","):
                step = split(expression, behavior, invert=invert, literal=expression == ",")
                files[f"split {expression} {behavior} {invert}"] = byte_level(
                    pre_tokenizer=sequence("pretokenizers", step, BYTE_LEVEL)
                )
        files[f"punctuation {behavior}"] = byte_level(
            pre_tokenizer=sequence("pretokenizers", {"type": "Punctuation", "behavior": behavior}, BYTE_LEVEL)
        )
    return files


def _of_words() -> dict[str, Document]:
    return {
        "words": words(),
        "words, unknown ones vanish": words(model={"unk_token": None}),
        "words, unknown ones fused": words(model={"fuse_unk": True}),
        "words without a pre-tokenizer": words(pre_tokenizer=None),
        "words, white space": words(pre_tokenizer={"type": "WhitespaceSplit"}),
        "words, bert": words(pre_tokenizer={"type": "BertPreTokenizer"}, normalizer=BERT_NORMALIZER),
        "words, punctuation and digits": words(
            pre_tokenizer=sequence("pretokenizers", {"type": "Whitespace"}, {"type": "Punctuation"}, DIGITS)
        ),
        "words, ignored merges": words(model={"ignore_merges": True}),
        "words, fused decoder": words(decoder={"type": "Fuse"}),
        "words, wordpiece decoder": words(decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}),
        "words with ends": words("</w>", decoder={"type": "BPEDecoder", "suffix": "</w>"}),
        "words with ends, lower": words(
            "</w>",
            normalizer={"type": "Lowercase"},
            pre_tokenizer={"type": "BertPreTokenizer"},
            decoder={"type": "BPEDecoder", "suffix": "</w>"},
        ),
        "words with prefixes": words(
            "", "##", decoder={"type": "WordPiece", "prefix": "##", "cleanup": False}
        ),
        "words with both": words("</w>", "@@"),
        "words of bytes": words(is_byte_level=True),
        "words of bytes, decoded": words(is_byte_level=True, decoder=BYTE_LEVEL),
        "clip": clip(),
        "clip without a normalizer": clip() | {"normalizer": None},
    }


def _of_spaces() -> dict[str, Document]:
    llama = sequence("normalizers", {"type": "Prepend", "prepend": META}, replace(" ", META))
    files = {
        "llama": spaced(normalizer=llama, pre_tokenizer=None),
        "llama without fallback": spaced(
            normalizer=llama, pre_tokenizer=None, model={"byte_fallback": False}
        ),
        "llama, not fused": spaced(
            normalizer=llama, pre_tokenizer=None, model={"byte_fallback": False, "fuse_unk": False}
        ),
        "llama, unknown ones vanish": spaced(
            normalizer=llama, pre_tokenizer=None, model={"byte_fallback": False, "unk_token": None}
        ),
        "llama, unknown token not in the vocabulary": spaced(
            normalizer=llama, pre_tokenizer=None, model={"byte_fallback": False, "unk_token": "<no>"}
        ),
        "llama, fallback without unknown": spaced(
            normalizer=llama, pre_tokenizer=None, model={"unk_token": None}
        ),
        "llama, fallback and an unknown token not in the vocabulary": spaced(
            normalizer=llama, pre_tokenizer=None, model={"unk_token": "<no>"}
        ),
        "llama, ignored merges": spaced(
            normalizer=llama, pre_tokenizer=None, model={"byte_fallback": False, "ignore_merges": True}
        ),
        "gemma": spaced(
            normalizer=replace(" ", META),
            pre_tokenizer=split(" ", "MergedWithPrevious", literal=True),
            decoder=sequence("decoders", replace(META, " "), {"type": "ByteFallback"}, {"type": "Fuse"}),
        ),
        "lower": spaced(
            normalizer=sequence(
                "normalizers", {"type": "NFKC"}, {"type": "Lowercase"}, *llama["normalizers"]
            ),
            pre_tokenizer=None,
        ),
        "digits after metaspace": spaced(
            pre_tokenizer=sequence(
                "pretokenizers",
                metaspace("always", is_split=True),
                {"type": "Digits", "individual_digits": True},
            )
        ),
        "whitespace split and metaspace": spaced(
            pre_tokenizer=sequence(
                "pretokenizers", {"type": "WhitespaceSplit"}, metaspace("always", is_split=True)
            ),
            decoder=metaspace("always", is_split=True),
            model={"byte_fallback": False},
        ),
        "old metaspace": spaced(
            pre_tokenizer={
                "type": "Metaspace",
                "replacement": META,
                "add_prefix_space": True,
                "str_rep": META,
            },
            decoder={"type": "Metaspace", "replacement": META, "add_prefix_space": True},
            model={"byte_fallback": False},
        ),
        "other sign": spaced(
            pre_tokenizer={
                "type": "Metaspace",
                "replacement": "_",
                "prepend_scheme": "always",
                "split": True,
            },
            decoder={"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True},
            model={"byte_fallback": False},
        ),
    }
    for scheme in ("always", "first", "never"):
        for is_split in (True, False):
            step = metaspace(scheme, is_split=is_split)
            for fallback in (True, False):
                for fused in (True, False):
                    files[f"metaspace {scheme} {is_split} {fallback} {fused}"] = spaced(
                        is_split=is_split,
                        pre_tokenizer=step,
                        decoder=LLAMA_DECODER if fallback else step,
                        model={"byte_fallback": fallback, "fuse_unk": fused},
                        added_tokens=[
                            *spaced()["added_tokens"],
                            added("<x>", 460),
                            added("Wor", 461, normalized=True, special=False),
                        ],
                    )
    return files


def _of_decoders() -> dict[str, Document]:
    kept = spaced()
    llama = sequence("normalizers", {"type": "Prepend", "prepend": META}, replace(" ", META))
    steps: dict[str, Any] = {
        "none": None,
        "fuse": {"type": "Fuse"},
        "replace alone": replace(META, " "),
        "bytes alone": {"type": "ByteFallback"},
        "strip first": sequence("decoders", *(LLAMA_DECODER["decoders"][i] for i in (0, 3, 1, 2))),
        "no strip": sequence("decoders", *LLAMA_DECODER["decoders"][:3]),
        "strip two": sequence(
            "decoders",
            *LLAMA_DECODER["decoders"][:3],
            {"type": "Strip", "content": " ", "start": 2, "stop": 0},
        ),
        "ctc": {"type": "CTC", "pad_token": "<s>", "word_delimiter_token": "|", "cleanup": True},
        "metaspace": metaspace("always", is_split=True),
        "metaspace and bytes": sequence(
            "decoders", {"type": "ByteFallback"}, metaspace("always", is_split=True)
        ),
    }
    files = {
        f"decoder {name}": kept | {"normalizer": llama, "pre_tokenizer": None, "decoder": step}
        for name, step in steps.items()
    }
    files["decoder of bytes is missing"] = byte_level(decoder=None)
    files["decoder of bytes is a sequence"] = byte_level(
        decoder=sequence("decoders", BYTE_LEVEL, {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    )
    files["decoder of bytes and fuse"] = byte_level(
        decoder=sequence("decoders", BYTE_LEVEL, {"type": "Fuse"})
    )
    return files


def _of_added_tokens() -> dict[str, Document]:
    n = len(byte_level()["model"]["vocab"])
    flags = [
        added("<a>", n),
        added("w-rd", n + 1, single_word=True, special=False),
        added("<l>", n + 2, lstrip=True),
        added("<r>", n + 3, rstrip=True),
        added("<lr>", n + 4, lstrip=True, rstrip=True, normalized=True),
        added("   ", n + 5, special=False, normalized=True),
        added("\n\n", n + 6, special=False),
        added("<|im_start|>", n + 7),
        added("<|im_start|>user", n + 8),
        added("犬", n + 9, special=False),
        added("123", n + 10, special=False, normalized=True),
        added("🤗", n + 11),
    ]
    listed = byte_level()
    listed["added_tokens"] = [added("the", listed["model"]["vocab"]["Ġthe"] + 0)]
    listed["added_tokens"][0] = added("er", listed["model"]["vocab"]["er"], special=False, normalized=True)
    return {
        "added flags": byte_level(added_tokens=flags),
        "added flags, lower": byte_level(added_tokens=flags, normalizer={"type": "Lowercase"}),
        "added flags, prefix space": byte_level(
            added_tokens=flags, pre_tokenizer=BYTE_LEVEL | {"add_prefix_space": True, "use_regex": True}
        ),
        "added out of order": byte_level(added_tokens=[flags[3], flags[0], flags[7]]),
        "added in reverse": byte_level(added_tokens=list(reversed(flags))),
        "added twice": byte_level(added_tokens=[flags[0], flags[0], flags[1]]),
        "added twice with other flags": byte_level(added_tokens=[flags[0], flags[0] | {"lstrip": True}]),
        "added with a gap": byte_level(added_tokens=[added("<far>", n + 1000)]),
        "added from the vocabulary": listed,
        "added byte": byte_level(added_tokens=[added("e", byte_level()["model"]["vocab"]["e"])]),
        "added spelled as bytes": byte_level(added_tokens=[added("éé", n), added("Ġx", n + 1)]),
        "added one id twice": byte_level(added_tokens=[added("<a>", n), added("<b>", n)]),
        "added empty": byte_level(added_tokens=[added("", n), added("<b>", n + 1)]),
        "added to words": words(
            added_tokens=[*words()["added_tokens"], added("<a>", 259), added("Wor", 260, normalized=True)]
        ),
        "added spaced": spaced(
            added_tokens=[
                *spaced()["added_tokens"],
                added("<0x41>", 68),
                added(f"{META}x", 460, normalized=True),
                added("a b", 461, normalized=True, special=False),
                added("<l>", 462, lstrip=True, normalized=True),
                added("<sw>", 463, single_word=True),
            ]
        ),
    }


def _of_models() -> dict[str, Document]:
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<a>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "<a>", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {"<a>": {"id": "<a>", "ids": [420], "tokens": ["<a>"]}},
    }
    sides = {"sep": ["<a>", 420], "cls": ["<b>", 421], "trim_offsets": True, "add_prefix_space": False}
    framed: Document = {"added_tokens": [added("<a>", 420), added("<b>", 421)]}
    strings = byte_level()
    strings["model"]["merges"] = [" ".join(pair) for pair in strings["model"]["merges"]]
    no_type, no_version, no_fields = byte_level(), byte_level(), byte_level()
    del no_type["model"]["type"], no_version["version"]
    for field in (
        "dropout",
        "unk_token",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "fuse_unk",
        "byte_fallback",
        "ignore_merges",
    ):
        del no_fields["model"][field]
    bare = byte_level()
    for field in ("truncation", "padding", "added_tokens", "normalizer", "post_processor"):
        del bare[field]
    unsorted = byte_level()
    unsorted["model"]["merges"] = unsorted["model"]["merges"][::-1]
    doubled = byte_level()
    doubled["model"]["merges"] += doubled["model"]["merges"][:3]
    whole = byte_level(model={"ignore_merges": True})
    whole["model"]["vocab"]["Ġunreachable"] = len(whole["model"]["vocab"])
    whole["model"]["vocab"]["hel lo"] = len(whole["model"]["vocab"])
    files = {
        "merges as strings": strings,
        "no type": no_type,
        "no version": no_version,
        "no options": no_fields,
        "bare": bare,
        "merges in reverse": unsorted,
        "merges twice": doubled,
        "whole pre-tokens": whole,
        "no merges": byte_level(model={"merges": []}),
        "dropout 0": byte_level(model={"dropout": 0.0}),
        "dropout null": byte_level(model={"dropout": None}),
        "dropout": byte_level(model={"dropout": 0.3}),
        "empty affixes": byte_level(model={"end_of_word_suffix": "", "continuing_subword_prefix": ""}),
        "holes": _with_vocabulary(byte_level(), _holes),
        "bytes are missing": _with_vocabulary(byte_level(), _no_byte),
        "bytes are missing, unknown token": _with_vocabulary(
            byte_level(model={"unk_token": "e", "fuse_unk": True}), _no_byte
        ),
        "bytes are missing, fallback": _with_vocabulary(byte_level(model={"byte_fallback": True}), _no_byte),
        "unknown token not in the vocabulary": byte_level(model={"unk_token": "<no>"}),
        "fallback of bytes": byte_level(model={"byte_fallback": True, "fuse_unk": True, "unk_token": "e"}),
        "template": byte_level(post_processor=template, **framed),
        "roberta": byte_level(post_processor={"type": "RobertaProcessing", **sides}, **framed),
        "bert": byte_level(
            post_processor={"type": "BertProcessing", "sep": sides["sep"], "cls": sides["cls"]}, **framed
        ),
        "post-processors": byte_level(
            post_processor=sequence("processors", BYTE_LEVEL | {"trim_offsets": False}, template), **framed
        ),
    }
    for direction in ("Left", "Right"):
        for strategy in ("LongestFirst", "OnlyFirst", "OnlySecond"):
            files[f"truncation {direction} {strategy}"] = byte_level(
                truncation={"direction": direction, "max_length": 5, "strategy": strategy, "stride": 1}
            )
        for size in ("BatchLongest", {"Fixed": 9}):
            files[f"padding {direction} {size}"] = byte_level(
                padding={
                    "strategy": size,
                    "direction": direction,
                    "pad_to_multiple_of": 4,
                    "pad_id": 1,
                    "pad_type_id": 0,
                    "pad_token": "!",
                }
            )
    return files


@cache
def odd_files() -> dict[str, Document]:
    """All of the files, by name."""
    return {
        **_of_normalizers(),
        **_of_pre_tokenizers(),
        **_of_words(),
        **_of_spaces(),
        **_of_decoders(),
        **_of_added_tokens(),
        **_of_models(),
    }
