"""Decode arrays of ids, and find plain text that looks like a special token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bytemill.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray


class DecodingTokenizer(Protocol):
    """A tokenizer that can decode shards."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def special_tokens(self) -> Mapping[str, int]: ...
    @property
    def vocab(self) -> dict[int, bytes]: ...
    def decode_bytes(self, ids: Any) -> bytes: ...


class TokenText:
    """Decodes arrays of ids.

    Args:
        tokenizer: The tokenizer that encoded them.
        special: Special tokens to find in plain text, with their ids.
    """

    def __init__(self, tokenizer: DecodingTokenizer, special: Mapping[str, int]) -> None:
        vocab = tokenizer.vocab
        self._lengths = np.zeros(max(vocab) + 1, dtype=np.int64)
        """Bytes of each token, by id."""
        self._lengths[list(vocab)] = [len(token) for token in vocab.values()]
        self._decode_bytes = tokenizer.decode_bytes
        self._special = [(text.encode(), token) for text, token in special.items()]
        self.n_context = max((len(text) for text, _ in self._special), default=1) - 1
        """Ids before an array that can be part of a look-alike in it."""

    def decode(self, ids: NDArray[Any]) -> bytes:
        """Return the bytes of ids. Raises `ShardError` for an unknown id."""
        try:
            return self._decode_bytes(ids)
        except (KeyError, OverflowError) as error:
            known = np.flatnonzero(self._lengths)
            unknown = ids[~np.isin(ids, known)]
            bad = int(unknown[0]) if len(unknown) else -1
            raise ShardError(
                f"the shards contain the id {bad:,}, which the tokenizer does not have",
                hint="they are damaged, or were encoded with another tokenizer",
            ) from error

    def byte_ends(self, ids: NDArray[Any], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert ends of documents from ids to bytes."""
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(self._lengths[ids])))
        return sums[ends]

    def look_alikes(self, ids: NDArray[Any], data: bytes, before: bytes = b"") -> Iterator[tuple[int, int]]:
        """Yield (start, end) of plain text that looks like a special token, in bytes.

        Args:
            ids: The ids.
            data: Their bytes.
            before: Text before them. A look-alike that begins in it has a negative start.
        """
        starts: NDArray[np.int64] | None = None
        text = before + data if before else data
        for needle, token in self._special:
            found = text.find(needle)
            if found < 0:
                continue
            if starts is None:
                lengths = self._lengths[ids]
                starts = np.cumsum(lengths) - lengths
            real = set(starts[ids == token].tolist())
            while found >= 0:
                start = found - len(before)
                if start + len(needle) > 0 and start not in real:
                    yield start, start + len(needle)
                found = text.find(needle, found + 1)
