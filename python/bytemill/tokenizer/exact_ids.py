"""Ids that stay exact: whether ids are those of their text, and the ids of a text that grows.

A model may sample ids that the tokenizer itself would never give for their text, and text that is appended may change
the last ids before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from bytemill._core import Encoder
from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.formats.encoder import AnyEncoder
    from bytemill.tokenizer.encoding import AllowedSpecial, TokenIds
    from bytemill.tokenizer.model_inputs import BatchEncoding

_FIRST_TAIL = 96
"""Ids from the end that are looked at first. In most texts a cut lies among them."""


class AnyTokenizer(Protocol):
    """What is needed of a `Tokenizer`."""

    core: AnyEncoder
    joins_tokens: bool

    @property
    def special_tokens(self) -> dict[str, int]: ...
    def encode(self, text: str, *, allowed_special: AllowedSpecial | None = None) -> list[int]: ...
    def decode(self, ids: TokenIds, errors: str = "replace") -> str: ...
    def decode_bytes(self, ids: TokenIds) -> bytes: ...
    def decode_tokens_bytes(self, ids: TokenIds) -> list[bytes]: ...


class AppendedIds(NamedTuple):
    """What becomes of ids if text is appended: the ids of the whole are `old[:n_kept] + ids`."""

    n_kept: int
    """How many of the old ids stay. What a KV cache holds for them stays valid."""
    ids: list[int]
    """The ids behind them."""


@dataclass(frozen=True)
class IdChange:
    """A stretch of ids that others take the place of."""

    start: int
    """Position of the first old id."""
    stop: int
    """Position behind the last old id."""
    ids: list[int]
    """The new ids."""


@dataclass(frozen=True)
class CanonicalIds:
    """The ids that the tokenizer gives for the text of some ids."""

    ids: list[int]
    changes: list[IdChange]
    """Where they differ, in order: as few ids as the boundaries that both share allow."""


def canonicalize(tok: AnyTokenizer, ids: TokenIds, allowed_special: AllowedSpecial) -> CanonicalIds:
    """Return what `Tokenizer.canonicalize` returns."""
    old = [int(i) for i in ids]
    try:
        new = tok.encode(tok.decode(old, "strict"), allowed_special=allowed_special)
    except UnicodeDecodeError:
        new = _of_bytes(tok, old)
    return CanonicalIds(new, changes(tok, old, new))


def _of_bytes(tok: AnyTokenizer, ids: list[int]) -> list[int]:
    """The ids of bytes that are not UTF-8. Special ids stay, and the text between them is encoded."""
    special = set(tok.special_tokens.values())
    found: list[int] = []
    between: list[int] = []
    for token_id in [*ids, None]:
        if token_id is not None and token_id not in special:
            between.append(token_id)
            continue
        if between:
            found += tok.core.encode_bytes(tok.decode_bytes(between))
            between = []
        if token_id is not None:
            found.append(token_id)
    return found


def changes(tok: AnyTokenizer, old: Sequence[int], new: Sequence[int]) -> list[IdChange]:
    """Return where two sequences of ids for one text differ, between boundaries of tokens that both have."""
    old_ends = dict(zip(accumulate(map(len, tok.decode_tokens_bytes(old))), count(1), strict=False))
    new_ends = dict(zip(accumulate(map(len, tok.decode_tokens_bytes(new))), count(1), strict=False))
    if max(old_ends, default=0) != max(new_ends, default=0):
        return _one_change(old, new)
    found: list[IdChange] = []
    start = new_start = 0
    for end in sorted(old_ends.keys() & new_ends.keys()):
        stop, new_stop = old_ends[end], new_ends[end]
        if list(old[start:stop]) != list(new[new_start:new_stop]):
            found.append(IdChange(start, stop, list(new[new_start:new_stop])))
        start, new_start = stop, new_stop
    return found


def _one_change(old: Sequence[int], new: Sequence[int]) -> list[IdChange]:
    n_same = _n_same(old, new)
    n_after = _n_same(old[n_same:][::-1], new[n_same:][::-1])
    return [IdChange(n_same, len(old) - n_after, list(new[n_same : len(new) - n_after]))]


def _n_same(first: Sequence[object], second: Sequence[object]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )


def append(tok: AnyTokenizer, ids: Sequence[int], text: str, allowed_special: AllowedSpecial) -> AppendedIds:
    """Return what `Tokenizer.append` returns."""
    if isinstance(tok.core, Encoder) and not tok.joins_tokens and tok.core.shape is None:
        n_tail = _FIRST_TAIL
        while n_tail < len(ids):
            tail = ids[-n_tail:]
            found = tok.core.append(
                tail if isinstance(tail, list) else [int(i) for i in tail], text, allowed_special
            )
            if found is not None:
                return AppendedIds(len(ids) - n_tail + found[0], found[1])
            n_tail *= 8
    old = [int(i) for i in ids]
    try:
        whole = tok.decode(old, "strict") + text
    except UnicodeDecodeError:
        raise TokenizerError(
            "the ids are not UTF-8", hint="append text where a character ends: see stream_decoder"
        ) from None
    new = tok.encode(whole, allowed_special=allowed_special)
    n_kept = _n_same(old, new)
    return AppendedIds(n_kept, new[n_kept:])


def behind_prefix(
    tok: AnyTokenizer, prefix_ids: Sequence[int], text: str, return_tensors: Literal["np", "pt"] | None
) -> BatchEncoding:
    """Return the inputs of `text`, which begin with `prefix_ids` whatever the tokenizer would give.

    Raises:
        TokenizerError: The text does not begin with that of the ids.
    """
    from bytemill.tokenizer.model_inputs import BatchEncoding, tensors

    old = [int(i) for i in prefix_ids]
    before = tok.decode(old)
    if not text.startswith(before):
        at = _n_same(before, text)
        raise TokenizerError(
            f"the text does not begin with that of prefix_ids: they part at character {at}, "
            f"{before[at : at + 20]!r} in the ids and {text[at : at + 20]!r} in the text",
            hint="give the messages that the ids were sampled for, and a template that renders them alike",
        )
    rest = text[len(before) :]
    if isinstance(tok.core, Encoder):
        _, first, second = tok.core.encode_beginning(rest, not old, "all")
        ids = old + first + second
    else:
        ids = old + tok.encode(rest)
    found: dict[str, list[Any]] = {"input_ids": [ids], "attention_mask": [[1] * len(ids)]}
    inputs = (
        BatchEncoding({name: rows[0] for name, rows in found.items()})
        if return_tensors is None
        else tensors(found, return_tensors)
    )
    inputs["prefix_changes"] = changes(tok, ids, tok.encode(text))
    return inputs


class GrowingText:
    """A text that grows at its end, with the ids that encoding it at once would give. See `Tokenizer.growing_text`."""

    def __init__(self, tok: AnyTokenizer, allowed_special: AllowedSpecial) -> None:
        """Begin an empty text."""
        self._tok = tok
        self._allowed = allowed_special
        self._certain: list[int] = []
        """Ids that further text cannot change."""
        self._tail = ""
        """The text behind them."""
        self._tail_ids: list[int] = []
        self._n_characters = 0

    @property
    def ids(self) -> list[int]:
        """The ids of the text so far, in a new list."""
        return self._certain + self._tail_ids

    @property
    def n_certain(self) -> int:
        """How many of the ids further text cannot change."""
        return len(self._certain)

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._certain) + len(self._tail_ids)

    def append(self, text: str) -> AppendedIds:
        """Append text, and return how many ids stay and which follow them.

        Raises:
            SpecialTokenError: The text contains a special token, and `allowed_special` is "none_raise". Nothing was
                appended then.
        """
        tail, old = self._tail + text, self._tail_ids
        core = self._tok.core
        if isinstance(core, Encoder):
            is_start = self._n_characters == len(self._tail)
            end, certain, rest = core.encode_beginning(tail, is_start, self._allowed)
        else:
            end, certain, rest = 0, [], core.encode(tail, self._allowed, None)
        n_kept = _n_same(old, certain + rest)
        appended = AppendedIds(len(self._certain) + n_kept, (certain + rest)[n_kept:])
        self._certain += certain
        self._tail, self._tail_ids = tail[end:], rest
        self._n_characters += len(text)
        return appended
