"""Run the processes of a training run, forked from one process that has imported torch.

Each line of standard input is a JSON object with `n`, the number of processes, `config`, the settings of the run, and
`largest_file`, for each rank the most bytes that it may write to a file, or null.
The answer is a line with a list: for each rank null, or the type and message of its exception.
"""

import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed.fsdp

from bytemill.lm.training import trainer
from bytemill.lm.training.config import resolve


def run_rank(rank: int, request: dict[str, Any], folder: str) -> None:
    os.dup2(2, 1)
    n, largest_file = request["n"], request["largest_file"][rank]
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    ranks = {"RANK": rank, "WORLD_SIZE": n, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": n}
    os.environ.update({name: str(value) for name, value in ranks.items()})
    os.environ["BYTEMILL_RENDEZVOUS"] = f"file://{folder}/rendezvous"
    try:
        trainer.train(resolve([("the test", request["config"])]))
    except BaseException as error:
        Path(folder, f"error_{rank}").write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def main() -> None:
    trainer.matmul_rate = lambda *_: 1e10  # measuring the device takes a third of a second
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            children: list[int] = []
            for rank in range(request["n"]):
                if (child := os.fork()) == 0:
                    run_rank(rank, request, folder)
                children.append(child)
            for child in children:
                os.waitpid(child, 0)
            errors = [Path(folder, f"error_{rank}") for rank in range(request["n"])]
            answer = [error.read_text() if error.exists() else None for error in errors]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
