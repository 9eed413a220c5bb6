"""Readers of every layout, written from its public description and on numpy alone."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SEPARATOR = 99
"""Id of the separator in the tests' documents, whose own ids are below."""


@dataclass(frozen=True)
class ReadBack:
    """What a reader finds in one file."""

    tokens: list[int]
    dtype: str
    documents: list[list[int]] | None = None


def _npy(path: Path) -> ReadBack:
    array = np.load(path)
    return ReadBack(array.tolist(), array.dtype.name)


def _nanogpt(path: Path) -> ReadBack:
    tokens = np.fromfile(path, dtype=np.uint16)
    return ReadBack(tokens.tolist(), "uint16")


def _llmc(path: Path) -> ReadBack:
    """256 numbers of four bytes: what the file is, its version, how many tokens; then the tokens to its end."""
    numbers = np.fromfile(path, dtype=np.int32, count=256)
    kinds: dict[tuple[int, int], Any] = {(20240520, 1): np.uint16, (20240801, 7): np.uint32}
    dtype = kinds[int(numbers[0]), int(numbers[1])]
    tokens = np.fromfile(path, dtype=dtype, offset=256 * 4)
    assert len(tokens) == numbers[2]
    assert not numbers[3:].any()
    return ReadBack(tokens.tolist(), np.dtype(dtype).name)


def _megatron(path: Path) -> ReadBack:
    index = path.with_suffix(".idx").read_bytes()
    magic, version, code, n_sequences, n_indices = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version) == (b"MMIDIDX\0\0", 1)
    dtype = {8: "uint16", 4: "int32"}[code]
    sizes = np.frombuffer(index, np.int32, n_sequences, 34)
    pointers = np.frombuffer(index, np.int64, n_sequences, 34 + 4 * n_sequences)
    documents = np.frombuffer(index, np.int64, n_indices, 34 + 12 * n_sequences)
    assert len(index) == 34 + 12 * n_sequences + 8 * n_indices
    data = path.read_bytes()
    sequences = [
        np.frombuffer(data, dtype, size, pointer).tolist()
        for size, pointer in zip(sizes, pointers, strict=True)
    ]
    found = [
        [token for sequence in sequences[start:stop] for token in sequence]
        for start, stop in pairwise(documents)
    ]
    return ReadBack(np.frombuffer(data, dtype).tolist(), dtype, found)


def _datatrove(path: Path) -> ReadBack:
    tokenizer_and_size, count, _ = path.with_name(path.name + ".metadata").read_text("utf-8").split("\n")
    dtype = {"2": "uint16", "4": "uint32"}[tokenizer_and_size.split("|")[1]]
    tokens = np.fromfile(path, dtype).tolist()
    assert len(tokens) == int(count)
    ends = np.fromfile(path.with_name(path.name + ".index"), np.uint64).tolist()
    starts = [0, *ends[:-1]]
    return ReadBack(tokens, dtype, [tokens[start:end] for start, end in zip(starts, ends, strict=True)])


READERS: dict[str, Callable[[Path], ReadBack]] = {
    "npy": _npy,
    "bin": _nanogpt,
    "llmc": _llmc,
    "megatron": _megatron,
    "datatrove": _datatrove,
}


@pytest.fixture
def read_back() -> Callable[[str, Path], list[ReadBack]]:
    """Reads all shards of a folder, in order, with the reader of the layout named."""

    def read(layout: str, folder: Path) -> list[ReadBack]:
        suffix = {"npy": "npy", "datatrove": "ds"}.get(layout, "bin")
        return [READERS[layout](path) for path in sorted(folder.glob(f"shard_*.{suffix}"))]

    return read
