"""Inputs of models from ids, with the results of transformers and tokenizers.

`Tokenizer.__call__` takes these steps: `truncate` cuts texts, `PostProcessor` (the `post_processor` of a
tokenizer.json) puts special tokens around them and joins pairs, `pad` fills rows, and `tensors` makes arrays of
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bytemill.errors import TokenizerError
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Offsets = list[tuple[int, int]]

Padding: TypeAlias = bool | Literal["longest", "max_length", "do_not_pad"]
Truncation: TypeAlias = bool | Literal["longest_first", "only_first", "only_second", "do_not_truncate"] | None
Side: TypeAlias = Literal["left", "right"]

_NO_LIMIT = 10**12
"""Limits above this mean none in tokenizer_config.json (`VERY_LARGE_INTEGER`)."""
_SPACE = "\u0120"
"""The space in byte-level text."""


class BatchEncoding(dict[str, Any]):
    """Named inputs of a model, also as attributes: `batch["input_ids"]` and `batch.input_ids`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def to(self, device: Any) -> BatchEncoding:
        """Move tensors to a device; the object itself changes, as in transformers."""
        for name, value in self.items():
            if hasattr(value, "to"):
                self[name] = value.to(device)
        return self


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


def texts_and_pairs(
    text: str | Sequence[str], text_pair: str | Sequence[str] | None
) -> tuple[list[str], list[str] | None, bool]:
    """Return the texts of a call, the second texts of pairs, and whether they are a batch.

    Raises:
        TypeError: A text is not a str, or the numbers of first and second texts differ.
    """
    is_batch, is_pair_batch = not isinstance(text, str), not isinstance(text_pair, str | None)
    if text_pair == "" and not is_batch:
        text_pair = None  # as in transformers
    texts = [text] if isinstance(text, str) else list(text)
    pairs = None if text_pair is None else [text_pair] if isinstance(text_pair, str) else list(text_pair)
    for each in (texts, pairs or []):
        for index, item in enumerate(each):
            if not isinstance(item, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"text {index} is of type {type(item).__name__}, not str")
    if pairs is not None and (len(pairs) != len(texts) or is_batch != is_pair_batch):
        raise TypeError(f"{len(texts)} texts and {len(pairs)} second texts do not make pairs")
    return texts, pairs, is_batch


def length_limit(max_length: int | None, config: Mapping[str, Any]) -> int | None:
    """Return the explicit limit, or that of tokenizer_config.json, or None for no limit."""
    if max_length is not None:
        return max_length
    limit = config.get("model_max_length")
    return int(limit) if isinstance(limit, int | float) and limit < _NO_LIMIT else None


def side_of(config: Mapping[str, Any], name: str) -> Side:
    """Return a side from tokenizer_config.json, by default the right one."""
    return "left" if config.get(name) == "left" else "right"


def truncation_strategy(truncation: Truncation, max_length: int | None, padding: Padding) -> str:
    """Return the strategy that the arguments of a call select."""
    if truncation is None:
        # As in transformers, only `False` counts as no padding here.
        return "longest_first" if max_length is not None and padding is False else "do_not_truncate"
    if isinstance(truncation, bool):
        return "longest_first" if truncation else "do_not_truncate"
    if truncation not in ("longest_first", "only_first", "only_second", "do_not_truncate"):
        raise ValueError(f"truncation is {truncation!r}")
    return truncation


def truncate(first: Encoded, second: Encoded | None, limit: int, strategy: str, side: Side) -> None:
    """Cut a text or pair to `limit` ids, as `truncate_encodings` of the tokenizers library does."""
    n_first, n_second = len(first.ids), 0 if second is None else len(second.ids)
    n_excess = n_first + n_second - limit
    if n_excess <= 0:
        return
    if strategy == "longest_first":
        if second is None:
            first.cut(limit, side)
            return
        shorter, longer = sorted((n_first, n_second))
        longer = shorter if shorter > limit else max(shorter, limit - shorter)
        if shorter + longer > limit:
            shorter = limit // 2
            longer = shorter + limit % 2
        first.cut(shorter if n_first <= n_second else longer, side)
        second.cut(longer if n_first <= n_second else shorter, side)
        return
    target = first if strategy == "only_first" else second
    if target is None:
        raise TokenizerError("truncation='only_second' needs pairs of texts")
    if len(target.ids) <= n_excess:
        raise TokenizerError(
            f"a text of {len(target.ids)} ids is too short to remove {n_excess} with truncation={strategy!r}",
            hint="use truncation='longest_first', or a larger max_length",
        )
    target.cut(len(target.ids) - n_excess, side)


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


def padded_length(
    rows: list[Encoded], padding: Padding, limit: int | None, multiple: int | None, *, is_truncated: bool
) -> int | None:
    """Return the length to pad to, or None for no padding."""
    match padding:
        case False | "do_not_pad":
            return None
        case True | "longest":
            length = max((len(row.ids) for row in rows), default=0)
        case "max_length":
            if limit is None:
                return None
            length = limit
        case _:
            raise ValueError(f"padding is {padding!r}")
    if not multiple:
        return length
    if is_truncated and limit is not None and limit % multiple:
        raise TokenizerError(
            f"max_length {limit} is no multiple of pad_to_multiple_of {multiple}, which cutting and padding needs",
            hint=f"use max_length={-(-limit // multiple) * multiple}",
        )
    return -(-length // multiple) * multiple


def pad(rows: list[Encoded], length: int | None, pad_id: int | None, side: Side) -> list[list[int]]:
    """Pad the rows to a length, or not at all, and return their attention masks.

    Raises:
        TokenizerError: There is no padding token.
    """
    masks = [[1] * len(row.ids) for row in rows]
    if length is None:
        return masks
    if pad_id is None:
        raise TokenizerError(
            "this tokenizer has no padding token",
            hint="set one: tokenizer.pad_token = tokenizer.eos_token, or another special token",
        )

    def padded(values: list[Any], filler: Any, n: int) -> list[Any]:
        return values + [filler] * n if side == "right" else [filler] * n + values

    for row, mask in zip(rows, masks, strict=True):
        n = max(length - len(row.ids), 0)
        row.ids = padded(row.ids, pad_id, n)
        row.type_ids = padded(row.type_ids, 0, n)
        row.special_mask = padded(row.special_mask, 1, n)
        row.offsets = None if row.offsets is None else padded(row.offsets, (0, 0), n)
        mask[:] = padded(mask, 0, n)
    return masks


def of_one_text(found: Mapping[str, list[Any]]) -> BatchEncoding:
    """Return the inputs of a single text without the batch's dimension, which only `length` has, as in transformers."""
    return BatchEncoding({name: rows[0] if name != "length" else rows for name, rows in found.items()})


def tensors(found: Mapping[str, list[Any]], kind: str) -> BatchEncoding:
    """Return lists of equal lengths as arrays or tensors of int64.

    Raises:
        TokenizerError: Their lengths differ.
    """
    if kind not in ("np", "pt"):
        raise ValueError(f"return_tensors is {kind!r}; it must be 'np' or 'pt'")
    rows: Iterable[Sequence[Any]] = found["input_ids"]
    if len({len(row) for row in rows}) > 1:
        raise TokenizerError(
            "texts of different lengths do not make a tensor",
            hint="use padding=True, and truncation=True for a limit",
        )
    if kind == "pt":
        torch: Any = import_library("torch", "return_tensors='pt'")
        return BatchEncoding(
            {name: torch.tensor(values, dtype=torch.int64) for name, values in found.items()}
        )
    import numpy as np

    return BatchEncoding({name: np.array(values, dtype=np.int64) for name, values in found.items()})
