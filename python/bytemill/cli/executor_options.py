"""Command-line options of work by several processes, shared by the commands that can be distributed."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import CycloptsError, Group, Parameter
from cyclopts.validators import Number

from bytemill.cli import output
from bytemill.system.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.cli.output import ProgressDisplay
    from bytemill.data.executors import Executor, UnitProgress
    from bytemill.data.executors.plan import Estimate

_EXECUTOR = Group("Several processes", sort_key=2)
_STAGES = {
    "count": "counting",
    "merge": "adding up counts",
    "encode": "encoding",
    "pack": "writing shards",
    "hash": "hashing the inputs",
    "curate": "measuring",
    "check": "checking measurements",
    "write": "writing documents",
}


@Parameter(name="*", group=_EXECUTOR)
@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """Options of executors, for a parameter `processes: ExecutorOptions = ExecutorOptions()` of a command."""

    executor: Annotated[
        Literal["local", "ray"] | None,
        Parameter(
            help="Divide the work among processes of this machine (local) or the nodes of a Ray cluster (ray). The "
            "result is the same."
        ),
    ] = None
    num_workers: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1, lte=100_000),
            help="Processes that work at the same time. By default, one per core of the machine or the cluster.",
        ),
    ] = None
    ray_address: Annotated[
        str | None,
        Parameter(
            help="Address of the Ray cluster: auto, or HOST:PORT. By default, one is started on this machine."
        ),
    ] = None
    cpus_per_task: Annotated[
        float, Parameter(validator=Number(gt=0), help="Cores that Ray reserves for a unit of work.")
    ] = 1.0
    memory_per_task: Annotated[
        str | None, Parameter(help="Memory that Ray reserves for a unit of work, such as 2GB.")
    ] = None
    unit_size: Annotated[
        str | None,
        Parameter(
            help="Size of a unit of work in bytes of the inputs, such as 256MB. By default 16 MiB to 1 GiB."
        ),
    ] = None
    dry_run: Annotated[
        bool, Parameter(negative="", help="Print the plan of the work and an estimate of its time, and stop.")
    ] = False
    json_progress: Annotated[
        bool, Parameter(negative="", help="Write progress as JSON lines to standard error, for logs.")
    ] = False

    @property
    def is_distributed(self) -> bool:
        """Whether several processes share the work. Raises CycloptsError for options that need them."""
        if self.executor is None and (self != ExecutorOptions()):
            given = next(
                name for name, value in asdict(self).items() if value != getattr(ExecutorOptions(), name)
            )
            raise CycloptsError(f"--{given.replace('_', '-')} needs --executor local or --executor ray")
        return self.executor is not None

    def open(self) -> Executor:
        """Start the executor. Raises ClusterError."""
        from bytemill.corpus import parse_bytes
        from bytemill.data.executors import open_executor

        memory = None if self.memory_per_task is None else parse_bytes(self.memory_per_task)
        return open_executor(
            self.executor or "local",
            num_workers=self.num_workers,
            address=self.ray_address,
            cpus_per_task=self.cpus_per_task,
            memory_per_task=memory,
        )

    @property
    def unit_bytes(self) -> int | None:
        """Size of a unit; None for the default."""
        from bytemill.corpus import parse_bytes

        return None if self.unit_size is None else max(1, parse_bytes(self.unit_size))

    def progress(self, display: ProgressDisplay, *, quiet: bool) -> Callable[[UnitProgress], None] | None:
        """Return a callback that shows progress on one line for all processes, or as JSON lines."""
        if self.json_progress:
            return _json_lines()
        return None if quiet else _one_line(display)


def _one_line(display: ProgressDisplay) -> Callable[[UnitProgress], None]:
    def show(event: UnitProgress) -> None:
        units = f"{event.n_done:,} of {event.n_units:,} units"
        if event.n_retried:
            units += f", {event.n_retried:,} retried"
        if event.n_failed:
            units += f", {event.n_failed:,} failed"
        display.update(
            _STAGES[event.stage],
            "bytes",
            event.n_bytes,
            event.total_bytes,
            n_before=event.n_bytes_before,
            more=units,
        )

    return show


def _json_lines() -> Callable[[UnitProgress], None]:
    last: UnitProgress | None = None
    last_time = started = time.monotonic()

    def show(event: UnitProgress) -> None:
        nonlocal last, last_time, started
        now = time.monotonic()
        if last is None or last.stage != event.stage:
            started = now
        elif event == last or (now - last_time < 1 and event.n_done < event.n_units):
            return
        last, last_time = event, now
        seconds, n_new = now - started, event.n_bytes - event.n_bytes_before
        rate = n_new / seconds if seconds > 0 and n_new else None
        left = None if rate is None else round((event.total_bytes - event.n_bytes) / rate, 1)
        line = {
            "time": round(time.time(), 3),
            **asdict(event),
            "bytes_per_second": None if rate is None else round(rate),
            "seconds_left": left,
        }
        sys.stderr.write(json.dumps(line) + "\n")
        sys.stderr.flush()

    return show


def write_estimate(estimate: Estimate, *, as_json: bool) -> None:
    """Write the plan of a job and what it will take."""
    if as_json:
        output.write_json(asdict(estimate))
        return
    smallest, largest = min(estimate.unit_sizes), max(estimate.unit_sizes)
    each = (
        format_bytes(largest)
        if smallest == largest
        else f"{format_bytes(smallest)} to {format_bytes(largest)}"
    )
    lines = [
        f"{estimate.n_sources:,} inputs, {format_bytes(estimate.total_bytes)}",
        f"{len(estimate.unit_sizes):,} units of {each}",
        f"{estimate.executor}",
        f"measured on {format_bytes(estimate.sample_bytes)}: {format_bytes(round(estimate.rate))}/s for each of them",
        f"about {format_seconds(estimate.seconds)}, with {format_bytes(estimate.memory_bytes)} of memory for each",
    ]
    if estimate.output_bytes is not None:
        lines.append(
            f"about {format_bytes(estimate.output_bytes)} of output, and as much again until it is complete"
        )
    output.write("".join(f"  {line}\n" for line in lines))
