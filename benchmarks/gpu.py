"""Everything to measure on a GPU, in one command: training beside peers, kernels part by part, Muon, generation.

    make gpu-bundle            # once, on a machine with a network: what a bare machine with torch lacks
    python benchmarks/gpu.py   # there
    python benchmarks/gpu.py --device cpu --dry-run

Training is in bfloat16, compiled, on random tokens. The peers are models of torch.nn (`gpu_peers.py`). That of
GPT-2 is the same model as nanoGPT builds it: nn.Linear, SDPA, fused AdamW, torch.compile; both start from the same
weights. That of the nanochat presets has their shape. A model and its peer take turns of a few steps, and the ratio is
the median over the turns. Then `bytemill lm train` trains the same shape as started from the shell, on shards, with
turns of the peer before and after. MFU is the FLOPs of the matrix products, attention in full, relative to the dense
bfloat16 peak of the data sheet. Memory is the peak beyond what was allocated before the model was built.

The parts are timed eagerly: each implementation's forward pass, and both passes, beside torch's own function. The
chunked loss computes its gradients in the forward pass. The dry run does everything with tiny sizes, and its times mean
nothing.
"""

# ruff: noqa: E402 - the bundle must be found before bytemill is imported

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

PACKAGE, BUNDLE = (Path(__file__).parents[1] / name for name in ("python", ".cache/gpu-bundle"))
"""The package, and what `make gpu-bundle` writes: the compiled core, and packages that torch does not bring along."""
IS_BARE = find_spec("pydantic") is None
if IS_BARE:
    sys.path += [str(PACKAGE), str(BUNDLE)]
    if not list(PACKAGE.glob("bytemill/_core.*.so")):
        shutil.copy(BUNDLE / "_core.abi3.so", PACKAGE / "bytemill")

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import bytemill
from bytemill.errors import RunConfigError
from bytemill.lm import preset
from bytemill.lm.device import autocast, matmul_rate, peak_memory, pick_device, pick_precision, synchronise
from bytemill.lm.generation.decoding import next_tokens
from bytemill.lm.kernels.attention import causal_attention
from bytemill.lm.kernels.choice import choose_kernels
from bytemill.lm.kernels.layers import linear_cross_entropy, normalized
from bytemill.lm.loss import cross_entropy
from bytemill.lm.model import ModelConfig, TransformerLM, causal_mask, rms_norm, scaled_dot_product_attention
from bytemill.lm.optim import AdamW, Muon, clip_gradients, muon_groups, parameter_groups
from bytemill.lm.planning import DEVICES, find_device, flops_per_token
from gpu_peers import TorchGPT2, TorchNanochat
from harness import format_table, save
from lm_generate import bandwidth, bytes_per_token

if TYPE_CHECKING:
    from collections.abc import Callable

TINY: dict[str, Any] = {"context_length": 32, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64}


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
    """Build a model with its optimizer; GPT-2 and its peer have the same initial weights."""
    device, dtype = options.device, options.dtype
    settings: Any = {"lr": 6e-4, "betas": (0.9, 0.95)}
    compiling: Any = {"backend": "eager"} if options.dry_run else {}
    if name.startswith("bytemill"):
        kernels = choose_kernels(options.kernels, device, compiled=options.compile)
        model: Any = TransformerLM(config, seed=0).use_kernels(kernels).to(device)
        model.narrow_residual = "half" in name
        if options.compile:
            model.compile_blocks(**compiling)
        loss_of = model.loss
        optimizer: Any = AdamW(parameter_groups(model), fused=kernels.fused_adamw, **settings)
    else:
        if config.position == "learned":
            model = TorchGPT2(config)
            model.start_as(TransformerLM(config, seed=0))
        else:
            model = TorchNanochat(config)
        model.to(device)
        loss_of = torch.compile(model.loss, dynamic=False, **compiling) if options.compile else model.loss
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1, fused=True, **settings)
    model.train()

    def step(ids: torch.Tensor) -> torch.Tensor:
        with autocast(device, dtype):
            loss = loss_of(ids[:, :-1], ids[:, 1:])
        loss.backward()
        if name.startswith("bytemill"):
            norm = clip_gradients(model.parameters(), 1.0)
        else:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if name.startswith("bytemill") and optimizer.can_skip:
            optimizer.step_if_finite(norm)
        else:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return Contender(name, step)


