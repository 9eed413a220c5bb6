"""Counting and encoding by several processes, on one machine or on a Ray cluster, with the results of one process.

- `executor`: what runs tasks, and the loop over them: retries, second copies of slow tasks, progress
- `local`, `ray_cluster`: the two executors
- `plan`: the units of a job, and an estimate of what they take
- `encode`, `count`: what the tasks do
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from bytemill.data.executors.count import count_corpus
from bytemill.data.executors.encode import encode_corpus
from bytemill.data.executors.executor import Executor, UnitProgress
from bytemill.errors import ClusterError

__all__ = ["Executor", "UnitProgress", "count_corpus", "encode_corpus", "open_executor"]

ExecutorName: TypeAlias = Literal["local", "ray"]


def open_executor(
    name: ExecutorName = "local",
    *,
    num_workers: int | None = None,
    address: str | None = None,
    cpus_per_task: float = 1,
    memory_per_task: int | None = None,
) -> Executor:
    """Make an executor.

    Args:
        name: "local" for processes on this machine, "ray" for a Ray cluster.
        num_workers: Tasks at the same time; by default one per core of the machine or of the cluster.
        address: Address of the Ray cluster ("auto": the one that this machine belongs to); None starts one on this
            machine.
        cpus_per_task: Cores that Ray reserves for a task.
        memory_per_task: Bytes of memory that Ray reserves for a task.

    Raises:
        ClusterError: An argument is out of range, Ray is not installed or the cluster cannot be reached.
    """
    if num_workers is not None and num_workers < 1:
        raise ClusterError(f"num_workers is {num_workers}", hint="use at least 1")
    if name == "local":
        from bytemill.data.executors.local import LocalExecutor

        return LocalExecutor(num_workers)
    if name == "ray":
        from bytemill.data.executors.ray_cluster import RayExecutor

        return RayExecutor(address, num_workers, cpus_per_task, memory_per_task)
    raise ClusterError(f"unknown executor {name!r}", hint='use "local" or "ray"')
