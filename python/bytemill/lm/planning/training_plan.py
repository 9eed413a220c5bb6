"""Plan the training of a model, from sizes and device names as users write them: memory, batch size, FLOPs, time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bytemill.errors import RunConfigError
from bytemill.lm.planning.device_rates import DEVICES
from bytemill.lm.planning.formulas import (
    CheckpointingName,
    OptimizerName,
    Precision,
    TrainingMemory,
    forward_flops,
    largest_batch,
    n_parameters,
    parameters_by_part,
    step_flops,
    training_memory,
)

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig


# Approximately minimizes the loss for given FLOPs (Hoffmann et al. 2022, "Chinchilla").
TOKENS_PER_PARAMETER = 20


@dataclass(frozen=True)
class Plan:
    """Result of `plan`."""

    config: ModelConfig
    batch_size: int
    n_tokens: int
    """Tokens per sequence."""
    optimizer: OptimizerName
    precision: Precision
    checkpointing: CheckpointingName
    parameters: dict[str, int]
    """By part."""
    memory: TrainingMemory
    forward_flops: dict[str, int]
    """By part, for the batch."""
    step_flops: dict[str, int]
    available_bytes: int | None
    largest_batch: int | None
    """Largest batch size that fits; None if the available memory is unknown."""
    training_tokens: int
    """Number of training tokens; by default the compute-optimal number."""
    compute_optimal_tokens: int
    flops_per_second: float | None
    """Peak of the device."""
    utilization: float
    days: float | None
    """Training time; None if the device is unknown."""

    @property
    def fits(self) -> bool | None:
        """Whether the batch fits into the available memory; None if that is unknown."""
        if self.available_bytes is None:
            return None
        return self.memory.total(self.batch_size) <= self.available_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, with plain numbers."""
        memory = self.memory
        return {
            "config": self.config.to_dict(),
            "batch_size": self.batch_size,
            "sequence_tokens": self.n_tokens,
            "optimizer": self.optimizer,
            "precision": self.precision,
            "activation_checkpointing": self.checkpointing,
            "parameters": {**self.parameters, "total": sum(self.parameters.values())},
            "memory_bytes": {
                "parameters": memory.parameters,
                "gradients": memory.gradients,
                "optimizer": memory.optimizer,
                "average": memory.average,
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
    average: bool = False,
    checkpointing: CheckpointingName = "none",
    available_bytes: int | None = None,
    flops_per_second: float | None = None,
    utilization: float = 0.4,
    training_tokens: int | None = None,
) -> Plan:
    """Compute what training a model takes.

    Args:
        config: Shape of the model.
        batch_size: Sequences per batch.
        n_tokens: Tokens per sequence; by default the context length.
        optimizer: Optimizer whose state is counted.
        precision: Precision of matrix products.
        average: Keep a moving average of the weights.
        checkpointing: Activation checkpointing.
        available_bytes: Memory of the device.
        flops_per_second: Peak of the device; see `device_rates`.
        utilization: Share of the peak that training reaches.
        training_tokens: Number of training tokens; by default the compute-optimal number.

    Raises:
        ValueError: An argument is out of range.
    """
    n_tokens = config.context_length if n_tokens is None else n_tokens
    if batch_size < 1 or not 1 <= n_tokens <= config.context_length:
        raise ValueError(
            f"a batch of {batch_size} sequences of {n_tokens} tokens is not possible: both must be at least 1, and the "
            f"context length is {config.context_length}"
        )
    memory = training_memory(
        config, n_tokens, optimizer, precision, average=average, checkpointing=checkpointing
    )
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
        checkpointing=checkpointing,
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
    """Return the compute-optimal number of training tokens, 20 per parameter (Hoffmann et al. 2022)."""
    return TOKENS_PER_PARAMETER * n_parameters(config)


def training_days(
    config: ModelConfig,
    training_tokens: int,
    flops_per_second: float,
    utilization: float = 0.4,
    n_tokens: int | None = None,
) -> float:
    """Compute the training time in days.

    Args:
        config: Shape of the model.
        training_tokens: Number of training tokens.
        flops_per_second: Peak of the device.
        utilization: Share of the peak that training reaches.
        n_tokens: Tokens per sequence; by default the context length.

    Raises:
        ValueError: The rate or the utilization is out of range.
    """
    if not flops_per_second > 0 or not 0 < utilization <= 1:
        raise ValueError(
            f"the rate is {flops_per_second} FLOP/s and the utilization {utilization}; the rate must be above 0, the "
            "utilization above 0 and at most 1"
        )
    n_tokens = config.context_length if n_tokens is None else n_tokens
    flops = sum(step_flops(config, 1, n_tokens).values()) / n_tokens * training_tokens
    return flops / (flops_per_second * utilization) / 86_400


_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def plan_for(
    config: ModelConfig,
    *,
    memory: str | None = None,
    device: str | None = None,
    precision: Precision = "float32",
    **rest: Any,
) -> Plan:
    """Plan a model.

    Args:
        config: Shape of the model.
        memory: Memory of the device, such as "80GB".
        device: Name of a device in `DEVICES`, or its FLOPs per second.
        precision: Precision of matrix products; see `planning.formulas.Precision`.
        rest: Further arguments of `planning.plan`.

    Raises:
        RunConfigError: A size or a device is unknown, or a number is out of range.
    """
    try:
        return plan(
            config,
            available_bytes=None if memory is None else parse_bytes(memory),
            flops_per_second=None if device is None else _flops_per_second(device, precision),
            precision=precision,
            **rest,
        )
    except ValueError as error:
        if isinstance(error, RunConfigError):
            raise
        raise RunConfigError(str(error)) from error


def parse_bytes(size: str) -> int:
    """Parse a size: 80GB is 80 · 10⁹ bytes, 80GiB is 80 · 2³⁰.

    >>> parse_bytes("80GB"), parse_bytes("1.5 GiB")
    (80000000000, 1610612736)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", size.strip().lower())
    if match is None:
        raise RunConfigError(f"{size!r} is not a size", hint="write a size such as 80GB or 24GiB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2]])


def _flops_per_second(device: str, precision: Precision) -> float:
    if device.lower() in DEVICES:
        rate = DEVICES[device.lower()].rate(precision)
        if rate is None:
            raise RunConfigError(
                f"{device} has no products in {precision}", hint="choose --precision float16 or float32"
            )
        return rate
    try:
        return float(device)
    except ValueError as error:
        raise RunConfigError(
            f"unknown device {device!r}",
            hint=f"choose one of {', '.join(DEVICES)}, or write its FLOPs per second, such as 312e12",
        ) from error
