"""Plans from sizes and devices as people write them: "80GB", "h100"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bytemill.errors import RunConfigError
from bytemill.lm.planning.plan import DEVICES, Plan, plan

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


def plan_for(
    config: ModelConfig,
    *,
    memory: str | None = None,
    device: str | None = None,
    precision: str = "float32",
    **rest: Any,
) -> Plan:
    """Plan a model from sizes and device names as people write them.

    Raises:
        RunConfigError: a size or a device is unknown, or a number is out of range.
    """
    try:
        return plan(
            config,
            available_bytes=None if memory is None else parse_bytes(memory),
            flops_per_second=None if device is None else _flops_per_second(device, precision),
            precision=precision,  # pyright: ignore[reportArgumentType]
            **rest,
        )
    except ValueError as error:
        if isinstance(error, RunConfigError):
            raise
        raise RunConfigError(str(error)) from error


def parse_bytes(size: str) -> int:
    """Bytes of a size as people write it: 80GB is 80 · 10⁹, 80GiB is 80 · 2³⁰.

    >>> parse_bytes("80GB"), parse_bytes("1.5 GiB")
    (80000000000, 1610612736)
    """
    match = re.fullmatch(r"([0-9.]+)\s*([kmgt]?i?)b?", size.strip().lower())
    try:
        return int(float(match[1]) * _UNITS[match[2]]) if match else _no_size(size)
    except (KeyError, ValueError) as error:
        raise _no_size_error(size) from error


def _no_size(size: str) -> int:
    raise _no_size_error(size)


def _no_size_error(size: str) -> RunConfigError:
    return RunConfigError(f"{size!r} is not a size", hint="write it as 80GB or 24GiB")


def _flops_per_second(device: str, precision: str) -> float:
    if device.lower() in DEVICES:
        return DEVICES[device.lower()][precision == "mixed"]
    try:
        return float(device)
    except ValueError as error:
        raise RunConfigError(
            f"device {device!r} is not known",
            hint=f"take one of {', '.join(DEVICES)}, or the FLOPs a second that it does: 312e12",
        ) from error
