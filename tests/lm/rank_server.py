"""Run the processes of a training run, forked from one process that has imported torch.

Each line of standard input is a JSON object:

    n             number of processes
    check         call this function of `parallel_checks`, with a dict in `options`, instead of training
    config        settings of the run
    largest_file  rank -> the most bytes that it may write to a file
    last_call     rank -> it dies in this call of a function that changes the disk, from the second checkpoint on
    hangs         rank -> it hangs before its first step, until the process of this rank has ended

The answer is a line with a list: for each rank null, "killed", or the type and message of its exception.
"""

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed.fsdp

from bytemill.lm.training import preparation, run_checkpoint, save_and_resume, trainer
from bytemill.lm.training.config import resolve
from bytemill.lm.tuning.tune import tune

sys.path.insert(0, str(Path(__file__).parent))
import parallel_checks


def run_rank(rank: int, request: dict[str, Any], folder: str) -> None:
    os.dup2(2, 1)
    n = request["n"]
    if n_bytes := request.get("largest_file", {}).get(str(rank)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
    if call := request.get("last_call", {}).get(str(rank)):
        die_in_call(call)
    if (other := request.get("hangs", {}).get(str(rank))) is not None:
        trainer.accumulate_gradients = lambda *_: wait_for(Path(folder, f"error_{other}"))
    ranks = {"RANK": rank, "WORLD_SIZE": n, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": n}
    os.environ.update({name: str(value) for name, value in ranks.items()})
    os.environ["BYTEMILL_RENDEZVOUS"] = f"file://{folder}/rendezvous"
    try:
        if name := request.get("check"):
            getattr(parallel_checks, name)(rank, n, **request["options"])
            return
        tune(resolve([("the test", request["config"])]))
    except BaseException as error:
        Path(folder, f"error_{rank}").write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.05)
    os._exit(0)


def die_in_call(last: int) -> None:
    """Kill this process in the `last`-th call of a function that changes the disk, from the second checkpoint on."""
    n_checkpoints = n_calls = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal n_calls
            n_calls += n_checkpoints >= 2
            if n_calls == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    def begin(*arguments: Any, **options: Any) -> run_checkpoint.CheckpointWrite:
        nonlocal n_checkpoints
        n_checkpoints += 1
        return run_checkpoint.CheckpointWrite(*arguments, **options)

    changed: Any = save_and_resume
    changed.CheckpointWrite = begin
    for owner, name in ((os, "fsync"), (shutil, "rmtree"), (Path, "rename"), (Path, "mkdir")):
        setattr(owner, name, counted(getattr(owner, name)))
    run_checkpoint.write_tensors = counted(run_checkpoint.write_tensors)


def outcome(status: int, error: Path) -> str | None:
    return "killed" if os.WIFSIGNALED(status) else error.read_text() if error.exists() else None


def main() -> None:
    preparation.matmul_rate = lambda *_: 1e10  # measuring the device takes a third of a second
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            children: list[int] = []
            for rank in range(request["n"]):
                if (child := os.fork()) == 0:
                    run_rank(rank, request, folder)
                children.append(child)
            statuses = [os.waitpid(child, 0)[1] for child in children]
            answer = [outcome(status, Path(folder, f"error_{rank}")) for rank, status in enumerate(statuses)]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
