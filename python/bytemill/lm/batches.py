"""Batches of token ids: at random from any array, or in a seeded order from shards that can be gone on with."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from bytemill.errors import ShardError
from bytemill.lm.permutation import key_of, permuted
from bytemill.shards import TokenShards

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor


class TokenSequence(Protocol):
    """A one-dimensional sequence of ids: an array, memory-mapped or not, a tensor, `TokenShards`."""

    def __len__(self) -> int:
        """How many ids there are."""
        ...

    def __getitem__(self, index: slice, /) -> Any:
        """The ids of a slice."""
        ...


def get_batch(
    x: TokenSequence,
    batch_size: int,
    context_length: int,
    device: str | torch.device = "cpu",
    *,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Windows of `x` at random places, and the same windows one id further: what comes next at each position.

    Both are int64 of shape (batch_size, context_length) on `device`. Every start from 0 to len(x) - context_length - 1
    is equally likely, drawn from `generator` (by default torch's global one). Only the windows are read.

    Raises ValueError for what is not one-dimensional, holds no integers, or is too short for one window.

    >>> inputs, targets = get_batch(np.arange(100, dtype=np.uint16), batch_size=4, context_length=8)
    >>> inputs.shape, bool((targets == inputs + 1).all())
    (torch.Size([4, 8]), True)
    """
    if batch_size < 1 or context_length < 1:
        raise ValueError(f"batch_size {batch_size} and context_length {context_length} must be at least 1")
    if len(getattr(x, "shape", (0,))) != 1:
        raise ValueError(f"x has shape {tuple(getattr(x, 'shape', ()))}; it must be one-dimensional")
    n_starts = len(x) - context_length
    if n_starts < 1:
        raise ValueError(
            f"x has {len(x):,} ids, and a window of {context_length:,} with its targets needs {context_length + 1:,}"
        )
    starts = torch.randint(n_starts, (batch_size,), generator=generator)
    return _inputs_and_targets(x, [int(start) for start in starts], context_length, device)


