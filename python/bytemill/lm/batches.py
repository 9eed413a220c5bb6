"""Batches of token ids: at random from any array, or from shards in a seeded, resumable order.

A shuffled list of the windows of 10¹² tokens takes gigabytes, and resuming takes the same list again. Here the
position of element i is a function of i and a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from bytemill.data import StoredTokens, TokenShards
from bytemill.errors import ShardError
from bytemill.storage import url_of

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor


_ROUNDS = 6
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(value: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """Hash with the finalizer of SplitMix64 (Steele, Lea & Flood 2014); every output bit depends on every input bit."""
    mixed = np.asarray(value, dtype=np.uint64)
    with np.errstate(over="ignore"):  # arithmetic is modulo 2⁶⁴
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def key_of(*numbers: int) -> int:
    """Hash numbers to a 64-bit key that depends on their order.

    >>> key_of(1, 2) != key_of(2, 1)
    True
    """
    key = np.uint64(0)
    with np.errstate(over="ignore"):
        for number in numbers:
            key = mix(key * _GOLDEN + np.uint64(number % 2**64) + _GOLDEN)[()]
    return int(key)


def permuted(numbers: NDArray[np.int64], n: int, key: int) -> NDArray[np.int64]:
    """Map numbers by the permutation of 0 … n − 1 that `key` selects.

    A Feistel network permutes the numbers of 2b bits, 2^2b ≥ n: each round keeps one half and XORs the other with a
    function of it, which is invertible for any function. A result of n or more is permuted again until it is below n
    (cycle walking). This is again a permutation: following the cycle of a number below n leads back below n, and two
    numbers on one cycle never meet. As 2^2b < 4n, it takes fewer than four rounds on average.

    Args:
        numbers: Numbers from 0 to n − 1, of any shape.
        n: Size of the permutation.
        key: Selects the permutation; see `key_of`.

    Raises:
        ValueError: A number is out of range.

    >>> sorted(permuted(np.arange(10), 10, key=7).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    numbers = np.asarray(numbers, dtype=np.int64)
    if n < 1 or (numbers.size and (numbers.min() < 0 or numbers.max() >= n)):
        raise ValueError(f"numbers to permute must be from 0 to {n - 1}")
    half_bits = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))
    round_keys = [np.uint64(key_of(key, index)) for index in range(_ROUNDS)]
    result = numbers.astype(np.uint64).reshape(-1)
    outside = np.ones(len(result), dtype=bool)
    while outside.any():
        result[outside] = _feistel(result[outside], half_bits, round_keys)
        outside = result >= n
    return result.astype(np.int64).reshape(numbers.shape)


def _feistel(
    numbers: NDArray[np.uint64], half_bits: np.uint64, round_keys: list[np.uint64]
) -> NDArray[np.uint64]:
    mask = np.uint64((1 << int(half_bits)) - 1)
    left, right = numbers >> half_bits, numbers & mask
    for round_key in round_keys:
        left, right = right, left ^ (mix(right ^ round_key) & mask)
    return (left << half_bits) | right


_N_AHEAD = 8
"""Batches that are read ahead from an object store."""


class TokenSequence(Protocol):
    """One-dimensional sequence of ids: an array (also memory-mapped), a tensor, `TokenShards`."""

    def __len__(self) -> int:
        """Return the number of ids."""
        ...

    def __getitem__(self, index: slice, /) -> Any:
        """Return the ids of a slice."""
        ...


