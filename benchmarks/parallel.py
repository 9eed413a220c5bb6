"""Training in several processes: each strategy of data parallelism beside torch's DDP."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks import harness
from benchmarks.harness import option

if TYPE_CHECKING:
    from collections.abc import Callable

LEARNING_RATE = 1e-3


@harness.case(
    option("--preset", default="tiny"),
    option("--vocab-size", type=int, default=2000),
    option("--batch-size", type=int, default=4, help="sequences per process"),
    option("--processes", type=int, default=2),
    option("--steps", type=int, default=5, help="steps that each strategy takes in a row"),
    option("--turns", type=int, default=5),
    option("--bucket-mb", type=float, default=25.0),
)
def lm_parallel(options: argparse.Namespace) -> None:
    """Measure a training step of each strategy of data parallelism beside torch's DDP, on the CPU.

        python -m benchmarks lm-parallel
        python -m benchmarks lm-parallel --preset tinystories --processes 4 --bucket-mb 1

    Processes of one thread each train all models in turns of a few steps, with AdamW and clipping. Ratios are medians
    over the turns of the time to that of DDP in the same turn, so that a machine that slows down slows all.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ranks: list[subprocess.Popen[str]] = []
        for rank in range(options.processes):
            request = {**vars(options), "rank": rank, "folder": folder}
            command = harness.worker_command(time_strategies, request)
            environment = harness.worker_environment(OMP_NUM_THREADS="1")
            output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            ranks.append(
                stack.enter_context(subprocess.Popen(command, env=environment, stdout=output, text=True))
            )
            stack.callback(ranks[-1].kill)
        text, _ = ranks[0].communicate()
        if ranks[0].returncode:
            raise SystemExit(f"error: process 0 ended with {ranks[0].returncode}")
    seconds: dict[str, list[float]] = json.loads(text.splitlines()[-1])
    rows = [
        [name, f"{1000 * statistics.median(own):,.1f}", f"{statistics.median(ratios):.2f}"]
        for name, own in seconds.items()
        for ratios in [[a / b for a, b in zip(own, seconds["torch DDP"], strict=True)]]
    ]
    print(f"{options.preset}, {options.processes} processes, {options.batch_size} sequences each")
    print(harness.format_table(["", "ms per step", "ratio"], rows))


def time_strategies(request: dict[str, Any]) -> dict[str, list[float]]:
    """One process: train a model with each strategy, in turns; gives the seconds per step of each turn."""
    from torch import distributed

    from bytemill.lm import preset
    from bytemill.lm.kernels.choice import choose_kernels
    from bytemill.lm.model import TransformerLM
    from bytemill.lm.optim import AdamW, clip_gradients, parameter_groups
    from bytemill.lm.processes import average_gradients
    from bytemill.lm.strategies import STRATEGIES

    options = argparse.Namespace(**request)
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=(Path(options.folder) / "rendezvous").as_uri(),
        rank=options.rank,
        world_size=options.processes,
    )
    config = preset(options.preset, vocab_size=options.vocab_size)
    device = torch.device("cpu")
    shape = (options.batch_size, config.context_length)
    ids = torch.randint(0, config.vocab_size, shape, generator=torch.Generator().manual_seed(options.rank))

    def made(name: str) -> Callable[[], None]:
        kernels = choose_kernels("auto", device)
        model = TransformerLM(config, seed=0).use_kernels(kernels)
        parallel: Any = None
        if name == "torch DDP":
            losses: Any = average_gradients(model, model.losses, device)
        else:
            made_strategy = STRATEGIES[name].load()  # pyright: ignore[reportArgumentType]
            parallel = made_strategy.of_model(model, bucket_mb=options.bucket_mb, dtype=torch.float32)
            losses = model.losses
        optimizer: Any = AdamW(parameter_groups(model), LEARNING_RATE, fused=kernels.fused_adamw)
        if parallel is not None:
            optimizer = parallel.wrap_optimizer(optimizer)

        def step() -> None:
            loss = losses(ids, ids)[0] if parallel is None else parallel.call(losses, ids, ids)[0]
            loss.backward()
            if parallel is not None:
                parallel.finish()
            clip_gradients(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    steps = {name: made(name) for name in ("torch DDP", *STRATEGIES)}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(options.turns + 1):
        for name, step in steps.items():
            distributed.barrier()
            started = time.perf_counter()
            for _ in range(options.steps if turn else 2):
                step()
            distributed.barrier()
            if turn:  # the first calls allocate
                seconds[name].append((time.perf_counter() - started) / options.steps)
    distributed.destroy_process_group()
    return seconds
