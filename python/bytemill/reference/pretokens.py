r"""Step 1: split a corpus into pre-tokens.

A text is split at its special tokens. A regular expression splits the rest into pre-tokens, roughly words with the
space before them. No token crosses the boundary of a pre-token.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bytemill.errors import BytemillError, TokenizerError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

PATTERNS: dict[str, str] = {
    # Contractions, letters, digits, symbols (the last three after an optional space), white space. The last character
    # of white space before a word belongs to the word.
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    # tiktoken has `$` for `\Z`, but in Python `$` also matches before a final newline.
    "cl100k": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++\Z|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    "llama3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # Upper-case letters, then lower-case letters, which splits camelCase.
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # Llama 3's with single digits.
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # o200k's without contractions and with single digits.
    "tekken": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""Regular expressions of well-known tokenizers by name."""

_VISIBLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHERS = sorted(set(range(256)) - _VISIBLE)
BYTE_CHARACTERS = "".join(
    chr(byte if byte in _VISIBLE else 0x100 + _OTHERS.index(byte)) for byte in range(256)
)
"""GPT-2's character for each byte: the byte's own in Latin-1 if that is visible, else the next from U+0100 on."""


def corpus_pretokens(
    text: str | Iterable[str], special_tokens: Collection[str], pattern: str | None
) -> Iterator[bytes]:
    """Yield the pre-tokens of a corpus as UTF-8, without special tokens.

    Args:
        text: One document or several.
        special_tokens: Special tokens, which are removed.
        pattern: A pattern as in `pretokenize`.
    """
    for document in [text] if isinstance(text, str) else text:
        for part, is_special in split_at_special_tokens(document, special_tokens):
            if not is_special:
                yield from pretoken_bytes(part, pattern)


def split_at_special_tokens(text: str, special_tokens: Collection[str]) -> list[tuple[str, bool]]:
    """Split a text at special tokens.

    The leftmost special token comes first. If several start at the same position, the longest is taken.

    Args:
        text: A text.
        special_tokens: Special tokens.

    Returns:
        The parts that are not empty, each with True if it is a special token.

    >>> split_at_special_tokens("a<s><s>b", ["<s>", "<s><s>"])
    [('a', False), ('<s><s>', True), ('b', False)]
    """
    if not special_tokens:
        return [(text, False)] if text else []
    longest_first = sorted(special_tokens, key=len, reverse=True)
    # Because of the group, `re.split` returns the separators too: every second part is a special token.
    parts = re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text)
    return [(part, index % 2 == 1) for index, part in enumerate(parts) if part]


def pretoken_bytes(text: str, pattern: str | None) -> list[bytes]:
    """Split a text into pre-tokens as UTF-8.

    Args:
        text: A text.
        pattern: A pattern as in `pretokenize`. After `(?#bytes)`, it may have steps that split the bytes of the
            pre-tokens, each as the character that GPT-2's table has for it; so they may divide a character.

    Raises:
        BytemillError: The package `regex` is not installed.
        TokenizerError: The regular expression does not compile.

    >>> pretoken_bytes("naïve ²", "gpt2(?#bytes)²")
    [b'na\\xc3\\xafve', b' \\xc2', b'\\xb2']
    """
    of_texts, _, of_bytes = (pattern or "").partition("(?#bytes)")
    pretokens = [pretoken.encode() for pretoken in pretokenize(text, of_texts or None)]
    if not of_bytes:
        return pretokens
    return [
        bytes(map(BYTE_CHARACTERS.index, part))
        for pretoken in pretokens
        for part in pretokenize("".join(BYTE_CHARACTERS[byte] for byte in pretoken), of_bytes)
    ]


def pretokenize(text: str, pattern: str | None) -> list[str]:
    """Split a text into pre-tokens, which joined give the text again.

    Text between matches forms pre-tokens of its own. After an empty match, the search continues one character later.

    Args:
        text: A text.
        pattern: A name in `PATTERNS`, or a regular expression, or several joined by `(?#then)`, each of which splits
            the pre-tokens of the previous one. None: the text is one pre-token.

    Raises:
        BytemillError: The package `regex` is not installed.
        TokenizerError: The regular expression does not compile.

    >>> pretokenize("It's 2 blanks:  here", "gpt2")
    ['It', "'s", ' 2', ' blanks', ':', ' ', ' here']
    >>> pretokenize("one, two", "[a-z]+")
    ['one', ', ', 'two']
    """
    if pattern is None:
        return [text] if text else []
    first, then, rest = pattern.partition("(?#then)")
    if then:
        return [pretoken for part in pretokenize(text, first) for pretoken in pretokenize(part, rest)]
    expression = _compile(PATTERNS.get(pattern, pattern))
    pretokens: list[str] = []
    covered = 0  # end of the last pre-token
    position = 0  # start of the search for the next match
    while position < len(text) and (match := expression.search(text, position)):
        start, end = match.span()
        if start == end:
            position = end + 1
            continue
        if covered < start:
            pretokens.append(text[covered:start])
        pretokens.append(text[start:end])
        covered = position = end
    if covered < len(text):
        pretokens.append(text[covered:])
    return pretokens


@lru_cache
def _compile(expression: str) -> Any:
    """Compile an expression with the package `regex`, because `re` does not support `\\p{L}`."""
    try:
        regex = importlib.import_module("regex")
    except ModuleNotFoundError as error:
        raise BytemillError(
            "the reference pre-tokenizer needs the package 'regex', which is not installed",
            hint="pip install regex",
        ) from error
    try:
        return regex.compile(expression)
    except regex.error as error:
        raise TokenizerError(
            f"pattern {expression!r} is neither a known name nor a valid regular expression: {error}",
            hint=f"known names: {', '.join(PATTERNS)}",
        ) from error


def check_special_tokens(special_tokens: Collection[str]) -> None:
    """Check that special tokens are distinct and not empty. Raises TokenizerError otherwise."""
    if isinstance(special_tokens, str):
        raise TokenizerError(
            f"special_tokens is the single text {special_tokens!r}", hint=f"write [{special_tokens!r}]"
        )
    for token, n_times in Counter(iter(special_tokens)).items():
        if not token:
            raise TokenizerError("a special token is empty", hint="leave it out")
        if n_times > 1:
            raise TokenizerError(f"special token {token!r} occurs {n_times} times", hint="pass it once")
