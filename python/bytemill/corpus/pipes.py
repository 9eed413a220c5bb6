"""Standard input and named pipes: one may wait for them for ever, and wants to be able to leave at any time."""

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
_ASK_SECONDS = 0.1
"""How long it takes to notice that nobody wants more, at most."""


@contextlib.contextmanager
def open_pipe(source: Source, stop: threading.Event | None = None) -> Generator[BinaryIO]:
    """The bytes of a source whose size only reading tells. Its `read(n)` gives what there is, at most `n` bytes.

    Whoever waits for it, or for somebody to write to it, hears of Ctrl-C in the main thread, and in another sees its
    end soon after `stop` is set. Python's own `open` and `read` would not do: a signal that comes just before the
    system call sets a flag that nobody looks at as long as the call waits.

    Raises `CorpusError` where it cannot be opened or read.
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
    opened = _opened(source, stop)
    if opened is None:
        yield io.BytesIO()
        return
    try:
        yield cast("BinaryIO", _Pipe(source, opened, stop))
    finally:
        os.close(opened)


def _opened(source: Source, stop: threading.Event) -> int | None:
    """The descriptor of a pipe once it has a writer; None where `stop` came first.

    The system waits for the writer, so a thread asks it. If nobody wants the descriptor any more, that thread closes
    it when it comes; it is daemonic, so that it holds up no exit.
    """
    path = os.fspath(cast("os.PathLike[str]", source.path))
    answers: queue.SimpleQueue[int | OSError] = queue.SimpleQueue()
    unwanted = threading.Event()

    def close_unwanted() -> None:
        with contextlib.suppress(queue.Empty):
            if isinstance(answer := answers.get_nowait(), int):
                os.close(answer)

    def ask() -> None:
        try:
            answers.put(os.open(path, os.O_RDONLY))
        except OSError as error:
            answers.put(error)
        if unwanted.is_set():
            close_unwanted()

    threading.Thread(target=ask, name="bytemill-pipe", daemon=True).start()
    try:
        while not stop.is_set():
            with contextlib.suppress(queue.Empty):
                answer = answers.get(timeout=_ASK_SECONDS)
                if isinstance(answer, OSError):
                    raise unreadable(source.name, answer) from answer
                return answer
        return None
    finally:
        # Whichever of the two finds the answer closes it.
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
                while not poll.poll(1000 * _ASK_SECONDS):
                    if self._stop.is_set():
                        return b""
            return os.read(self._descriptor, min(n_bytes, _READ_BYTES) if n_bytes >= 0 else _READ_BYTES)
        except OSError as error:
            raise unreadable(self._source.name, error) from error
