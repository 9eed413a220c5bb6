"""Batches of ids: truncation, padding and conversion to tensors, with the rules of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bytemill.errors import TokenizerError
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bytemill.tokenizer.post_processing import Encoded

Padding: TypeAlias = bool | Literal["longest", "max_length", "do_not_pad"]
Truncation: TypeAlias = bool | Literal["longest_first", "only_first", "only_second", "do_not_truncate"] | None
Side: TypeAlias = Literal["left", "right"]


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


def padded(values: list[Any], filler: list[Any], side: Side) -> list[Any]:
    """Return values with filler on one side."""
    return values + filler if side == "right" else filler + values


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
