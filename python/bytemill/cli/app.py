"""Commands and groups of commands."""

from contextvars import ContextVar
from typing import Any, cast

from cyclopts import App, Parameter

HELP_ALL = "--help-all"
"""Flag of commands whose `--help` shows only the options that most people use."""
SHOWS_ALL = ContextVar("SHOWS_ALL", default=False)
"""Whether the help shows all options, because the arguments contain `HELP_ALL`."""


def _version() -> str:
    """Return the version, and what it depends on: the processor, Python, optional packages."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from bytemill import __version__
    from bytemill._core import instruction_sets

    def installed(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    return "\n".join(
        [
            f"bytemill {__version__}",
            f"  core    {', '.join(instruction_sets())}",
            f"  python  {platform.python_version()} on {platform.system()} {platform.machine()}",
            *(f"  {package:<7} {installed(package)}" for package in ("torch", "ray")),
        ]
    )


def _shown_default(value: Any) -> str | None:
    """Return how the help shows a default value; None leaves it out."""
    if isinstance(value, tuple):
        value = " ".join(map(str, cast("tuple[Any, ...]", value)))
    return None if value is None or value is False or value == "" else str(value)


app = App(
    name="bytemill",
    help="Train, use and compare byte-level BPE tokenizers and small language models.",
    help_epilogue="""Start here:
  bytemill quickstart
  bytemill tokenizer train corpus.txt --vocab-size 8192
  bytemill tokenizer inspect tokenizer.json "Some text"

BYTEMILL_DEBUG=1 prints tracebacks; NO_COLOR=1 turns colours off.
Exit code: 0 ok, 1 failed, 2 wrong usage, 130 interrupted.""",
    help_format="plaintext",
    version=_version,
    default_parameter=Parameter(negative=(), show_default=_shown_default),
)
# Imported by name, so that each command loads only what it needs. The help stated here replaces that of the app.
app.command(
    "bytemill.cli.quickstart:app",
    name="quickstart",
    help="""Train a tokenizer and a small language model, and write a report.

The corpus is the documentation that Python ships with, a few megabytes; nothing
is downloaded. The model takes a few minutes on two CPU cores and requires
torch (the extra lm); without torch it is skipped. DIR may hold an earlier
quickstart, which is replaced, but no other files.""",
    sort_key=1,
)
app.command(
    "bytemill.cli.tokenizer:app",
    name="tokenizer",
    help="Train, use, inspect and convert tokenizers.",
    sort_key=2,
)
app.command("bytemill.cli.data:app", name="data", help="Encode text to shards of token ids.", sort_key=3)
app.command("bytemill.cli.lm:app", name="lm", help="Train, run and evaluate language models.", sort_key=4)
app.command(
    "bytemill.cli.experiment:app",
    name="experiment",
    help="Compare tokenizers by the language models they make.",
    sort_key=5,
)
app.command(
    "bytemill.cli.scaling:app",
    name="scaling",
    help="Fit scaling laws to runs, and predict the best model for a budget.",
    sort_key=6,
)
app.command(
    "bytemill.cli.studio:app",
    name="studio",
    help="""Look at tokens, vocabularies, models and runs in the browser.

Serves one page on this machine until Ctrl-C. Without PATHS it offers what is
in the current folder, such as the result of the quickstart, and tokenizers
that come with bytemill.""",
    sort_key=7,
)
app.command(
    "bytemill.cli.completion:install",
    name="--install-completion",
    help="Install completion of commands and options for bash, zsh or fish.",
    version_flags=(),
)
