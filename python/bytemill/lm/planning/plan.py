"""Can it be trained here, how large a batch fits, how long will it take?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bytemill.lm.planning.flops import forward_flops, step_flops
from bytemill.lm.planning.memory import (
    OptimizerName,
    Precision,
    TrainingMemory,
    largest_batch,
    training_memory,
)
from bytemill.lm.planning.parameters import n_parameters, parameters_by_part

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig

# Hoffmann et al. 2022 ("Chinchilla"): for a given amount of arithmetic, the least loss comes with about so many.
TOKENS_PER_PARAMETER = 20

# Dense matrix products per second by the makers' data sheets: float32 inputs (TF32 where the device has it), bfloat16.
DEVICES: dict[str, tuple[float, float]] = {
    "a100": (156e12, 312e12),
    "h100": (495e12, 989e12),
    "h200": (495e12, 989e12),
    "l4": (60e12, 121e12),
    "rtx4090": (82.6e12, 165e12),
}


@dataclass(frozen=True)
class Plan:
    """Everything `plan` finds out."""

    config: ModelConfig
    batch_size: int
    n_tokens: int
    """Tokens of a sequence."""
    optimizer: OptimizerName
    precision: Precision
    parameters: dict[str, int]
    """By part."""
    memory: TrainingMemory
    forward_flops: dict[str, int]
    """By part, for the batch."""
    step_flops: dict[str, int]
    available_bytes: int | None
    largest_batch: int | None
    """The most sequences that fit; None where the available memory is not given."""
    training_tokens: int
    """Tokens to train on: those asked for, or the compute-optimal number."""
    compute_optimal_tokens: int
    flops_per_second: float | None
    """What the device would do at full utilisation."""
    utilization: float
    days: float | None
    """For all training tokens; None where the device is not given."""

    @property
    def fits(self) -> bool | None:
        """Whether the batch fits in the available memory."""
        if self.available_bytes is None:
            return None
        return self.memory.total(self.batch_size) <= self.available_bytes

    def to_dict(self) -> dict[str, Any]:
        """For JSON: bytes, FLOPs and counts as numbers."""
        memory = self.memory
        return {
            "config": self.config.to_dict(),
            "batch_size": self.batch_size,
            "sequence_tokens": self.n_tokens,
            "optimizer": self.optimizer,
            "precision": self.precision,
            "parameters": {**self.parameters, "total": sum(self.parameters.values())},
            "memory_bytes": {
                "parameters": memory.parameters,
                "gradients": memory.gradients,
                "optimizer": memory.optimizer,
                "activations": memory.activations(self.batch_size),
                "activations_fixed": memory.activations_fixed,
                "activations_per_sequence": memory.activations_per_sequence,
                "total": memory.total(self.batch_size),
                "available": self.available_bytes,
            },
            "largest_batch": self.largest_batch,
            "fits": self.fits,
            "forward_flops": {**self.forward_flops, "total": sum(self.forward_flops.values())},
            "step_flops": {**self.step_flops, "total": sum(self.step_flops.values())},
            "training_tokens": self.training_tokens,
            "compute_optimal_tokens": self.compute_optimal_tokens,
            "flops_per_second": self.flops_per_second,
            "utilization": self.utilization,
            "days": self.days,
        }


def plan(
    config: ModelConfig,
    *,
    batch_size: int = 1,
    n_tokens: int | None = None,
    optimizer: OptimizerName = "adamw",
    precision: Precision = "float32",
    available_bytes: int | None = None,
    flops_per_second: float | None = None,
    utilization: float = 0.4,
    training_tokens: int | None = None,
) -> Plan:
    """What training such a model takes. `flops_per_second` is the device's peak: see `DEVICES` for some.

    Raises:
        ValueError: a batch, length, memory, rate or utilisation that makes no sense.
    """
    n_tokens = config.context_length if n_tokens is None else n_tokens
    if batch_size < 1 or not 1 <= n_tokens <= config.context_length:
        raise ValueError(
            f"a batch of {batch_size} sequences of {n_tokens} tokens: both have to be at least 1, "
            f"and the context is {config.context_length} tokens"
        )
    memory = training_memory(config, n_tokens, optimizer, precision)
    optimal = compute_optimal_tokens(config)
    training_tokens = optimal if training_tokens is None else training_tokens
    days = (
        None
        if flops_per_second is None
        else training_days(config, training_tokens, flops_per_second, utilization, n_tokens)
    )
    return Plan(
        config=config,
        batch_size=batch_size,
        n_tokens=n_tokens,
        optimizer=optimizer,
        precision=precision,
        parameters=parameters_by_part(config),
        memory=memory,
        forward_flops=forward_flops(config, batch_size, n_tokens),
        step_flops=step_flops(config, batch_size, n_tokens),
        available_bytes=available_bytes,
        largest_batch=None if available_bytes is None else largest_batch(memory, available_bytes),
        training_tokens=training_tokens,
        compute_optimal_tokens=optimal,
        flops_per_second=flops_per_second,
        utilization=utilization,
        days=days,
    )


def compute_optimal_tokens(config: ModelConfig) -> int:
    """About 20 for each parameter (Hoffmann et al. 2022)."""
    return TOKENS_PER_PARAMETER * n_parameters(config)


def training_days(
    config: ModelConfig,
    training_tokens: int,
    flops_per_second: float,
    utilization: float = 0.4,
    n_tokens: int | None = None,
) -> float:
    """Days for so many tokens on a device that reaches `utilization` of its peak.

    Raises:
        ValueError: no arithmetic per second, or a utilisation outside 0 … 1.
    """
    if not flops_per_second > 0 or not 0 < utilization <= 1:
        raise ValueError(
            f"{flops_per_second} FLOP/s at a utilisation of {utilization}: the first has to be above 0, "
            "the second above 0 and at most 1"
        )
    n_tokens = config.context_length if n_tokens is None else n_tokens
    flops = sum(step_flops(config, 1, n_tokens).values()) / n_tokens * training_tokens
    return flops / (flops_per_second * utilization) / 86_400