def measure_training(
    name: str, config: ModelConfig, batch_size: int, data: Path, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Train a model, its peer, and the model from the shell; return a row for each."""
    device = options.device
    ids = torch.randint(0, config.vocab_size, (batch_size, config.context_length + 1), device=device)
    n_tokens = options.steps * batch_size * config.context_length
    models: list[Contender] = []
    has_peer = name.startswith(("gpt2", "nanochat"))
    for program in (*(["peer"] if has_peer else []), "bytemill", "bytemill, half residual"):
        before = allocated(device)
        reset_peak(device)
        models.append(contender(program, config, options))
        started = time.perf_counter()
        models[-1].first_loss = float(models[-1].step(ids))
        models[-1].first_step_seconds = time.perf_counter() - started
        for _ in range(options.warmup):
            models[-1].step(ids)
        synchronise(device)
        models[-1].memory_bytes = peak_memory(device) - before
    losses = [model.first_loss for model in models]
    if config.position == "learned" and max(losses) - min(losses) > 0.02:
        raise SystemExit(f"the models differ: from the same weights their losses are {losses}")

    def take_turns(some: list[Contender]) -> None:
        for model in some:
            synchronise(device)
            started = time.perf_counter()
            for _ in range(options.steps):
                model.step(ids)
            synchronise(device)
            model.rates.append(n_tokens / (time.perf_counter() - started))

    for _ in range(options.turns):
        take_turns(models)
    rows = [
        {
            "model": name,
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
    for residual in ("float32", "half") if options.shell else ():
        first = models[:1]
        first[0].rates.clear()
        take_turns(first * 2)
        row = train_from_shell(name, config, batch_size, residual, data, options)
        take_turns(first * 2)
        row["ratio"] = row["tokens_per_second"] / statistics.median(first[0].rates)
        rows.append(row)
    return rows


def train_from_shell(  # noqa: PLR0917 - what to train, and how
    name: str, config: ModelConfig, batch_size: int, residual: str, data: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Run `bytemill lm train` in a process of its own; the first third of its records is left out.

    GPT-2 has the vocabulary of its preset here, 50,257.
    """
    folder = data / "run"
    if name.startswith("gpt2") and not options.dry_run:
        config = config.replace(vocab_size=preset(name).vocab_size)
    settings = {
        **{f"model.{key}": value for key, value in config.to_flat().items() if value is not None},
        "data.tokenizer": data / "tokenizer.json",
        "data.train": data / "shards",
        "run.folder": folder,
        "run.log-every": options.steps,
        "run.checkpoint-every": 0,
        "training.device": str(options.device),
        "training.precision": "bfloat16",
        "training.residual-precision": residual,
        "training.kernels": options.kernels,
        "training.batch-size": batch_size,
        "training.steps": options.steps * (2 * options.turns + 1),
        "schedule.warmup-steps": options.steps,
    }
    file = data / "train.toml"
    file.write_text(
        "".join(
            f"{key.replace('-', '_')} = {json.dumps(str(value) if isinstance(value, Path) else value)}\n"
            for key, value in settings.items()
        )
    )
    compiled = "--training.compile" if options.compile and not options.dry_run else "--training.no-compile"
    command = [sys.executable, "-m", "bytemill", "lm", "train", str(file), "--overwrite", "--quiet", compiled]
    paths = {"PYTHONPATH": os.pathsep.join((str(PACKAGE), str(BUNDLE)))} if IS_BARE else {}
    subprocess.run(command, env=os.environ | paths, check=True)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["kind"] == "step"]
    rate = statistics.median(row["tokens_per_second"] for row in steps[len(steps) // 3 :])
    n_tokens = batch_size * config.context_length * options.steps
    return {
        "model": name,
        "program": "lm train" + (", half residual" if residual == "half" else ""),
        "batch_size": batch_size,
        "tokens_per_second": rate,
        "mfu": None if options.peak is None else rate * flops_per_token(config) / options.peak,
        "memory_bytes": steps[-1]["memory_bytes"],
        "first_step_seconds": n_tokens / steps[0]["tokens_per_second"],
    }


def make_data(folder: Path, vocab_size: int, n_words: int) -> None:
    """Train a tokenizer on words of random letters, and encode a text of them, in which some are frequent."""
    random = np.random.default_rng(0)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkqjxz", dtype=np.uint8)
    sizes = random.integers(2, 11, 60_000)
    words = [letters[np.minimum(25, random.geometric(0.12, n) - 1)].tobytes().decode() for n in sizes]
    text = " ".join(words[i] for i in np.minimum(59_999, random.zipf(1.15, n_words) - 1))
    tokenizer = bytemill.train_from_iterator(iter([text]), vocab_size, ["<|endoftext|>"])
    tokenizer.save(folder / "tokenizer.json")
    (folder / "text.txt").write_text(text)
    bytemill.encode_corpus(tokenizer, str(folder / "text.txt"), str(folder / "shards"))


def training_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every model; one that does not fit gives a row without numbers."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        make_data(data, 280 if options.dry_run else 32_000, 20_000 if options.dry_run else 3_000_000)
        for name in options.models:
            model, _, batch_size = name.partition(":")
            config = shape(model, options)
            try:
                rows += measure_training(model, config, int(batch_size), data, options)
            except torch.OutOfMemoryError:
                rows.append(
                    {
                        "model": model,
                        "program": "all",
                        "batch_size": int(batch_size),
                        "unavailable": "out of memory",
                    }
                )
            release(options.device)
    return rows


def shape(name: str, options: argparse.Namespace) -> ModelConfig:
    """Return the shape of a model; GPT-2 with a vocabulary that 64 divides, as nanoGPT trains it."""
    config = preset(name, **({"vocab_size": 50_304} if name.startswith("gpt2") else {}))
    return config.replace(vocab_size=320, **TINY) if options.dry_run else config


EPS = 1e-5
Part = tuple["tuple[Tensor, ...]", "dict[str, Callable[..., Tensor] | str]"]
"""Inputs, and the implementations by name; a string says why one is missing."""


def parts(config: ModelConfig, batch_size: int, device: torch.device, dtype: torch.dtype) -> dict[str, Part]:
    """Return the parts with inputs of the model's sizes."""
    n_rows, d_model = batch_size * config.context_length, config.d_model
    generator = torch.Generator(device).manual_seed(0)

    def random(*shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(shape, generator=generator, device=device).mul_(scale).to(dtype).requires_grad_()

    targets = torch.randint(0, config.vocab_size, (n_rows,), generator=generator, device=device)
    heads = (batch_size, config.num_heads, config.context_length, config.d_head)
    mask = causal_mask(config.context_length, config.context_length, device=device)
    triton = triton_kernels(device)
    return {
        "RMSNorm": (
            (random(n_rows, d_model), random(d_model)),
            {
                "torch": lambda x, w: functional.rms_norm(x, (d_model,), w, EPS),
                "scratch": lambda x, w: rms_norm(x, w, EPS),
                "blockwise": lambda x, w: normalized(x, w, None, EPS, centred=False),
                "triton": of_triton(triton, "norm", lambda norm, x, w: norm(x, w, None, EPS, centred=False)),
            },
        ),
        "output layer and cross-entropy": (
            (random(n_rows, d_model), random(config.vocab_size, d_model, scale=d_model**-0.5)),
            {
                "torch": lambda x, w: functional.cross_entropy(x @ w.T, targets),
                "scratch": lambda x, w: cross_entropy(x @ w.T, targets),
                "chunked": lambda x, w: linear_cross_entropy(x, w, targets),
                "triton": of_triton(
                    triton, "losses", lambda losses, x, w: losses(x, w, targets, 0.0, soft_cap=None)[0]
                ),
            },
        ),
        "attention": (
            (random(*heads), random(*heads), random(*heads)),
            {
                "torch": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
                "scratch": lambda q, k, v: scaled_dot_product_attention(q, k, v, mask),
                "blockwise": causal_attention,
                "triton": of_triton(triton, "attention", lambda attention, q, k, v: attention(q, k, v)),
            },
        ),
    }


def triton_kernels(device: torch.device) -> Any:
    """Return Triton's kernels, or the reason why there are none."""
    try:
        return choose_kernels("triton", device)
    except RunConfigError as error:
        return str(error)


def of_triton(kernels: Any, part: str, call: Callable[..., Tensor]) -> Callable[..., Tensor] | str:
    """Return `call` with Triton's kernel of a part as its first argument, or the reason why there is none."""
    if isinstance(kernels, str):
        return kernels
    kernel = getattr(kernels, part)
    return (lambda *inputs: call(kernel, *inputs)) if kernel is not None else f"no Triton kernel for {part}"


def measure_parts(config: ModelConfig, batch_size: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every implementation of every part; return a row for each."""
    rows: list[dict[str, Any]] = []
    n_runs = 2 if options.dry_run else 20
    for part, (inputs, kernels) in parts(config, batch_size, options.device, options.dtype).items():
        reference: dict[str, Any] = {}
        expected: Tensor | None = None
        for name, kernel in kernels.items():
            row: dict[str, Any] = {"part": part, "kernels": name}
            try:
                if isinstance(kernel, str):
                    row["unavailable"] = kernel
                else:
                    out, measured = measure(kernel, inputs, n_runs, options.device)
                    expected = out if expected is None else expected
                    row |= measured
                    reference = reference or row
                    row["speed"] = reference["both_seconds"] / row["both_seconds"]
                    row["difference"] = float((out - expected).abs().max() / expected.abs().max())
            except torch.OutOfMemoryError:
                row = {"part": part, "kernels": name, "unavailable": "out of memory"}
            rows.append(row)
    return rows


def measure(
    kernel: Callable[..., Tensor], inputs: tuple[Tensor, ...], n_runs: int, device: torch.device
) -> tuple[Tensor, dict[str, float]]:
    """Return the result of a kernel, and the median seconds of its passes and the memory of both."""
    out = kernel(*inputs)
    gradient = torch.ones_like(out)
    torch.autograd.grad(out, inputs, gradient)  # warm up
    result = out.detach().float()
    del out
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else peak_memory(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    times: dict[str, list[float]] = {"forward_seconds": [], "both_seconds": []}
    for _ in range(n_runs):
        synchronise(device)
        started = time.perf_counter()
        out = kernel(*inputs)
        synchronise(device)
        times["forward_seconds"].append(time.perf_counter() - started)
        torch.autograd.grad(out, inputs, gradient)
        synchronise(device)
        times["both_seconds"].append(time.perf_counter() - started)
    measured = {name: statistics.median(taken) for name, taken in times.items()}
    return result, {**measured, "memory_bytes": peak_memory(device) - before}


def measure_optimizers(config: ModelConfig, options: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of a step of each optimizer."""
    device = options.device
    model = TransformerLM(config, seed=0).to(device)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    fused = device.type == "cuda"
    optimizers = {
        "adamw": AdamW(parameter_groups(model), fused=fused),
        "muon": Muon(muon_groups(model), fused=fused),
    }
    seconds: dict[str, float] = {}
    for name, optimizer in optimizers.items():
        times: list[float] = []
        for _ in range(2 if options.dry_run else 12):
            synchronise(device)
            started = time.perf_counter()
            optimizer.step()
            synchronise(device)
            times.append(time.perf_counter() - started)
        seconds[name] = statistics.median(times[1:])
    return seconds


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
        [row["model"], row["program"], str(row["batch_size"]), "", "", "", "", row["unavailable"]]
        if "unavailable" in row
        else [
            row["model"],
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
    header = ["training", "program", "batch", "tokens/s", "ratio", "MFU", "memory", "first step"]
    print("\n" + format_table(header, rows))
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
    print(
        "\n" + ", ".join(f"a step of {name}: {s * 1e3:.2f} ms" for name, s in results["optimizers"].items())
    )
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
    parser.add_argument(
        "--models",
        nargs="+",
        default=["gpt2:64", "llama-1b:8", "nanochat-d12:32"],
        metavar="PRESET:BATCH",
        help="models to train, and sequences a step",
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--kernels", default="auto", choices=["auto", "torch", "triton", "scratch"])
    parser.add_argument(
        "--no-compile", dest="compile", action="store_false", help="train both models eagerly"
    )
    parser.add_argument("--no-shell", dest="shell", action="store_false", help="leave out `lm train`")
    parser.add_argument("--no-parts", dest="parts", action="store_false", help="leave out single parts")
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
    if options.dry_run:
        options.models = [f"{name.partition(':')[0]}:2" for name in options.models]
        options.steps, options.turns, options.warmup, options.generate_tokens = 1, 2, 1, 4
    config = shape("gpt2", options)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    if options.peak is None and (key := find_device(name)):
        options.peak = DEVICES[key].rate("bfloat16")
    results: dict[str, Any] = {
        "device": name,
        "torch": torch.__version__,
        "dtype": str(options.dtype).removeprefix("torch."),
        "compiled": options.compile,
        "dry_run": options.dry_run,
        "config": config.to_dict(),
        "peak_flops": options.peak,
        "matmul_flops": matmul_rate(device, options.dtype, seconds=0.0 if options.dry_run else 2.0),
        "training": training_rows(options),
        "parts": measure_parts(config, 1 if options.dry_run else 64, options) if options.parts else [],
        "optimizers": measure_optimizers(config, options),
        "generation": measure_generation(config, options),
    }
    show(results)
    print(f"\nsaved {save(options.json, 'gpu', results)}")
    return results


if __name__ == "__main__":
    main()
