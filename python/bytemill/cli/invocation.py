"""Parse the arguments, run the command, and report how it ended."""

import inspect
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from bytemill.cli import failures, output
from bytemill.cli.signals import InterruptOnSignals

_STDIN = "\0-"
"""Replaces "-" while the arguments are parsed, because cyclopts takes "-" for an option.

Arguments of a process contain no zero byte.
"""


def invoke(arguments: Sequence[str]) -> int:
    """Run a command and return the exit code.

    Results go to standard output, everything else to standard error.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            _run(arguments)
    except BaseException as error:  # also KeyboardInterrupt, and panics of the Rust core
        if not isinstance(error, SystemExit):
            return failures.report(error, _option_names(arguments))
        # rich exits if nobody reads the help.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
    return 0


def _run(arguments: Sequence[str]) -> None:
    from cyclopts import CycloptsError

    from bytemill.cli.app import HELP_ALL, SHOWS_ALL, app

    output.prepare()
    SHOWS_ALL.set(HELP_ALL in arguments)
    words = [_STDIN if word == "-" else word for word in arguments]
    command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    _restore_stdin(bound)
    try:
        with InterruptOnSignals():
            command(*bound.args, **bound.kwargs)
            output.flush()
    except CycloptsError as error:
        error.command_chain = app.parse_commands(words)[0]
        raise


def _option_names(arguments: Sequence[str]) -> set[str]:
    """Return the names of the options of the command that the arguments name."""
    try:
        from bytemill.cli.app import app

        *_, command = app.parse_commands(arguments)[1]
        return {name for argument in command.assemble_argument_collection() for name in argument.names}
    except Exception:  # an error is being reported: its cause may be the reason for this one
        return set()


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
