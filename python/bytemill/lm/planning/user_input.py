"""Plan a model from sizes and device names as users write them: "80GB", "h100"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bytemill.errors import RunConfigError
from bytemill.lm.planning.device_rates import DEVICES
from bytemill.lm.planning.plan import Plan, plan

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig
    from bytemill.lm.planning.memory import Precision

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
        precision: Precision of matrix products; see `planning.memory.Precision`.
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
