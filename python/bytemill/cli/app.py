"""The commands and their groups."""

from typing import Any, cast

from cyclopts import App, Parameter

from bytemill import __version__
from bytemill.cli.quickstart import app as quickstart

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
    version=__version__,
    default_parameter=Parameter(negative=()),
)
app.command(quickstart)
# Named and not imported, so that each command loads only what it needs.
app.command("bytemill.cli.tokenizer:app", name="tokenizer", help="Train tokenizers and use them.", sort_key=2)
app.command("bytemill.cli.data:app", name="data", help="Turn text into shards of token ids.", sort_key=3)
app.command(
    "bytemill.cli.lm:app", name="lm", help="Train language models, generate text, evaluate them.", sort_key=4
)
# cyclopts leaves the types of further arguments open.
cast("Any", app).register_install_completion_command(
    help="Install completion of commands and options for bash, zsh or fish.",
    help_flags=(),
    version_flags=(),
)
