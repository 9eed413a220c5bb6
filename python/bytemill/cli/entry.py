"""Entry point of the command line, and the handling of SIGINT and SIGTERM.

It installs signal handlers before it imports anything large: they end the process while it starts or ends, and
interrupt a running command.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from types import FrameType, TracebackType
else:
    # The C module behind `signal`, which takes longer to import than everything before the handlers are installed.
    import _signal as signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = 130


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run a command.

    Args:
        arguments: The arguments after the program's name. By default those of the process, which then ends at once
            on SIGINT and SIGTERM unless a command is running.

    Returns:
        The exit code: 0 ok, 1 failed, 2 wrong usage, 130 interrupted.
    """
    if arguments is None:
        exit_on_signals()
        arguments = sys.argv[1:]
    from bytemill.cli.invocation import invoke

    return invoke(arguments)


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
