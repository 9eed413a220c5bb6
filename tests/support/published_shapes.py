"""Pre-tokenizers, normalizers and added tokens of published models' tokenizer.json, to be put around any vocabulary.

Everything except vocabulary and merges is copied from the published files.
"""

import json
from itertools import count
from typing import Any

from bytemill._core import NAMED_PATTERNS

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + ENDS
WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
)
TEKKEN = WORDS + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + ENDS
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" + "\r\n" + r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[" + "\r\n" + r"]*|\s*[" + "\r\n" + r"]+|\s+(?!\S)|\s+",
]


def byte_level(*, use_regex: bool | None, trim_offsets: bool = True) -> dict[str, Any]:
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": trim_offsets}
    return step if use_regex is None else step | {"use_regex": use_regex}


def splits(*expressions: str, behavior: str = "Isolated", invert: bool = False) -> list[dict[str, Any]]:
    return [
        {"type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": invert}
        for expression in expressions
    ]


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def added(*texts: str, **flags: bool) -> list[dict[str, Any]]:
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"content": text, **usual, **flags} for text in texts]


def around(first: str) -> dict[str, Any]:
    """The post-processor that puts a token in front of a text."""
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": first, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {first: {"id": first, "ids": [first], "tokens": [first]}},
    }


# llama.cpp's src/llama-vocab.cpp has the pre-tokenizers of the following models, as converted from their files.
# Written as code points where Unicode's composed form is another character.
_CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ"
    r"\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    r"\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d"
    "ℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
DEEPSEEK_2 = ["[\r\n]", rf"\s?[{_CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+"]
DEEPSEEK_CODER = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
QWEN_35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + ENDS
_NOT_HAN = r"&&[^\p{Han}]]"
KIMI = (
    r"[\p{Han}]+"
    + "".join(
        rf"|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{_NOT_HAN}{upper}"
        rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{_NOT_HAN}{lower}{CONTRACTIONS}?"
        for upper, lower in (("*", "+"), ("+", "*"))
    )
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    + ENDS
)


DIGITS = {"type": "Digits", "individual_digits": True}
NFC = {"type": "NFC"}
BLANKS = [" " * n for n in range(24, 1, -1)]

