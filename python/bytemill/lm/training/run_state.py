"""Seed, save and restore all random generators."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from bytemill.lm.permutation import key_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def seed_generators(seed: int, rank: int, step: int = 0) -> None:
    """Seed the global generators of Python, NumPy and torch for a process that starts or joins a run at `step`.

    torch's draw dropout. Checkpoints hold the states of all, so that equal runs have equal files.
    """
    own = seed if rank == step == 0 else key_of(seed, rank, step) >> 1
    torch.manual_seed(own)  # pyright: ignore[reportUnknownMemberType]
    random.seed(own)
    np.random.seed(own % (1 << 32))


def generators_state(device: torch.device | None = None) -> dict[str, Any]:
    """Return the states of the global generators of Python, NumPy and torch, on the CPU and on `device`, for JSON."""
    kind, keys, *rest = cast("tuple[Any, ...]", np.random.get_state(legacy=True))
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [kind, keys.tolist(), *rest],
        "torch": _to_text(torch.get_rng_state()),
    }
    if device is not None and device.type == "cuda":
        state["cuda"] = _to_text(torch.cuda.get_rng_state(device))
    if torch.backends.mps.is_available():
        state["mps"] = _to_text(torch.mps.get_rng_state())
    return state


def restore_generators(state: Mapping[str, Any], device: torch.device | None = None) -> None:
    """Restore the result of `generators_state`; the state of another kind of device is ignored."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(_from_text(state["torch"]))
    if "cuda" in state and device is not None and device.type == "cuda":
        torch.cuda.set_rng_state(_from_text(state["cuda"]), device)
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(_from_text(state["mps"]))


def _to_text(state: torch.Tensor) -> str:
    return state.numpy().tobytes().hex()


def _from_text(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
