"""Encodes the same documents over and over, killed each time at another moment, until a last run may come to its end.

A process of its own, which forks: what a killed run has left the next one finds, and nothing else of it. Run as
`python -m shards.killed_runs OPTIONS` in `tests`, where OPTIONS are JSON, by output folder: `kills`, the moments, as
numbers of steps that touch the disk or as seconds (floats); `encode`, options of `encode_corpus`. Prints how each run
ended, by folder.
"""

import json
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from bytemill.corpus import documents as batches
from bytemill.data import encode_corpus, pipeline
from bytemill.system.atomic_files import PartialFile

from .packed_documents import documents, tokenizer_of_bytes


def kill_at(step: int) -> None:
    """Kills this process before its step number `step` that touches the disk."""
    n_steps = 0

    def stepping(do: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal n_steps
            n_steps += 1
            if n_steps > step:
                os.kill(os.getpid(), signal.SIGKILL)
            return do(*arguments, **options)

        return wrapped

    # A write that is cut off in its middle is one too: half of the data is on the disk.
    write = PartialFile._write_at

    def half_written(self: PartialFile, offset: int, data: bytes | memoryview) -> None:
        half = len(data) // 2
        write(self, offset, data[:half])
        second_half(self, offset + half, data[half:])

    second_half = stepping(write)
    PartialFile._write_at = stepping(half_written)  # type: ignore[method-assign]
    os.fsync = stepping(os.fsync)  # type: ignore[assignment]
    for name in ("replace", "unlink", "open"):
        setattr(pathlib.Path, name, stepping(getattr(pathlib.Path, name)))


def run_once(out: str, options: dict[str, Any], kill: float | None, n_threads: int) -> str:
    """How a run in a process of its own ended: "killed" or "done"."""
    child = os.fork()
    if child == 0:
        # What a killed process has written the system keeps; syncing is for power cuts, and slow.
        os.fsync = lambda _: None
        if isinstance(kill, int):
            kill_at(kill)
        source = documents(0.002 if isinstance(kill, float) else 0.0)
        encode_corpus(tokenizer_of_bytes(), source, out, num_threads=n_threads, **options)
        os._exit(0)
    if isinstance(kill, float):
        time.sleep(kill)
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "done", -signal.SIGKILL: "killed"}.get(status, f"failed with {status}")


def main() -> None:
    pipeline._GROUP_BYTES = 1  # so that there are many checkpoints
    batches.BATCH_BYTES = 700  # of a shuffled corpus
    ended: dict[str, list[str]] = {}
    for out, options in json.loads(sys.argv[1]).items():
        ended[out] = [
            run_once(out, options["encode"], kill, n_threads=1 + number % 3)
            for number, kill in enumerate([*options["kills"], None])
        ]
    print(json.dumps(ended))


if __name__ == "__main__":
    main()
