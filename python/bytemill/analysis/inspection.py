"""Inspect the tokens of a text, and make tokens visible on one line."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bytemill.analysis.metrics import text_metrics
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.tokenizer.encoding import AllowedSpecial
    from bytemill.tokenizer.explanation import Explanation
    from bytemill.tokenizer.tokenizer import Tokenizer

PartKind: TypeAlias = Literal["text", "line end", "control", "bytes"]

LINE_END = "↵"
"""Symbol for a line feed."""
TOKENS_PER_CALL = 1 << 16
"""Tokens between two calls of `progress`."""


@dataclass(frozen=True)
class VisiblePart:
    """A part of a token, as it is shown."""

    kind: PartKind
    """"control": characters that are invisible or move the cursor. "bytes": bytes that are part of a character."""
    shown: str


@dataclass(frozen=True)
class TextToken:
    """One token of a text."""

    id: int
    bytes: bytes
    special: bool
    start: int
    """Byte offset in the text."""

    @property
    def text(self) -> str | None:
        """The token as text. None if it is not valid UTF-8."""
        try:
            return self.bytes.decode()
        except UnicodeDecodeError:
            return None

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types; `bytes` in hexadecimal."""
        return {
            "id": self.id,
            "text": self.text,
            "bytes": self.bytes.hex(),
            "start": self.start,
            "end": self.start + len(self.bytes),
            "special": self.special,
        }


@dataclass(frozen=True)
class Inspection:
    """The tokens of a text, in order, with totals."""

    tokens: list[TextToken]
    n_bytes: int
    """UTF-8 bytes of the text."""
    n_characters: int
    """Code points of the text."""
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Metrics by name (`analysis.metrics`)."""

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types."""
        return {
            "n_tokens": self.n_tokens,
            "n_bytes": self.n_bytes,
            "n_characters": self.n_characters,
            **{name: round(value, 4) for name, value in self.metrics.items()},
            "tokens": [token.to_dict() for token in self.tokens],
        }


def inspect(
    tokenizer: Tokenizer,
    text: str,
    *,
    allowed_special: AllowedSpecial = "all",
    progress: Callable[[int, int], None] | None = None,
) -> Inspection:
    """Encode a text and describe each token.

    Args:
        tokenizer: The tokenizer.
        text: A text, not empty.
        allowed_special: Special tokens to recognize, as in `Tokenizer.encode`.
        progress: Called after every `TOKENS_PER_CALL` tokens with their number so far and in all; not for short texts.

    Raises:
        CorpusError: The text is empty.

    >>> from bytemill import Tokenizer
    >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
    >>> [(token.id, token.text, token.start) for token in inspect(tok, "the").tokens]
    [(256, 'th', 0), (101, 'e', 2)]
    """
    if not text:
        raise CorpusError("the text is empty, so there are no tokens to show", hint="pass a text")
    special_ids = set(tokenizer.special_tokens.values())
    tokens: list[TextToken] = []
    start = 0
    ids = tokenizer.encode(text, allowed_special=allowed_special)
    for number, token_id in enumerate(ids):
        if progress is not None and number and number % TOKENS_PER_CALL == 0:
            progress(number, len(ids))
        content = tokenizer.decode_single_token_bytes(token_id)
        tokens.append(TextToken(token_id, content, token_id in special_ids, start))
        start += len(content)
    return Inspection(tokens, len(text.encode()), len(text), text_metrics(tokenizer, text, ids))


@lru_cache(maxsize=1 << 16)
def visible_parts(token: bytes) -> tuple[VisiblePart, ...]:
    """Split a token into text, line ends, control characters, and bytes that are part of a character.

    >>> visible_parts("a\\n€".encode()[:-1])  # doctest: +NORMALIZE_WHITESPACE
    (VisiblePart(kind='text', shown='a'), VisiblePart(kind='line end', shown='↵'),
     VisiblePart(kind='bytes', shown='⟨e2 82⟩'))
    """
    parts: list[VisiblePart] = []
    # Each byte that does not decode becomes a surrogate, from U+DC80 on.
    text = token.decode("utf-8", "surrogateescape")
    for kind, characters in groupby(text, key=_kind):
        stretch = "".join(characters)
        match kind:
            case "text":
                parts.append(VisiblePart("text", _with_base(stretch) if not parts else stretch))
            case "bytes":
                raw = stretch.encode("utf-8", "surrogateescape")
                parts.append(VisiblePart("bytes", f"⟨{raw.hex(' ')}⟩"))
            case "line end":
                parts.extend(VisiblePart("line end", LINE_END) for _ in stretch)
            case "control":
                parts.append(VisiblePart("control", "".join(map(_control, stretch))))
    return tuple(parts)


def visible(token: bytes) -> str:
    """Show a token on one line. All characters except the space become visible.

    >>> visible(b" a\\tb\\n"), visible(b"\\x9d\\x94 and"), visible(b"\\x1b[0m")
    (' a␉b↵', '⟨9d 94⟩ and', '␛[0m')
    """
    return "".join(part.shown for part in visible_parts(token))


def merge_history(explanation: Explanation) -> list[list[bytes]]:
    """Return the parts of a pre-token before its first merge and after each merge.

    >>> from bytemill import Tokenizer
    >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
    >>> merge_history(tok.explain("the")[0])
    [[b't', b'h', b'e'], [b'th', b'e']]
    """
    data = explanation.text.encode()
    parts = [data] if explanation.special else [data[i : i + 1] for i in range(len(data))]
    history = [list(parts)]
    for step in explanation.steps:
        parts[step.at : step.at + 2] = [step.left + step.right]
        history.append(list(parts))
    return history


def explanation_to_dict(explanation: Explanation) -> dict[str, Any]:
    """Convert an explanation to JSON types; tokens and parts as bytes in hexadecimal."""
    return {
        "text": explanation.text,
        "special": explanation.special,
        "ids": explanation.ids,
        "tokens": [token.hex() for token in explanation.tokens],
        "merges": [
            {"rank": step.rank, "left": step.left.hex(), "right": step.right.hex(), "at": step.at}
            for step in explanation.steps
        ],
    }


def _kind(character: str) -> PartKind:
    if character == "\n":
        return "line end"
    if "\udc80" <= character <= "\udcff":
        return "bytes"
    return "text" if character.isprintable() else "control"


def _with_base(text: str) -> str:
    """Put a dotted circle before a leading combining mark, which would otherwise attach to the previous token."""
    return f"\N{DOTTED CIRCLE}{text}" if unicodedata.combining(text[0]) else text


def _control(character: str) -> str:
    """Show a control character as its Unicode control picture, or by its code point."""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else f"⟨U+{code:04X}⟩"
