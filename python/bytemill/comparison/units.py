"""The units that are counted and drawn: documents, and passages of longer documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bytemill.corpus import Corpus

PASSAGE_BYTES = 1 << 14
"""A longer document is cut into passages of about this size, each after a line if there is one."""


def read_units(corpus: Corpus) -> Iterator[tuple[bytes, NDArray[np.int64], str]]:
    """Yield the text of a corpus in blocks, the offset at which each unit ends, and the name of the source.

    Empty documents are left out.
    """
    names = corpus.source_names
    for batch in corpus.read():
        data = bytes(batch.data)
        if data:
            yield data, passage_ends(data, batch.ends), names[batch.source]


def passage_ends(data: bytes, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ends of documents in `data` and of the passages of those that are long.

    >>> passage_ends(b"ab" * 20000, np.array([4, 40000])).tolist()
    [4, 16388, 40000]
    """
    result: list[int] = []
    start = 0
    for end in np.unique(ends).tolist():
        while end - start > 2 * PASSAGE_BYTES:
            wanted = start + PASSAGE_BYTES
            cut = data.rfind(b"\n", start, wanted) + 1 or wanted
            while data[cut] & 0xC0 == 0x80:  # inside a character
                cut += 1
            result.append(cut)
            start = cut
        if end > start:
            result.append(end)
        start = end
    return np.array(result, dtype=np.int64)
