"""Entry point of the command line. It installs signal handlers before it imports anything large."""

import sys

from bytemill.cli.signals import exit_on_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


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
