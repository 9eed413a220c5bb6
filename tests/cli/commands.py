"""The commands of the command line and their options."""

from collections.abc import Iterator

from cyclopts import App

from bytemill.cli.app import app


def commands(group: App = app, chain: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    """Yields every command with the words that name it."""
    if group.default_command is not None:
        yield chain, group
    for name in group:
        if not name.startswith("-"):
            yield from commands(group[name], (*chain, name))


def options(command: App) -> dict[str, tuple[str, object]]:
    """Returns for every name of an option its first name and its type."""
    return {
        name: (argument.names[0], argument.hint)
        for argument in command.assemble_argument_collection(default_parameter=app.default_parameter)
        if not argument.children
        for name in argument.names
        if name.startswith("-")
    }
