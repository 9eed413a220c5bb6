r"""Chapter 1: from a corpus to pre-tokens.

A text is first cut at its special tokens. What lies between them is cut by a regular expression into
pre-tokens, roughly words with the blank before them. No token ever reaches across the border of a pre-token.
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
    # Contraction, letters, digits, signs (the last three with one blank before them), white space; of white
    # space before a word, the last character is left to the word.
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    # `\Z` stands where tiktoken has `$`, which in Python would also match before a final newline.
    "cl100k": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++\Z|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    "llama3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # Letters begin with upper case and go on with lower case, so camelCase falls apart.
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""Expressions of well-known tokenizers by name."""


def corpus_pretokens(
    text: str | Iterable[str], special_tokens: Collection[str], pattern: str | None
) -> Iterator[bytes]:
    """The pre-tokens of one document or several, as UTF-8, without the special tokens."""
    for document in [text] if isinstance(text, str) else text:
        for piece, is_special in split_at_special_tokens(document, special_tokens):
            if not is_special:
                for pretoken in pretokenize(piece, pattern):
                    yield pretoken.encode()


def split_at_special_tokens(text: str, special_tokens: Collection[str]) -> list[tuple[str, bool]]:
    """The text in pieces, each with True where it is a special token; empty pieces are left out.

    The leftmost special token is taken first, and where several begin at one place, the longest.

    >>> split_at_special_tokens("a<s><s>b", ["<s>", "<s><s>"])
    [('a', False), ('<s><s>', True), ('b', False)]
    """
    if not special_tokens:
        return [(text, False)] if text else []
    longest_first = sorted(special_tokens, key=len, reverse=True)
    # The group makes `re.split` keep what it split at: every second piece is a special token.
    pieces = re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text)
    return [(piece, place % 2 == 1) for place, piece in enumerate(pieces) if piece]


def pretokenize(text: str, pattern: str | None) -> list[str]:
    """The pre-tokens of `text`, in order; joined they are the text again.

    `pattern` is a name in `PATTERNS`, a regular expression, several of them with `(?#then)` in between (each cuts
    the pieces of the one before), or None: the whole text is one pre-token. Text
    that no match covers forms pre-tokens of its own, so nothing is lost. After an empty match the search goes
    on behind the next character.

    Raises BytemillError where the package `regex` is missing, TokenizerError for an expression that does not
    compile.

    >>> pretokenize("It's 2 blanks:  here", "gpt2")
    ['It', "'s", ' 2', ' blanks', ':', ' ', ' here']
    >>> pretokenize("one, two", "[a-z]+")
    ['one', ', ', 'two']
    """
    if pattern is None:
        return [text] if text else []
    first, then, rest = pattern.partition("(?#then)")
    if then:  # several patterns: each cuts the pieces of the one before
        return [pretoken for piece in pretokenize(text, first) for pretoken in pretokenize(piece, rest)]
    expression = _compile(PATTERNS.get(pattern, pattern))
    pretokens: list[str] = []
    covered = 0  # characters in the pre-tokens so far
    position = 0  # where the search for the next match begins
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
    """The compiled expression, by the package `regex`: the standard library's `re` has no `\\p{L}`."""
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
            f"pattern {expression!r} is neither a known name nor a regular expression that compiles: {error}",
            hint=f"known names: {', '.join(PATTERNS)}",
        ) from error


def check_special_tokens(special_tokens: Collection[str]) -> None:
    """Raise TokenizerError unless `special_tokens` is a collection of distinct texts, none of them empty."""
    if isinstance(special_tokens, str):
        raise TokenizerError(
            f"special_tokens is the single text {special_tokens!r}", hint=f"write [{special_tokens!r}]"
        )
    for token, n_times in Counter(iter(special_tokens)).items():
        if not token:
            raise TokenizerError("a special token is empty", hint="leave it out")
        if n_times > 1:
            raise TokenizerError(f"special token {token!r} is given {n_times} times", hint="give it once")
