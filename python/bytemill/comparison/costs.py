"""What a tokenizer costs: a language model of a given shape, and the machine that encodes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import ModelConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.tokenizer.tokenizer import Tokenizer

_CACHE_BYTES = 2
"""Bytes per number in the cache of keys and values: bfloat16 or float16."""
_VOCAB_MULTIPLE = 64
SAMPLE_BYTES = 8_000_000
"""Text of a group that speed is measured on, from its start."""
_ROUNDS = 3
_MEMORY_PROGRAM = """
import sys
from pathlib import Path
import bytemill
used = lambda: int(Path("/proc/self/statm").read_text().split()[1])
bytemill.Tokenizer
before = used()
tokenizer = bytemill.Tokenizer.load(sys.argv[1])
tokenizer.encode("text")
print(used() - before)
"""
"""Prints the pages that a tokenizer occupies. The peak that the system reports would include that of this process."""


@dataclass(frozen=True)
class ModelCost:
    """Cost of a tokenizer for a model; None where it depends on a text that has no tokens."""

    vocab_size: int
    """Number of ids, rounded up to a multiple of 64."""
    embedding_parameters: int
    """Of the token embedding and, unless it is the same, the output layer."""
    parameter_share: float
    """Their share of all parameters."""
    output_flops_share: float
    """Share of the output layer in the FLOPs of a token."""
    flops_per_byte: dict[str, float | None]
    """Group -> FLOPs of a forward pass per byte of text, at a full context."""
    cache_bytes_per_kilobyte: dict[str, float | None]
    """Group -> bytes of keys and values in 16 bits per 1,000 bytes of text."""
    context_bytes: dict[str, float | None]
    """Group -> bytes of text that fill the context."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)


def model_cost(preset_name: str, n_vocab: int, bytes_per_token: Mapping[str, float | None]) -> ModelCost:
    """Compute what a tokenizer costs a model.

    Args:
        preset_name: Name of the model's shape.
        n_vocab: Number of ids of the tokenizer.
        bytes_per_token: Group -> bytes per token.

    Raises:
        ModelConfigError: There is no such preset.
    """
    # pydantic, which presets need, takes longer to import than a small comparison.
    from bytemill.lm.planning import forward_flops, parameters_by_part
    from bytemill.lm.presets import preset

    shape = preset(preset_name, vocab_size=-(-n_vocab // _VOCAB_MULTIPLE) * _VOCAB_MULTIPLE)
    parameters, flops = parameters_by_part(shape), forward_flops(shape)
    own = parameters["token embeddings"] + parameters["output layer"]
    total_flops = sum(flops.values())
    per_token = total_flops / shape.context_length
    cache = 2 * shape.num_layers * shape.n_kv_heads * shape.d_head * _CACHE_BYTES
    return ModelCost(
        shape.vocab_size,
        own,
        own / sum(parameters.values()),
        flops["output layer"] / total_flops,
        {group: per_token / each if each else None for group, each in bytes_per_token.items()},
        {group: 1000 * cache / each if each else None for group, each in bytes_per_token.items()},
        {group: shape.context_length * each if each else None for group, each in bytes_per_token.items()},
    )


def check_preset(preset_name: str) -> None:
    """Raise ModelConfigError if there is no such preset."""
    from bytemill.lm.presets import PRESETS
    from bytemill.lm.settings import suggestion

    if preset_name not in PRESETS:
        raise ModelConfigError(f"unknown preset {preset_name!r}", hint=suggestion(preset_name, PRESETS))


@dataclass(frozen=True)
class Speed:
    """Speed and memory of a tokenizer on this machine."""

    bytes_per_second: dict[str, float]
    """Group -> bytes of new text encoded per second by one thread, the median of three rounds."""
    memory_bytes: int | None
    """Memory that loading it takes in a process of its own; None where the system does not tell."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)


def measure_speed(tokenizers: Mapping[str, Tokenizer], texts: Mapping[str, bytes]) -> dict[str, Speed]:
    """Measure all tokenizers in turns, on the first 8 MB of each text.

    Every round loads a tokenizer again, so that no text is known to it.

    Args:
        tokenizers: The tokenizers.
        texts: The beginning of each group.
    """
    samples = {group: text[:SAMPLE_BYTES].decode(errors="ignore") for group, text in texts.items()}
    rates: dict[str, dict[str, list[float]]] = {name: {group: [] for group in samples} for name in tokenizers}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{number}.json" for number, name in enumerate(tokenizers)}
        for name, tokenizer in tokenizers.items():
            tokenizer.save(paths[name])
        for _ in range(_ROUNDS):
            for name, tokenizer in tokenizers.items():
                for group, text in samples.items():
                    fresh = type(tokenizer).load(paths[name])
                    started = time.perf_counter()
                    fresh.encode_to_numpy(text, allowed_special="none", num_threads=1)
                    seconds = time.perf_counter() - started
                    rates[name][group].append(len(text.encode()) / seconds)
        return {
            name: Speed(
                {group: float(np.median(own)) for group, own in by_group.items()}, _memory(paths[name])
            )
            for name, by_group in rates.items()
        }


def _memory(path: Path) -> int | None:
    if not Path("/proc/self/statm").exists():
        return None
    result = subprocess.run(
        [sys.executable, "-c", _MEMORY_PROGRAM, str(path)], capture_output=True, text=True, check=False
    )
    return int(result.stdout) * os.sysconf("SC_PAGE_SIZE") if result.returncode == 0 else None
