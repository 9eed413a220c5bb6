"""Tasks in processes of this machine, each of which runs this module.

A message over a pipe is its size in 8 bytes, then the bytes. The standard output of a worker belongs to the messages,
so what tasks print goes to standard error.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from bytemill.data.executors.executor import Done, WorkerLostError, portable

if TYPE_CHECKING:
    from types import TracebackType
    from typing import IO, BinaryIO

    from bytemill.data.executors.executor import Task


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    context: int = 0
    """Number of the context that it has."""
    handle: int | None = None
    """The task that it runs."""
    is_stopped: bool = False
    """True once it was told to end."""


@dataclass
class _Waiting:
    handle: int
    data: bytes = field(repr=False)


class LocalExecutor:
    """Processes of this machine. One that dies is replaced.

    They are started as `python -m bytemill.data.executors.local` and not forked, so that they share neither threads nor
    locks with this process, and do not import its main module.
    """

    def __init__(self, num_workers: int | None = None) -> None:
        self._num_workers = num_workers or os.cpu_count() or 1
        self._workers: list[_Worker] = []
        self._waiting: list[_Waiting] = []
        self._ended: queue.Queue[tuple[_Worker, Any]] = queue.Queue()
        """What workers sent; None at the end of one."""
        self._context, self._context_number = b"", 0
        self._next_handle = 0

    @property
    def num_workers(self) -> int:
        """See `Executor`."""
        return self._num_workers

    @property
    def description(self) -> str:
        """See `Executor`."""
        return f"{self._num_workers} local {'process' if self._num_workers == 1 else 'processes'}"

    @property
    def process_ids(self) -> list[int]:
        """The ids of the processes."""
        return [worker.process.pid for worker in self._workers]

    def set_context(self, context: Any) -> None:
        """See `Executor`."""
        self._context, self._context_number = pickle.dumps(context), self._context_number + 1

    def submit(self, task: Task, item: Any) -> int:
        """See `Executor`."""
        self._next_handle += 1
        self._waiting.append(_Waiting(self._next_handle, pickle.dumps((task, item))))
        self._start_waiting()
        return self._next_handle

    def wait(self, seconds: float) -> list[Done]:
        """See `Executor`."""
        done: list[Done] = []
        while True:
            try:
                worker, message = self._ended.get(timeout=None if done else seconds, block=not done)
            except queue.Empty:
                break
            handle, worker.handle = worker.handle, None
            if message is None:
                self._workers.remove(worker)
                _close(worker)
            if handle is not None:
                done.append(_done(handle, worker, message))
        self._start_waiting()
        return done

    def cancel(self, handle: int) -> None:
        """See `Executor`."""
        self._waiting = [waiting for waiting in self._waiting if waiting.handle != handle]
        for worker in self._workers:
            if worker.handle == handle:
                worker.handle = None
                worker.is_stopped = True
                worker.process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.process.kill()
        while self._workers:
            worker, message = self._ended.get()
            if message is None and worker in self._workers:
                self._workers.remove(worker)
                _close(worker)

    def _start_waiting(self) -> None:
        while self._waiting:
            worker = next(
                (each for each in self._workers if each.handle is None and not each.is_stopped), None
            )
            if worker is None:
                if sum(not each.is_stopped for each in self._workers) >= self._num_workers:
                    return
                worker = self._new_worker()
            waiting = self._waiting.pop(0)
            worker.handle = waiting.handle
            pipe = worker.process.stdin
            # If the worker is dead, its end is in the queue already.
            with contextlib.suppress(OSError):
                if pipe is not None and worker.context != self._context_number:
                    write_message(pipe, self._context)
                    worker.context = self._context_number
                elif pipe is not None:
                    write_message(pipe, b"")
                if pipe is not None:
                    write_message(pipe, waiting.data)

    def _new_worker(self) -> _Worker:
        process = subprocess.Popen(
            [sys.executable, "-m", "bytemill.data.executors.local"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        worker = _Worker(process)
        self._workers.append(worker)

        def listen() -> None:
            with contextlib.suppress(OSError, ValueError):
                while process.stdout is not None and (data := read_message(process.stdout)) is not None:
                    self._ended.put((worker, data))
            self._ended.put((worker, None))

        threading.Thread(target=listen, name="listen to a worker", daemon=True).start()
        return worker


def _close(worker: _Worker) -> None:
    """Release what belongs to a worker that has ended."""
    worker.process.wait()
    for pipe in (worker.process.stdin, worker.process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was not sent to it is lost with it
                pipe.close()


def _done(handle: int, worker: _Worker, message: bytes | None) -> Done:
    if message is None:
        code = worker.process.returncode
        return Done(handle, error=WorkerLostError(f"a worker process ended with exit code {code}"))
    value, error = pickle.loads(message)
    return Done(handle, value, error)


def write_message(pipe: IO[bytes], data: bytes) -> None:
    """Write a message. Raises OSError if the other end is closed."""
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def read_message(pipe: IO[bytes] | BinaryIO) -> bytes | None:
    """Return the next message, or None if the other end is closed."""
    size = _read(pipe, 8)
    return None if size is None else _read(pipe, int.from_bytes(size, "little"))


def _read(pipe: IO[bytes] | BinaryIO, n_bytes: int) -> bytes | None:
    parts: list[bytes] = []
    while n_bytes:
        part = pipe.read(n_bytes)
        if not part:
            return None
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)


def main() -> None:
    """Run tasks until standard input ends."""
    # Ctrl-C reaches the driver too, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tasks = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    context: Any = None
    while (new_context := read_message(tasks)) is not None and (data := read_message(tasks)) is not None:
        try:
            if new_context:
                context = pickle.loads(new_context)
            task, item = pickle.loads(data)
            message = pickle.dumps((task(context, item), None))
        except BaseException as error:
            message = pickle.dumps((None, portable(error)))
        write_message(results, message)


if __name__ == "__main__":
    main()
