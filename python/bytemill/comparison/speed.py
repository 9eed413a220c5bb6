"""Speed and memory of tokenizers, which differ from run to run and between machines."""

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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.tokenizer.tokenizer import Tokenizer

SAMPLE_BYTES = 8_000_000
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
