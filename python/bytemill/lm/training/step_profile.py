"""Profile the training step of a run: time by phase, communication, memory and FLOPs by part, and a trace.

The steps are those of `trainer`, on the data, the device and the processes of the run. torch's profiler records the
phases that the trainer marks, and the messages between processes. The weights are new ones, and the run's folder is
neither read nor written.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import defaultdict
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity
from torch.profiler import profile as record_events
from torch.utils.flop_counter import FlopCounterMode

from bytemill.lm.device import memory_errors, peak_memory, shared_cores
from bytemill.lm.loss import cross_entropy
from bytemill.lm.model import TransformerLM
from bytemill.lm.planning import step_flops, training_memory
from bytemill.lm.processes import join_processes
from bytemill.lm.tensors import local
from bytemill.lm.training.config import Resolved
from bytemill.lm.training.data import divide_batch
from bytemill.lm.training.preparation import MEMORY_HINT, peak_rate, prepare
from bytemill.lm.training.run import set_rates
from bytemill.lm.training.trainer import PHASES, accumulate_gradients, finish_step, loss_function, take_step
from bytemill.system.atomic_files import write_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from bytemill.lm.model_config import ModelConfig
    from bytemill.lm.processes import LossFunction
    from bytemill.lm.training.metrics_log import Recorder
    from bytemill.lm.training.run import Run

Interval = tuple[float, float]
"""Start and end, in microseconds."""
_MICROSECONDS = 1e6


@dataclass(frozen=True)
class Communication:
    """The messages of a step between processes, as the first process saw them."""

    n_messages: float
    seconds: float
    """Time with a message on its way."""
    exposed_seconds: float
    """The part of it in which this process computed nothing."""

    @property
    def hidden_seconds(self) -> float:
        """The part in which it computed too."""
        return self.seconds - self.exposed_seconds


@dataclass(frozen=True)
class StepProfile:
    """The measured step of a run. Times are means over the measured steps, of the first process."""

    n_steps: int
    n_processes: int
    device: str
    precision: str
    tokens_per_step: int
    """Of all processes."""
    seconds: float
    phases: dict[str, float]
    """Seconds by phase: those of `trainer.PHASES`, and the others."""
    phase_flops: dict[str, int]
    """Planned FLOPs of the first process by phase. A loss in chunks does all products of the output layer in the
    forward pass."""
    communication: Communication | None
    """None with one process."""
    memory: dict[str, int | None]
    """Bytes by part in this process; None where they cannot be counted. What the backward pass computes again is not
    saved."""
    planned_memory: dict[str, int]
    """Bytes by part as `planning.training_memory` computes them, for one process that holds everything."""
    peak_memory: int
    """Peak of the device, or of the resident memory of the process on the CPU."""
    flops: dict[str, int] | None
    """FLOPs of a step of all processes, counted by part; None if torch cannot count them."""
    planned_flops: dict[str, int]
    """FLOPs as `planning.step_flops` computes them."""
    peak_flops: float | None
    """FLOPs per second of the devices of all processes; None if unknown."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the profile whose `to_dict` this is."""
        made = cls(**values)
        sent: Any = made.communication
        return made if sent is None else replace(made, communication=Communication(**sent))


def profile_step(
    resolved: Resolved, *, n_steps: int = 5, n_warmup: int = 3, trace: str | Path | None = None
) -> StepProfile:
    """Measure the training step of a run.

    In a process started by `torchrun`, all processes take the steps together; the first one reports.

    Args:
        resolved: Settings of the run. What it does beside its steps, such as validation, is left out.
        n_steps: Measured steps.
        n_warmup: Steps before them, in which code is compiled and memory is allocated.
        trace: Write the events of the measured steps to this file, in the format of Chrome's trace viewer.

    Returns:
        The profile.

    Raises:
        RunConfigError: A setting is missing, or does not fit the data or the device.
        OutputError: The trace cannot be written.
        NotEnoughMemoryError: The model or a batch does not fit into memory.
        TrainingDivergedError: The loss is not finite.
    """
    training = resolved.config.training
    with (
        memory_errors(MEMORY_HINT),
        tempfile.TemporaryDirectory() as folder,
        join_processes(training.device, training.process_timeout) as processes,
    ):
        run = prepare(_alone(resolved, folder, n_warmup + n_steps), processes, overwrite=True)
        run.model.train()
        with closing(run.reader), run.check, shared_cores(run.device):
            return _profile(run, n_steps, n_warmup, None if trace is None else Path(trace))


