"""Move separators from the end of documents to their start, or back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bytemill.shards.token_source import TokenBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray


def move_separators(blocks: Iterable[TokenBlock], separator: int, *, to_front: bool) -> Iterator[TokenBlock]:
    """Yield blocks in which every document has one separator, at its start or at its end.

    The separator at the other end is removed. Documents without one get one too, so that they remain separated.

    Args:
        blocks: Blocks of ids with the ends of documents.
        separator: Id of the separator.
        to_front: Put it at the start of documents, not at the end.
    """
    starts_new = True
    """True if the next token begins a document."""
    for block in blocks:
        n_tokens, ends = len(block.tokens), block.ends
        if not n_tokens and not len(ends):
            continue
        starts = _starts(ends, n_tokens, starts_new)
        is_kept = np.ones(n_tokens, dtype=bool)
        candidates = ends[ends > 0] - 1 if to_front else starts[starts < n_tokens]
        # The candidate of a document without tokens is in the next document, which loses its separator anyway.
        is_kept[candidates[block.tokens[candidates] == separator]] = False
        n_dropped = np.concatenate((np.zeros(1, np.int64), np.cumsum(~is_kept)))
        inserted = starts if to_front else ends
        tokens = np.insert(block.tokens[is_kept], inserted - n_dropped[inserted], separator)
        n_before = np.arange(len(ends)) + (starts_new if to_front else True)
        yield TokenBlock(tokens, ends - n_dropped[ends] + n_before)
        starts_new = bool(len(ends) and ends[-1] == n_tokens)


def _starts(ends: NDArray[np.int64], n_tokens: int, starts_new: bool) -> NDArray[np.int64]:
    """Return the starts of the documents in a block."""
    first = np.zeros(1 if starts_new else 0, np.int64)
    starts = np.concatenate((first, ends))
    return starts[:-1] if len(ends) and ends[-1] == n_tokens else starts
