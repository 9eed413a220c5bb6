"""What the command line says of a tokenizer file that names neither pattern nor special tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Sequence


def load_arguments(pattern: str | None, special_tokens: Sequence[str]) -> dict[str, Any]:
    """The arguments of `Tokenizer.load` for `--pattern` and `--special-token`; none where they are left out.

    Raises TokenizerError where some special tokens have an id and others have none.

    >>> load_arguments("none", ["<|endoftext|>=50256"])
    {'pattern': None, 'special_tokens': {'<|endoftext|>': 50256}}
    >>> load_arguments(None, ["<s>", "</s>"])
    {'special_tokens': ['<s>', '</s>']}
    """
    arguments: dict[str, Any] = {}
    if pattern is not None:
        arguments["pattern"] = None if pattern == "none" else pattern
    if special_tokens:
        with_ids = dict(parsed for word in special_tokens if (parsed := _with_id(word)) is not None)
        if with_ids and len(with_ids) != len(special_tokens):
            raise TokenizerError(
                "some special tokens have an id and others have none",
                hint="Give =ID with all of them, or with none.",
            )
        arguments["special_tokens"] = with_ids or list(special_tokens)
    return arguments


def _with_id(word: str) -> tuple[str, int] | None:
    text, equals, number = word.rpartition("=")
    if not (text and equals and number.isascii() and number.isdigit() and len(number) <= 10):
        return None
    return text, int(number)
