"""Rules about the tokens that training makes: how long they may be, which are never made, and which are made first."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import CorpusError, TokenizerError
from bytemill.formats.patterns import Pattern
from bytemill.tokenizer.surgery.extension import add_words
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EXPRESSION = "regex:"
"""What begins a regular expression among texts that are forbidden."""


@dataclass(frozen=True)
class TokenRules:
    """What tokens may not be. The 256 bytes, special tokens and required words are never forbidden."""

    max_bytes: int | None = None
    max_characters: int | None = None
    """Most characters of a token. Part of a character counts as one."""
    forbidden: frozenset[bytes] = frozenset()
    """Tokens that no merge makes."""
    expressions: tuple[re.Pattern[str], ...] = field(default=())
    """Nor does any merge make a token whose text contains a match of one of these."""
    max_words: int | None = None
    """Most words of a token, with ASCII white space between them."""

    @classmethod
    def of(
        cls,
        max_bytes: int | None,
        max_characters: int | None,
        forbid: Iterable[str],
        max_words: int | None = None,
    ) -> TokenRules | None:
        """Return rules, or None if there are none.

        Raises:
            TokenizerError: A length is below 1, or an expression does not compile.
        """
        lengths = {
            "max_token_bytes": max_bytes,
            "max_token_characters": max_characters,
            "max_token_words": max_words,
        }
        for name, value in lengths.items():
            if value is not None and (not isinstance(value, int) or value < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TokenizerError(f"{name} is {value!r}", hint="use a whole number of at least 1")
        if isinstance(forbid, str):
            raise TokenizerError("forbid is a str, not a list of str", hint=f"use forbid=[{forbid!r}]")
        texts = list(forbid)
        expressions = tuple(
            _compiled(text.removeprefix(EXPRESSION)) for text in texts if text.startswith(EXPRESSION)
        )
        forbidden = frozenset(text.encode() for text in texts if not text.startswith(EXPRESSION))
        if not texts and all(length is None for length in lengths.values()):
            return None
        return cls(max_bytes, max_characters, forbidden, expressions, max_words)

    def forbids(self, token: bytes) -> bool:
        """Return whether no merge may make a token."""
        if self.max_bytes is not None and len(token) > self.max_bytes:
            return True
        if token in self.forbidden:
            return True
        if self.max_words is not None and len(token.split()) > self.max_words:
            return True
        if self.max_characters is None and not self.expressions:
            return False
        text = token.decode("utf-8", "surrogateescape")
        if self.max_characters is not None and n_characters(token) > self.max_characters:
            return True
        return any(expression.search(text) for expression in self.expressions)


def n_characters(token: bytes) -> int:
    """Return the number of characters that a token has a part of.

    >>> n_characters("né".encode()), n_characters("é".encode()[1:] + b"x")
    (2, 2)
    """
    n_starts = sum(byte & 0xC0 != 0x80 for byte in token)
    return n_starts + (token[:1] != b"" and token[0] & 0xC0 == 0x80)


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise TokenizerError(
            f"the expression {expression!r} does not compile: {error}",
            hint="write it as for Python's module re",
        ) from error


def first_merges(
    pattern: str | None,
    require: Sequence[str],
    initial: Tokenizer | None,
    rules: TokenRules | None,
) -> Tokenizer | None:
    """Return a tokenizer of the bytes with the merges that come first: those of `initial`, then those of words.

    Args:
        pattern: The expression of the training's pattern, under which each word must be one pre-token.
        require: Words that are tokens, as they stand in texts: a word after a space begins with the space.
        initial: A byte-level tokenizer.
        rules: Rules that a word may not break.

    Raises:
        TokenizerError: A word is divided by the pattern or forbidden, or `initial` is not byte-level BPE with merges.
    """
    if isinstance(require, str):
        raise TokenizerError("require is a str, not a list of str", hint=f"use require=[{require!r}]")
    for word in require:
        if rules is not None and rules.forbids(word.encode()):
            raise TokenizerError(
                f"the word {word!r} is required and forbidden", hint="leave out one of the two"
            )
    merges: list[tuple[bytes, bytes]] = []
    if initial is not None:
        encoder = initial.own_core("training from its merges")
        if encoder.ranked or initial.characters is not None or encoder.shape is not None:
            raise TokenizerError(
                "training can begin with the merges of a byte-level tokenizer only",
                hint="use one whose file has merges over bytes, such as a tokenizer.json of GPT-2's kind",
            )
        merges = list(initial.merges)
    if not merges and not require:
        return None
    vocab = dict(enumerate([*(bytes([byte]) for byte in range(256)), *(a + b for a, b in merges)]))
    first = Tokenizer(vocab, merges, pattern=None if pattern is None else Pattern(pattern))
    return add_words(first, require).tokenizer if require else first


def read_forbidden(name: str) -> list[str]:
    """Return the texts of an option: an expression itself, or the lines of a file.

    Raises:
        CorpusError: The file cannot be read, or is not UTF-8.
    """
    if name.startswith(EXPRESSION):
        return [name]
    try:
        return [line for line in Path(name).read_text(encoding="utf-8").splitlines() if line]
    except OSError as error:
        raise CorpusError(f"cannot read {name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CorpusError(f"{name} is not UTF-8: byte {error.start}") from error
