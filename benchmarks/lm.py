"""Language models on the CPU: rates of every part of a small model, and of generation in batches."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.harness import listed, option

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

BASE = "full"
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "mixers": {
        BASE: {},
        "window:32": {"mixer": "window:32"},
        "values": {"mixer": "values"},
        "full, values": {"mixer": ["full", "values"]},
        "mla": {"mixer": "mla"},
        "linear": {"mixer": "linear"},
        "delta": {"mixer": "delta"},
        "mamba": {"mixer": "mamba"},
        "hyena": {"mixer": "hyena"},
    },
    "feed-forwards": {
        "geglu": {"feed_forward": "geglu"},
        "clamped_swiglu": {"feed_forward": "clamped_swiglu"},
        "gelu": {"feed_forward": "gelu", "d_ff": 480},
        "relu2": {"feed_forward": "relu2", "d_ff": 480},
        "moe, 8 experts, 2 of half the width": {
            "feed_forward": "moe",
            "d_ff": 160,
            "moe": {"experts": 8, "top_k": 2},
        },
    },
    "residuals": {
        "post": {"norm_position": "post"},
        "output": {"norm_position": "output"},
        "sandwich": {"norm_position": "sandwich"},
        "parallel": {"residual": "parallel"},
        "attention cap": {"attention": {"soft_cap": 30.0}},
        "multi-token head": {"multi_token_weight": 0.3},
    },
}
"""Group -> part -> its settings. The base has attention to all tokens, SwiGLU, and a norm before each sub-layer."""


@harness.case(
    option("--preset", default="tiny"),
    option("--only", type=listed(str, VARIANTS), default=list(VARIANTS), help="groups (all)"),
    option("--sequences", type=int, default=8, help="of a training step"),
    option("--tokens", type=int, default=64, help="that are generated after a prompt of 16"),
    option("--turns", type=int, default=7),
    harness.JSON,
)
def lm_variants(options: argparse.Namespace) -> None:
    """Measure training and generation with every mixer, feed-forward network and residual form, on one thread.

        python -m benchmarks lm-variants [--only mixers]

    Models of a preset, with the kernels that `auto` chooses, take turns: a step of training with AdamW at the context
    length, a sample of one prompt, and 16 samples. Times are CPU time. Ratios to the base, `full`, are medians over the
    turns of the rate to the base's in the same turn; rates are those of the best turn.
    """
    torch.set_num_threads(1)
    named = {name: shape for group in options.only for name, shape in VARIANTS[group].items()}
    made = {name: _measures(shape, options) for name, shape in ({BASE: {}} | named).items()}
    rates: dict[str, dict[str, list[float]]] = {
        name: {what: [] for what in own} for name, own in made.items()
    }
    for turn in range(options.turns + 1):
        for name, measures in made.items():
            for what, measure in measures.items():
                started = time.process_time()
                n_tokens = measure()
                if turn:  # the first one allocates
                    rates[name][what].append(n_tokens / (time.process_time() - started))
    rows: list[list[str]] = []
    for name, own in rates.items():
        row = [name]
        for what, values in own.items():
            ratios = [a / b for a, b in zip(values, rates[BASE][what], strict=True)]
            row += [f"{max(values):,.0f}", f"{statistics.median(ratios):.2f}"]
        rows.append(row)
    print(harness.machine())
    print(f"{options.preset}, tokens per CPU second, and the ratio to {BASE}")
    print(harness.format_table(["", "training", "", "1 sample", "", "16 samples", ""], rows))
    print(f"\nSaved to {harness.save(options.json, 'lm-variants', {'rates': rates})}")


def _measures(shape: dict[str, Any], options: argparse.Namespace) -> dict[str, Callable[[], int]]:
    """Functions that train or generate with a model, and return the number of tokens."""
    from bytemill.lm import preset
    from bytemill.lm.generation.decoding import generate
    from bytemill.lm.kernels.choice import choose_kernels
    from bytemill.lm.model import TransformerLM
    from bytemill.lm.optim import AdamW, clip_gradients, parameter_groups

    config = preset(options.preset, **shape)
    kernels = choose_kernels("auto", torch.device("cpu"))
    model = TransformerLM(config, seed=0).use_kernels(kernels)
    optimizer = AdamW(parameter_groups(model), 1e-3, fused=kernels.fused_adamw)
    n_tokens = (options.sequences, config.context_length + 1)
    windows = torch.randint(0, config.vocab_size, n_tokens, generator=torch.Generator().manual_seed(0))

    def train() -> int:
        model.train()
        model.losses(windows[:, :-1], windows[:, 1:])[0].backward()
        clip_gradients(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return windows[:, 1:].numel()

    def sample(n_samples: int) -> int:
        prompt = windows[0, :16].tolist()
        generate(model, prompt, options.tokens, n_samples=n_samples, seed=0)
        return n_samples * options.tokens

    return {"training": train, "1 sample": lambda: sample(1), "16 samples": lambda: sample(16)}


@harness.case(
    option("--preset", default="tiny"),
    option("--prompts", type=int, default=128),
    option("--rows", type=listed(int), default=[8, 32], help="samples that are generated together (8,32)"),
    option("--turns", type=int, default=5),
)
def lm_batching(options: argparse.Namespace) -> None:
    """Measure generation where the next prompt takes the row of one that has ended, beside fixed batches.

        python -m benchmarks lm-batching [--rows 8,32]

    Prompts of 4 to 48 tokens are continued by 1 to 80, with a probability of 1/24 to end after each token, on one
    thread. Fixed batches have prompts of similar length, and leave out rows that have ended once they are half. Rates
    are tokens per CPU second in the best turn; the ratio is the median over the turns.
    """
    from bytemill.lm import preset
    from bytemill.lm.generation.decoding import sample_continuations
    from bytemill.lm.model import TransformerLM

    torch.set_num_threads(1)
    model = TransformerLM(preset(options.preset), seed=0).use_kernels("auto")
    chance = np.random.default_rng(0)
    prompts = sorted(
        (chance.integers(0, 4096, chance.integers(4, 49)).tolist() for _ in range(options.prompts)),
        key=len,
    )
    n_new = [min(80, 1 + int(chance.exponential(24))) for _ in prompts]

    def run(first: int, last: int, n_rows: int) -> int:
        left = n_new[first:last]

        def is_last(token: Any) -> bool:
            left[token.sample] -= 1
            return not left[token.sample]

        found = sample_continuations(
            model, prompts[first:last], 80, seeds=range(first, last), n_rows=n_rows, is_last=is_last
        )
        return sum(map(len, found))

    rows: list[list[str]] = []
    for n_rows in options.rows:
        ways: dict[str, Callable[[], int]] = {
            "fixed": lambda n=n_rows: sum(run(at, at + n, n) for at in range(0, len(prompts), n)),
            "continuous": lambda n=n_rows: run(0, len(prompts), n),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(options.turns + 1):
            for name, way in ways.items():
                started = time.process_time()
                n_tokens = way()
                if turn:
                    rates[name].append(n_tokens / (time.process_time() - started))
        ratio = statistics.median(a / b for a, b in zip(rates["continuous"], rates["fixed"], strict=True))
        rows.append([str(n_rows), *(f"{max(own):,.0f}" for own in rates.values()), f"{ratio:.2f}"])
    print(harness.machine())
    print(harness.format_table(["rows", "fixed", "continuous", "ratio"], rows))
