"""Everything to measure on a GPU, in one command: training beside torch.nn, kernels part by part, generation.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --preset gpt2-medium --batch-sizes 8 16 32 --peak 835e12
    python benchmarks/gpu.py --device cpu --dry-run

Training is that of GPT-2 (124M, context 1,024) with products in bfloat16, compiled, on random tokens. `gpt2_peer.py` is
the same model of torch.nn as nanoGPT builds it: nn.Linear, SDPA, fused AdamW, torch.compile. Both start from the same
weights and take turns of a few steps; the ratio is the median over the turns. MFU is the FLOPs of the matrix products,
attention in full, relative to the dense bfloat16 peak of the data sheet. Memory is the peak beyond what was allocated
before the model was built.

The parts are timed eagerly: each implementation's forward pass, and both passes, beside torch's own function. The
chunked loss computes its gradients in the forward pass. The dry run does everything with tiny sizes, and its times mean
nothing.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bytemill.lm import preset
from bytemill.lm.device import autocast, matmul_rate, peak_memory, pick_device, pick_precision, synchronise
from bytemill.lm.generation.decoding import next_tokens
from bytemill.lm.kernels.choice import choose_kernels
from bytemill.lm.model import ModelConfig, TransformerLM
from bytemill.lm.optim import AdamW, clip_gradients, parameter_groups
from bytemill.lm.planning import DEVICES, find_device, flops_per_token
from gpt2_peer import TorchGPT2
from gpu_parts import measure_parts
from harness import format_table, save
from lm_generate import bandwidth, bytes_per_token

if TYPE_CHECKING:
    from collections.abc import Callable

TINY: dict[str, Any] = {"context_length": 32, "d_model": 32, "num_layers": 2, "num_heads": 2, "d_ff": 64}


@dataclass
class Contender:
    """A model in training: a function that trains for a step, and what was measured."""

    name: str
    step: Callable[[torch.Tensor], torch.Tensor]
    first_loss: float = 0.0
    first_step_seconds: float = 0.0
    memory_bytes: int = 0
    rates: list[float] = field(default_factory=list)


def contender(name: str, config: ModelConfig, options: argparse.Namespace) -> Contender:
    """Build a model with its optimizer; both have the same initial weights."""
    device, dtype = options.device, options.dtype
    settings: Any = {"lr": 6e-4, "betas": (0.9, 0.95)}
    compiling: Any = {"backend": "eager"} if options.dry_run else {}
    kernels = choose_kernels(options.kernels, device, compiled=options.compile)
    ours = TransformerLM(config, seed=0)
    if name == "bytemill":
        model: Any = ours.use_kernels(kernels).to(device)
        if options.compile:
            model.compile_blocks(**compiling)
        loss_of, clip = model.loss, clip_gradients
        optimizer: Any = AdamW(parameter_groups(model), fused=kernels.fused_adamw, **settings)
    else:
        model = TorchGPT2(config)
        model.start_as(ours)
        model.to(device)
        loss_of, clip = model.loss, torch.nn.utils.clip_grad_norm_
        if options.compile:
            loss_of = torch.compile(model.loss, dynamic=False, **compiling)
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1, fused=True, **settings)
    model.train()

    def step(ids: torch.Tensor) -> torch.Tensor:
        with autocast(device, dtype):
            loss = loss_of(ids[:, :-1], ids[:, 1:])
        loss.backward()
        clip(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return Contender(name, step)


def measure_training(
    config: ModelConfig, batch_size: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Train both models in turns; return a row for each."""
    device = options.device
    shape = (batch_size, config.context_length + 1)
    ids = torch.randint(0, config.vocab_size, shape, device=device)
    models: list[Contender] = []
    for name in ("torch.nn", "bytemill"):
        before = allocated(device)
        reset_peak(device)
        models.append(contender(name, config, options))
        started = time.perf_counter()
        models[-1].first_loss = float(models[-1].step(ids))
        models[-1].first_step_seconds = time.perf_counter() - started
        for _ in range(options.warmup):
            models[-1].step(ids)
        synchronise(device)
        models[-1].memory_bytes = peak_memory(device) - before
    first, second = (model.first_loss for model in models)
    if abs(first - second) > 0.02:
        raise SystemExit(
            f"the models differ: from the same weights their losses are {first:.4f} and {second:.4f}"
        )
    for _ in range(options.turns):
        for model in models:
            synchronise(device)
            started = time.perf_counter()
            for _ in range(options.steps):
                model.step(ids)
            synchronise(device)
            n_tokens = options.steps * batch_size * config.context_length
            model.rates.append(n_tokens / (time.perf_counter() - started))
    return [
        {
            "program": model.name,
            "batch_size": batch_size,
            "tokens_per_second": (rate := statistics.median(model.rates)),
            "ratio": statistics.median(a / b for a, b in zip(model.rates, models[0].rates, strict=True)),
            "mfu": None if options.peak is None else rate * flops_per_token(config) / options.peak,
            "memory_bytes": model.memory_bytes,
            "first_step_seconds": model.first_step_seconds,
        }
        for model in models
    ]


