"""Standard input and named pipes, with waits that can be interrupted."""

from __future__ import annotations

import contextlib
import io
import os
import queue
import select
import stat
import threading
from typing import TYPE_CHECKING, BinaryIO, cast

from bytemill.corpus.sources import Source, unreadable

if TYPE_CHECKING:
    from collections.abc import Generator

_READ_BYTES = 1 << 20
_POLL_SECONDS = 0.1
"""Longest time to notice that reading shall stop."""


@contextlib.contextmanager
def open_pipe(source: Source, stop: threading.Event | None = None) -> Generator[BinaryIO]:
    """Open a source of unknown size. Its `read(n)` returns what is available, at most `n` bytes.

    Waiting for a writer or for data ends with Ctrl-C in the main thread, and soon after `stop` is set in others.
    Python's `open` and `read` do not: a signal that arrives just before the system call only sets a flag, which
    nobody checks while the call waits.

    Raises:
        CorpusError: The source cannot be opened or read.
    """
    stop = stop or threading.Event()
    if source.is_stdin:
        with source.open() as stdin:
            try:
                descriptor = stdin.fileno()
            except (OSError, io.UnsupportedOperation):
                yield stdin
                return
            yield cast("BinaryIO", _Pipe(source, descriptor, stop))
            return
    descriptor = _opened(source, stop)
    if descriptor is None:
        yield io.BytesIO()
        return
    try:
        yield cast("BinaryIO", _Pipe(source, descriptor, stop))
    finally:
        os.close(descriptor)


def _opened(source: Source, stop: threading.Event) -> int | None:
    """Return the descriptor of a pipe once it has a writer; None if `stop` is set first.

    `os.open` blocks until there is a writer, so a daemon thread calls it. If the descriptor is no longer needed, that
    thread closes it.
    """
    path = os.fspath(cast("os.PathLike[str]", source.path))
    opened: queue.SimpleQueue[int | OSError] = queue.SimpleQueue()
    unwanted = threading.Event()

    def close_unwanted() -> None:
        with contextlib.suppress(queue.Empty):
            if isinstance(descriptor := opened.get_nowait(), int):
                os.close(descriptor)

    def open_pipe_file() -> None:
        try:
            opened.put(os.open(path, os.O_RDONLY))
        except OSError as error:
            opened.put(error)
        if unwanted.is_set():
            close_unwanted()

    threading.Thread(target=open_pipe_file, name="bytemill-pipe", daemon=True).start()
    try:
        while not stop.is_set():
            with contextlib.suppress(queue.Empty):
                descriptor = opened.get(timeout=_POLL_SECONDS)
                if isinstance(descriptor, OSError):
                    raise unreadable(source.name, descriptor) from descriptor
                return descriptor
        return None
    finally:
        # Whichever thread takes the descriptor from the queue closes it.
        unwanted.set()
        close_unwanted()


class _Pipe:
    def __init__(self, source: Source, descriptor: int, stop: threading.Event) -> None:
        self._source = source
        self._descriptor = descriptor
        self._stop = stop
        self._waits = not stat.S_ISREG(os.fstat(descriptor).st_mode) and hasattr(select, "poll")

    def read(self, n_bytes: int = -1, /) -> bytes:
        try:
            if self._waits:
                poll = select.poll()
                poll.register(self._descriptor, select.POLLIN)
                while not poll.poll(1000 * _POLL_SECONDS):
                    if self._stop.is_set():
                        return b""
            return os.read(self._descriptor, min(n_bytes, _READ_BYTES) if n_bytes >= 0 else _READ_BYTES)
        except OSError as error:
            raise unreadable(self._source.name, error) from error
