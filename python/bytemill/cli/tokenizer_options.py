"""The options `--pattern` and `--special-token`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter

from bytemill._core import NAMED_PATTERNS
from bytemill.errors import TokenizerError
from bytemill.formats.patterns import Pattern, resolve_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.formats.spec import SpecialTokens

_REGEX = "regex:"

PATTERNS = f"{', '.join(NAMED_PATTERNS)}, none, or regex:EXPR."
"""The values of `--pattern`, for help texts."""

PatternOfFile: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--pattern",
        help=f"Pattern of a file that stores none (.tiktoken, vocab.json with merges.txt): {PATTERNS}",
    ),
]
SpecialTokensOfFile: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(
        name="--special-token",
        help="Special token of a file that stores none, as TOKEN or TOKEN=ID. Repeat for several.",
    ),
]


def parse_pattern(text: str) -> Pattern | None:
    r"""Return the pattern of `--pattern NAME|none|regex:EXPR`.

    Raises:
        TokenizerError: The name is unknown, or the expression does not compile.

    >>> parse_pattern(r"regex:\w+").expression
    '\\w+'
    """
    if text == "none":
        return None
    if text.startswith(_REGEX):
        return Pattern.regex(text.removeprefix(_REGEX))
    expression = resolve_pattern(text)
    return None if expression is None else Pattern(expression)


def load_arguments(pattern: str | None, special_tokens: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of `Tokenizer.load` for `--pattern` and `--special-token`, omitting unset ones.

    Raises:
        TokenizerError: The pattern is invalid, or only some of the special tokens have an id.

    >>> load_arguments("none", ["<|endoftext|>=50256"])
    {'pattern': None, 'special_tokens': {'<|endoftext|>': 50256}}
    >>> load_arguments(None, ["<s>", "</s>"])
    {'special_tokens': ['<s>', '</s>']}
    """
    arguments: dict[str, Any] = {}
    if pattern is not None:
        arguments["pattern"] = parse_pattern(pattern)
    if special_tokens:
        arguments["special_tokens"] = parse_special_tokens(special_tokens)
    return arguments


def parse_special_tokens(words: Sequence[str]) -> SpecialTokens:
    """Return special tokens of the command line, TOKEN or TOKEN=ID.

    Raises:
        TokenizerError: Only some of them have an id.
    """
    with_ids = dict(parsed for word in words if (parsed := _with_id(word)) is not None)
    if with_ids and len(with_ids) != len(words):
        raise TokenizerError(
            "some special tokens have an id and others do not", hint="add =ID to every one, or to none"
        )
    return with_ids or list(words)


def _with_id(word: str) -> tuple[str, int] | None:
    text, equals, number = word.rpartition("=")
    if not (text and equals and number.isascii() and number.isdigit() and len(number) <= 10):
        return None
    return text, int(number)