# name: (the parts of the file, the added tokens, fields of the model)
SHAPES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = {
    "gpt2": (
        {"pre_tokenizer": byte_level(use_regex=None)},
        added("<|endoftext|>", normalized=True),
        {"continuing_subword_prefix": "", "end_of_word_suffix": ""},
    ),
    "roberta": (
        {
            "pre_tokenizer": byte_level(use_regex=None),
            "post_processor": {
                "type": "RobertaProcessing",
                "sep": ["</s>", "</s>"],
                "cls": ["<s>", "<s>"],
                "trim_offsets": True,
                "add_prefix_space": False,
            },
        },
        [*added("<s>", "<pad>", "</s>", "<unk>", normalized=True), *added("<mask>", lstrip=True)],
        {"continuing_subword_prefix": "", "end_of_word_suffix": ""},
    ),
    "llama3": (
        {
            "pre_tokenizer": sequence(*splits(NAMED_PATTERNS["llama3"]), byte_level(use_regex=False)),
            "post_processor": {
                "type": "Sequence",
                "processors": [byte_level(use_regex=True, trim_offsets=False), around("<|begin_of_text|>")],
            },
        },
        added("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
        {"ignore_merges": True},
    ),
    "qwen": (
        {
            "normalizer": NFC,
            "pre_tokenizer": sequence(*splits(QWEN), byte_level(use_regex=False, trim_offsets=False)),
            "post_processor": byte_level(use_regex=False, trim_offsets=False),
            "decoder": byte_level(use_regex=False, trim_offsets=False),
        },
        [*added("<|endoftext|>", "<|im_start|>"), *added("<think>", "</think>", special=False)],
        {"continuing_subword_prefix": "", "end_of_word_suffix": "", "byte_fallback": False},
    ),
    "deepseek-v3": (
        {
            "pre_tokenizer": sequence(*splits(*DEEPSEEK), byte_level(use_regex=False)),
            "normalizer": {"type": "Sequence", "normalizers": []},
        },
        [
            *added("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
            *added("<｜User｜>", normalized=True, special=False),
        ],
        {},
    ),
    "mistral-tekken": (
        {
            "pre_tokenizer": sequence(*splits(TEKKEN), byte_level(use_regex=False)),
            "post_processor": around("<s>"),
        },
        added("<unk>", "<s>", "</s>", "[INST]"),
        {"ignore_merges": True},
    ),
    "phi-2": (
        {"pre_tokenizer": byte_level(use_regex=None)},
        [*added("<|endoftext|>"), *added(*BLANKS, "\t\t\t", "\t\t", normalized=True, special=False)],
        {},
    ),
    "phi-4": (
        {
            "pre_tokenizer": sequence(
                *splits(NAMED_PATTERNS["llama3"], behavior="Removed", invert=True),
                byte_level(use_regex=False),
            )
        },
        added("<|endoftext|>", "<|im_start|>", "<|im_sep|>", lstrip=True, rstrip=True),
        {},
    ),
    "starcoder-smollm": (
        {"pre_tokenizer": sequence(DIGITS, byte_level(use_regex=True))},
        added("<|endoftext|>", "<fim_prefix>", "<filename>"),
        {},
    ),
    "gpt-neox-olmo": (
        {
            "normalizer": NFC,
            "pre_tokenizer": byte_level(use_regex=None),
            "post_processor": around("<|endoftext|>"),
        },
        [*added("<|endoftext|>", "<|padding|>"), *added(*BLANKS, normalized=True, special=False)],
        {},
    ),
    "modernbert": (
        {"normalizer": NFC, "pre_tokenizer": byte_level(use_regex=True), "post_processor": around("[CLS]")},
        [
            *added("|||IP_ADDRESS|||", *BLANKS, normalized=True, special=False),
            *added("[CLS]", "[SEP]"),
            *added("[MASK]", lstrip=True),
        ],
        {},
    ),
    "deepseek-v2": (
        {"pre_tokenizer": sequence(*splits(*DEEPSEEK_2), DIGITS, byte_level(use_regex=False))},
        added("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        {},
    ),
    "deepseek-coder": (
        {"pre_tokenizer": sequence(*splits(*DEEPSEEK_CODER), DIGITS, byte_level(use_regex=False))},
        added("<｜begin▁of▁sentence｜>", "<|EOT|>"),
        {},
    ),
    "bloom": (
        {"pre_tokenizer": sequence(*splits(BLOOM), byte_level(use_regex=False))},
        added("<unk>", "<s>", "</s>", "<pad>"),
        {},
    ),
    "falcon": (
        {
            "pre_tokenizer": sequence(
                {"type": "Punctuation", "behavior": "Contiguous"},
                byte_level(use_regex=True),
                {"type": "Digits", "individual_digits": False},
                *splits("[0-9][0-9][0-9]"),
            )
        },
        added(">>TITLE<<", "<|endoftext|>"),
        {},
    ),
    "qwen-3.5": (
        {"normalizer": NFC, "pre_tokenizer": sequence(*splits(QWEN_35), byte_level(use_regex=False))},
        added("<|endoftext|>", "<|im_start|>"),
        {},
    ),
    "kimi-k2": (
        {"pre_tokenizer": sequence(*splits(KIMI), byte_level(use_regex=False))},
        added("[BOS]", "<|im_user|>"),
        {"ignore_merges": True},
    ),
    "gpt-oss-llama4": (
        {"pre_tokenizer": sequence(*splits(NAMED_PATTERNS["o200k"]), byte_level(use_regex=False))},
        added("<|startoftext|>", "<|return|>", "<|channel|>"),
        {"ignore_merges": True},
    ),
    "glm-4": (
        {"pre_tokenizer": sequence(*splits(NAMED_PATTERNS["llama3"]), byte_level(use_regex=False))},
        added("<|endoftext|>", "[gMASK]", "<sop>", "<|user|>"),
        {},
    ),
    "command-r": (
        {"normalizer": NFC, "pre_tokenizer": sequence(DIGITS, byte_level(use_regex=True))},
        added("<PAD>", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
        {},
    ),
    "single words": (
        {"pre_tokenizer": byte_level(use_regex=True)},
        [*added("cat", "the", single_word=True, special=False), *added("mat", single_word=True, rstrip=True)],
        {},
    ),
}


def in_shape(trained: dict[str, Any], name: str) -> str:
    """Return the tokenizer.json of a shape with the vocabulary and merges of another one, given as parsed JSON."""
    parts, tokens, fields = SHAPES[name]
    model = {key: value for key, value in trained["model"].items() if key != "bytemill"} | fields
    new_ids = count(len(model["vocab"]))
    tokens = [{"id": model["vocab"].get(t["content"]) or next(new_ids), **t} for t in tokens]
    document = trained | {"post_processor": None} | parts | {"added_tokens": tokens, "model": model}
    text = json.dumps(document)
    # Where a post-processor needs the id of its token, the table above has its text.
    for token in tokens:
        spelled = json.dumps(token["content"])
        text = text.replace(f'"ids": [{spelled}]', f'"ids": [{token["id"]}]')
        text = text.replace(f"[{spelled}, {spelled}]", f"[{spelled}, {token['id']}]")
    return text
