"""Training side by side: our model, and one of the same shape made of torch.nn alone. Loss and tokens/s.

    python benchmarks/lm.py stories.txt --preset tiny --steps 60
    python benchmarks/lm.py stories.txt --preset tinystories --steps 400 --compile

All contenders get the same batches in the same order, AdamW with the same settings, and take turns of a few steps, so
that a machine that slows down slows them all. The text is cut 95:5 into training and validation.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import bytemill
from bytemill.lm.batches import get_batch, spread_starts, windows_at
from bytemill.lm.budget import flops_per_token
from bytemill.lm.device import matmul_rate, pick_device, synchronise
from bytemill.lm.model import TransformerLM
from bytemill.lm.optim import AdamW, clip_gradients
from bytemill.lm.presets import PRESETS
from bytemill.lm.schedule import cosine_with_warmup

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.lm.model import ModelConfig

LEARNING_RATE, WARMUP = 1e-3, 20


class TorchBlock(nn.Module):
    """A pre-norm block of torch.nn's own parts; rotary embedding by complex numbers, attention by torch's kernel."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads = config.num_heads
        self.ln1, self.ln2 = (nn.RMSNorm(config.d_model, eps=config.norm_eps) for _ in range(2))
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model, bias=False)
        self.out = nn.Linear(config.d_model, config.d_model, bias=False)
        self.w1, self.w3 = (nn.Linear(config.d_model, config.d_ff, bias=False) for _ in range(2))
        self.w2 = nn.Linear(config.d_ff, config.d_model, bias=False)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.ln1(x)).view(batch, length, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        q, k = _turned(heads[0], *turns), _turned(heads[1], *turns)
        attended = functional.scaled_dot_product_attention(q, k, heads[2], is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        y = self.ln2(x)
        return x + self.w2(functional.silu(self.w1(y)) * self.w3(y))


class TorchLM(nn.Module):
    """The same shape as ours in the presets with rotary embedding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(TorchBlock(config) for _ in range(config.num_layers))
        self.ln_final = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.trunc_normal_(parameter, std=(2 / sum(parameter.shape)) ** 0.5)
        nn.init.trunc_normal_(self.embeddings.weight, a=-3, b=3)
        frequencies = config.rope_theta ** (-torch.arange(0, config.d_head, 2) / config.d_head)
        angles = torch.arange(config.context_length)[:, None] * frequencies
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.embeddings(ids)
        turns = (self.get_buffer("cos")[: ids.shape[1]], self.get_buffer("sin")[: ids.shape[1]])
        for block in self.blocks:
            x = block(x, turns)
        return functional.cross_entropy(self.head(self.ln_final(x)).flatten(0, 1), targets.flatten())


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


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

    def step(self, inputs: Tensor, targets: Tensor, learning_rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        loss = self.loss(inputs, targets)
        loss.backward()
        self.clip(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(float(loss.detach()))


def contenders(config: ModelConfig, device: torch.device, *, compiled: bool) -> list[Contender]:
    made: list[Contender] = []
    betas, decay = (0.9, 0.95), 0.1

    def ours(name: str, shape: ModelConfig, *, fuse: bool = False) -> None:
        model = TransformerLM(shape, seed=0).to(device)
        loss: Any = torch.compile(model.loss) if fuse else model.loss
        optimizer = AdamW(model.parameters(), LEARNING_RATE, betas=betas, weight_decay=decay)
        made.append(Contender(name, model, loss, optimizer, clip_gradients))

    torch.manual_seed(0)
    theirs = TorchLM(config).to(device)
    adamw = torch.optim.AdamW(theirs.parameters(), LEARNING_RATE, betas=betas, weight_decay=decay)
    made.append(Contender("torch.nn", theirs, theirs.loss, adamw, nn.utils.clip_grad_norm_))
    ours("bytemill", config)
    ours("bytemill, fused attention", replace(config, attention="fused"))
    if compiled:
        ours("bytemill, fused and compiled", replace(config, attention="fused"), fuse=True)
    return made


@torch.no_grad()
def validation_loss(
    contender: Contender, ids: NDArray[np.integer], length: int, device: torch.device
) -> float:
    starts = spread_starts(len(ids), length, 64)
    losses = [
        float(contender.loss(*windows_at(ids, starts[first : first + 8], length, device)))
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
    parser.add_argument("--turn", type=int, default=5, help="steps that each contender takes in a row")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()

    device = pick_device(options.device)
    config = PRESETS[options.preset]
    text = options.text.read_text(encoding="utf-8")
    cut = int(0.95 * len(text))
    tokenizer = bytemill.train(iter([text[:cut]]), options.vocab_size or config.vocab_size, ["<|endoftext|>"])
    train_ids, validation_ids = (tokenizer.encode_to_numpy(part) for part in (text[:cut], text[cut:]))
    config = replace(config, vocab_size=tokenizer.n_vocab)
    length, n_tokens = config.context_length, options.batch_size * config.context_length
    rate = matmul_rate(device, torch.float32, seconds=2)
    print(
        f"{options.preset}: {TransformerLM(config, device='meta').n_parameters():,} parameters, "
        f"{options.steps} steps of {options.batch_size} x {length} tokens on {device}, "
        f"{torch.get_num_threads()} threads; matrix products at {rate / 1e9:,.1f} GFLOP/s"
    )
    all_of_them = contenders(config, device, compiled=options.compile)
    for contender in all_of_them:  # first calls allocate and compile; undone below by making them anew
        contender.loss(*get_batch(train_ids, options.batch_size, length, device)).backward()
        contender.optimizer.zero_grad(set_to_none=True)
    for first in range(0, options.steps, options.turn):
        for contender in all_of_them:
            synchronise(device)
            started = time.perf_counter()
            steps = range(first, min(first + options.turn, options.steps))
            for step in steps:
                generator = torch.Generator().manual_seed(step)
                batch = get_batch(train_ids, options.batch_size, length, device, generator=generator)
                lr = cosine_with_warmup(step + 1, LEARNING_RATE, 0.1 * LEARNING_RATE, WARMUP, options.steps)
                contender.step(*batch, lr)
            synchronise(device)
            contender.rates.append(len(steps) * n_tokens / (time.perf_counter() - started))
    base = all_of_them[0]
    per_token = flops_per_token(config, length, backward=True)
    print(f"{'':<30} {'tokens/s':>9} {'ratio':>6} {'FLOP use':>8} {'train':>7} {'validation':>10}")
    for contender in all_of_them:
        speed = statistics.median(contender.rates)
        ratio = statistics.median(own / other for own, other in zip(contender.rates, base.rates, strict=True))
        last = statistics.fmean(contender.losses[-10:])
        validation = validation_loss(contender, validation_ids, length, device)
        print(
            f"{contender.name:<30} {speed:>9,.0f} {ratio:>6.2f} {speed * per_token / rate:>8.1%} "
            f"{last:>7.3f} {validation:>10.3f}"
        )


if __name__ == "__main__":
    main()
