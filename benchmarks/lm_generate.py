"""Speed of generation, beside what memory bandwidth allows: every token reads every weight and the cache once.

    python benchmarks/lm_generate.py
    python benchmarks/lm_generate.py --preset gpt2-medium --tokens 32
    python benchmarks/lm_generate.py --device cuda --samples 1 64 --tokens 512 --prompt-tokens 256 --check

Bandwidth is the best rate of a sum over a tensor as large as the weights, on a GPU of at least 2 GB. The model has
random weights. Runs and reads take turns, and the ratio is the median over the turns. Weights are those a token reads:
matrices of the blocks and the output layer, not the rows of embeddings that it does not look up. On a GPU, the first
tokens of a run prepare its graph and do not count.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from typing import TYPE_CHECKING

import torch

from bytemill.lm import preset
from bytemill.lm.device import synchronise
from bytemill.lm.generation.decoding import SamplingParameters, generate, next_tokens
from bytemill.lm.model import TransformerLM

if TYPE_CHECKING:
    from collections.abc import Callable

_N_PREPARED = 8
"""Tokens of a run on a GPU that do not count."""


def bytes_per_token(model: TransformerLM, size: int = 4) -> int:
    """Return the bytes of the weights that a token reads, of `size` bytes each."""
    weights = {parameter.data_ptr(): parameter.numel() for parameter in model.layers.parameters()}
    weights[model.lm_head.weight.data_ptr()] = model.lm_head.weight.numel()
    return size * sum(weights.values())


def cache_bytes_per_position(model: TransformerLM, size: int) -> int:
    config = model.config
    return 2 * config.num_layers * config.n_kv_heads * config.d_head * size


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


def measure(model: TransformerLM, n_samples: int, options: argparse.Namespace, size: int) -> None:
    """Print the speed of `n_samples` samples."""
    device = model.lm_head.weight.device
    n_weights = bytes_per_token(model, size)
    n_prompt, n_skipped = options.prompt_tokens, 0 if device.type == "cpu" else _N_PREPARED
    n_tokens = options.tokens + n_skipped
    n_cached = n_prompt + n_skipped + options.tokens // 2
    n_bytes = n_weights + n_samples * n_cached * cache_bytes_per_position(model, size)
    data = torch.ones(max(n_weights, 0 if device.type == "cpu" else 2**31) // 4, device=device)
    prompt = torch.randint(0, model.config.vocab_size, (n_prompt,)).tolist()
    sampling = SamplingParameters(temperature=options.temperature, top_k=options.top_k, top_p=options.top_p)
    first: list[float] = []
    rates: list[float] = []
    reads: list[float] = []
    for _ in range(options.turns):
        reads.append(bandwidth(data, wait=lambda: synchronise(device)))
        synchronise(device)
        started = time.perf_counter()
        tokens = next_tokens(
            model,
            prompt,
            n_tokens + 1,
            sampling,
            n_samples=n_samples,
            seed=0,
            precision=options.precision,
            with_logits=False,
        )
        times = [time.perf_counter() for _ in tokens]
        first.append(times[0] - started)
        rates.append(options.tokens / (times[-1] - times[n_skipped * n_samples]))
    ratios = [rate * n_bytes / read for rate, read in zip(rates, reads, strict=True)]
    print(
        f"{n_samples} sample(s): first token after {n_prompt} tokens in {1000 * statistics.median(first):,.1f} ms, "
        f"then {n_samples * statistics.median(rates):,.1f} tokens/s, {1e6 / statistics.median(rates):,.1f} µs per "
        f"step, {statistics.median(ratios):.2f} of the bandwidth ({n_bytes / 1e6:,.0f} MB per step at "
        f"{statistics.median(reads) / 1e9:,.1f} GB/s)"
    )


def check(model: TransformerLM, options: argparse.Namespace) -> None:
    """Compare greedy ids with those of the textbook in float32, whose matrices are rounded to the precision."""
    dtype = {"bfloat16": torch.bfloat16}.get(options.precision, torch.float32)
    if options.precision == "auto" and options.device == "cuda":
        dtype = torch.bfloat16
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in rounded.parameters():
            if parameter.ndim > 1:
                parameter.copy_(parameter.to(dtype))
    rounded.use_kernels("scratch")
    prompt = torch.randint(0, model.config.vocab_size, (17,)).tolist()
    n_tokens = min(100, model.config.context_length - 17)
    for n_samples in options.samples:
        greedy = SamplingParameters(temperature=0)
        tokens = [
            token
            for token in next_tokens(
                model, prompt, n_tokens, greedy, n_samples=n_samples, precision=options.precision
            )
            if token.sample == n_samples - 1
        ]
        own = [token.id for token in tokens]
        (ids,) = generate(rounded, prompt, n_tokens, temperature=0, precision="float32")
        n_equal = next(
            (i for i, pair in enumerate(zip(own, ids, strict=True)) if pair[0] != pair[1]), len(ids)
        )
        device = model.lm_head.weight.device
        with torch.inference_mode():
            expected = rounded(torch.tensor([prompt + own[:-1]], device=device))[0, len(prompt) - 1 :].cpu()
        actual = torch.stack([token.logits for token in tokens])
        error = float((actual - expected).abs().max() / expected.abs().max())
        best = expected.gather(1, torch.tensor(own)[:, None])[:, 0]
        shortfall = float((expected.max(1).values - best).max())
        print(
            f"{n_samples} sample(s): {n_equal} of {n_tokens} greedy ids equal those of the textbook; after the same "
            f"ids, logits differ by at most {error:.1e} of the largest, and chosen ones are at most "
            f"{shortfall:.1e} below the best"
        )


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="gpt2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--samples", type=int, nargs="+", default=[1])
    parser.add_argument("--context", type=int, help="context length; by default that of the preset")
    parser.add_argument("--precision", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--kernels", default="auto", choices=["auto", "torch", "triton", "scratch"])
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--overlap", action="store_true", help="overlap the starts of Triton's kernels")
    parser.add_argument("--check", action="store_true", help="compare greedy ids with those of the textbook")
    options = parser.parse_args()

    config = preset(options.preset)
    if options.context:
        config = config.replace(context_length=options.context)
    model = TransformerLM(config, seed=0).to(options.device).use_kernels(options.kernels)
    if options.overlap:
        from bytemill.lm.kernels.triton import decoding

        decoding.OVERLAP = True
    is_narrow = options.precision == "bfloat16" or (options.precision == "auto" and options.device != "cpu")
    print(
        f"{options.preset}, {options.device}, {torch.get_num_threads()} threads, precision {options.precision}"
    )
    if options.check:
        check(model, options)
    for n_samples in options.samples:
        measure(model, n_samples, options, 2 if is_narrow and model.kernels.decoding is not None else 4)


if __name__ == "__main__":
    main()
