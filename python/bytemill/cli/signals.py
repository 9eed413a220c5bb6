"""SIGINT and SIGTERM: end the process while it starts or ends, interrupt a running command."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from types import FrameType, TracebackType
else:
    # The C module behind `signal`, which takes longer to import than everything before the handlers are installed.
    import _signal as signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = 130


def exit_on_signals() -> None:
    """End the process with exit code 130 on SIGINT and SIGTERM, unless it was started with them ignored.

    A `KeyboardInterrupt` would print a traceback, and modules that are being imported can swallow it.
    """
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _exit)


class InterruptOnSignals:
    """Raise `KeyboardInterrupt` on SIGINT and SIGTERM inside the block.

    Ignored signals remain ignored, and all signals outside the main thread, which alone may install handlers.
    """

    def __enter__(self) -> None:
        import threading

        is_main = threading.current_thread() is threading.main_thread()
        handlers = {number: signal.getsignal(number) for number in _SIGNALS if is_main}
        self._previous = {
            number: handler for number, handler in handlers.items() if handler not in (None, signal.SIG_IGN)
        }
        for number in self._previous:
            signal.signal(number, _interrupt)

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        traceback: "TracebackType | None",
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


def _exit(_number: int, _frame: "FrameType | None") -> None:
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)


def _interrupt(_number: int, _frame: "FrameType | None") -> None:
    raise KeyboardInterrupt
