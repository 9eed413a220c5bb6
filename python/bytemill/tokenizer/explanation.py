"""What a text becomes: ids merge by merge, and offsets of tokens; HTML for notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from bytemill._core import pretoken_spans
from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.formats.encoder import AnyEncoder
    from bytemill.tokenizer.encoding import AllowedSpecial, TokenArray

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


def explain(core: AnyEncoder, text: str, allowed_special: AllowedSpecial) -> Explanations:
    """Implement `Tokenizer.explain`."""
    if core.shape is not None and tuple(core.shape[1:4]) != (False, None, False):
        raise TokenizerError(
            "explaining a text is not supported for a tokenizer that changes words before merging"
        )
    core.encode(text, allowed_special, 1)  # raises for a disallowed special token
    explanations = Explanations()
    for segment, special_id in core.segments(text, allowed_special):
        if special_id is not None:
            explanations.append(Explanation(segment, [special_id], [segment.encode()], [], special=True))
            continue
        data = segment.encode()
        for start, end in pretoken_spans(segment, core.pattern):
            pretoken = data[start:end]
            if core.shape is not None and core.shape[0] and pretoken.decode()[:1].isspace():
                continue
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


def _encoded_parts(core: AnyEncoder, token: bytes) -> list[bytes]:
    """Return the bytes of a character that is no token and was not merged, if these have tokens."""
    if core.bytes_to_id(token) is None and core.fallback is not None and core.fallback[1] is None:
        # Files write spaces as this character.
        return [bytes([byte]) for byte in ("\u2581".encode() if token == b" " else token)]
    return [token]


def _id_of(core: AnyEncoder, token: bytes) -> int:
    ordinary = core.bytes_to_id(token)
    if ordinary is not None:
        return ordinary
    if core.fallback is not None and core.fallback[1] is not None:
        return core.fallback[1]
    return core.special_tokens[token.decode()]


@dataclass(frozen=True, eq=False)
class EncodedText:
    """The ids of a text with their byte and character offsets.

    Row k of an offsets array is the (start, end) of token k: in `utf8` for `byte_offsets`, in the encoded `str` for
    `char_offsets`.
    """

    ids: TokenArray
    """(n,): the ids, as `encode_to_numpy` returns them."""
    byte_offsets: NDArray[np.int64]
    """(n, 2): start and end in `utf8`. Each token starts where the previous one ends, unless a normalizer changed the
    text: then it has the range of the characters that its own come from; an added space has that of the next one."""
    char_offsets: NDArray[np.int64]
    """(n, 2): start and end in the `str` that was encoded.

    A token that starts or ends inside a character covers the whole character, so tokens that share a character overlap.
    """
    utf8: bytes
    """The encoded text: lone surrogates are U+FFFD, surrogate pairs are joined."""

    @property
    def tokens(self) -> list[bytes]:
        """The text of each token, as bytes. A new list on each access."""
        starts, ends = self.byte_offsets.T.tolist()
        return [self.utf8[span] for span in map(slice, starts, ends)]

    def _repr_html_(self) -> str:
        ids = self.ids[: MAX_TOKENS + 1].tolist()
        spans = self.byte_offsets[: MAX_TOKENS + 1].tolist()
        return tokens_html(
            (Token(self.utf8[start:end], i) for i, (start, end) in zip(ids, spans, strict=True)),
            len(self.ids),
        )

    def __len__(self) -> int:
        return len(self.ids)


def encode_with_offsets(
    core: AnyEncoder, text: str, allowed_special: AllowedSpecial, num_threads: int | None
) -> EncodedText:
    """Implement `Tokenizer.encode_with_offsets`."""
    ids, byte_offsets = core.encode_with_spans(text, allowed_special, num_threads)
    try:
        utf8 = text.encode()
    except UnicodeEncodeError:
        utf8 = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        char_offsets = _character_positions(text)[_char_offsets(utf8, byte_offsets)]
    else:
        char_offsets = byte_offsets.copy() if len(utf8) == len(text) else _char_offsets(utf8, byte_offsets)
    return EncodedText(ids, byte_offsets, char_offsets, utf8)


def _char_offsets(utf8: bytes, byte_offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert byte offsets in `utf8` to character offsets."""
    import numpy as np

    is_first = (np.frombuffer(utf8, dtype=np.uint8) & 0xC0) != 0x80
    # Characters begun before each byte, and before the end.
    begun = np.zeros(len(utf8) + 1, np.int64)
    np.cumsum(is_first, out=begun[1:])
    # A token that starts inside a character starts with it. A library's token may be empty, also at the end.
    inside = np.append(~is_first, False)
    starts = byte_offsets[:, 0]
    return np.stack([begun[starts] - inside[starts], begun[byte_offsets[:, 1]]], axis=1)


def _character_positions(text: str) -> NDArray[np.int64]:
    """Return the position in `text` of each character with surrogate pairs joined, followed by `len(text)`.

    A pair is a high surrogate followed directly by a low one.
    """
    import numpy as np

    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kind = code_points >> 10  # of 0xD800-0xDBFF, the high surrogates, 0x36; of 0xDC00-0xDFFF 0x37
    ends_pair = np.zeros(len(text), dtype=np.bool_)
    ends_pair[1:] = (kind[:-1] == 0x36) & (kind[1:] == 0x37)
    return np.append(np.flatnonzero(~ends_pair), len(text))


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
