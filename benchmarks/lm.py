"""Training side by side: our model, and one of the same shape made of torch.nn alone. Loss and tokens/s.

    python benchmarks/lm.py stories.txt --preset tiny --steps 60
    python benchmarks/lm.py stories.txt --preset tinystories --vocab-size 4096 --batch-size 8 --seeds 2
    python benchmarks/lm.py stories.txt --preset tinystories --steps 400 --compile

All contenders begin with the same weights, each seed with others, get the same batches in the same order, AdamW with
the same settings, and take turns of a few steps, so that a machine that slows down slows them all. The text is cut
95:5 into training and validation. Memory is what a process with one contender alone has at most, beyond what importing
torch takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import bytemill
from bytemill.lm.batches import get_batch, spread_starts, windows_at
from bytemill.lm.device import matmul_rate, peak_memory, pick_device, synchronise
from bytemill.lm.kernels.choice import choose_kernels
from bytemill.lm.model import ModelConfig, TransformerLM
from bytemill.lm.optim import AdamW, clip_gradients
from bytemill.lm.planning import flops_per_token
from bytemill.lm.presets import PRESETS
from bytemill.lm.schedule import cosine_with_warmup
from lm_peer import TorchLM

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

LEARNING_RATE, WARMUP = 1e-3, 20
NAMES = ["torch.nn", "bytemill", "bytemill, scratch", "bytemill, compiled"]


@dataclass
class Contender:
    """One model in training."""

    name: str
    model: Any
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: torch.optim.Optimizer
    clip: Callable[[Any, float], Any]
    rates: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    validation: float = 0.0

    def step(self, inputs: Tensor, targets: Tensor, learning_rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        loss = self.loss(inputs, targets)
        loss.backward()
        self.clip(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(float(loss.detach()))


def contender(name: str, config: ModelConfig, device: torch.device, seed: int) -> Contender:
    """One of `NAMES`, not trained yet."""
    settings: Any = {"betas": (0.9, 0.95), "weight_decay": 0.1}
    if name == "torch.nn":
        torch.manual_seed(seed)
        theirs = TorchLM(config).to(device)
        theirs.start_as(TransformerLM(config, seed=seed).to(device))
        adamw = torch.optim.AdamW(theirs.parameters(), LEARNING_RATE, fused=True, **settings)
        return Contender(name, theirs, theirs.loss, adamw, nn.utils.clip_grad_norm_)
    is_compiled = "compiled" in name
    kernels = choose_kernels("scratch" if "scratch" in name else "auto", device, compiled=is_compiled)
    model = TransformerLM(config, seed=seed).to(device).use_kernels(kernels)
    if is_compiled:
        model.compile_blocks()
    adamw = AdamW(model.parameters(), LEARNING_RATE, fused=kernels.fused_adamw, **settings)
    return Contender(name, model, model.loss, adamw, clip_gradients)


@torch.no_grad()
def validation_loss(model: Contender, ids: NDArray[np.integer], length: int, device: torch.device) -> float:
    starts = spread_starts(len(ids), length, 64)
    losses = [
        float(model.loss(*windows_at(ids, starts[first : first + 8], length, device)))
        for first in range(0, len(starts), 8)
    ]
    return statistics.fmean(losses)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=Path)
    parser.add_argument("--preset", default="tiny", choices=[n for n in PRESETS if not n.startswith("gpt2")])
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--turn", type=int, default=5, help="steps that each contender takes in a row")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()

    device = pick_device(options.device)
    config = PRESETS[options.preset]
    text = options.text.read_text(encoding="utf-8")
    cut = int(0.95 * len(text))
    tokenizer = bytemill.train_from_iterator(
        iter([text[:cut]]), options.vocab_size or config.vocab_size, ["<|endoftext|>"]
    )
    train_ids, validation_ids = (tokenizer.encode_to_numpy(part) for part in (text[:cut], text[cut:]))
    config = config.replace(vocab_size=tokenizer.n_vocab)
    length = config.context_length
    rate = matmul_rate(device, torch.float32, seconds=2)
    print(
        f"{options.preset}: {TransformerLM(config, device='meta').n_parameters():,} parameters, "
        f"{options.steps} steps of {options.batch_size} x {length} tokens on {device}, "
        f"{torch.get_num_threads()} threads; matrix products at {rate / 1e9:,.1f} GFLOP/s"
    )
    names = NAMES if options.compile else NAMES[:3]
    runs: list[list[Contender]] = []
    for seed in range(options.seeds):
        models = [contender(name, config, device, seed) for name in names]
        race(models, train_ids, length, options, device)
        for model in models:
            model.validation = validation_loss(model, validation_ids, length, device)
        runs.append(models)
        if seed + 1 < options.seeds:
            print(f"seed {seed}: " + ", ".join(f"{m.name} {m.validation:.3f}" for m in models), flush=True)
    per_token = flops_per_token(config, length, backward=True)
    print(
        f"{'':<30} {'tokens/s':>9} {'ratio':>6} {'FLOP use':>8} {'memory':>8} {'train':>7}  validation, by seed"
    )
    base = [rate for run in runs for rate in run[0].rates]
    for index, name in enumerate(names):
        rates = [rate for run in runs for rate in run[index].rates]
        speed = statistics.median(rates)
        ratio = statistics.median(own / other for own, other in zip(rates, base, strict=True))
        last = statistics.fmean(loss for run in runs for loss in run[index].losses[-10:])
        print(
            f"{name:<30} {speed:>9,.0f} {ratio:>6.2f} {speed * per_token / rate:>8.1%} "
            f"{memory_alone(name, config, options, device) / 1e6:>5,.0f} MB {last:>7.3f}  "
            + " ".join(f"{run[index].validation:.3f}" for run in runs)
        )


def race(
    models: list[Contender],
    ids: NDArray[np.integer],
    length: int,
    options: argparse.Namespace,
    device: torch.device,
) -> None:
    """Trains the models in turns; each then has its losses and its rate of each turn."""
    for model in models:  # first calls allocate and compile
        model.loss(*get_batch(ids, options.batch_size, length, device)).backward()
        model.optimizer.zero_grad(set_to_none=True)
    for first in range(0, options.steps, options.turn):
        for model in models:
            synchronise(device)
            started = time.perf_counter()
            steps = range(first, min(first + options.turn, options.steps))
            for step in steps:
                generator = torch.Generator().manual_seed(step)
                batch = get_batch(ids, options.batch_size, length, device, generator=generator)
                lr = cosine_with_warmup(step + 1, LEARNING_RATE, 0.1 * LEARNING_RATE, WARMUP, options.steps)
                model.step(*batch, lr)
            synchronise(device)
            n_tokens = len(steps) * options.batch_size * length
            model.rates.append(n_tokens / (time.perf_counter() - started))


def memory_alone(name: str, config: ModelConfig, options: argparse.Namespace, device: torch.device) -> float:
    """Bytes that two steps of one contender take, in a process of its own."""
    program = "import lm, sys; lm.print_memory(*sys.argv[1:])"
    words = [name, json.dumps(config.to_dict()), str(options.batch_size), str(device)]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)


def print_memory(name: str, config_json: str, batch_size: str, device_name: str) -> None:
    """By how much two steps of a contender raise the peak."""
    device, config = torch.device(device_name), ModelConfig(**json.loads(config_json))
    before = peak_memory(device)
    one = contender(name, config, device, 0)
    ids = torch.randint(0, config.vocab_size, (int(batch_size), config.context_length), device=device)
    for _ in range(2):
        one.step(ids, ids, LEARNING_RATE)
    print(peak_memory(device) - before)


if __name__ == "__main__":
    main()
