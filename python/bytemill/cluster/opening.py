"""Make an executor by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from bytemill.errors import ClusterError

if TYPE_CHECKING:
    from bytemill.cluster.executor import Executor

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
        from bytemill.cluster.local import LocalExecutor

        return LocalExecutor(num_workers)
    if name == "ray":
        from bytemill.cluster.ray_cluster import RayExecutor

        return RayExecutor(address, num_workers, cpus_per_task, memory_per_task)
    raise ClusterError(f"unknown executor {name!r}", hint='use "local" or "ray"')
