"""A training step of our model beside a model of the same shape made of torch.nn, in turns: tokens/s and ratios.

    python benchmarks/lm_parts.py --preset tinystories --batch-size 8 --steps 5

`--profile ours` prints where a step's time goes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bytemill.lm import ModelConfig, TransformerLM, preset
from bytemill.lm.optim import AdamW, clip_gradients

if TYPE_CHECKING:
    from collections.abc import Callable


class TorchBlock(nn.Module):
    """The block of the peer: torch.nn's layers, its fused attention, its RMSNorm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.d_model
        self.n_heads = config.num_heads
        self.ln1, self.ln2 = nn.RMSNorm(d, config.norm_eps), nn.RMSNorm(d, config.norm_eps)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.w1, self.w3 = (nn.Linear(d, config.d_ff, bias=False) for _ in range(2))
        self.w2 = nn.Linear(config.d_ff, d, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, n_tokens, d = x.shape
        h = self.ln1(x)
        q, k, v = (
            p(h).view(batch, n_tokens, self.n_heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v)
        )
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, n_tokens, d))
        h = self.ln2(x)
        return x + self.w2(functional.silu(self.w1(h)) * self.w3(h))


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding in the half-split form that most models made of torch.nn use."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class TorchLM(nn.Module):
    """The peer."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(TorchBlock(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.d_model, config.norm_eps)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        frequencies = config.rope_theta ** (-torch.arange(0, config.d_head, 2) / config.d_head)
        angles = torch.outer(torch.arange(config.context_length), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.cos[: ids.shape[-1]], self.sin[: ids.shape[-1]])
        return self.head(self.norm(x))


def torch_loss(model: Any, ids: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def contestants(config: ModelConfig, wanted: list[str]) -> dict[str, Callable[[Tensor, Tensor], None]]:
    """Name -> one training step, each with a model and an optimizer of its own."""
    steps: dict[str, Callable[[Tensor, Tensor], None]] = {}
    for name in wanted:
        torch.manual_seed(0)
        if name.startswith("torch"):
            model: Any = TorchLM(config)
            optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-3)
            loss, clip = torch_loss, nn.utils.clip_grad_norm_
        else:
            fused = "fused" in name or "compile" in name
            model = TransformerLM(
                ModelConfig.from_dict({**config.to_dict(), "attention": "fused" if fused else "scratch"})
            )
            optimizer = AdamW(model.parameters(), lr=1e-3)
            loss, clip = our_loss, clip_gradients
        step_loss = torch.compile(loss) if "compile" in name else loss

        steps[name] = partial(training_step, model, optimizer, step_loss, clip)
    return steps


def training_step(model: Any, optimizer: Any, loss: Any, clip: Any, *batch: Tensor) -> None:
    optimizer.zero_grad()
    loss(model, *batch).backward()
    clip(model.parameters(), 1.0)
    optimizer.step()


def our_loss(model: Any, ids: Tensor, targets: Tensor) -> Tensor:
    return model.loss(ids, targets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preset", default="tinystories")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--models", default="torch,ours,ours fused", help="also 'ours compile', 'torch compile'"
    )
    parser.add_argument("--profile", metavar="MODEL")
    options = parser.parse_args()
    config = preset(options.preset)
    ids = torch.randint(0, config.vocab_size, (options.batch_size, config.context_length + 1))
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    if options.profile:
        step = contestants(config, [options.profile])[options.profile]
        step(inputs, targets)
        with torch.profiler.profile() as profiler:
            step(inputs, targets)
        print(
            profiler.key_averages().table(
                sort_by="self_cpu_time_total", row_limit=35, max_name_column_width=45
            )
        )
        return
    steps = contestants(config, options.models.split(","))
    for step in steps.values():
        step(inputs, targets)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(options.steps):
        for name, step in steps.items():
            start = time.perf_counter()
            step(inputs, targets)
            times[name].append(time.perf_counter() - start)
    first = next(iter(times))
    print(
        f"{options.preset}, batch {options.batch_size}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    for name, taken in times.items():
        ratio = statistics.median(a / b for a, b in zip(times[first], taken, strict=True))
        print(f"{name:16} {inputs.numel() / statistics.median(taken):8.0f} tokens/s   {ratio:.3f} × {first}")


if __name__ == "__main__":
    main()
