"""Moves the token between documents from behind each one to before it, and back, in a stream of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bytemill.shards.token_source import TokenBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray


def move_separators(blocks: Iterable[TokenBlock], separator: int, *, to_front: bool) -> Iterator[TokenBlock]:
    """The documents of `blocks`, each with one `separator` before it (`to_front`) or behind it.

    The one at its other end is taken off; a document that has none there gets one too, so that the documents can be
    told apart afterwards.
    """
    starts_new = True
    """Whether the next token begins a document."""
    for block in blocks:
        n_tokens, ends = len(block.tokens), block.ends
        if not n_tokens and not len(ends):
            continue
        begins = _begins(ends, n_tokens, starts_new)
        is_kept = np.ones(n_tokens, dtype=bool)
        places = ends[ends > 0] - 1 if to_front else begins[begins < n_tokens]
        # Where a document holds no token, the place is that of its neighbour, which loses its separator anyway.
        is_kept[places[block.tokens[places] == separator]] = False
        n_dropped = np.concatenate((np.zeros(1, np.int64), np.cumsum(~is_kept)))
        inserted = begins if to_front else ends
        tokens = np.insert(block.tokens[is_kept], inserted - n_dropped[inserted], separator)
        n_before = np.arange(len(ends)) + (starts_new if to_front else True)
        yield TokenBlock(tokens, ends - n_dropped[ends] + n_before)
        starts_new = bool(len(ends) and ends[-1] == n_tokens)


def _begins(ends: NDArray[np.int64], n_tokens: int, starts_new: bool) -> NDArray[np.int64]:
    """Where documents begin in a block: each but the last one behind the end of another."""
    first = np.zeros(1 if starts_new else 0, np.int64)
    begins = np.concatenate((first, ends))
    return begins[:-1] if len(ends) and ends[-1] == n_tokens else begins
