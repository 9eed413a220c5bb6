"""What the site generates from the program: the help text of every command."""

import io
from collections.abc import Iterator
from typing import Any

from cyclopts import App
from rich.console import Console

COMMANDS = "<!-- commands -->"
WIDTH = 96


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marker of the command reference with the help of all commands."""
    return markdown.replace(COMMANDS, command_reference()) if COMMANDS in markdown else markdown


def command_reference() -> str:
    """Return the help of every command in Markdown, one section per command group and command."""
    from bytemill.cli.app import SHOWS_ALL, app

    SHOWS_ALL.set(True)
    return "\n".join(
        f"{'#' * (len(words) + 1)} bytemill {' '.join(words)}\n\n```text\n{help_text(app, words)}```\n"
        for words in commands(app)
    )


def commands(app: App, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command and group below `app`, in the order of the help."""
    children = [(name, app[name]) for name in app if not name.startswith("-")]
    for name, child in sorted(children, key=lambda item: item[1].sort_key or 0):
        yield (*words, name)
        yield from commands(child, (*words, name))


def help_text(app: App, words: tuple[str, ...]) -> str:
    """Return what `bytemill WORDS --help` prints, without colours."""
    out = io.StringIO()
    app.help_print([*words], console=Console(file=out, width=WIDTH, color_system=None, force_terminal=False))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
