"""Time RMSNorm, the fused cross-entropy and attention: every implementation beside torch's own function."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from bytemill.errors import RunConfigError
from bytemill.lm.device import peak_memory, synchronise
from bytemill.lm.kernels.attention import causal_attention
from bytemill.lm.kernels.choice import choose_kernels
from bytemill.lm.kernels.layers import linear_cross_entropy, normalized
from bytemill.lm.loss import cross_entropy
from bytemill.lm.model import causal_mask, rms_norm, scaled_dot_product_attention

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from bytemill.lm import ModelConfig

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