class ShardBatches:
    """Windows of the ids in folders of shards, in an order that depends on `seed` alone.

    The ids of all folders are one sequence, and it is cut into windows of `context_length` that do not overlap. In an
    epoch each comes once, shuffled; in each epoch the cuts are elsewhere and the order is another one. Window number k
    of the whole run is computed from k (see `permutation`): to go on exactly where a run stopped takes that number and
    nothing else, and no order is held in memory. The ids stay on the disk until their window is read.

    Raises `ShardError` where the shards' tokenizer is not that of `fingerprint` (by default that of the first folder),
    or where there are too few ids for one window.
    """

    def __init__(
        self,
        folders: Sequence[str | os.PathLike[str]],
        context_length: int,
        *,
        seed: int = 0,
        fingerprint: str | None = None,
    ) -> None:
        self.tokens = JoinedShards(folders, fingerprint)
        self.context_length = context_length
        self.seed = seed
        self.position = 0
        """Windows taken so far. To set it goes there."""
        n_targets = len(self.tokens) - 1
        if n_targets < context_length:
            raise ShardError(
                f"the shards in {_names(folders)} hold {len(self.tokens):,} tokens: too few for one window of "
                f"{context_length:,} and its targets",
                hint=f"encode more text, or take a context_length of {max(1, n_targets)} or less",
            )
        # One window fewer than would fit leaves room to shift the cuts by more than a window, so that every start
        # from 0 to n - m - 1 occurs.
        self.n_windows = max(1, n_targets // context_length - 1)
        """Windows of one epoch."""
        self._n_shifts = n_targets - self.n_windows * context_length + 1

    def take(self, batch_size: int, device: str | torch.device = "cpu") -> tuple[Tensor, Tensor]:
        """The next `batch_size` windows and their targets, int64 of shape (batch_size, context_length)."""
        starts = self.starts(self.position, batch_size)
        self.position += batch_size
        return _inputs_and_targets(self.tokens, starts, self.context_length, device)

    def starts(self, position: int, n: int) -> list[int]:
        """Where the windows number `position` to `position + n - 1` of the whole run begin."""
        numbers = np.arange(position, position + n, dtype=np.int64)
        epochs, places = np.divmod(numbers, self.n_windows)
        starts = np.empty(n, dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            key = key_of(self.seed, epoch)
            shift = key_of(key, 1) % self._n_shifts
            starts[here] = shift + permuted(places[here], self.n_windows, key) * self.context_length
        return starts.tolist()

    @property
    def epoch(self) -> float:
        """How often the ids have been gone through."""
        return self.position / self.n_windows

    def state_dict(self) -> dict[str, int]:
        """What going on needs, and what it must agree with."""
        return {
            "position": self.position,
            "seed": self.seed,
            "context_length": self.context_length,
            "n_tokens": len(self.tokens),
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes to where a run stopped. Raises `ShardError` where the windows would be other ones."""
        own = self.state_dict()
        for name in ("seed", "context_length", "n_tokens"):
            if state[name] != own[name]:
                raise ShardError(
                    f"the data has changed since the run stopped: {name} was {state[name]:,} and is {own[name]:,}",
                    hint="go on with the same shards and settings, or begin a new run in another folder",
                )
        self.position = state["position"]


class JoinedShards:
    """The ids of several folders of shards of one tokenizer, as one sequence that stays on the disk.

    Raises `ShardError` where a folder's tokenizer is another one than `fingerprint`'s or the first folder's.
    """

    def __init__(self, folders: Sequence[str | os.PathLike[str]], fingerprint: str | None = None) -> None:
        if not folders:
            raise ShardError("no folder of shards is named", hint="make one with `bytemill data encode`")
        self.parts = [TokenShards(folder) for folder in folders]
        self.fingerprint = fingerprint or self.parts[0].manifest.fingerprint
        for part in self.parts:
            if part.manifest.fingerprint != self.fingerprint:
                whose = "the run's tokenizer" if fingerprint else f"the tokenizer of {self.parts[0].folder}"
                raise ShardError(
                    f"the shards in {part.folder} were made with another tokenizer (fingerprint "
                    f"{part.manifest.fingerprint[:12]}…) than {whose} ({self.fingerprint[:12]}…)",
                    hint="encode the text again with that tokenizer: bytemill data encode TOKENIZER TEXT -o DIR",
                )
        self._starts = [0, *accumulate(len(part) for part in self.parts)]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: slice) -> NDArray[Any]:
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ValueError(f"a slice of shards has step 1, not {step}")
        pieces = [
            part.read(max(0, start - before), min(len(part), stop - before))
            for part, before in zip(self.parts, self._starts, strict=False)
            if before < stop and before + len(part) > start
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate([*pieces, np.empty(0, np.uint16)])


def spread_starts(n_tokens: int, context_length: int, n_windows: int) -> list[int]:
    """Starts of at most `n_windows` windows that do not overlap, spread evenly over `n_tokens` ids.

    >>> spread_starts(101, 10, 4), spread_starts(101, 10, 50) == list(range(0, 91, 10))
    ([0, 20, 50, 70], True)
    """
    n_fitting = (n_tokens - 1) // context_length
    n = min(n_windows, n_fitting)
    return [place * n_fitting // n * context_length for place in range(n)]


def windows_at(
    tokens: TokenSequence, starts: Sequence[int], context_length: int, device: str | torch.device = "cpu"
) -> tuple[Tensor, Tensor]:
    """The windows that begin at `starts` and their targets, int64 of shape (len(starts), context_length)."""
    return _inputs_and_targets(tokens, starts, context_length, device)


def _inputs_and_targets(
    x: TokenSequence, starts: Sequence[int], context_length: int, device: str | torch.device
) -> tuple[Tensor, Tensor]:
    # Widened before torch sees it: what torch can do with uint16 differs from device to device, and read as int16 the
    # ids from 32,768 on would be negative.
    windows = np.empty((len(starts), context_length + 1), dtype=np.int64)
    for row, start in enumerate(starts):
        window = np.asarray(x[start : start + context_length + 1])
        if not np.issubdtype(window.dtype, np.integer):
            raise ValueError(f"x holds {window.dtype}; ids are integers")
        windows[row] = window
    both = torch.from_numpy(windows)  # pyright: ignore[reportUnknownMemberType]
    # From pinned memory the copy runs beside what the device is doing.
    is_cuda = torch.device(device).type == "cuda"
    both = both.pin_memory().to(device, non_blocking=True) if is_cuda else both.to(device)
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def _names(folders: Sequence[str | os.PathLike[str]]) -> str:
    return ", ".join(str(folder) for folder in folders)
