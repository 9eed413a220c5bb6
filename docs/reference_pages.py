"""Write the generated parts of the reference: the help of every command, and what each module offers.

    python docs/reference_pages.py            # --check names the pages that differ

They are committed, so that a checkout is readable, and a test compares them with the program. Pages of modules get
one table for each module, between two markers; the site adds signatures and docstrings below (`:::` lines).
"""

import ast
import importlib
import inspect
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from cyclopts import App
from rich.console import Console

FOLDER = Path(__file__).parent / "reference"
COMMANDS = "<!-- commands: written by docs/reference_pages.py -->"
BEGIN, END = "<!-- names: written by docs/reference_pages.py -->", "<!-- /names -->"
WIDTH = 96


def pages() -> dict[Path, str]:
    """Return the text of every page with generated parts."""
    commands_page = FOLDER / "commands.md"
    head = commands_page.read_text(encoding="utf-8").split(COMMANDS)[0]
    found = {commands_page: f"{head}{COMMANDS}\n\n{command_reference()}"}
    for page in sorted((FOLDER / "api").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if modules := re.findall(r"^::: ([\w.]+)$", text, flags=re.MULTILINE):
            found[page] = with_names(text, modules)
    return found


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


def with_names(text: str, names: list[str]) -> str:
    """Return the text of a page with the tables of its modules, before the first `:::` line."""
    text = re.sub(rf"{re.escape(BEGIN)}.*?{re.escape(END)}\n\n", "", text, flags=re.DOTALL)
    tables = "\n".join(table for name in names if name != "bytemill" for table in [table_of(name)] if table)
    if not tables:
        return text
    before, marker, after = text.partition("::: ")
    return f"{before}{BEGIN}\n\n{tables}\n{END}\n\n{marker}{after}"


def table_of(name: str) -> str:
    """Return the table of a module: its public names and the methods of its classes, each with a sentence."""
    found = resolve(name)
    if not isinstance(found, ModuleType):
        return ""
    rows: list[tuple[str, str]] = []
    for member, value in own_members(found):
        rows.append((member, summary(value)))
        if inspect.isclass(value) and not issubclass(value, BaseException):
            rows += [
                (f"{member}.{method}", summary(function))
                for method, function in vars(value).items()
                if not method.startswith("_") and is_method(function) and summary(function)
            ]
    lines = [f"| `{name}` | |", "|---|---|", *(f"| `{row}` | {text} |" for row, text in rows if text)]
    return "\n".join(lines) + "\n"


def resolve(name: str) -> object:
    """Return the module of a name, or what it names in a module."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, member = name.rpartition(".")
        return getattr(importlib.import_module(module), member)


def own_members(module: ModuleType) -> list[tuple[str, object]]:
    """Return what a module offers, in the order of its text: its `__all__`, or the public names it defines."""
    if listed := getattr(module, "__all__", None):
        return [(name, getattr(module, name)) for name in listed]
    tree = ast.parse(inspect.getsource(module))
    kinds = (ast.ClassDef, ast.FunctionDef)
    names = [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]
    return [(name, getattr(module, name)) for name in names]


def is_method(value: object) -> bool:
    """Return whether an attribute of a class is a method or a property."""
    return inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod, property))


def summary(value: object) -> str:
    """Return the first sentence of a docstring, as a cell of a table."""
    doc = value.__doc__ if not inspect.isclass(value) or "__doc__" in vars(value) else None
    if not doc or isinstance(value, (int, float, str, dict, tuple)):
        return ""
    first = " ".join(inspect.cleandoc(doc).split("\n\n", 1)[0].split())
    return first.replace("|", "\\|")


def main(*, only_checks: bool) -> int:
    """Write the pages that differ, or only name them and return 1."""
    differ = {page: text for page, text in pages().items() if page.read_text(encoding="utf-8") != text}
    for page, text in differ.items():
        if not only_checks:
            page.write_text(text, encoding="utf-8")
        print(page.relative_to(FOLDER.parent.parent))
    return 1 if differ and only_checks else 0


if __name__ == "__main__":
    sys.exit(main(only_checks="--check" in sys.argv[1:]))
