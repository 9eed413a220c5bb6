"""The peak rate of a run's device, which its use is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

from bytemill.lm.device import matmul_rate
from bytemill.lm.planning.device_rates import DEVICES, find_device, is_slice

if TYPE_CHECKING:
    from bytemill.lm.planning.memory import Precision
    from bytemill.lm.training.run import Run

_PRECISIONS: dict[torch.dtype, Precision] = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}


def peak_rate(run: Run) -> tuple[float | None, str]:
    """Return the FLOPs per second of dense matrix products that this process's device can do, and their source.

    For GPUs it is the figure of the data sheet, or its share for a MIG slice; None for one that is not in
    `device_rates`. For the CPU it is the
    measured rate of a large product; only the first process, which reports it, measures.
    """
    if run.device.type == "cpu":
        rate = matmul_rate(run.device, run.dtype) if run.processes.is_first else None
        return rate, "the measured rate of matrix products"
    name = torch.cuda.get_device_name(run.device) if run.device.type == "cuda" else run.device.type
    key = find_device(name)
    precision = "tf32" if run.config.training.precision == "tf32" else _PRECISIONS[run.dtype]
    rate = DEVICES[key].rate(precision) if key else None
    if key is None or rate is None:
        return None, f"unknown for {name} in {precision}"
    if not is_slice(name):
        return rate, f"the peak of {name}"
    n_all = DEVICES[key].n_multiprocessors
    if n_all is None:
        return None, f"unknown for {name}, a part of a GPU"
    n_own = cast("Any", torch.cuda).get_device_properties(run.device).multi_processor_count
    return rate * n_own / n_all, f"the peak of {n_own} of the {n_all} multiprocessors of {name}"
