"""Speed of generation on the CPU, beside what memory bandwidth allows: every token reads every weight once.

    python benchmarks/lm_generate.py
    python benchmarks/lm_generate.py --preset gpt2-medium --tokens 32

Bandwidth is the best rate of a sum over a tensor as large as the weights, read by all threads. The model has random
weights. Runs and reads take turns, and the ratio is the median over the turns. Weights are those a token reads:
matrices of the blocks and the output layer, not the rows of embeddings that it does not look up.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

import torch

from bytemill.lm import preset
from bytemill.lm.generation.decoding import next_tokens
from bytemill.lm.model import TransformerLM

if TYPE_CHECKING:
    from collections.abc import Callable


def bytes_per_token(model: TransformerLM) -> int:
    weights = {parameter.data_ptr(): parameter.nbytes for parameter in model.layers.parameters()}
    weights[model.lm_head.weight.data_ptr()] = model.lm_head.weight.nbytes
    return sum(weights.values())


def bandwidth(data: torch.Tensor, n_reads: int = 3, wait: Callable[[], None] = lambda: None) -> float:
    """Return the best bytes per second of reading `data`; `wait` returns when the device has finished."""
    best = 0.0
    for _ in range(n_reads):
        wait()
        started = time.perf_counter()
        data.sum()
        wait()
        best = max(best, data.nbytes / (time.perf_counter() - started))
    return best


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="gpt2")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--kernels", default="auto", choices=["auto", "torch", "scratch"])
    options = parser.parse_args()

    model = TransformerLM(preset(options.preset), seed=0).use_kernels(options.kernels)
    n_bytes = bytes_per_token(model)
    data = torch.ones(n_bytes // 4)
    prompt = torch.randint(0, model.config.vocab_size, (options.prompt_tokens,)).tolist()
    first: list[float] = []
    rates: list[float] = []
    reads: list[float] = []
    for _ in range(options.turns):
        reads.append(bandwidth(data))
        started = time.perf_counter()
        times = [time.perf_counter() for _ in next_tokens(model, prompt, options.tokens + 1, seed=0)]
        first.append(times[0] - started)
        rates.append(options.tokens / (times[-1] - times[0]))
    ratios = [rate * n_bytes / read for rate, read in zip(rates, reads, strict=True)]
    print(
        f"{options.preset}, {torch.get_num_threads()} threads: {n_bytes / 1e6:,.0f} MB of weights per token, "
        f"read at {statistics.median(reads) / 1e9:.1f} GB/s"
    )
    print(f"first token after {options.prompt_tokens} tokens: {statistics.median(first):.2f} s")
    print(f"then {statistics.median(rates):.1f} tokens/s, {statistics.median(ratios):.2f} of the bandwidth")


if __name__ == "__main__":
    main()