def get_batch(
    x: TokenSequence,
    batch_size: int,
    context_length: int,
    device: str | torch.device = "cpu",
    *,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Return windows at random positions of `x`, and their targets: the same windows shifted by one id.

    Every start from 0 to len(x) − context_length − 1 is equally likely. Only the windows are read.

    Args:
        x: Ids.
        batch_size: Number of windows.
        context_length: Ids per window.
        device: Device of the result.
        generator: Random generator; by default torch's global one.

    Returns:
        Inputs and targets, int64 of shape (batch_size, context_length).

    Raises:
        ValueError: `x` is not one-dimensional, has no integers, or is too short for a window.

    >>> inputs, targets = get_batch(np.arange(100, dtype=np.uint16), batch_size=4, context_length=8)
    >>> inputs.shape, bool((targets == inputs + 1).all())
    (torch.Size([4, 8]), True)
    """
    if batch_size < 1 or context_length < 1:
        raise ValueError(f"batch_size {batch_size} and context_length {context_length} must be at least 1")
    if len(getattr(x, "shape", (0,))) != 1:
        raise ValueError(f"x must be one-dimensional, but has shape {tuple(getattr(x, 'shape', ()))}")
    n_starts = len(x) - context_length
    if n_starts < 1:
        raise ValueError(
            f"x has {len(x):,} ids, but a window of {context_length:,} with its targets needs {context_length + 1:,}"
        )
    starts = torch.randint(n_starts, (batch_size,), generator=generator)
    return inputs_and_targets(_windows(x, [int(start) for start in starts], context_length), device)


class ShardBatches:
    """Windows of the ids in shard folders, in an order that depends only on `seed`.

    The ids of all folders form one sequence, which is cut into windows that do not overlap. An epoch reads every
    window once, in shuffled order; each epoch has other cuts and another order. Window k of the run is a function of k
    (see `permutation`), so the state to resume is one number. Ids are read from disk when their window is needed, and
    from an object store a few batches ahead.

    Several processes share the windows: each call of `take`, which all of them make with the same size, divides the
    next windows of the run among them by rank.

    Args:
        folders: Shard folders.
        context_length: Ids per window.
        seed: Seed of the order.
        fingerprint: Fingerprint of the tokenizer; by default that of the first folder.
        rank: Rank of this process.
        n_processes: Number of processes.
        sequential: Read the windows in the order of the ids, from the first id on, in every epoch.

    Raises:
        ShardError: A folder is of another tokenizer, or there are too few ids for a window.
    """

    padding_share = 0.0
    """Share of the positions of windows that have no target."""

    def __init__(
        self,
        folders: Sequence[str | os.PathLike[str]],
        context_length: int,
        *,
        seed: int = 0,
        fingerprint: str | None = None,
        rank: int = 0,
        n_processes: int = 1,
        sequential: bool = False,
    ) -> None:
        self.tokens = JoinedShards(folders, fingerprint)
        self.context_length = context_length
        self.seed = seed
        self.rank = rank
        self.n_processes = n_processes
        self.position = 0
        """Number of windows that all processes have read so far; can be set."""
        n_targets = len(self.tokens) - 1
        if n_targets < context_length:
            raise ShardError(
                f"the shards in {', '.join(map(str, folders))} hold {len(self.tokens):,} tokens, too few for a "
                f"window of {context_length:,} and its targets",
                hint="encode more text"
                + (f", or lower the context: --model.context-length {n_targets}" if n_targets > 0 else ""),
            )
        self._sequential = sequential
        # One window fewer than fits, so that the cuts can shift by more than a window and every start occurs.
        self.n_windows = max(1, n_targets // context_length - (not sequential))
        """Number of windows per epoch."""
        self._n_shifts = n_targets - self.n_windows * context_length + 1
        if self.tokens.has_masks:
            everything = np.array([0]), np.array([len(self.tokens)])
            self.padding_share = 1 - int(self.tokens.n_targets_of(*everything)[0]) / len(self.tokens)

    def take(self, batch_size: int, device: str | torch.device = "cpu") -> tuple[Tensor, Tensor]:
        """Return the next `batch_size` windows and their targets, int64 of shape (batch_size, context_length)."""
        windows = self.read(self.position, batch_size)
        self.advance(batch_size)
        return inputs_and_targets(windows, device)

    def read(self, position: int, batch_size: int) -> Tensor:
        """Return this process's windows of a call of `take` at `position`; see `windows`."""
        return self.windows(position + self.rank * batch_size, batch_size)

    def windows(self, position: int, n: int) -> Tensor:
        """Return windows `position` to `position + n - 1` of the run, int64 of shape (n, context_length + 1)."""
        self._read_ahead(position, n)
        return _windows(self.tokens, self.starts(position, n), self.context_length)

    def _read_ahead(self, position: int, n: int) -> None:
        """Begin to read what is in an object store, for these windows and those of the calls to come."""
        if getattr(self.tokens, "is_stored", False):  # an array too is a sequence of ids
            for ahead in range(_N_AHEAD):
                self.tokens.prefetch(self._ranges(position + ahead * self.n_processes * n, n))

    def _ranges(self, position: int, n: int) -> list[tuple[int, int]]:
        """Return the ranges of ids that windows `position` to `position + n - 1` consist of."""
        return [(start, start + self.context_length + 1) for start in self.starts(position, n)]

    def n_targets(self, position: int, n_windows: int) -> int:
        """Return the number of targets of windows `position` to `position + n_windows - 1` of the run."""
        if self.tokens.has_masks:
            starts = self.starts(position, n_windows)
            return sum(
                int(self.tokens.mask(start + 1, start + self.context_length + 1).sum()) for start in starts
            )
        return n_windows * self.context_length

    def advance(self, batch_size: int) -> None:
        """Move on by the windows of a call of `take`."""
        self.position += self.n_processes * batch_size

    def starts(self, position: int, n: int) -> list[int]:
        """Return the offsets of the first ids of windows `position` to `position + n - 1` of the run."""
        numbers = np.arange(position, position + n, dtype=np.int64)
        epochs, indices = np.divmod(numbers, self.n_windows)
        if self._sequential:
            return (indices * self.context_length).tolist()
        starts = np.empty(n, dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            in_epoch = epochs == epoch
            key = key_of(self.seed, epoch)
            shift = key_of(key, 1) % self._n_shifts
            starts[in_epoch] = shift + permuted(indices[in_epoch], self.n_windows, key) * self.context_length
        return starts.tolist()

    @property
    def epoch(self) -> float:
        """Number of passes over the ids so far, with fraction."""
        return self.position / self.n_windows

    def state_dict(self) -> dict[str, int]:
        """Return the state to resume from."""
        return {
            "position": self.position,
            "seed": self.seed,
            "context_length": self.context_length,
            "n_tokens": len(self.tokens),
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the position of an earlier run. Raises ShardError if its windows were different."""
        own = self.state_dict()
        for name in ("seed", "context_length", "n_tokens"):
            if state[name] != own[name]:
                raise ShardError(
                    f"the data has changed since the run stopped: {name} was {state[name]:,} and is {own[name]:,}",
                    hint="restore the original shards and settings, or use another --run.folder",
                )
        self.position = state["position"]


class JoinedShards:
    """The ids of several shard folders as one sequence, read from disk on demand.

    Args:
        folders: Shard folders, at least one; also URLs in an object store.
        fingerprint: Fingerprint of the tokenizer; by default that of the first folder.

    Raises:
        ShardError: There is no folder, or one is of another tokenizer.
    """

    def __init__(self, folders: Sequence[str | os.PathLike[str]], fingerprint: str | None = None) -> None:
        if not folders:
            raise ShardError(
                "there is no shard folder", hint="make one with: bytemill data encode TOKENIZER TEXT -o DIR"
            )
        self.parts = [_opened(folder) for folder in folders]
        self.fingerprint = fingerprint or self.parts[0].manifest.fingerprint
        for part in self.parts:
            if part.manifest.fingerprint != self.fingerprint:
                expected = "the run" if fingerprint else str(self.parts[0].folder)
                raise ShardError(
                    f"the shards in {part.folder} were made with another tokenizer (fingerprint "
                    f"{part.manifest.fingerprint[:12]}…) than that of {expected} ({self.fingerprint[:12]}…)",
                    hint="encode the text with that tokenizer: bytemill data encode TOKENIZER TEXT -o DIR",
                )
        self._starts = [0, *accumulate(len(part) for part in self.parts)]
        with_masks = [part.manifest.settings.conversations is not None for part in self.parts]
        self._has_masks = any(with_masks)
        if self._has_masks and not all(with_masks):
            plain = self.parts[with_masks.index(False)].folder
            raise ShardError(
                f"the shards in {plain} are of texts, others of conversations",
                hint="tune on folders that were all encoded with --conversations",
            )

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def has_masks(self) -> bool:
        """Whether the shards are of conversations, whose masks say what is a target."""
        return self._has_masks

    def mask(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return True for each id from `start` to `stop` (exclusive) that is a target."""
        found = [
            part.mask(max(0, start - before), min(len(part), stop - before))
            for part, before in zip(self.parts, self._starts, strict=False)
            if before < stop and before + len(part) > start
        ]
        return np.concatenate([np.empty(0, np.bool_), *found])

    def n_targets_of(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of targets in each range; reads every mask once."""
        bounds = np.unique(np.concatenate([starts, stops]))
        before = np.zeros(len(bounds), np.int64)
        n_before = 0
        for first in range(0, len(self), _SCANNED):
            last = min(first + _SCANNED, len(self))
            counts = np.concatenate([[0], np.cumsum(self.mask(first, last))])
            low, high = np.searchsorted(bounds, [first, last], side="left")
            high = len(bounds) if last == len(self) else int(high)
            before[low:high] = n_before + counts[bounds[low:high] - first]
            n_before += int(counts[-1])
        return before[np.searchsorted(bounds, stops)] - before[np.searchsorted(bounds, starts)]

    def conversation_ends(self) -> NDArray[np.int64]:
        """Return the offset at which each conversation ends."""
        found: list[NDArray[np.int64]] = []
        for part, before in zip(self.parts, self._starts, strict=False):
            ends = part.document_ends()
            if ends is None:
                raise ShardError(
                    f"{part.folder} has no document index", hint="encode the conversations again"
                )
            found.append(before + ends.astype(np.int64))
        return np.concatenate(found)

    @property
    def is_stored(self) -> bool:
        """Whether a part is in an object store."""
        return any(isinstance(part, StoredTokens) for part in self.parts)

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Begin to read ranges that are in an object store."""
        for part, before in zip(self.parts, self._starts, strict=False):
            if isinstance(part, StoredTokens):
                own = [(max(0, start - before), min(len(part), stop - before)) for start, stop in ranges]
                part.prefetch((start, stop) for start, stop in own if start < stop)

    def __getitem__(self, index: slice) -> NDArray[Any]:
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ValueError(f"a slice of shards must have step 1, not {step}")
        slices = [
            part.read(max(0, start - before), min(len(part), stop - before))
            for part, before in zip(self.parts, self._starts, strict=False)
            if before < stop and before + len(part) > start
        ]
        return slices[0] if len(slices) == 1 else np.concatenate([*slices, np.empty(0, np.uint16)])


def _opened(folder: str | os.PathLike[str]) -> TokenShards | StoredTokens:
    return TokenShards(folder) if (url := url_of(folder)) is None else StoredTokens(url)


def spread_starts(n_tokens: int, context_length: int, n_windows: int) -> list[int]:
    """Return the starts of at most `n_windows` windows without overlap, spread evenly over `n_tokens` ids.

    >>> spread_starts(101, 10, 4), spread_starts(101, 10, 50) == list(range(0, 91, 10))
    ([0, 20, 50, 70], True)
    """
    n_fitting = (n_tokens - 1) // context_length
    n = min(n_windows, n_fitting)
    return [index * n_fitting // n * context_length for index in range(n)]


def windows_at(
    tokens: TokenSequence, starts: Sequence[int], context_length: int, device: str | torch.device = "cpu"
) -> tuple[Tensor, Tensor]:
    """Return the windows that start at `starts` and their targets, int64 of shape (len(starts), context_length)."""
    return inputs_and_targets(_windows(tokens, starts, context_length), device)


def inputs_and_targets(windows: Tensor, device: str | torch.device) -> tuple[Tensor, Tensor]:
    """Return windows without their last id, and without their first; the copy from pinned memory is asynchronous.

    An id that is not a target is stored as its complement, ~id: it remains negative in the targets. If it also begins a
    document, `BEGINS` is subtracted.
    """
    both = windows.to(device, non_blocking=True)
    inputs = torch.where(both < -BEGINS, both + BEGINS, both)[..., :-1]
    return torch.where(inputs < 0, ~inputs, inputs), both[..., 1:].contiguous()


def _windows(x: TokenSequence, starts: Sequence[int], context_length: int) -> Tensor:
    # Convert in NumPy: support for uint16 in torch depends on the device, and as int16 ids from 32,768 are negative.
    if isinstance(x, JoinedShards) and x.is_stored:
        x.prefetch([(start, start + context_length + 1) for start in starts])
    windows = np.empty((len(starts), context_length + 1), dtype=np.int64)
    for row, start in enumerate(starts):
        window = np.asarray(x[start : start + context_length + 1])
        if not np.issubdtype(window.dtype, np.integer):
            raise ValueError(f"x must hold integers, not {window.dtype}")
        windows[row] = window
        if isinstance(x, JoinedShards) and x.has_masks:
            is_target = x.mask(start, start + context_length + 1)
            windows[row, ~is_target] = ~windows[row, ~is_target]
    return torch.from_numpy(windows)  # pyright: ignore[reportUnknownMemberType]


PADDING = ~0
"""Id after the last document of a window; see `batches.inputs_and_targets` for negative ids."""
BEGINS = 1 << 40
"""What is subtracted from the complement of an id that begins a document, where no separator says so."""

_SCANNED = 1 << 24
_GROUP = 1 << 14
"""Documents that are packed together. More would hardly save padding, and windows of documents of similar length
would become more frequent."""


def document_ends(tokens: JoinedShards, documents: DocumentMask | None) -> NDArray[np.int64]:
    """Return the offset at which each document ends; the last one may lack its separator.

    Without separators, the document index of the shards says where.
    """
    found: list[NDArray[np.int64]] = []
    if documents is None:
        return tokens.conversation_ends()
    for start in range(0, len(tokens), _SCANNED):
        block: NDArray[Any] = tokens[start : start + _SCANNED]
        found.append(start + np.flatnonzero(block == documents.separator))
    offsets = np.concatenate(found) + (not documents.separator_first)
    return np.unique(np.append(offsets[offsets > 0], len(tokens)))


def cut_documents(
    ends: NDArray[np.int64], capacity: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the starts and lengths of the pieces of documents, of at most `capacity` ids, and which continue another.

    Pieces of a document share one id, the last target of one and the first input of the next, so that every id of a
    document but the first is a target once.
    """
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    lengths = ends - starts
    n_pieces = np.maximum(1, -(-(lengths - 1) // (capacity - 1)))
    firsts = np.cumsum(n_pieces) - n_pieces
    offsets: NDArray[np.int64] = (np.arange(int(n_pieces.sum())) - np.repeat(firsts, n_pieces)) * (
        capacity - 1
    )
    return (
        np.repeat(starts, n_pieces) + offsets,
        np.minimum(capacity, np.repeat(lengths, n_pieces) - offsets),
        offsets > 0,
    )


def best_fit(lengths: NDArray[np.int64], capacity: int) -> list[list[int]]:
    """Pack items into bins: the longest first, each into the bin with the least room that suffices.

    Best-fit decreasing needs at most 11/9 of the fewest possible bins, and a constant more (Johnson et al. 1974).

    Args:
        lengths: Sizes of the items, at most `capacity`.
        capacity: Size of a bin.

    Returns:
        The items of each bin.

    >>> best_fit(np.array([5, 3, 7, 2, 3]), 10)
    [[2, 1], [0, 4, 3]]
    """
    bins: list[list[int]] = []
    by_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0  # bit r is set if a bin has room for r ids
    for item in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[item])
        larger = rooms >> length
        if larger:
            room = length + (larger & -larger).bit_length() - 1
            number = by_room[room].pop()
            if not by_room[room]:
                rooms ^= 1 << room
            bins[number].append(item)
        else:
            room, number = capacity, len(bins)
            bins.append([item])
        left = room - length
        if left:
            by_room[left].append(number)
            rooms |= 1 << left
    return bins


class PackedBatches(ShardBatches):
    """Windows of whole documents or conversations in shard folders, in an order that depends only on `seed`.

    Documents are packed into windows by best fit, in random groups; one that is longer than a window is cut. What
    precedes a piece in its window never predicts its first id, which is a target elsewhere: it is negative (see
    `batches.inputs_and_targets`). If separators start documents, one takes the place of that id, so that every piece is
    a document of its own in a document mask. Of a conversation, only what its mask says is a target, and its first id
    is marked (`BEGINS`).

    Every epoch reads the same windows in another order. The ends of documents are found when the object is made, which
    reads all ids once.

    Args:
        folders: Shard folders.
        context_length: Ids per window.
        documents: How documents are divided; None for conversations.
        seed: Seed of the order.
        fingerprint: Fingerprint of the tokenizer; by default that of the first folder.
        rank: Rank of this process.
        n_processes: Number of processes.

    Raises:
        ShardError: A folder is of another tokenizer, or there are too few ids for a window.
    """

    def __init__(
        self,
        folders: Sequence[str | os.PathLike[str]],
        context_length: int,
        documents: DocumentMask | None,
        *,
        seed: int = 0,
        fingerprint: str | None = None,
        rank: int = 0,
        n_processes: int = 1,
    ) -> None:
        super().__init__(
            folders, context_length, seed=seed, fingerprint=fingerprint, rank=rank, n_processes=n_processes
        )
        self._separator = documents.separator if documents and documents.separator_first else None
        ends = document_ends(self.tokens, documents)
        starts, lengths, continues = cut_documents(ends, context_length + 1)
        order = permuted(np.arange(len(starts)), len(starts), key_of(seed, 0))
        groups = (order[first : first + _GROUP] for first in range(0, len(order), _GROUP))
        windows = [
            # In the order of the corpus: the first document may lack a separator in front, the last one at its end.
            np.sort(group[items])
            for group in groups
            for items in best_fit(lengths[group], context_length + 1)
            if lengths[group[items]].sum() > 1
        ]
        if not windows:
            raise ShardError("every document is a single token: nothing to predict", hint="encode more text")
        self._starts, self._lengths, self._continues = starts, lengths, continues
        self._pieces = np.concatenate(windows)
        self._bounds = np.cumsum([0, *map(len, windows)])
        firsts = self._bounds[:-1]
        self._has_masks = self.tokens.has_masks
        if self._has_masks:
            counts = self.tokens.n_targets_of(starts + 1, starts + lengths)
            self._n_targets = np.add.reduceat(counts[self._pieces], firsts)
        else:
            self._n_targets = np.add.reduceat((lengths - continues)[self._pieces], firsts)
            self._n_targets -= ~continues[self._pieces[firsts]]
        self.n_windows = len(windows)
        self.padding_share = 1 - float(self._n_targets.sum()) / (self.n_windows * context_length)

    def windows(self, position: int, n: int) -> Tensor:
        """Return windows `position` to `position + n - 1` of the run, with `PADDING` after the last document."""
        self._read_ahead(position, n)
        windows = np.full((n, self.context_length + 1), PADDING, dtype=np.int64)
        for row, pieces in enumerate(self._pieces_of(position, n)):
            ends = np.cumsum([0, *self._lengths[pieces]]).tolist()
            for piece, (start, end) in zip(pieces.tolist(), pairwise(ends), strict=True):
                offset = int(self._starts[piece])
                windows[row, start:end] = self.tokens[offset : offset + end - start]
                if self._has_masks:
                    is_target = self.tokens.mask(offset, offset + end - start)
                    is_target[0] = False  # of a piece that continues another, where it was a target
                    own = windows[row, start:end]
                    own[~is_target] = ~own[~is_target]
                    own[0] -= BEGINS
                elif self._continues[piece]:
                    windows[row, start] = ~(
                        windows[row, start] if self._separator is None else self._separator
                    )
        return torch.from_numpy(windows)  # pyright: ignore[reportUnknownMemberType]

    def _ranges(self, position: int, n: int) -> list[tuple[int, int]]:
        pieces = np.concatenate(self._pieces_of(position, n))
        starts = self._starts[pieces]
        return list(zip(starts.tolist(), (starts + self._lengths[pieces]).tolist(), strict=True))

    def starts(self, position: int, n: int) -> list[int]:
        """Return the offsets of the first ids of windows `position` to `position + n - 1` of the run."""
        return [int(self._starts[pieces[0]]) for pieces in self._pieces_of(position, n)]

    def n_targets(self, position: int, n_windows: int) -> int:
        """Return the number of targets of windows `position` to `position + n_windows - 1` of the run."""
        return int(self._n_targets[self._windows_at(position, n_windows)].sum())

    def _pieces_of(self, position: int, n: int) -> list[NDArray[np.int64]]:
        numbers = self._windows_at(position, n).tolist()
        return [self._pieces[self._bounds[number] : self._bounds[number + 1]] for number in numbers]

    def _windows_at(self, position: int, n: int) -> NDArray[np.int64]:
        epochs, indices = np.divmod(np.arange(position, position + n, dtype=np.int64), self.n_windows)
        windows = np.empty(n, dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            in_epoch = epochs == epoch
            windows[in_epoch] = permuted(indices[in_epoch], self.n_windows, key_of(self.seed, epoch + 1))
        return windows


class Documents(Protocol):
    """How windows divide into documents."""

    @property
    def reset_positions(self) -> bool:
        """Positions count from the start of the document, not of the window."""
        ...

    def starts(self, ids: Tensor) -> Tensor:
        """Return the position of the first token of each token's document, int64 of the shape (..., n_tokens)."""
        ...


@dataclass
class MarkedDocuments:
    """Documents whose first ids the windows of a batch mark (`BEGINS`); conversations have no separators."""

    reset_positions: bool = False
    windows: Tensor | None = None
    """The windows of the batch."""

    def starts(self, ids: Tensor) -> Tensor:
        """Return the position of the first token of each token's document in the windows of the batch."""
        if self.windows is None or self.windows.shape[0] != ids.shape[0]:
            raise RuntimeError("the windows are not those of the batch")
        marks = self.windows[:, : ids.shape[-1]].to(ids.device) < -BEGINS
        positions = torch.arange(ids.shape[-1], device=ids.device)
        return (positions * (marks & (positions > 0))).cummax(-1).values


@dataclass(frozen=True)
class DocumentMask:
    """How a window divides into documents.

    Every token keeps its target: the token that ends a document is followed by the first token of the next one, which
    it predicts without having seen that document, as at the start of generated text.
    """

    separator: int
    """Id of the token between documents."""
    separator_first: bool = False
    """The separator starts its document; by default it ends it."""
    reset_positions: bool = False
    """Positions count from the start of the document, not of the window."""

    def starts(self, ids: Tensor) -> Tensor:
        """Return the position of the first token of each token's document, int64 of the shape (..., n_tokens) of `ids`.

        >>> DocumentMask(0).starts(torch.tensor([5, 0, 7, 8, 0, 9])).tolist()
        [0, 0, 2, 2, 2, 5]
        """
        positions = torch.arange(ids.shape[-1], device=ids.device)
        is_separator = ids == self.separator
        is_first = is_separator if self.separator_first else is_separator.roll(1, -1)
        return (positions * (is_first & (positions > 0))).cummax(-1).values
