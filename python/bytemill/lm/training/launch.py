"""Start the processes of a training run on this machine, and end them together.

The processes find each other through a file, and connect over the loopback interface. Each sends its records, or its
error, as JSON lines through its standard output. It ends when its standard input is closed, as it is when this process
is killed.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TextIO, cast

import torch

from bytemill import errors
from bytemill.errors import BytemillError, ProcessFailedError, RunConfigError
from bytemill.lm.processes import RENDEZVOUS, Processes, processes_from_environment, stop_signals
from bytemill.lm.training.config import Resolved, config_from_dict
from bytemill.lm.training.data import check_division
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.step_profile import StepProfile, profile_step
from bytemill.lm.training.trainer import train

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.processes import StopRequest
    from bytemill.lm.training.metrics_log import OnRecord


_GRACE_SECONDS = 3.0
"""Time for the other processes to end after the first error; then they are killed."""
_POLL_SECONDS = 0.1
_STDERR_LINES = 20
_FAILED, _INTERRUPTED = 1, 130
_LOST = ProcessFailedError.__name__
# -P: do not import modules from the current folder, as the command `bytemill` does not.
_COMMAND = [sys.executable, "-P", "-m"]
_PROGRAM = "bytemill.lm.training.launch"


@dataclass
class _Rank:
    """A process of the run."""

    rank: int
    process: subprocess.Popen[bytes]
    stderr: Path
    reader: Thread | None = None
    error: dict[str, Any] | None = None
    is_silent: bool = False
    """True if it did not end when others had failed."""


@dataclass
class _Group:
    """All processes of the run, and the lines that they have sent."""

    on_record: OnRecord | None
    ranks: list[_Rank] = field(default_factory=list[_Rank])
    lines: SimpleQueue[tuple[_Rank, dict[str, Any]]] = field(
        default_factory=SimpleQueue[tuple[_Rank, dict[str, Any]]]
    )
    has_started: bool = False
    """True if the first process has sent a record, and handles signals."""

    def __enter__(self) -> _Group:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.ranks:
            each.process.kill()
            each.process.wait()
            with suppress(OSError):
                cast("Any", each.process.stdin).close()

    @property
    def is_running(self) -> bool:
        return any(each.process.poll() is None for each in self.ranks)

    @property
    def failed(self) -> list[_Rank]:
        return [each for each in self.ranks if each.process.poll() not in (None, 0, _INTERRUPTED)]

    def receive(self, seconds: float) -> bool:
        """Handle one line; return False if none arrives within `seconds`."""
        try:
            each, line = self.lines.get(timeout=seconds)
        except Empty:
            return False
        self.has_started = True
        if line["kind"] == "error":
            each.error = line
        elif self.on_record:
            self.on_record(line)
        return True


def train_on_devices(
    resolved: Resolved,
    n_devices: int = 1,
    *,
    overwrite: bool = False,
    on_record: OnRecord | None = None,
    program: str = _PROGRAM,
) -> RunFolder:
    """Train on several devices of this machine, with a process for each; see `trainer.train`.

    SIGINT and SIGTERM are passed on: all processes stop after the same step. If one ends with an error, all others are
    ended.

    Args:
        resolved: Settings of the run.
        n_devices: Number of processes, on the CPU or each on a GPU. With 1, this process trains.
        overwrite: Delete the checkpoints in the folder and start over.
        on_record: Called with every record, in this process.
        program: Module of each process, which calls `main`.

    Returns:
        The folder of the run.

    Raises:
        ProcessFailedError: A process was killed, or raised an exception that is none of bytemill's; the message names
            its rank, and contains its traceback.
        BytemillError: As in `trainer.train`, raised in a process.
        KeyboardInterrupt: On SIGINT and SIGTERM, after saving.
    """
    if n_devices == 1:
        return train(resolved, overwrite=overwrite, on_record=on_record)
    _run_processes(resolved, n_devices, {"overwrite": overwrite}, on_record, program)
    return RunFolder(resolved.config.run.folder)


def profile_on_devices(
    resolved: Resolved, n_devices: int = 1, *, trace: str | Path | None = None, **steps: int
) -> StepProfile | None:
    """Measure a training step on several devices of this machine; see `step_profile.profile_step`.

    Args:
        resolved: Settings of the run.
        n_devices: Number of processes. With 1, this process measures.
        trace: See `profile_step`.
        steps: Further arguments of `profile_step`.

    Returns:
        The profile; None in a process of torchrun that is not the first.

    Raises:
        BytemillError: As in `profile_step`, and as in `train_on_devices`.
    """
    if n_devices == 1:
        measured = profile_step(resolved, trace=trace, **steps)
        return measured if processes_from_environment().is_first else None
    found: list[StepProfile] = []

    def keep(record: dict[str, Any]) -> None:
        if record["kind"] == "profile":
            found.append(StepProfile.from_dict(record["profile"]))

    request = {"profile": {**steps, "trace": None if trace is None else str(trace)}}
    _run_processes(resolved, n_devices, request, keep)
    return found[0]


def _run_processes(
    resolved: Resolved,
    n_devices: int,
    request: dict[str, Any],
    on_record: OnRecord | None,
    program: str = _PROGRAM,
) -> None:
    """Start processes with a request for `main`, and wait until all have ended; see `train_on_devices`."""
    if processes_from_environment().count > 1:
        raise RunConfigError(
            f"{n_devices} processes were requested in a process of torchrun",
            hint="leave out --devices: torchrun sets the number of processes",
        )
    training, processes = resolved.config.training, Processes(count=n_devices, local_count=n_devices)
    check_division(training, n_devices)  # like the next line, raises before the processes start
    processes.device(training.device)
    request |= {"config": resolved.config.to_dict(), "origins": resolved.origins}
    with (
        tempfile.TemporaryDirectory(prefix="bytemill-") as folder,
        _Group(on_record) as group,
        stop_signals() as stop,
    ):
        for rank in range(n_devices):
            _start(group, program, rank, n_devices, request, Path(folder))
        _run(group, stop)
        if group.failed:
            raise _failure(group, resolved.config.run.folder)
        if any(each.process.returncode == _INTERRUPTED for each in group.ranks):
            raise KeyboardInterrupt


def _run(group: _Group, stop: StopRequest) -> None:
    """Handle the lines of the processes until all have ended; after an error, kill those that do not end."""
    is_stopping = False
    while group.is_running and not group.failed:
        group.receive(_POLL_SECONDS)
        if stop.requested and not group.has_started:
            raise KeyboardInterrupt
        if stop.requested and not is_stopping:
            is_stopping = True
            group.ranks[0].process.send_signal(signal.SIGTERM)  # the first one tells the others
    end = time.monotonic() + _GRACE_SECONDS
    while group.is_running and time.monotonic() < end:
        group.receive(_POLL_SECONDS)
    for each in group.ranks:
        if each.process.poll() is None:
            each.is_silent = each.error is None
            each.error = each.error or {"type": _LOST}
            each.process.kill()
            each.process.wait()
        if each.reader is not None:
            each.reader.join()
    while group.receive(0):
        pass


def _start(  # noqa: PLR0917 - a rank of a number of processes
    group: _Group, program: str, rank: int, n: int, request: dict[str, Any], folder: Path
) -> None:
    stderr = folder / f"stderr_{rank}"
    environment = {
        "OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // n)),
        **os.environ,
        RENDEZVOUS: (folder / "rendezvous").as_uri(),
        "RANK": str(rank),
        "WORLD_SIZE": str(n),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(n),
    }
    with stderr.open("wb") as file:
        process = subprocess.Popen(
            [*_COMMAND, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            env=environment,
            start_new_session=True,  # Ctrl-C in a terminal reaches this process alone, which passes it on
        )
    each = _Rank(rank, process, stderr)
    group.ranks.append(each)
    each.reader = Thread(target=_read, args=(each, group.lines), daemon=True)
    each.reader.start()
    with suppress(BrokenPipeError):  # the process has ended, and its exit code says why
        stdin = cast("Any", process.stdin)
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.flush()


def _read(each: _Rank, lines: SimpleQueue[tuple[_Rank, dict[str, Any]]]) -> None:
    """Put the lines of a process into the queue, until it ends."""
    with cast("Any", each.process.stdout) as stdout, suppress(OSError, ValueError):
        for line in stdout:
            lines.put((each, json.loads(line)))


def _failure(group: _Group, folder: str) -> BytemillError:
    """Return the error of the process that failed first: others lose their connection to it, and fail too."""
    failed = group.failed
    causes = [each for each in failed if each.error is None or each.error["type"] != _LOST] or failed
    cause = min(causes, key=_failed_at)
    name = f"process {cause.rank} of {len(group.ranks)}"
    has_checkpoint = bool(RunFolder(folder).checkpoint_files())
    how = "resume from the last checkpoint" if has_checkpoint else "start over (no checkpoint was saved yet)"
    hint = f"run the same command again to {how}"
    if cause.error is None:
        code = cause.process.returncode
        killer = _signal_name(code)
        how = f"was killed by {killer}" if killer else f"ended with exit code {code}"
        silent = [str(each.rank) for each in group.ranks if each.is_silent]
        if killer == "SIGABRT" and silent:  # by NCCL, which has waited too long for them
            name = f"no answer of process {', '.join(silent)}; {name}"
        last = cause.stderr.read_text(errors="replace").splitlines()[-_STDERR_LINES:]
        return ProcessFailedError("\n".join([f"{name} {how}", *last]), hint=hint)
    kind = getattr(errors, cause.error["type"], None)
    if isinstance(kind, type) and issubclass(kind, BytemillError):
        return kind(cause.error["message"], hint=cause.error["hint"])
    text = cause.error.get("traceback", "").rstrip()
    return ProcessFailedError(f"{name} failed\n{text}", hint=hint)


def _failed_at(each: _Rank) -> float:
    """Return when the error of a process was sent; a process killed by SIGKILL comes first, other crashes last."""
    if each.error is None:
        return 0.0 if _signal_name(each.process.returncode) == "SIGKILL" else math.inf
    return each.error.get("time", math.inf)


def _signal_name(exit_code: int) -> str | None:
    return signal.Signals(-exit_code).name if exit_code < 0 else None


def main(run: Callable[..., object] = train) -> int:
    """Train or measure as one process of a run, as the first line of standard input says; return the exit code.

    Args:
        run: Called as `train` is.
    """
    # Only records may go to the pipe; what libraries print goes to standard error.
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    Thread(target=_exit_with_the_launcher, daemon=True).start()
    resolved = Resolved(config_from_dict(request["config"]), request["origins"])
    try:
        if "profile" in request:
            measured = profile_step(resolved, **request["profile"])
            if processes_from_environment().is_first:
                _send(pipe, {"kind": "profile", "profile": measured.to_dict()})
        else:
            run(resolved, overwrite=request["overwrite"], on_record=partial(_send, pipe))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException as error:
        _send(pipe, _described(error))
        os._exit(_FAILED)  # libraries would wait for the other processes
    return 0


def _described(error: BaseException) -> dict[str, Any]:
    return {
        "kind": "error",
        "type": type(error).__name__,
        "message": str(error),
        "hint": error.hint if isinstance(error, BytemillError) else None,
        "traceback": "".join(traceback.format_exception(error)),
        "time": time.time(),
    }


def _send(pipe: TextIO, record: dict[str, Any]) -> None:
    pipe.write(json.dumps(record) + "\n")
    pipe.flush()


def _exit_with_the_launcher() -> None:
    """End this process when its standard input is closed."""
    os.read(0, 1)  # not through `sys.stdin`, whose lock would be held when the interpreter ends
    os._exit(_FAILED)


if __name__ == "__main__":
    sys.exit(main())
