"""Language models on a GPU or the CPU: training beside peers, single parts, optimizers, generation.

    make gpu-bundle            # once, on a machine with a network: what a bare machine with torch lacks
    python benchmarks/gpu.py   # there
    python benchmarks/gpu.py --only training --no-compile --device cpu
    python benchmarks/gpu.py --only generation --generate gpt2:1 gpt2:64
    python benchmarks/gpu.py --device cpu --dry-run

Training is compiled, on random tokens, in bfloat16 on a GPU. The peers are models of torch.nn (`gpu_peers.py`) with
SDPA and fused AdamW: GPT-2 as nanoGPT builds it and the presets `tiny` and `tinystories` start from our weights, and
their losses after the same steps are shown; that of the nanochat presets has their shape. A model and its peer take
turns of a few steps, and the ratio is the median over the turns. Then `bytemill lm train` trains the same shape as
started from the shell, on shards, with turns of the peer before and after. MFU is the FLOPs of the matrix products,
attention in full, relative to the dense bfloat16 peak of the data sheet, on the CPU to a measured matrix product.
Memory is the peak beyond what was allocated before the model was built.

The parts are timed eagerly: each implementation's forward pass, and both passes, beside torch's own function. The
chunked loss computes its gradients in the forward pass. Generation is beside what memory bandwidth allows, the best
rate of a sum over a large tensor: a step reads the weights of the blocks and of the output layer once, and the cache
of each sample. The first tokens of a run prepare a CUDA graph and do not count. The dry run does everything with tiny
sizes, and its times mean nothing.
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
from bytemill.system.memory import reset_peak as reset_process_peak
from gpu_peers import TorchGPT2, TorchLlama, TorchNanochat
from harness import format_table, save

if TYPE_CHECKING:
    from collections.abc import Callable

PEERS = {"gpt2": TorchGPT2, "nanochat": TorchNanochat, "tiny": TorchLlama}
"""First part of the name of a preset -> the model of torch.nn that is trained beside it."""
MEASUREMENTS = ("training", "parts", "optimizers", "generation")
ON_GPU = ["gpt2:64", "llama-1b:8", "nanochat-d12:32"]
ON_CPU = ["tinystories:8", "tiny:16"]
N_PREPARED = 8
"""Tokens of a generation on a GPU that do not count."""
TINY: dict[str, Any] = {"context_length": 32, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64}


@dataclass
class Contender:
    """A model in training: a function that trains for a step, and what was measured."""

    name: str
    step: Callable[[torch.Tensor], torch.Tensor]
    first_loss: float = 0.0
    last_loss: float = 0.0
    first_step_seconds: float = 0.0
    memory_bytes: int = 0
    rates: list[float] = field(default_factory=list)


def peer_of(name: str) -> Any:
    """Return the class of the peer of a preset, or None."""
    return next((peer for prefix, peer in PEERS.items() if name.startswith(prefix)), None)


def contender(name: str, config: ModelConfig, peer: Any, options: argparse.Namespace) -> Contender:
    """Build a model, or its peer, with its optimizer; a peer that can `start_as` ours has the same weights."""
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
        model = peer(config)
        if hasattr(model, "start_as"):
            model.start_as(TransformerLM(config, seed=0))
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
    peer = peer_of(name)
    residuals = ("float32", "half") if options.dtype == torch.bfloat16 else ("float32",)
    programs = ["bytemill", "bytemill, half residual"][: len(residuals)]
    for program in ([] if peer is None else ["peer"]) + programs:
        reset_peak(device)
        before = allocated(device)
        models.append(contender(program, config, peer, options))
        started = time.perf_counter()
        models[-1].first_loss = float(models[-1].step(ids))
        models[-1].first_step_seconds = time.perf_counter() - started
        for _ in range(options.warmup):
            models[-1].step(ids)
        synchronise(device)
        models[-1].memory_bytes = peak_memory(device) - before
    losses = [model.first_loss for model in models]
    if hasattr(peer, "start_as") and max(losses) - min(losses) > 0.02:
        raise SystemExit(f"the models differ: from the same weights their losses are {losses}")

    def take_turns(some: list[Contender]) -> None:
        for model in some:
            synchronise(device)
            started = time.perf_counter()
            losses = [model.step(ids) for _ in range(options.steps)]
            model.last_loss = float(losses[-1])
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
            "loss": model.last_loss,
            "first_step_seconds": model.first_step_seconds,
        }
        for model in models
    ]
    for residual in residuals if options.shell else ():
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
        "training.precision": str(options.dtype).removeprefix("torch."),
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
    reset_peak(device)
    before = allocated(device)
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


def bandwidth(data: Tensor, device: torch.device) -> float:
    """Return the best of three rates, in bytes per second, of reading `data`."""
    best = 0.0
    for _ in range(3):
        synchronise(device)
        started = time.perf_counter()
        data.sum()
        synchronise(device)
        best = max(best, data.nbytes / (time.perf_counter() - started))
    return best


def step_bytes(model: TransformerLM, n_samples: int, n_cached: int) -> int:
    """Return the bytes that generating a token for each sample reads, with `n_cached` positions in the cache."""
    size = 4 if model.kernels.decoding is None else 2
    config = model.config
    weights = {parameter.data_ptr(): parameter.numel() for parameter in model.layers.parameters()}
    weights[model.lm_head.weight.data_ptr()] = model.lm_head.weight.numel()
    per_position = 2 * config.num_layers * config.n_kv_heads * config.d_head
    return size * (sum(weights.values()) + n_samples * n_cached * per_position)


@torch.inference_mode()
def measure_generation(name: str, n_samples: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure tokens/s of generation, all samples together, beside the limit by memory bandwidth."""
    device, config = options.device, shape(name, options)
    model = TransformerLM(config, seed=0).to(device).use_kernels(options.kernels)
    n_prompt = config.context_length // 8
    n_skipped = N_PREPARED if device.type == "cuda" else 0
    n_tokens = min(options.generate_tokens, config.context_length - n_prompt - n_skipped - 1)
    prompt = torch.randint(0, config.vocab_size, (n_prompt,)).tolist()
    n_bytes = step_bytes(model, n_samples, n_prompt + n_skipped + n_tokens // 2)
    data = torch.ones(max(n_bytes, 2**31 if device.type == "cuda" else 0) // 4, device=device)
    first: list[float] = []
    rates: list[float] = []
    shares: list[float] = []
    for _ in range(options.turns):
        read = bandwidth(data, device)
        started = time.perf_counter()
        tokens = next_tokens(
            model, prompt, n_skipped + n_tokens + 1, n_samples=n_samples, seed=0, with_logits=False
        )
        times = [time.perf_counter() for _ in tokens]
        first.append(times[0] - started)
        rates.append(n_tokens / (times[-1] - times[n_skipped * n_samples]))
        shares.append(rates[-1] * n_bytes / read)
    return {
        "model": name,
        "n_samples": n_samples,
        "prompt_tokens": n_prompt,
        "first_token_seconds": statistics.median(first),
        "tokens_per_second": n_samples * statistics.median(rates),
        "share_of_bandwidth": statistics.median(shares),
    }


def allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else peak_memory(device)


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif device.type == "cpu":
        reset_process_peak()


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
        f"{results['device']}, torch {results['torch']}, {results['dtype']}, {torch.get_num_threads()} threads: matrix "
        f"products at {results['matmul_flops'] / 1e12:,.2f} TFLOP/s, "
        + ("no peak known: set --peak" if peak is None else f"peak {peak / 1e12:,.2f} TFLOP/s")
    )
    if results["dry_run"]:
        print("dry run with tiny sizes: the times mean nothing")

    def table(kind: str, columns: dict[str, Callable[[dict[str, Any]], str]]) -> None:
        """Print a row for each result of a kind; one that is unavailable has its first columns and the reason."""
        n_names = 3 if kind == "training" else 2
        rows: list[list[str]] = []
        for row in results[kind]:
            reason = row.get("unavailable")
            cells = [text(row) for text in list(columns.values())[: n_names if reason else None]]
            rows.append(cells + [""] * (len(columns) - len(cells)) + [reason or ""])
        if rows:
            print("\n" + format_table([*columns, ""], rows))

    table(
        "training",
        {
            "training": lambda row: row["model"],
            "program": lambda row: row["program"],
            "batch": lambda row: str(row["batch_size"]),
            "tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
            "ratio": lambda row: f"{row['ratio']:.2f}",
            "MFU": lambda row: "unknown" if row["mfu"] is None else f"{row['mfu']:.1%}",
            "memory": lambda row: f"{row['memory_bytes'] / 1e9:.2f} GB",
            "first step": lambda row: f"{row['first_step_seconds']:.1f} s",
            "loss": lambda row: f"{row['loss']:.3f}" if "loss" in row else "",
        },
    )
    table(
        "parts",
        {
            "part": lambda row: row["part"],
            "kernels": lambda row: row["kernels"],
            "forward": lambda row: f"{row['forward_seconds'] * 1e3:.3f} ms",
            "both passes": lambda row: f"{row['both_seconds'] * 1e3:.3f} ms",
            "speed, torch = 1": lambda row: f"{row['speed']:.2f}",
            "memory": lambda row: f"{row['memory_bytes'] / 1e6:,.0f} MB",
            "difference": lambda row: f"{row['difference']:.1e}",
        },
    )
    for name, seconds in results["optimizers"].items():
        print(f"\na step of {name}: {seconds * 1e3:.2f} ms")
    table(
        "generation",
        {
            "generation": lambda row: row["model"],
            "samples": lambda row: str(row["n_samples"]),
            "prompt": lambda row: str(row["prompt_tokens"]),
            "first token": lambda row: f"{row['first_token_seconds'] * 1e3:,.1f} ms",
            "tokens/s": lambda row: f"{row['tokens_per_second']:,.1f}",
            "of the bandwidth": lambda row: f"{row['share_of_bandwidth']:.2f}",
        },
    )


def main(words: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        "python benchmarks/gpu.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flag: Any = parser.add_argument
    flag("--models", nargs="+", metavar="PRESET:BATCH", help="models to train, and sequences a step")
    flag(
        "--generate", nargs="+", metavar="PRESET:SAMPLES", help="models that generate, and samples at a time"
    )
    flag("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS), help="what is measured (all)")
    flag("--device", default="auto", help="cuda, mps or cpu (%(default)s)")
    flag("--precision", choices=["auto", "bfloat16", "float32"], default="auto", help="(%(default)s)")
    flag("--kernels", default="auto", choices=["auto", "torch", "triton", "scratch"], help="(%(default)s)")
    flag("--no-compile", dest="compile", action="store_false", help="train all models eagerly")
    flag("--no-shell", dest="shell", action="store_false", help="leave out `lm train`")
    flag("--steps", type=int, default=10, help="training steps per turn (%(default)s)")
    flag("--turns", type=int, default=5, help="(%(default)s)")
    flag("--warmup", type=int, default=5, help="steps before the first turn (%(default)s)")
    flag("--generate-tokens", type=int, default=256, help="tokens of each sample (%(default)s)")
    flag("--peak", type=float, help="dense bfloat16 FLOP/s of the device, if it is not known")
    flag("--dry-run", action="store_true", help="do everything with tiny sizes")
    flag("--json", type=Path, metavar="FILE", help="by default a new file in benchmarks/results")
    options = parser.parse_args(words)
    options.device = device = pick_device(options.device)
    options.dtype = pick_precision("bfloat16" if options.dry_run else options.precision, device)
    on_gpu = device.type == "cuda" or options.dry_run
    options.models = options.models or (ON_GPU if on_gpu else ON_CPU)
    options.generate = options.generate or (["gpt2:1", "gpt2:64"] if on_gpu else ["gpt2:1"])
    if options.dry_run:
        options.models = [f"{name.partition(':')[0]}:2" for name in options.models]
        options.steps, options.turns, options.warmup, options.generate_tokens = 1, 2, 1, 4
    first = shape(options.models[0].partition(":")[0], options)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    matmul_flops = matmul_rate(device, options.dtype, seconds=0.0 if options.dry_run else 2.0)
    if options.peak is None and (key := find_device(name)):
        options.peak = DEVICES[key].rate("bfloat16")
    elif options.peak is None and device.type == "cpu":
        options.peak = matmul_flops
    results: dict[str, Any] = {
        "device": name,
        "torch": torch.__version__,
        "dtype": str(options.dtype).removeprefix("torch."),
        "compiled": options.compile,
        "dry_run": options.dry_run,
        "config": first.to_dict(),
        "peak_flops": options.peak,
        "matmul_flops": matmul_flops,
        "training": training_rows(options) if "training" in options.only else [],
        "parts": [],
        "optimizers": measure_optimizers(first, options) if "optimizers" in options.only else {},
        "generation": [],
    }
    if "parts" in options.only:
        n_sequences = 1 if options.dry_run else int(options.models[0].partition(":")[2])
        results["parts"] = measure_parts(first, n_sequences, options)
    for each in options.generate if "generation" in options.only else ():
        model, _, n_samples = each.partition(":")
        results["generation"].append(measure_generation(model, int(n_samples), options))
    show(results)
    print(f"\nsaved {save(options.json, 'gpu', results)}")
    return results


if __name__ == "__main__":
    main()
