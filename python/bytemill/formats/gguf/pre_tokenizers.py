"""llama.cpp's names for pre-tokenizers, and the patterns that they stand for.

A GGUF file names its pre-tokenizer (`tokenizer.ggml.pre`) and does not say what it does: llama.cpp has a list of
expressions for each name, and for some names it also looks whole pre-tokens up before it merges. Here are the
names whose expressions are one of our patterns, or are equal to a single expression. Where llama.cpp says that
its expression stands in for another one, which its engine lacks (letters by case in `gpt-4o`, contractions after
folding of case), it is that other one, of the model's own tokenizer, that counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill._core import NAMED_PATTERNS, named_pattern
from bytemill.errors import TokenizerFileError
from bytemill.formats.files import shown
from bytemill.formats.ranks import unreachable_token

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WHITE_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# Llama 3's with single digits.
_QWEN2 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_WHITE_SPACE}"
)
# The same with combining marks among the letters.
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
    rf"|{_WHITE_SPACE}"
)
# The same without contractions.
_UFAKZEKA = rf"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_WHITE_SPACE}"
_SEED_CODER = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_WHITE_SPACE}"
)
# o200k's without contractions, with single digits.
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_WHITE_SPACE}"
)
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
# Digits are cut off one by one, and GPT-2's pattern splits what lies between them. White space before a digit
# is at the end of such a piece, where GPT-2's looks ahead to nothing: hence the digit in the last look-ahead.
_STARCODER = r"\p{N}|'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"


@dataclass(frozen=True)
class PreTokenizer:
    """What a name stands for."""

    name: str
    pattern: str
    """The expression."""
    ignore_merges: bool = False


def _table() -> dict[str, PreTokenizer]:
    named = NAMED_PATTERNS
    # The first name of a row is the one that is written.
    rows: list[tuple[str, bool, str]] = [
        (
            named["gpt2"],
            False,
            "gpt-2 phi-2 gigachat a.x-4.0 mellum modern-bert exaone4 mpt olmo jais trillion",
        ),
        (named["gpt2"], False, "granite-docling"),
        (
            named["llama3"],
            True,
            "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        ),
        (named["llama3"], False, "smaug-bpe glm4 chatglm-bpe dbrx"),
        (named["o200k"], False, "gpt-4o llama4 kanana2 talkie minimax-m2"),
        (_QWEN2, False, "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2"),
        (_QWEN35, False, "qwen35"),
        (_UFAKZEKA, False, "ufakzeka"),
        (_SEED_CODER, False, "seed-coder"),
        (_TEKKEN, True, "tekken"),
        (_BAILING, False, "bailingmoe bailingmoe2 llada-moe"),
        (_STARCODER, False, "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2"),
    ]
    return {
        name: PreTokenizer(name, pattern, whole) for pattern, whole, names in rows for name in names.split()
    }


PRE_TOKENIZERS: dict[str, PreTokenizer] = _table()

# Names that llama.cpp knows beyond these and for which it looks whole pre-tokens up.
_IGNORE_MERGES = frozenset({"youtu", "minicpm5", "granite-embed-multi-97m"})


def ignores_merges(name: str | None) -> bool:
    """Whether llama.cpp, under this name, takes a pre-token that is a token for that token without merging."""
    known = PRE_TOKENIZERS.get(name or "")
    return known.ignore_merges if known else name in _IGNORE_MERGES


def pre_tokenizer(name: str, location: str) -> PreTokenizer:
    """What `name` stands for. Raises TokenizerFileError where bytemill knows no pattern that is exactly that."""
    known = PRE_TOKENIZERS.get(name)
    if known is None:
        raise TokenizerFileError(
            f"{location}: tokenizer.ggml.pre is {shown(name)}, and bytemill knows no pattern that splits "
            "exactly as this pre-tokenizer does",
            hint="Load the tokenizer.json of the model instead, or give the pattern if you know it.",
        )
    return known


def same_split(one: str | None, other: str | None) -> bool:
    """Whether two patterns are known to split alike."""
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
    """The name under which llama.cpp encodes as these parts say; None where there is none."""
    alike = [known for known in PRE_TOKENIZERS.values() if same_split(known.pattern, pattern)]
    if not alike:
        return None
    if alike[0].ignore_merges != ignore_merges and (unreachable_token(merges, list(tokens)) is not None):
        # Looking whole pre-tokens up makes a difference, since merging alone does not lead to every token.
        alike = [known for known in alike if known.ignore_merges == ignore_merges]
    return alike[0].name if alike else None
