"""The pre-tokenizers of llama.cpp by the names in GGUF files, as patterns.

llama.cpp has a list of regular expressions for each name, and for some names it also looks up whole pre-tokens before
merging (`ignore_merges`). `PRE_TOKENIZERS` has the names whose expressions are one of the known patterns or equivalent
to a single expression. Some of llama.cpp's expressions approximate the model's own tokenizer because its engine lacks
a feature (letters by case in `gpt-4o`, case-insensitive contractions); the table has the model's own pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill._core import NAMED_PATTERNS, named_pattern
from bytemill.errors import TokenizerFileError
from bytemill.formats.files import shown
from bytemill.formats.patterns import KIMI_K2
from bytemill.formats.ranks import unreachable_token
from bytemill.formats.spec import STEP_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WHITE_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# Qwen 2's with combining marks among the letters.
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
    rf"|{_WHITE_SPACE}"
)
# Qwen 2's without contractions.
_UFAKZEKA = rf"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_WHITE_SPACE}"
_SEED_CODER = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_WHITE_SPACE}"
)
# Two steps in one expression: single digits, then GPT-2's pattern between them. White space before a digit ends such a
# chunk, where GPT-2's look-ahead succeeds: hence the digit in the last look-ahead.
_STARCODER = r"\p{N}|'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
_JAIS2 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|"
    + "|".join(rf"\s{{{n}}}(?!\S)" for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))
    + r"|\s"
)
_EXAONE_MOE = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_K2_HORIZON = (
    r"'(?:[sdmtSDMT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}\u200c\u200d]+|\p{N}{1,3}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_WHITE_SPACE}"
)
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_KANA = "[一-龥\u3040-ゟ゠-ヿ]+"
_DEEPSEEK_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The numbers after the text before them, in groups of three from the right.
_AFMOE_DIGITS = r"\P{N}*\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\P{N}+"
_ASIAN_SCRIPTS = (
    r"[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0eff\u1780-\u17ff"
    r"\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
# Up to the next of the positions at which llama.cpp splits: those before a number of digits that three divides.
_THREE_DIGITS = r"(?s:.)(?:[^0-9]++|(?!(?:[0-9]{3})+(?![0-9]))[0-9])*"
# The letters of scripts with upper and lower case, as code points where the composed form is another character.
_CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ"
    r"\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    r"\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d"
    "ℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORDS_BY_CASE = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
)


@dataclass(frozen=True)
class PreTokenizer:
    """A pre-tokenizer of llama.cpp."""

    name: str
    pattern: str
    ignore_merges: bool = False


def _steps(*patterns: str) -> str:
    return STEP_SEPARATOR.join(patterns)


_GPT2, _LLAMA3, _O200K = NAMED_PATTERNS["gpt2"], NAMED_PATTERNS["llama3"], NAMED_PATTERNS["o200k"]
_QWEN2, _TEKKEN = NAMED_PATTERNS["qwen2"], NAMED_PATTERNS["tekken"]
_DEFAULT = _steps(r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")
# Of the names with the same pattern and the same value of `ignore_merges`, the first is used for writing.
PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    name: PreTokenizer(name, pattern, ignore_merges)
    for pattern, ignore_merges, names in (
        (_GPT2, False, "gpt-2 phi-2 gigachat a.x-4.0 mellum modern-bert exaone4 mpt olmo jais trillion"),
        (
            _GPT2,
            False,
            "granite-docling jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe",
        ),
        (_LLAMA3, True, "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"),
        (_LLAMA3, False, "smaug-bpe glm4 glm5 chatglm-bpe dbrx"),
        (_O200K, False, "gpt-4o llama4 kanana2 talkie minimax-m2"),
        (_O200K, True, "granite-embed-multi-97m"),
        (_QWEN2, False, "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2"),
        (_QWEN35, False, "qwen35"),
        (_UFAKZEKA, False, "ufakzeka"),
        (_SEED_CODER, False, "seed-coder"),
        (_TEKKEN, True, "tekken"),
        (_QWEN2, False, "bailingmoe bailingmoe2 llada-moe"),
        # With the first name, llama.cpp keeps the spaces before punctuation when it decodes.
        (_STARCODER, False, "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2"),
        (_JAIS2, False, "jais-2"),
        (_EXAONE_MOE, False, "exaone-moe"),
        (_BLOOM, False, "bloom poro-chat gpt3-finnish"),
        (_steps(_BLOOM, r"\p{N}"), False, "viking"),
        (_steps(r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]"), False, "falcon"),
        (_DEFAULT, False, "default"),
        (_steps(r"[^\n]+|[\n]+", _QWEN2), False, "laguna"),
        (
            _steps(r"\p{N}{1,3}", _KANA, _DEEPSEEK_WORDS),
            False,
            "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
        ),
        (
            _steps(
                r"\p{N}{1,3}",
                _KANA,
                _DEEPSEEK_WORDS.replace(r"[\r\n]*|\s*[\r\n]+", r"|[\r\n]"),
                r"\p{N}",
            ),
            False,
            "spark2_5",
        ),
        (_steps(_AFMOE_DIGITS, _ASIAN_SCRIPTS, _DEEPSEEK_WORDS), False, "afmoe"),
        (_steps(r"\p{N}+", _THREE_DIGITS), False, "superbpe"),
        (
            _steps(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"),
            False,
            "deepseek-coder",
        ),
        (
            _steps(
                r"[\r\n]",
                rf"\s?[{_CASED}]+",
                r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+".replace(r"\u3000", "\u3000"),
                r"\s+$",
                "[一-龥ࠀ-一가-\ud7ff]+",
                r"\p{N}+",
            ),
            False,
            "deepseek-llm",
        ),
        (
            _steps(
                "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + _KANA,
                _WORDS_BY_CASE + rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_WHITE_SPACE}",
            ),
            True,
            "youtu",
        ),
        (KIMI_K2, False, "kimi-k2"),
        (_K2_HORIZON, False, "k2-horizon"),
        (
            _steps(
                r"\p{N}{1,3}",
                rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}+"
                rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_WHITE_SPACE}",
            ),
            True,
            "minicpm5",
        ),
        (
            _steps(
                r"\d{1,3}(?=(?:\d{3})*\b)",
                _WORDS_BY_CASE + rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_WHITE_SPACE}",
            ),
            False,
            "tiny_aya cohere2moe",
        ),
        (
            _steps(
                "<sentinel:[0-9]+>",
                "IMGIMG[A-I]{1,4}Z",
                r"[\t\n]|    |  ",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                _GPT2,
            ),
            False,
            "chameleon",
        ),
    )
    for name in names.split()
}

CHARACTER_PRE_TOKENIZERS = frozenset(("gemma4", "granite-embed-multi-311m", "mmbert", "sarvam-moe"))
"""Names that stand for BPE over characters, also in files of the kind `gpt2`."""


def ignores_merges(name: str | None) -> bool:
    """Return whether llama.cpp looks up whole pre-tokens under this name."""
    known = PRE_TOKENIZERS.get(name or "")
    return known is not None and known.ignore_merges


def pre_tokenizer(name: str, location: str) -> PreTokenizer:
    """Return the pre-tokenizer of a name. Raises TokenizerFileError if its pattern is not known exactly."""
    known = PRE_TOKENIZERS.get(name)
    if known is None:
        raise TokenizerFileError(
            f"{location}: tokenizer.ggml.pre is {shown(name)}, a pre-tokenizer without a known exact pattern",
            hint="load the tokenizer.json of the model instead, or give the pattern if you know it",
        )
    return known


def same_split(one: str | None, other: str | None) -> bool:
    """Return whether two patterns are known to be equivalent."""
    if one == other:
        return True
    if one is None or other is None:
        return False
    name = named_pattern(one)
    return name is not None and name == named_pattern(other)


def matching_name(
    pattern: str | None,
    merges: Sequence[tuple[bytes, bytes]],
    tokens: Collection[bytes],
    *,
    ignore_merges: bool,
) -> str | None:
    """Return the name with which llama.cpp gives the same ids, if any."""
    candidates = [known for known in PRE_TOKENIZERS.values() if same_split(known.pattern, pattern)]
    if not candidates:
        return None
    if candidates[0].ignore_merges != ignore_merges and (unreachable_token(merges, list(tokens)) is not None):
        # The lookup of whole pre-tokens matters: merging alone does not produce every token.
        candidates = [known for known in candidates if known.ignore_merges == ignore_merges]
    return candidates[0].name if candidates else None