def training_rows(config: ModelConfig, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every batch size; one that does not fit gives a row without numbers."""
    rows: list[dict[str, Any]] = []
    for batch_size in options.batch_sizes:
        try:
            rows += measure_training(config, batch_size, options)
        except torch.OutOfMemoryError:
            rows.append({"program": "both", "batch_size": batch_size, "unavailable": "out of memory"})
        release(options.device)
    return rows


@torch.inference_mode()
def measure_generation(config: ModelConfig, options: argparse.Namespace) -> dict[str, float]:
    """Measure tokens/s of one sample, beside what reading all weights once per token allows."""
    device = options.device
    model = TransformerLM(config, seed=0).to(device).use_kernels(options.kernels)
    n_bytes = bytes_per_token(model, 4 if model.kernels.decoding is None else 2)
    n_prompt = config.context_length // 4
    n_tokens = min(options.generate_tokens, config.context_length - n_prompt - 1)
    prompt = torch.randint(0, config.vocab_size, (n_prompt,)).tolist()
    data = torch.ones(n_bytes // 4, device=device)
    first: list[float] = []
    rates: list[float] = []
    for _ in range(options.turns):
        synchronise(device)
        started = time.perf_counter()
        tokens = next_tokens(model, prompt, n_tokens + 1, seed=0, with_logits=False)
        times = [time.perf_counter() for _ in tokens]
        first.append(times[0] - started)
        rates.append(n_tokens / (times[-1] - times[0]))
    rate = statistics.median(rates)
    read = bandwidth(data, wait=lambda: synchronise(device))
    return {
        "prompt_tokens": n_prompt,
        "first_token_seconds": statistics.median(first),
        "tokens_per_second": rate,
        "share_of_bandwidth": rate * n_bytes / read,
        "bandwidth_bytes_per_second": read,
    }


def allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else peak_memory(device)


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def release(device: torch.device) -> None:
    """Free the memory of models that are no longer used."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    peak = results["peak_flops"]
    print(
        f"{results['device']}, torch {results['torch']}, {results['dtype']}: matrix products at "
        f"{results['matmul_flops'] / 1e12:,.1f} TFLOP/s, "
        + ("no peak known: set --peak" if peak is None else f"peak {peak / 1e12:,.0f} TFLOP/s")
    )
    if results["dry_run"]:
        print("dry run with tiny sizes: the times mean nothing")
    rows = [
        [row["program"], str(row["batch_size"]), "", "", "", "", row["unavailable"]]
        if "unavailable" in row
        else [
            row["program"],
            str(row["batch_size"]),
            f"{row['tokens_per_second']:,.0f}",
            f"{row['ratio']:.2f}",
            "unknown" if row["mfu"] is None else f"{row['mfu']:.1%}",
            f"{row['memory_bytes'] / 1e9:.2f} GB",
            f"{row['first_step_seconds']:.1f} s",
        ]
        for row in results["training"]
    ]
    print(
        "\n" + format_table(["training", "batch", "tokens/s", "ratio", "MFU", "memory", "first step"], rows)
    )
    rows = [
        [row["part"], row["kernels"], "", "", "", "", row["unavailable"]]
        if "unavailable" in row
        else [
            row["part"],
            row["kernels"],
            f"{row['forward_seconds'] * 1e3:.3f} ms",
            f"{row['both_seconds'] * 1e3:.3f} ms",
            f"{row['speed']:.2f}",
            f"{row['memory_bytes'] / 1e6:,.0f} MB",
            f"{row['difference']:.1e}",
        ]
        for row in results["parts"]
    ]
    header = ["part", "kernels", "forward", "both passes", "speed, torch = 1", "memory", "difference"]
    print("\n" + format_table(header, rows))
    made = results["generation"]
    print(
        f"\ngeneration, one sample: first token after {made['prompt_tokens']} in {made['first_token_seconds']:.3f} s, "
        f"then {made['tokens_per_second']:,.1f} tokens/s, {made['share_of_bandwidth']:.2f} of the bandwidth "
        f"({made['bandwidth_bytes_per_second'] / 1e9:,.0f} GB/s)"
    )


def main(words: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="gpt2", choices=["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--kernels", default="auto", choices=["auto", "torch", "triton", "scratch"])
    parser.add_argument(
        "--no-compile", dest="compile", action="store_false", help="train both models eagerly"
    )
    parser.add_argument("--steps", type=int, default=10, help="training steps per turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=5, help="steps before the first turn")
    parser.add_argument("--generate-tokens", type=int, default=256)
    parser.add_argument("--peak", type=float, help="dense bfloat16 FLOP/s of the device, if it is not known")
    parser.add_argument("--dry-run", action="store_true", help="do everything with tiny sizes")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="by default a new file in benchmarks/results"
    )
    options = parser.parse_args(words)
    options.device = device = pick_device(options.device)
    options.dtype = pick_precision("bfloat16", device)
    config = preset(options.preset, vocab_size=50_304)
    if options.dry_run:
        config = config.replace(vocab_size=128, **TINY)
        options.batch_sizes, options.steps, options.turns, options.warmup = [1, 2], 1, 2, 1
        options.generate_tokens = 4
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    if options.peak is None and (key := find_device(name)):
        options.peak = DEVICES[key].rate("bfloat16")
    results: dict[str, Any] = {
        "device": name,
        "torch": torch.__version__,
        "preset": options.preset,
        "dtype": str(options.dtype).removeprefix("torch."),
        "compiled": options.compile,
        "dry_run": options.dry_run,
        "config": config.to_dict(),
        "peak_flops": options.peak,
        "matmul_flops": matmul_rate(device, options.dtype, seconds=0.0 if options.dry_run else 2.0),
        "training": training_rows(config, options),
        "parts": measure_parts(config, max(options.batch_sizes), options),
        "generation": measure_generation(config, options),
    }
    show(results)
    print(f"\nsaved {save(options.json, 'gpu', results)}")
    return results


if __name__ == "__main__":
    main()
