"""The commands and their groups."""

from cyclopts import App, Parameter

from bytemill.cli.quickstart import app as quickstart


def _version() -> str:
    from bytemill import __version__

    return __version__


app = App(
    name="bytemill",
    help="Train byte-level BPE tokenizers, encode text with them, and see what they do.",
    help_epilogue="""Start here:
  bytemill quickstart
  bytemill tokenizer train corpus.txt --vocab-size 8192
  bytemill tokenizer inspect tokenizer.json "Some text"

BYTEMILL_DEBUG=1 prints tracebacks; NO_COLOR=1 leaves colours out.
Exit status: 0 ok, 1 failed, 2 wrong usage, 130 interrupted.""",
    help_format="plaintext",
    version=_version,
    default_parameter=Parameter(negative=()),
)
app.command(quickstart)
# Imported by name, so that each command loads only what it needs.
app.command("bytemill.cli.tokenizer:app", name="tokenizer", help="Train tokenizers and use them.", sort_key=2)
app.command("bytemill.cli.data:app", name="data", help="Turn text into shards of token ids.", sort_key=3)
app.command(
    "bytemill.cli.lm:app", name="lm", help="Train language models, generate text, evaluate them.", sort_key=4
)
app.register_install_completion_command(
    help="Install completion of commands and options for bash, zsh or fish.",
    help_flags=(),
    version_flags=(),
)
