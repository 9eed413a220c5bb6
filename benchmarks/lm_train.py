"""Speed and memory of training beside a model of the same shape made of torch.nn, eager and compiled.

    python benchmarks/lm_train.py
    python benchmarks/lm_train.py --compile --rounds 5
    python benchmarks/lm_train.py --kernels scratch --d-model 256

Three programs train on random tokens, each in a process of its own, in turns: `bytemill lm train` as started from the
shell; its model and optimizer in a bare loop, without data, log and checks; and the model of torch.nn, with SDPA and
fused AdamW. Ratios are medians over the rounds, so that a machine that slows down slows all three. Memory is the peak
of the process beyond importing torch. With --compile, the first round has an empty cache, and the table shows how long
the first step takes with and without one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bytemill

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = {"context_length": 256, "d_model": 512, "d_ff": 1344, "num_layers": 4, "num_heads": 16}
VOCAB_SIZE = 10_000
PROGRAMS = ["torch.nn", "bare loop", "bytemill lm train"]


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_alone(options: argparse.Namespace) -> None:
    """Train as the program `options.program`; print a JSON object with speed, memory and the time of the first step."""
    import torch

    before = peak()
    if options.program == "bytemill lm train":
        result = from_the_command_line(options)
    else:
        step, n_tokens = training_step(options)
        started = time.perf_counter()
        step()
        first = time.perf_counter() - started
        for _ in range(2):
            step()
        started = time.perf_counter()
        for _ in range(options.steps):
            step()
        rate = options.steps * n_tokens / (time.perf_counter() - started)
        result = {"tokens_per_second": rate, "first_step_seconds": first}
    print(json.dumps({**result, "memory_bytes": peak() - before, "threads": torch.get_num_threads()}))


def training_step(options: argparse.Namespace) -> tuple[Callable[[], None], int]:
    """Return a function that trains for a step, and the number of its tokens."""
    import torch

    from bytemill.lm import ModelConfig, TransformerLM
    from bytemill.lm.kernels.choice import choose_kernels
    from bytemill.lm.optim import AdamW, clip_gradients, parameter_groups
    from lm_peer import TorchLM

    config = ModelConfig(vocab_size=VOCAB_SIZE, **sizes(options))
    settings: Any = {"lr": 1e-3, "betas": (0.9, 0.95)}
    if options.program == "torch.nn":
        model: Any = TorchLM(config)
        loss: Any = torch.compile(model.loss) if options.compile else model.loss
        optimizer: Any = torch.optim.AdamW(model.parameters(), fused=True, weight_decay=0.1, **settings)
        clip: Any = torch.nn.utils.clip_grad_norm_
    else:
        kernels = choose_kernels(options.kernels, torch.device("cpu"), compiled=options.compile)
        model = TransformerLM(config, seed=0).use_kernels(kernels)
        if options.compile:
            model.compile_blocks()
        loss, clip = model.loss, clip_gradients
        optimizer = AdamW(parameter_groups(model), fused=kernels.fused_adamw, **settings)
    model.train()
    shape = (options.batch_size, config.context_length)
    ids, targets = (torch.randint(0, VOCAB_SIZE, shape) for _ in range(2))

    def step() -> None:
        loss(ids, targets).backward()
        clip(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, ids.numel()


def from_the_command_line(options: argparse.Namespace) -> dict[str, float]:
    """Run `bytemill lm train` in this process, with its own start of the interpreter's modules and its own data."""
    from bytemill.cli import main

    folder = Path(options.data) / "run"
    arguments = {
        "data.tokenizer": Path(options.data) / "tokenizer.json",
        "data.train": Path(options.data) / "shards",
        "run.folder": folder,
        "run.log-every": 1,
        "run.checkpoint-every": 0,
        "training.device": "cpu",
        "training.steps": options.steps + 3,
        "training.batch-size": options.batch_size,
        "training.kernels": options.kernels,
        "model.vocab-size": VOCAB_SIZE,
        **{f"model.{name.replace('_', '-')}": size for name, size in sizes(options).items()},
    }
    words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    compiled = "--training.compile" if options.compile else "--training.no-compile"
    sys.argv = ["bytemill", "lm", "train", "--overwrite", "--quiet", compiled, *words]
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    if code:
        raise SystemExit(code)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rates = [row["tokens_per_second"] for row in rows if row["kind"] == "step"]
    n_tokens = options.batch_size * options.context_length
    return {
        "tokens_per_second": options.steps / sum(1 / rate for rate in rates[3:]),
        "first_step_seconds": n_tokens / rates[0],
    }


def sizes(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in SIZES}


def make_data(folder: Path, n_tokens: int) -> None:
    """Write a small tokenizer, and shards of random text."""
    generator = np.random.default_rng(0)
    text = "".join(chr(97 + c) for c in generator.integers(0, 26, n_tokens))
    tokenizer = bytemill.train_from_iterator(iter([text[:1000]]), 257, ["<|endoftext|>"])
    tokenizer.save(folder / "tokenizer.json")
    (folder / "text.txt").write_text(text)
    bytemill.encode_corpus(tokenizer, str(folder / "text.txt"), str(folder / "shards"))


def measure(program: str, folder: Path, cache: Path) -> dict[str, float]:
    """Run a program in a process of its own."""
    words = [sys.executable, __file__, *sys.argv[1:], "--program", program, "--data", str(folder)]
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache / program.replace(" ", "-"))}
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main_table(options: argparse.Namespace) -> None:
    results: dict[str, list[dict[str, float]]] = {program: [] for program in PROGRAMS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder, 4 * options.batch_size * options.context_length * (options.steps + 4))
        for round_ in range(options.rounds):
            for program in PROGRAMS:
                found = measure(program, folder, folder / "cache")
                results[program].append(found)
                shown = {key: round(value, 2) for key, value in found.items()}
                print(f"round {round_}, {program}: {shown}", file=sys.stderr, flush=True)
        shutil.rmtree(folder / "cache", ignore_errors=True)
    print(
        f"{'':<20} {'tokens/s':>9} {'ratio':>6} {'memory':>9} {'ratio':>6} {'first step':>11} {'cached':>8}"
    )
    base = results[PROGRAMS[0]]
    for program, rows in results.items():
        speed, memory = ([row[key] for row in rows] for key in ("tokens_per_second", "memory_bytes"))
        ratios = [
            row["tokens_per_second"] / other["tokens_per_second"]
            for row, other in zip(rows, base, strict=True)
        ]
        memory_ratio = statistics.median(memory) / statistics.median(row["memory_bytes"] for row in base)
        later = [row["first_step_seconds"] for row in rows[1:]] or [float("nan")]
        print(
            f"{program:<20} {statistics.median(speed):>9,.0f} {statistics.median(ratios):>6.2f} "
            f"{statistics.median(memory) / 1e6:>6,.0f} MB {memory_ratio:>6.2f} "
            f"{rows[0]['first_step_seconds']:>9.1f} s {statistics.median(later):>6.1f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for size, value in SIZES.items():
        parser.add_argument(f"--{size.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kernels", default="auto", choices=["auto", "torch", "scratch"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--program", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    options = parser.parse_args()
    run_alone(options) if options.program else main_table(options)


if __name__ == "__main__":
    main()
