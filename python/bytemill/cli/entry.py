"""From the words of a command line to a command, and from its end to an exit status."""

import inspect
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from bytemill.cli import failures, output

_STDIN = "\0-"
"""What "-" is called while the command line is parsed, for which "-" would be an option without a name.

No word that the system hands over holds a zero byte.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; `arguments` are the words after `bytemill`, by default those of this process.

    Gives the exit status: 0 ok, 1 failed, 2 wrong usage, 130 interrupted. Results go to standard output,
    everything else to standard error.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            _run(sys.argv[1:] if arguments is None else list(arguments))
        output.flush()
    except BaseException as error:  # also KeyboardInterrupt, and panics of the Rust core
        if not isinstance(error, SystemExit):
            return failures.report(error)
        # rich ends the process itself when nobody reads the help any more.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
    return 0


def _run(arguments: list[str]) -> None:
    from cyclopts import CycloptsError

    from bytemill.cli.app import app

    output.prepare()
    words = [_STDIN if word == "-" else word for word in arguments]
    command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    _restore_stdin(bound)
    try:
        command(*bound.args, **bound.kwargs)
    except CycloptsError as error:
        error.command_chain = app.parse_commands(words)[0]
        raise


def _restore_stdin(bound: inspect.BoundArguments) -> None:
    for name, value in bound.arguments.items():
        bound.arguments[name] = _restored(value)


def _restored(value: Any) -> Any:
    match value:
        case str():
            return "-" if value == _STDIN else value
        case Path():
            return Path("-") if str(value) == _STDIN else value
        case tuple():
            return tuple(_restored(item) for item in cast("tuple[Any, ...]", value))
        case _:
            return value


def _show_warning(message: Warning | str, *_: object) -> None:
    output.note(str(message))
