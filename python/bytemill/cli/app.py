"""The commands and their groups."""

from cyclopts import App, Parameter

from bytemill import __version__

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
# Named and not imported, so that `--help` and each command load only what they need.
app.command(
    "bytemill.cli.quickstart:quickstart", help="Run the whole arc on text that every machine has.", sort_key=1
)
app.command("bytemill.cli.tokenizer:app", name="tokenizer", help="Train tokenizers and use them.", sort_key=2)
app.command("bytemill.cli.data:app", name="data", help="Turn text into shards of token ids.", sort_key=3)
