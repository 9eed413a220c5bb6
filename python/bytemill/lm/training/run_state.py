"""Save and restore the state of all random generators."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from bytemill.lm.permutation import key_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def seed_generators(*numbers: int) -> None:
    """Seed torch's generator, which draws dropout, from a seed, the rank of the process and further numbers."""
    seed, rank, *further = numbers
    torch.manual_seed(key_of(*numbers) >> 1 if rank or further else seed)  # pyright: ignore[reportUnknownMemberType]


def generators_state() -> dict[str, Any]:
    """Return the states of the global generators of Python, NumPy and torch, on the CPU and the current device."""
    kind, keys, *rest = cast("tuple[Any, ...]", np.random.get_state(legacy=True))
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [kind, keys.tolist(), *rest],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def restore_generators(state: Mapping[str, Any]) -> None:
    """Restore the result of `generators_state`; devices that this machine lacks are ignored."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])
