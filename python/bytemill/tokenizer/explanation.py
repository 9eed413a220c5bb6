"""Explain how a text becomes ids, merge by merge; HTML of tokens and tokenizers for notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from bytemill._core import pretoken_spans

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bytemill._core import Encoder
    from bytemill.tokenizer.encoding import AllowedSpecial

MAX_TOKENS = 300
"""Tokens that a notebook shows at most."""
_MAX_CHARACTERS = 80
"""Characters shown of one token, and ten times as many of its tooltip."""

# Translucent backgrounds keep the notebook's own text color readable in light and dark themes.
_COLORS = ("66,133,244", "52,168,83", "251,188,5", "234,67,53", "154,99,213")
_VISIBLE = str.maketrans({" ": "·", "\n": "↵", "\r": "␍", "\t": "⇥"})


@dataclass(frozen=True)
class TokenInfo:
    """A token and the merge that makes it."""

    id: int
    bytes: bytes
    special: bool
    rank: int | None
    """Rank of the merge that makes it; None for single bytes, special tokens and tokens that no merge makes."""
    parts: tuple[int, int] | None
    """Ids of the two tokens that it is merged from."""
    count: int | None
    """Count of the pair in the training corpus when it was merged, if known."""


@dataclass(frozen=True)
class MergeStep:
    """One merge inside a pre-token."""

    rank: int
    left: bytes
    right: bytes
    at: int
    """Number of parts to the left of the pair before this merge."""


@dataclass(frozen=True)
class Explanation:
    """A pre-token or special token of a text, with its ids and merges."""

    text: str
    ids: list[int]
    tokens: list[bytes]
    steps: list[MergeStep]
    """The merges in order of application; empty for a special token."""
    special: bool

    def __str__(self) -> str:
        tokens = " ".join(show_token(token) for token in self.tokens)
        ids = " ".join(map(str, self.ids))
        steps = ", ".join(f"{show_bytes(step.left)}+{show_bytes(step.right)}" for step in self.steps)
        how = "special token" if self.special else steps or "no merges"
        return f"{self.text!r} -> {tokens} ({ids}): {how}"


class Explanations(list[Explanation]):
    """The explanations of a text, in order. Notebooks show the tokens in color with the merges as tooltips."""

    def _repr_html_(self) -> str:
        return tokens_html(
            Token(token, token_id, special=part.special, tooltip=str(part))
            for part in self
            for token, token_id in zip(part.tokens, part.ids, strict=True)
        )


def show_bytes(token: bytes) -> str:
    """Return a token as text if it is printable UTF-8, else its bytes as `⟨e2 80⟩`."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return f"⟨{token.hex(' ')}⟩"
    return text if text.isprintable() else repr(text)[1:-1]


def show_token(token: bytes) -> str:
    """Return `show_bytes(token)` with text in quotes."""
    shown = show_bytes(token)
    return shown if shown.startswith("⟨") else f"'{shown}'"


def explain(core: Encoder, text: str, allowed_special: AllowedSpecial) -> Explanations:
    """Implement `Tokenizer.explain`."""
    core.encode(text, allowed_special, 1)  # raises for a disallowed special token
    explanations = Explanations()
    for segment, special_id in core.segments(text, allowed_special):
        if special_id is not None:
            explanations.append(Explanation(segment, [special_id], [segment.encode()], [], special=True))
            continue
        data = segment.encode()
        for start, end in pretoken_spans(segment, core.pattern):
            pretoken = data[start:end]
            steps: list[MergeStep] = []
            if core.ignore_merges and core.bytes_to_id(pretoken) is not None:
                tokens = [pretoken]
            else:
                # Replay the merges. Encoding the pre-token on its own might split it further.
                bounds = [*core.parts(pretoken), len(pretoken)]
                tokens = [pretoken[begin:stop] for begin, stop in pairwise(bounds)]
                for rank, left, right, at in core.merge_steps(pretoken):
                    steps.append(MergeStep(rank, left, right, at))
                    tokens[at : at + 2] = [tokens[at] + tokens[at + 1]]
            tokens = [part for token in tokens for part in _encoded_parts(core, token)]
            ids = [_id_of(core, token) for token in tokens]
            explanations.append(
                Explanation(pretoken.decode(errors="replace"), ids, tokens, steps, special=False)
            )
    return explanations


def _encoded_parts(core: Encoder, token: bytes) -> list[bytes]:
    """Return the bytes of a character that is no token and was not merged, if these have tokens."""
    if core.bytes_to_id(token) is None and core.fallback is not None and core.fallback[1] is None:
        # Files write spaces as this character.
        return [bytes([byte]) for byte in ("\u2581".encode() if token == b" " else token)]
    return [token]


def _id_of(core: Encoder, token: bytes) -> int:
    ordinary = core.bytes_to_id(token)
    if ordinary is not None:
        return ordinary
    if core.fallback is not None and core.fallback[1] is not None:
        return core.fallback[1]
    return core.special_tokens[token.decode()]


class Token(NamedTuple):
    """A token to show."""

    data: bytes
    id: int
    special: bool = False
    tooltip: str = ""


def tokens_html(tokens: Iterable[Token], n_tokens: int | None = None) -> str:
    """Return colored tokens with visible white space, at most `MAX_TOKENS` of them.

    Args:
        tokens: The tokens; the function reads all of them only if `n_tokens` is None.
        n_tokens: Number of tokens.
    """
    remaining = iter(tokens)
    spans = [_span(index, token) for index, token in enumerate(islice(remaining, MAX_TOKENS))]
    if n_tokens is None:
        n_tokens = len(spans) + sum(1 for _ in remaining)
    n_hidden = n_tokens - len(spans)
    more = f" <em>… {n_hidden:,} more</em>" if n_hidden else ""
    count = f"{n_tokens:,} token{'' if n_tokens == 1 else 's'}"
    style = "font-family:monospace;line-height:1.9;overflow-wrap:anywhere"
    return f'<div><div style="{style}">{"".join(spans)}{more}</div><small>{count}</small></div>'


def _span(index: int, token: Token) -> str:
    try:
        text = token.data.decode()
    except UnicodeDecodeError:
        shown = f"⟨{token.data[:_MAX_CHARACTERS].hex(' ')}⟩"
    else:
        shown = "".join(
            character if character.isprintable() else f"⟨{ord(character):x}⟩"
            for character in text[:_MAX_CHARACTERS].translate(_VISIBLE)
        )
        shown += "…" if len(text) > _MAX_CHARACTERS else ""
    border = "border:1px solid currentColor;" if token.special else ""
    style = f"background:rgba({_COLORS[index % len(_COLORS)]},0.3);{border}border-radius:3px;padding:1px 0"
    tooltip = f"id {token.id}" + (f": {token.tooltip}" if token.tooltip else "")
    title = escape(tooltip[: 10 * _MAX_CHARACTERS], quote=True).replace("\n", "&#10;")
    return f'<span title="{title}" style="{style}">{escape(shown)}</span><wbr>'


def table_html(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a two-column table."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption>{cells}</table>"
