"""Frequencies of the rotary embedding, and how they are scaled for longer contexts than those of the training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.lm.model_config import ModelConfig


def rotary_frequencies(theta: float, d_k: int) -> Tensor:
    """Return θ^(−2i/d_k), the radians per position of each pair, (d_k / 2,), on the CPU.

    In float32, in the way of other programs. At position 10,000 the error is 1e-3 rad, and published models are trained
    with it.
    """
    return 1 / theta ** (torch.arange(0, d_k, 2, dtype=torch.float32, device="cpu") / d_k)


def llama3_frequencies(
    frequencies: Tensor, factor: float, low_freq_factor: float, high_freq_factor: float, original_context: int
) -> Tensor:
    """Return the scaled frequencies of Llama 3.1 (Grattafiori et al. 2024).

    Pairs that turn less than `low_freq_factor` times in the original context turn `factor` times slower, those that
    turn more than `high_freq_factor` times are unchanged, and those between are interpolated.

    Args:
        frequencies: Result of `rotary_frequencies`.
        factor: Factor of the context length.
        low_freq_factor: Number of turns.
        high_freq_factor: Number of turns.
        original_context: Context length before scaling.
    """
    turns = original_context * frequencies / (2 * math.pi)
    kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / factor)


def yarn_frequencies(  # noqa: PLR0917 - as in `llama3_frequencies`
    theta: float,
    d_k: int,
    factor: float,
    beta_fast: float,
    beta_slow: float,
    original_context: int,
    *,
    truncate: bool = True,
) -> Tensor:
    """Return the frequencies of YaRN (Peng et al. 2023).

    Pairs that turn less than `beta_slow` times in the original context turn `factor` times slower, those that turn more
    than `beta_fast` times are unchanged. Between, the share falls linearly with the index of the pair.

    Args:
        theta: Base θ of the wavelengths.
        d_k: Width of the rotated vectors.
        factor: Factor of the context length.
        beta_fast: Number of turns.
        beta_slow: Number of turns.
        original_context: Context length before scaling.
        truncate: Round the first and the last index outwards to whole numbers.
    """

    def index(turns: float) -> float:
        """Return the (fractional) index of the pair that turns so often in the original context."""
        return d_k * math.log(original_context / (2 * math.pi * turns)) / (2 * math.log(theta))

    first, last = index(beta_fast), index(beta_slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, d_k - 1)
    width = last - first or 0.001
    slowed = ((torch.arange(d_k // 2, dtype=torch.float64) - first) / width).clamp(0, 1)
    frequencies = rotary_frequencies(theta, d_k)
    return frequencies * (1 - slowed) + frequencies / factor * slowed


def yarn_magnitude(factor: float) -> float:
    """Return the factor of rotated queries and keys in YaRN: 1 + ln(factor) / 10."""
    return 1 + 0.1 * math.log(max(factor, 1.0))


def dynamic_frequencies(
    theta: float, d_k: int, factor: float, original_context: int, context_length: int
) -> Tensor:
    """Return the frequencies of dynamic NTK scaling for texts of `context_length` tokens (bloc97, emozilla 2023).

    θ grows with the text, so that the slowest pair turns as often as in the original context. Up to that length it is
    unchanged.
    """
    ratio = factor * max(context_length, original_context) / original_context - (factor - 1)
    return rotary_frequencies(theta * ratio ** (d_k / (d_k - 2)), d_k)


def longrope_frequencies(theta: float, d_k: int, divisors: Sequence[float]) -> Tensor:
    """Return the frequencies of LongRoPE (Ding et al. 2024): each pair's is divided by a number of its own."""
    return rotary_frequencies(theta, d_k) / torch.tensor(divisors, dtype=torch.float64)


def longrope_magnitude(factor: float, original_context: int) -> float:
    """Return the factor of rotated queries and keys in LongRoPE: √(1 + ln(factor) / ln(original_context))."""
    return math.sqrt(1 + math.log(max(factor, 1.0)) / math.log(original_context))


def scaled_frequencies(config: ModelConfig) -> tuple[Tensor, float]:
    """Return the frequencies of a model, (d_rotary / 2,), and the factor of rotated queries and keys."""
    rope, d_k = config.rope, config.d_rotary
    frequencies, magnitude = rotary_frequencies(rope.theta, d_k), 1.0
    match rope.scaling:
        case None:
            pass
        case "linear":
            frequencies = frequencies / rope.factor
        case "llama3":
            frequencies = llama3_frequencies(
                frequencies, rope.factor, rope.low_freq_factor, rope.high_freq_factor, rope.original_context
            )
        case "yarn":
            frequencies = yarn_frequencies(
                rope.theta,
                d_k,
                rope.factor,
                rope.beta_fast,
                rope.beta_slow,
                rope.original_context,
                truncate=rope.truncate,
            )
            magnitude = yarn_magnitude(rope.factor)
        case "dynamic":
            frequencies = dynamic_frequencies(
                rope.theta, d_k, rope.factor, rope.original_context, config.context_length
            )
        case "longrope":
            is_long = config.context_length > rope.original_context
            frequencies = longrope_frequencies(
                rope.theta, d_k, rope.long_divisors if is_long else rope.short_divisors
            )
            magnitude = longrope_magnitude(rope.factor, rope.original_context)
    return frequencies, magnitude if rope.magnitude is None else rope.magnitude