def _alone(resolved: Resolved, folder: str, n_steps: int) -> Resolved:
    """Return the settings of a run that takes these steps and does nothing else."""
    config = resolved.config
    changes = {
        "run": {
            "folder": folder,
            "validate_every": 0,
            "sample_every": 0,
            "hellaswag": "",
            "tensorboard": False,
            "wandb": "",
            "trackio": "",
        },
        "training": {"steps": n_steps, "init_from": "", "max_bad_steps": 1},
        "schedule": {"warmup_steps": 0, "decay_steps": 0},
    }
    sections = {name: getattr(config, name).model_copy(update=values) for name, values in changes.items()}
    return Resolved(config.model_copy(update=sections), resolved.origins)


def _profile(run: Run, n_steps: int, n_warmup: int, trace: Path | None) -> StepProfile:
    compute_losses = loss_function(run)
    passing = _bytes_of_a_step(run, compute_losses)
    for _ in range(n_warmup):
        _step(run, compute_losses)
    if run.device.type == "cpu":
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it reports that there is no GPU
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if run.device.type == "cuda" else [])]
    n_before = run.n_tokens
    with record_events(activities=activities) as profiler:
        for _ in range(n_steps):
            with torch.profiler.record_function("step"):
                _step(run, compute_losses)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        content = path.read_bytes()
    if trace is not None and run.processes.is_first:
        write_bytes(trace, content)
    times = _Times([event for event in json.loads(content)["traceEvents"] if event.get("ph") == "X"])
    peak, _ = peak_rate(run)
    n_sequences = (run.n_tokens - n_before) // (n_steps * run.config.model.context_length)
    flops, planned = counted_flops(run.config.model), by_part(step_flops(run.config.model, n_sequences))
    own = {part: flops // run.processes.count for part, flops in planned.items()}
    early = sum(own.values()) // 3
    if run.model.kernels.losses is not None:
        early += 2 * own["output layer"] // 3
    return StepProfile(
        n_steps=n_steps,
        n_processes=run.processes.count,
        device=str(run.device),
        precision=str(run.dtype).removeprefix("torch."),
        tokens_per_step=(run.n_tokens - n_before) // n_steps,
        seconds=times.total / n_steps,
        phases={name: seconds / n_steps for name, seconds in times.by_phase().items()},
        phase_flops={"forward": early, "backward": sum(own.values()) - early},
        communication=times.communication(n_steps) if run.processes.count > 1 else None,
        memory={**_state_bytes(run), **passing},
        planned_memory=_planned_memory(run),
        peak_memory=peak_memory(run.device),
        flops=None if flops is None else {part: n_sequences * count for part, count in flops.items()},
        planned_flops=planned,
        peak_flops=peak and peak * run.processes.count,
    )


def _step(run: Run, compute_losses: LossFunction) -> None:
    set_rates(run.optimizer, run.step, run.config)
    step = take_step(run, partial(accumulate_gradients, run, compute_losses))
    run.step += 1
    finish_step(run, step, cast("Recorder", _ignore))


def _ignore(_kind: str, _step: int, **_values: Any) -> None:
    """Record nothing."""


class _Times:
    """Times of the measured steps, from the complete events ("ph": "X") of a trace."""

    def __init__(self, events: Sequence[dict[str, Any]]) -> None:
        # A GPU's part of a phase is an event of its own. The program runs ahead of the GPU, so only that one counts.
        on_gpu = [event for event in events if event.get("cat") == "gpu_user_annotation"]
        marks = on_gpu or [event for event in events if event.get("cat") == "user_annotation"]
        self._marks: dict[str, list[Interval]] = defaultdict(list)
        for mark in marks:
            self._marks[mark["name"]].append(_interval(mark))
        self.total = _seconds(self._marks["step"])
        kernels = [event for event in events if event.get("cat") == "kernel"]
        self._messages = [
            _interval(event)
            for event in kernels or events
            if event["name"].startswith("nccl" if kernels else "gloo:")
        ]
        self._computing = [
            _interval(event)
            for event in kernels or events
            if (kernels and not event["name"].startswith("nccl"))
            or (event.get("cat") == "cpu_op" and not event["name"].startswith("c10d::"))
        ]

    def by_phase(self) -> dict[str, float]:
        """Return the seconds of each phase, and those of the steps that belong to none."""
        phases = {name: _seconds(self._marks[name]) for name in PHASES}
        return {**phases, "other": max(0.0, self.total - sum(phases.values()))}

    def communication(self, n_steps: int) -> Communication:
        """Return the messages of a step, of which there are `n_steps`."""
        sent, busy = merged(self._messages), merged(self._computing)
        seconds = _seconds(sent)
        return Communication(
            len(self._messages) / n_steps, seconds / n_steps, (seconds - overlap(sent, busy)) / n_steps
        )


def _interval(event: dict[str, Any]) -> Interval:
    return event["ts"], event["ts"] + event["dur"]


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals as disjoint ones, in order.

    >>> merged([(4, 6), (0, 2), (1, 3)])
    [(0, 3), (4, 6)]
    """
    result: list[Interval] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            result[-1] = result[-1][0], max(end, result[-1][1])
        else:
            result.append((start, end))
    return result


def overlap(left: Sequence[Interval], right: Sequence[Interval]) -> float:
    """Return the seconds in both of two lists of disjoint intervals, each in order.

    >>> overlap([(0, 3_000_000)], [(1_000_000, 2_000_000), (2_500_000, 4_000_000)])
    1.5
    """
    total, i, j = 0.0, 0, 0
    while i < len(left) and j < len(right):
        total += max(0.0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return total / _MICROSECONDS


def _seconds(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals) / _MICROSECONDS


def _state_bytes(run: Run) -> dict[str, int | None]:
    """Return the bytes that this process keeps between two steps. A step has been taken, so that they exist."""
    moments = [value for state in run.optimizer.state.values() for value in state.values()]
    average = run.average.tensors if run.average else []
    return {
        "parameters": _bytes(run.model.parameters()),
        "optimizer": _bytes(value for value in moments if isinstance(value, torch.Tensor)),
        **({"average": _bytes(average)} if average else {}),
    }


def _bytes(tensors: Iterable[Tensor]) -> int:
    own = [local(tensor.detach()) for tensor in tensors]
    return sum(tensor.numel() * tensor.element_size() for tensor in own)


def _planned_memory(run: Run) -> dict[str, int]:
    config = run.config
    memory = training_memory(
        config.model,
        optimizer=config.optimizer.name,
        precision="float32" if run.dtype == torch.float32 else "bfloat16",
        average=run.average is not None,
        checkpointing=config.training.activation_checkpointing,
    )
    return {
        "parameters": memory.parameters,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer,
        **({"average": memory.average} if run.average else {}),
        "saved for the backward pass": memory.activations(
            divide_batch(config.training, run.processes.count)[1]
        ),
    }


def _bytes_of_a_step(run: Run, compute_losses: LossFunction) -> dict[str, int | None]:
    """Compute the gradients of a step, and return their bytes and those that a pass saves for its backward pass.

    Weights do not count as saved, and a storage counts once. Selective checkpointing keeps tensors in a place of its
    own, where they are not counted: what is saved is then None.
    """
    weights = {parameter.untyped_storage().data_ptr() for parameter in map(local, run.model.parameters())}
    most = 0
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = local(tensor.detach()).untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    def counted(*inputs: Any) -> Any:
        nonlocal most
        sizes.clear()
        with saved_tensors_hooks(pack, lambda tensor: tensor):
            result = compute_losses(*inputs)
        most = max(most, sum(sizes.values()))
        return result

    is_hidden = run.config.training.activation_checkpointing == "selective"
    accumulate_gradients(run, compute_losses if is_hidden else counted)
    gradients = _bytes(parameter.grad for parameter in run.model.parameters() if parameter.grad is not None)
    run.optimizer.zero_grad(set_to_none=True)
    return {"gradients": gradients, "saved for the backward pass": None if is_hidden else most}


_PARTS = {"attn": "attention", "ffn": "feed-forward", "lm_head": "output layer"}


def counted_flops(config: ModelConfig) -> dict[str, int] | None:
    """Count the FLOPs of a training step on one sequence, by part, as torch's counter sees the textbook's operations.

    The operations run on the device "meta", which computes no numbers.

    Returns:
        FLOPs of "attention", "feed-forward", "output layer" and "other"; None if the model cannot run without numbers.
    """
    model = TransformerLM(config, device="meta").train()
    ids = torch.zeros((1, config.context_length), dtype=torch.int64, device="meta")
    counter = FlopCounterMode(display=False)
    try:
        with counter:
            cross_entropy(model(ids), ids).backward()  # pyright: ignore[reportUnknownMemberType]
    except (NotImplementedError, RuntimeError):
        return None
    totals = {name: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
    parts = dict.fromkeys((*_PARTS.values(), "other"), 0)
    for name, count in totals.items():
        *path, last = name.split(".")
        if last in _PARTS and len(path) in {
            1,
            3,
        }:  # the parts of the model and of its layers, not of parts of theirs
            parts[_PARTS[last]] += count
    parts["other"] = totals["Global"] - sum(parts.values())
    return parts


def by_part(flops: dict[str, int]) -> dict[str, int]:
    """Sum the steps of `planning.step_flops` to the parts of `counted_flops`."""
    whole = {name: flops[name] for name in ("feed-forward", "output layer") if name in flops}
    return {"attention": sum(flops.values()) - sum(whole.values()), **whole}
