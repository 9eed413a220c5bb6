"""The text of ids, packed, and what in it looks like a special token without being one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bytemill.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray


class DecodingTokenizer(Protocol):
    """What is asked of the tokenizer that made the shards."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def special_tokens(self) -> Mapping[str, int]: ...
    @property
    def vocab(self) -> dict[int, bytes]: ...
    def decode_bytes(self, ids: Any) -> bytes: ...


class TokenText:
    """Decodes rows of ids, and finds the text of `special` tokens where no such id stands."""

    def __init__(self, tokenizer: DecodingTokenizer, special: Mapping[str, int]) -> None:
        vocab = tokenizer.vocab
        self._lengths = np.zeros(max(vocab) + 1, dtype=np.int64)
        """Bytes of each id."""
        self._lengths[list(vocab)] = [len(token) for token in vocab.values()]
        self._decode_bytes = tokenizer.decode_bytes
        self._special = [(text.encode(), token) for text, token in special.items()]
        self.n_context = max((len(text) for text, _ in self._special), default=1) - 1
        """So many ids before a row decide what in it looks like a special token."""

    def decode(self, ids: NDArray[Any]) -> bytes:
        """The bytes of a row of ids. Raises `ShardError` for an id that no token has."""
        try:
            return self._decode_bytes(ids)
        except (KeyError, OverflowError) as error:
            known = np.flatnonzero(self._lengths)
            strangers = ids[~np.isin(ids, known)]
            bad = int(strangers[0]) if len(strangers) else -1
            raise ShardError(
                f"the shards hold the id {bad:,}, which the tokenizer does not have",
                hint="they are damaged, or were made with another tokenizer",
            ) from error

    def byte_ends(self, ids: NDArray[Any], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where rows that end at `ends` in `ids` end in their bytes."""
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(self._lengths[ids])))
        return sums[ends]

    def look_alikes(self, ids: NDArray[Any], data: bytes, before: bytes = b"") -> Iterator[tuple[int, int]]:
        """Where `data`, the bytes of `ids`, reads as a special token and holds none: first byte, and last byte + 1.

        `before` is text in front of it: what begins there begins below 0.
        """
        starts: NDArray[np.int64] | None = None
        text = before + data if before else data
        for needle, token in self._special:
            place = text.find(needle)
            if place < 0:
                continue
            if starts is None:
                lengths = self._lengths[ids]
                starts = np.cumsum(lengths) - lengths
            real = set(starts[ids == token].tolist())
            while place >= 0:
                start = place - len(before)
                if start + len(needle) > 0 and start not in real:
                    yield start, start + len(needle)
                place = text.find(needle, place + 1)
