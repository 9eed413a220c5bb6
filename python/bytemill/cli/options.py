"""Options that several commands share."""

from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Group, Parameter, Token
from cyclopts.validators import Number

from bytemill.system.units import parse_count

OUTPUT = Group("Output", sort_key=1)
HELP_ALL = "--help-all"
"""Flag of commands whose `--help` shows only the options that most people use."""
SHOWS_ALL = ContextVar("SHOWS_ALL", default=False)
"""Whether the help shows all options, because the arguments contain `HELP_ALL`."""


def count(_: object, tokens: Sequence[Token]) -> int:
    """Convert the value of an option to a count, such as 32k; a converter of cyclopts."""
    return parse_count(tokens[0].value)


Quiet: TypeAlias = Annotated[
    bool,
    Parameter(
        name=["--quiet", "-q"], group=OUTPUT, help="Print errors only: no progress, no notes, no summary."
    ),
]
Json: TypeAlias = Annotated[bool, Parameter(name="--json", group=OUTPUT, help="Print the result as JSON.")]
Profile: TypeAlias = Annotated[
    bool, Parameter(group=OUTPUT, help="Print where time and memory were spent, on standard error.")
]
ProfileFile: TypeAlias = Annotated[
    Path | None, Parameter(group=OUTPUT, help="Write the profile to this file as JSON.")
]
Overwrite: TypeAlias = Annotated[bool, Parameter(help="Replace existing output.")]
Recheck: TypeAlias = Annotated[
    bool,
    Parameter(
        negative=(),
        help="If the output contains the result already, compare all text with it, which takes as long as encoding.",
    ),
]
Shuffle: TypeAlias = Annotated[
    int | None,
    Parameter(
        metavar="SEED",
        validator=Number(gte=0),
        help="Write the documents in random order, across all inputs. Until the end the output folder also holds a "
        "copy of the text.",
    ),
]

TokenizerFile: TypeAlias = Annotated[
    Path,
    Parameter(
        name="TOKENIZER",
        help="A tokenizer.json, a .tiktoken or GGUF file, a .model file of SentencePiece or minbpe, a folder with "
        "tokenizer.json or with vocab.json and merges.txt, a published name (gpt2, p50k_base, cl100k_base, "
        "o200k_base, llama3), a model of OpenAI (gpt-4), or a repository on the hub (OWNER/NAME).",
    ),
]
NoSeparators: TypeAlias = Annotated[
    bool,
    Parameter(name="--no-separators", negative=(), help="Add no special token between documents."),
]
Inputs: TypeAlias = Annotated[
    str,
    Parameter(
        name="INPUTS",
        required=True,
        help="Files, folders, globs in quotes ('data/**/*.jsonl'), @LIST (a file of names), URLs, or - for standard "
        "input.",
    ),
]
Text: TypeAlias = Annotated[
    str | None, Parameter(name="TEXT", help="The text. Put -- before a text that begins with a hyphen.")
]
TextFile: TypeAlias = Annotated[
    str | None, Parameter(name=["--file", "-f"], help="Read the text from this file; - is standard input.")
]
Threads: TypeAlias = Annotated[
    int | None,
    Parameter(validator=Number(gte=1, lte=4096), help="Number of threads. By default, the number of cores."),
]
ModelThreads: TypeAlias = Annotated[
    int | None,
    Parameter(
        name="--threads",
        validator=Number(gte=1, lte=4096),
        help="CPU threads of the model, in each process. By default OMP_NUM_THREADS, or the number of cores.",
    ),
]
Errors: TypeAlias = Annotated[
    Literal["strict", "replace"], Parameter(help="Malformed UTF-8: fail, or replace it with U+FFFD.")
]
AllowedSpecial: TypeAlias = Annotated[
    Literal["all", "none", "none_raise"],
    Parameter(help="Special tokens in the text: recognise them, treat them as text, or fail."),
]
