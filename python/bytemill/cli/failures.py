"""From an exception to what the user reads, and to the exit status."""

import errno
import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager

from bytemill.cli import output
from bytemill.errors import BytemillError

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


@contextmanager
def on_interrupt(how_to_go_on: str) -> Generator[None]:
    """What to tell where Ctrl-C ends the block."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(how_to_go_on)
        raise


def report(error: BaseException) -> int:
    """Says on standard error what went wrong, and gives the exit status.

    Only with BYTEMILL_DEBUG=1 there is a traceback.
    """
    from cyclopts import CycloptsError

    if os.environ.get("BYTEMILL_DEBUG") == "1":
        traceback.print_exception(error)
    match error:
        case KeyboardInterrupt():
            output.interrupted(" ".join(getattr(error, "__notes__", [])))
            return INTERRUPTED
        case CycloptsError():
            output.error(_usage_message(error), _usage_hint(error))
            return WRONG_USAGE
        case BytemillError():
            output.error(str(error), error.hint)
        case BrokenPipeError():
            # Whoever reads the output has seen enough (`| head`): nothing has gone wrong.
            output.give_up_stdout()
            return 0
        case OSError():
            output.error(_os_message(error), "choose another path, or fix the cause and run it again")
            if error.errno in (errno.ENOSPC, errno.EIO):
                output.give_up_stdout()
        case MemoryError():
            output.error("there is not enough memory", "give it less at once, or use fewer threads")
        case _:
            name = type(error).__name__
            output.error(
                f"bytemill has a bug: {name}: {error}",
                "run it again with BYTEMILL_DEBUG=1 and report what it prints",
            )
    return FAILED


def _os_message(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


def _usage_message(error: Exception) -> str:
    message = str(error).rstrip(".")
    return message[:1].lower() + message[1:]


def _usage_hint(error: Exception) -> str:
    chain = getattr(error, "command_chain", None) or ()
    return f"see `{' '.join([_program(), *chain, '--help'])}`"


def _program() -> str:
    return "python -m bytemill" if sys.argv[:1] and sys.argv[0].endswith("__main__.py") else "bytemill"
