"""Tasks on a Ray cluster. Only this module imports ray."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import socket
from typing import TYPE_CHECKING, Any, Self

from bytemill.data.executors.executor import Done, WorkerLostError, portable
from bytemill.errors import ClusterError
from bytemill.system.extras import install_hint

if TYPE_CHECKING:
    from types import TracebackType

    from bytemill.data.executors.executor import Task


_CONTEXTS: dict[str, Any] = {}
"""In a worker: the last context, by its name. A context takes long to unpickle, and many tasks share one."""


class RayExecutor:
    """Ray Core tasks. Ray's own retries are off: the driver repeats what is lost.

    Raises:
        ClusterError: Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(
        self,
        address: str | None = None,
        num_workers: int | None = None,
        cpus_per_task: float = 1,
        memory_per_task: int | None = None,
    ) -> None:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Where the driver runs under `uv run`, Ray would build the driver's project again for every worker.
        os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise ClusterError("ray is not installed", hint=install_hint("cluster")) from error
        self._ray = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            self._connect(address)
        n_cpus = float(ray.cluster_resources().get("CPU", 1))
        self._num_workers = num_workers or max(1, int(n_cpus / cpus_per_task))
        options: dict[str, Any] = {
            "max_retries": 0,
            "num_cpus": cpus_per_task,
            "scheduling_strategy": "SPREAD",
        }
        if memory_per_task is not None:
            options["memory"] = memory_per_task
        self._run = ray.remote(**options)(_run)
        self._context: Any = None
        self._context_name = ""
        self._references: dict[Any, int] = {}
        self._next_handle = 0

    def _connect(self, address: str | None) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        try:
            # Ray itself would go on trying for many minutes.
            if address is not None and (match := re.fullmatch(r"([\w.-]+):(\d+)", address)):
                socket.create_connection((match[1], int(match[2])), timeout=10).close()
            self._ray.init(address, **options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ClusterError(
                f"no Ray cluster at {address or 'this machine'}: {reason}",
                hint="start a cluster with Ray's command, and check --ray-address (address=)",
            ) from error

    @property
    def num_workers(self) -> int:
        """See `Executor`."""
        return self._num_workers

    @property
    def description(self) -> str:
        """See `Executor`."""
        n_nodes = sum(bool(node["Alive"]) for node in self._ray.nodes())
        return f"{self._num_workers} Ray tasks on {n_nodes} node{'s' if n_nodes > 1 else ''}"

    def set_context(self, context: Any) -> None:
        """See `Executor`."""
        # In a list, so that Ray does not fetch it for each task.
        self._context, self._context_name = [self._ray.put(context)], os.urandom(8).hex()

    def submit(self, task: Task, item: Any) -> int:
        """See `Executor`."""
        self._next_handle += 1
        with self._connection_errors():
            reference = self._run.remote(task, self._context, self._context_name, item)
        self._references[reference] = self._next_handle
        return self._next_handle

    def wait(self, seconds: float) -> list[Done]:
        """See `Executor`."""
        if not self._references:
            return []
        with self._connection_errors():
            waiting = list(self._references)
            ready, _ = self._ray.wait(waiting, num_returns=1, timeout=seconds)
            if len(waiting) > 1 and ready:
                ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
            return [self._ended(reference) for reference in ready]

    def cancel(self, handle: int) -> None:
        """See `Executor`."""
        for reference in [each for each, other in self._references.items() if other == handle]:
            del self._references[reference]
            with contextlib.suppress(Exception):  # it may have ended, or the cluster is gone
                self._ray.cancel(reference, force=True)

    def _ended(self, reference: Any) -> Done:
        handle = self._references.pop(reference)
        exceptions = self._ray.exceptions
        try:
            return Done(handle, self._ray.get(reference))
        except exceptions.RayTaskError as error:
            return Done(handle, error=error.cause if isinstance(error.cause, BaseException) else error)
        except exceptions.RaySystemError:
            raise
        except exceptions.RayError as error:
            reason = str(error).strip().partition("\n")[0]
            return Done(handle, error=WorkerLostError(f"{type(error).__name__}: {reason}"))

    @contextlib.contextmanager
    def _connection_errors(self) -> Any:
        try:
            yield
        except (ClusterError, KeyboardInterrupt):
            raise
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise ClusterError(
                f"the Ray cluster is lost: {reason}",
                hint="run the same command again: it resumes from what is done",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for handle in list(self._references.values()):
            self.cancel(handle)
        if self._is_ours:
            with contextlib.suppress(Exception):  # a cluster that is lost cannot be left
                self._ray.shutdown()


def _run(task: Task, context: list[Any], name: str, item: Any) -> Any:
    """Run a task in a worker."""
    if name not in _CONTEXTS:
        ray: Any = importlib.import_module("ray")
        _CONTEXTS.clear()
        _CONTEXTS[name] = ray.get(context[0]) if context else None
    try:
        return task(_CONTEXTS[name], item)
    except BaseException as error:
        raise portable(error) from None
