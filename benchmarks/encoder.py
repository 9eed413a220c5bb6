"""What the benchmark programs ask of an encoder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Encoder:
    """One tool with the vocabulary loaded; texts hold no special tokens."""

    version: str
    to_array: Callable[[str], Any] | None = None
    to_list: Callable[[str], Sequence[int]] | None = None
    batch: Callable[[list[str]], Sequence[Any]] | None = None
    """Documents to a row of ids each, lists or slices of arrays as the tool gives them."""
    batch_array: Callable[[list[str]], tuple[Any, Any]] | None = None
    """Documents to an array of all ids, and one of where those of each begin, with the end of all behind them."""
    files: Callable[[list[Path]], Sequence[Any]] | None = None
    """Files to an array of ids each."""
    decode: Callable[[Any], Any] | None = None
    """A list of ids to text or bytes."""
    decode_array: Callable[[Any], Any] | None = None
    """An array of ids, uint32, to text or bytes."""


def arrays_of(ids_and_offsets: tuple[Any, Any]) -> list[Any]:
    """The rows of an array of all ids and the places where each row ends."""
    ids, offsets = ids_and_offsets
    places = offsets.tolist()
    return [ids[start:end] for start, end in pairwise(places)]
