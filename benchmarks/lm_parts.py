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

from bytemill.lm import ModelConfig, TransformerLM, preset
from bytemill.lm.optim import AdamW, clip_gradients
from lm_peer import TorchLM

if TYPE_CHECKING:
    from collections.abc import Callable


def contestants(config: ModelConfig, wanted: list[str]) -> dict[str, Callable[[Tensor, Tensor], None]]:
    """Name -> one training step, each with a model and an optimizer of its own."""
    steps: dict[str, Callable[[Tensor, Tensor], None]] = {}
    for name in wanted:
        torch.manual_seed(0)
        if name.startswith("torch"):
            model: Any = TorchLM(config)
            optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-3)
            clip = nn.utils.clip_grad_norm_
        else:
            fused = "fused" in name or "compile" in name
            model = TransformerLM(
                ModelConfig(**{**config.to_dict(), "attention": "fused" if fused else "scratch"})
            )
            optimizer = AdamW(model.parameters(), lr=1e-3)
            clip = clip_gradients
        loss = torch.compile(model.loss) if "compile" in name else model.loss

        steps[name] = partial(training_step, model, optimizer, loss, clip)
    return steps


def training_step(model: Any, optimizer: Any, loss: Any, clip: Any, *batch: Tensor) -> None:
    optimizer.zero_grad()
    loss(*batch).backward()
    clip(model.parameters(), 1.0)
    optimizer.step()


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
