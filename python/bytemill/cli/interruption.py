"""Ctrl-C and SIGTERM during a command: stop cleanly and print how to continue."""

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


@contextmanager
def interruptible(hint: str | Callable[[], str]) -> Generator[None]:
    """Treat SIGTERM like Ctrl-C inside the block, and attach a hint to the interruption.

    Args:
        hint: What to do next, or a function that returns it, called after the interruption.

    Raises:
        KeyboardInterrupt: On SIGINT or SIGTERM, with the hint as its note. The exit code is 130 for both.
    """
    # Only the main thread may install signal handlers.
    is_main = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, _interrupt) if is_main else None
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(hint if isinstance(hint, str) else hint())
        raise
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


def resume_hint(folder: Path) -> str:
    """Say how to continue an interrupted encoding to `folder`, depending on whether it left a checkpoint."""
    from bytemill.shards.journal import JOURNAL_NAME

    if (folder / JOURNAL_NAME).exists():
        return "run the same command again to resume from the last checkpoint"
    return "run the same command again to start over (there is no checkpoint yet)"


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
