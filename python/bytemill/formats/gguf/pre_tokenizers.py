"""llama.cpp's names for pre-tokenizers and the patterns they stand for.

A GGUF file names its pre-tokenizer (`tokenizer.ggml.pre`) without defining it: llama.cpp has a list of regular
expressions for each name, and for some names it also looks up whole pre-tokens before merging (`ignore_merges`). This
table has the names whose expressions are one of the known patterns or equivalent to a single expression. Some of
llama.cpp's expressions approximate the model's own tokenizer because its engine lacks a feature (letters by case in
`gpt-4o`, case-insensitive contractions); the table has the model's own pattern.
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


@dataclass(frozen=True)
class PreTokenizer:
    """A pre-tokenizer of llama.cpp."""

    name: str
    pattern: str
    ignore_merges: bool = False


_GPT2, _LLAMA3, _O200K = NAMED_PATTERNS["gpt2"], NAMED_PATTERNS["llama3"], NAMED_PATTERNS["o200k"]
_QWEN2, _TEKKEN = NAMED_PATTERNS["qwen2"], NAMED_PATTERNS["tekken"]
# Of the names with the same pattern and the same value of `ignore_merges`, the first is used for writing.
PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    name: PreTokenizer(name, pattern, ignore_merges)
    for pattern, ignore_merges, names in (
        (_GPT2, False, "gpt-2 phi-2 gigachat a.x-4.0 mellum modern-bert exaone4 mpt olmo jais trillion"),
        (_GPT2, False, "granite-docling"),
        (_LLAMA3, True, "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"),
        (_LLAMA3, False, "smaug-bpe glm4 chatglm-bpe dbrx"),
        (_O200K, False, "gpt-4o llama4 kanana2 talkie minimax-m2"),
        (_QWEN2, False, "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2"),
        (_QWEN35, False, "qwen35"),
        (_UFAKZEKA, False, "ufakzeka"),
        (_SEED_CODER, False, "seed-coder"),
        (_TEKKEN, True, "tekken"),
        (_QWEN2, False, "bailingmoe bailingmoe2 llada-moe"),
        (_STARCODER, False, "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2"),
    )
    for name in names.split()
}

# Further names for which llama.cpp looks up whole pre-tokens.
_IGNORE_MERGES = frozenset({"youtu", "minicpm5", "granite-embed-multi-97m"})


def ignores_merges(name: str | None) -> bool:
    """Return whether llama.cpp looks up whole pre-tokens under this name."""
    known = PRE_TOKENIZERS.get(name or "")
    return known.ignore_merges if known else name in _IGNORE_MERGES


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
