"""How a text becomes ids, for people to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill._core import pretoken_spans

if TYPE_CHECKING:
    from bytemill._core import Encoder
    from bytemill.tokenizer.types import AllowedSpecial


@dataclass(frozen=True)
class TokenInfo:
    """What is known of one token."""

    id: int
    bytes: bytes
    special: bool
    rank: int | None
    """Place of its merge in the order of training; None for single bytes, special tokens and what no merge makes."""
    parts: tuple[int, int] | None
    """Ids of the two tokens it is merged from."""
    count: int | None
    """How often the pair stood in the training corpus when it was merged, where that is known."""


@dataclass(frozen=True)
class MergeStep:
    """One merge inside a pre-token."""

    rank: int
    left: bytes
    right: bytes
    at: int
    """How many parts stood to the left of the pair at that moment."""


@dataclass(frozen=True)
class Explanation:
    """One pre-token or special token of a text, and how it became ids."""

    text: str
    ids: list[int]
    tokens: list[bytes]
    steps: list[MergeStep]
    """The merges in the order they happen; none for a special token."""
    special: bool

    def __str__(self) -> str:
        tokens = " ".join(show_token(token) for token in self.tokens)
        ids = " ".join(map(str, self.ids))
        steps = ", ".join(f"{show_bytes(step.left)}+{show_bytes(step.right)}" for step in self.steps)
        how = "special token" if self.special else steps or "no merges"
        return f"{self.text!r} -> {tokens} ({ids}): {how}"


def show_bytes(token: bytes) -> str:
    """A token as text where it is UTF-8 and printable, else its bytes as `⟨e2 80⟩`."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return f"⟨{token.hex(' ')}⟩"
    return text if text.isprintable() else repr(text)[1:-1]


def show_token(token: bytes) -> str:
    """As `show_bytes`, text in quotes."""
    shown = show_bytes(token)
    return shown if shown.startswith("⟨") else f"'{shown}'"


def explain(core: Encoder, text: str, allowed_special: AllowedSpecial) -> list[Explanation]:
    """See `Tokenizer.explain`."""
    core.encode(text, allowed_special, 1)  # raises where the text holds what is not allowed
    explanations: list[Explanation] = []
    for segment, special_id in core.segments(text, allowed_special):
        if special_id is not None:
            explanations.append(Explanation(segment, [special_id], [segment.encode()], [], special=True))
            continue
        data = segment.encode()
        for start, end in pretoken_spans(segment, core.pattern):
            pretoken = data[start:end]
            ids = core.encode_bytes(pretoken) if len(pretoken) == 1 else _encode_pretoken(core, pretoken)
            looked_up = core.whole_pretoken_lookup and core.bytes_to_id(pretoken) is not None
            steps = [
                MergeStep(rank, core.token_bytes(left), core.token_bytes(right), at)
                for rank, left, right, at in ([] if looked_up else core.merge_steps(pretoken))
            ]
            tokens = [core.token_bytes(i) for i in ids]
            explanations.append(Explanation(pretoken.decode(), ids, tokens, steps, special=False))
    return explanations


def _encode_pretoken(core: Encoder, pretoken: bytes) -> list[int]:
    """The ids of one pre-token, by replaying its merges: cut out of its text it might split further."""
    if core.whole_pretoken_lookup and (whole := core.bytes_to_id(pretoken)) is not None:
        return [whole]
    parts = [pretoken[i : i + 1] for i in range(len(pretoken))]
    for _, _, _, at in core.merge_steps(pretoken):
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [_id_of(core, part) for part in parts]


def _id_of(core: Encoder, token: bytes) -> int:
    ordinary = core.bytes_to_id(token)
    return core.special_tokens[token.decode()] if ordinary is None else ordinary
