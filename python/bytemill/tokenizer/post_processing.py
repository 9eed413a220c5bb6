"""Post-processing of ids as `tokenizers` does it: special tokens around texts, pairs of texts, trimmed offsets.

The rules are those of the `post_processor` objects of a tokenizer.json.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Offsets = list[tuple[int, int]]

_SPACE = "\u0120"
"""The space in byte-level text."""


@dataclass
class Encoded:
    """Ids of a text or of several joined ones, with a value per id."""

    ids: list[int]
    type_ids: list[int]
    special_mask: list[int]
    """1 for tokens that post-processing added."""
    offsets: Offsets | None = None
    """Character offsets (start, end); None if they are not wanted."""

    @classmethod
    def of_text(cls, ids: list[int], offsets: Offsets | None, type_id: int = 0) -> Encoded:
        """Return the ids of a text before post-processing."""
        return cls(ids, [type_id] * len(ids), [0] * len(ids), offsets)

    def cut(self, length: int, side: str) -> None:
        """Keep `length` ids; `side` is where the others are removed."""
        kept = slice(0, length) if side == "right" else slice(max(len(self.ids) - length, 0), None)
        self.ids, self.type_ids = self.ids[kept], self.type_ids[kept]
        self.special_mask = self.special_mask[kept]
        self.offsets = None if self.offsets is None else self.offsets[kept]


@dataclass
class _Joined:
    parts: list[Encoded] = field(default_factory=list[Encoded])

    def add(self, part: Encoded, type_id: int | None = None) -> None:
        if type_id is not None:
            part.type_ids = [type_id] * len(part.ids)
        self.parts.append(part)

    def add_special(self, ids: Sequence[int], type_id: int, *, with_offsets: bool) -> None:
        n = len(ids)
        offsets = [(0, 0)] * n if with_offsets else None
        self.parts.append(Encoded(list(ids), [type_id] * n, [1] * n, offsets))

    def result(self) -> Encoded:
        with_offsets = all(part.offsets is not None for part in self.parts)
        return Encoded(
            [i for part in self.parts for i in part.ids],
            [i for part in self.parts for i in part.type_ids],
            [i for part in self.parts for i in part.special_mask],
            [span for part in self.parts for span in part.offsets or ()] if with_offsets else None,
        )


class PostProcessor:
    """The `post_processor` of a tokenizer.json, or none.

    Args:
        processor: The object; it was checked when the file was read.
        text_of: Returns the text of an id as the file writes it, to trim offsets.
    """

    def __init__(self, processor: dict[str, Any] | None, text_of: Callable[[int], str | None]) -> None:
        self._steps = _flat(processor)
        self._text_of = text_of

    def n_added(self, *, is_pair: bool) -> int:
        """Return the number of tokens added to a text or to a pair."""
        return sum(_n_added(step, is_pair=is_pair) for step in self._steps)

    def process(self, first: Encoded, second: Encoded | None, *, add_special_tokens: bool) -> Encoded:
        """Return the ids of a text or pair with the tokens around them."""
        joined: Encoded | None = None
        for step in self._steps:
            parts = [part for part in (first, second) if part is not None]
            self._trim(step, parts)
            if step["type"] == "RobertaProcessing":
                for part in parts:
                    part.type_ids = [0] * len(part.ids)
            if joined is None and add_special_tokens:
                joined = _with_special_tokens(step, first, second)
        return joined or _side_by_side(first, second)

    def _trim(self, step: dict[str, Any], parts: Sequence[Encoded]) -> None:
        """Exclude white space at the ends of tokens from their offsets."""
        if step["type"] not in ("ByteLevel", "RobertaProcessing") or not step.get("trim_offsets", True):
            return
        keeps_first = bool(step.get("add_prefix_space", True))
        for part in parts:
            if part.offsets is not None:
                part.offsets = [
                    _trimmed(
                        self._text_of(token_id) or "", span, is_kept=keeps_first and (i == 0 or span[0] == 0)
                    )
                    for i, (token_id, span) in enumerate(zip(part.ids, part.offsets, strict=True))
                ]


def _flat(processor: dict[str, Any] | None) -> list[dict[str, Any]]:
    if processor is None:
        return []
    if processor["type"] == "Sequence":
        return [step for part in processor["processors"] for step in _flat(part)]
    return [processor]


def _trimmed(text: str, span: tuple[int, int], *, is_kept: bool) -> tuple[int, int]:
    def n_spaces(characters: Sequence[str]) -> int:
        n = 0
        for character in characters:
            if character != _SPACE and not character.isspace():
                break
            n += 1
        return n

    start, end = span
    leading, trailing = n_spaces(text), n_spaces(text[::-1])
    # A single space at the start may be one that encoding put before the text.
    if leading and not (is_kept and leading == 1):
        start = min(start + leading, end)
    if trailing and end >= trailing:
        end = max(end - trailing, start)
    return start, end


def _n_added(step: dict[str, Any], *, is_pair: bool) -> int:
    match step["type"]:
        case "TemplateProcessing":
            template = step["pair" if is_pair else "single"]
            return sum(
                len(step["special_tokens"][entry["SpecialToken"]["id"]]["ids"])
                for entry in template
                if "SpecialToken" in entry
            )
        case "RobertaProcessing":
            return 4 if is_pair else 2
        case "BertProcessing":
            return 3 if is_pair else 2
        case _:
            return 0


def _with_special_tokens(step: dict[str, Any], first: Encoded, second: Encoded | None) -> Encoded | None:
    """Return the joined texts if the step joins them."""
    joined, with_offsets = _Joined(), first.offsets is not None
    match step["type"]:
        case "TemplateProcessing":
            for entry in step["single" if second is None else "pair"]:
                if "SpecialToken" in entry:
                    token = entry["SpecialToken"]
                    ids = step["special_tokens"][token["id"]]["ids"]
                    joined.add_special(ids, token["type_id"], with_offsets=with_offsets)
                else:
                    part = first if entry["Sequence"]["id"] == "A" else second
                    if part is None:
                        raise TokenizerError("the template for a single text names a second one")
                    joined.add(part, entry["Sequence"]["type_id"])
        case "RobertaProcessing" | "BertProcessing":
            separator, start = [step["sep"][1]], [step["cls"][1]]
            is_bert = step["type"] == "BertProcessing"
            joined.add_special(start, 0, with_offsets=with_offsets)
            joined.add(first, 0)
            joined.add_special(separator, 0, with_offsets=with_offsets)
            if second is not None:
                if not is_bert:
                    joined.add_special(separator, 0, with_offsets=with_offsets)
                joined.add(second, int(is_bert))
                joined.add_special(separator, int(is_bert), with_offsets=with_offsets)
        case _:
            return None
    return joined.result()


def _side_by_side(first: Encoded, second: Encoded | None) -> Encoded:
    if second is None:
        return first
    joined = _Joined()
    joined.add(first)
    joined.add(second)
    return joined.result()
