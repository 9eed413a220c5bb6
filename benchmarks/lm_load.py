"""Training and generation on the CPU, on a quiet machine and beside busy processes, by how idle threads wait.

    python benchmarks/lm_load.py
    python benchmarks/lm_load.py --preset tinystories --busy 4 --seconds 10

Ways: threads that spin (OpenMP's default), threads that sleep, one thread, and `shared_cores`, which chooses. They take
turns; each row is the median of its rates, and of its ratios to the best of the first three in the same turn.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import torch

from bytemill.lm import device, preset
from bytemill.lm.generation.core_decoder import CoreDecoder
from bytemill.lm.model import KVCache, TransformerLM
from bytemill.lm.optim import AdamW

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

WAYS = ("spin", "sleep", "one thread", "adaptive")


@contextmanager
def busy(n: int) -> Generator[None]:
    """Keep `n` cores busy during the block; the processes end by themselves after ten minutes."""
    code = "import time\nend = time.monotonic() + 600\nwhile time.monotonic() < end: pass"
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def waiting(way: str) -> Generator[None]:
    n_threads = torch.get_num_threads()
    with ExitStack() as stack:
        if way == "sleep" and (library := device._libgomp()) is not None:
            stack.callback(device._ExtraTeam(library).close)
        if way == "one thread":
            torch.set_num_threads(1)
            stack.callback(torch.set_num_threads, n_threads)
        if way == "adaptive":
            stack.enter_context(device.shared_cores(torch.device("cpu")))
        yield


def training(model: TransformerLM, batch_size: int) -> Callable[[], int]:
    optimizer = AdamW(model.parameters(), lr=1e-4)
    shape = (batch_size, model.config.context_length)
    inputs, targets = (torch.randint(0, model.config.vocab_size, shape) for _ in range(2))

    def step() -> int:
        loss, _ = model.losses(inputs, targets)
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return inputs.numel()

    return step


def generation(model: TransformerLM) -> Callable[[], int]:
    def step() -> int:
        decoder = CoreDecoder(model, KVCache(model.config, 1))
        for token in range(32):
            decoder.logits_after(token)
        return 32

    return torch.inference_mode()(step)


def rate(step: Callable[[], int], seconds: float) -> float:
    step()
    started, n = time.perf_counter(), 0
    while (passed := time.perf_counter() - started) < seconds:
        n += step()
    return n / passed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--vocab-size", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--busy", type=int, default=2, help="busy processes")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()

    model = TransformerLM(preset(options.preset, vocab_size=options.vocab_size), seed=0)
    steps = {"training": training(model, options.batch_size), "generation": generation(model)}
    print(f"{options.preset}, {torch.get_num_threads()} threads; tokens/s")
    print(f"{'':26}" + "".join(f"{way:>18}" for way in WAYS))
    for n_busy in (0, options.busy):
        with busy(n_busy):
            for name, step in steps.items():
                turns: list[list[float]] = []
                for _ in range(options.turns):
                    turns.append([])
                    for way in WAYS:
                        with waiting(way):
                            turns[-1].append(rate(step, options.seconds))
                columns: list[str] = []
                for number in range(len(WAYS)):
                    rates = [turn[number] for turn in turns]
                    ratios = [turn[number] / max(turn[:-1]) for turn in turns]
                    columns.append(f"{statistics.median(rates):,.0f} ({statistics.median(ratios):.2f})")
                print(
                    f"{name + (f', {n_busy} busy' if n_busy else ', quiet'):26}"
                    + "".join(f"{c:>18}" for c in columns)
                )


if __name__ == "__main__":
    main()
