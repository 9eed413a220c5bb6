"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Group, Parameter
from cyclopts.validators import Number

OUTPUT = Group("Output", sort_key=1)

Quiet: TypeAlias = Annotated[
    bool,
    Parameter(
        name=["--quiet", "-q"],
        group=OUTPUT,
        show_default=False,
        help="Say nothing but errors: no progress, no notes, no summary.",
    ),
]
Json: TypeAlias = Annotated[
    bool,
    Parameter(name="--json", group=OUTPUT, show_default=False, help="Print the result as JSON, for scripts."),
]
Profile: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--profile",
        group=OUTPUT,
        show_default=False,
        help="Show on standard error what time and memory went into, and where to look next.",
    ),
]
ProfileFile: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name="--profile-file", group=OUTPUT, help="Profile, and write the profile to this file as JSON."
    ),
]
Overwrite: TypeAlias = Annotated[
    bool, Parameter(name="--overwrite", show_default=False, help="Replace what is there already.")
]

TokenizerFile: TypeAlias = Annotated[
    Path,
    Parameter(
        name="TOKENIZER",
        help="A tokenizer.json, a .tiktoken or GGUF file, minbpe's .model, a folder with a tokenizer.json or GPT-2's "
        "two files, or a published name: gpt2, p50k_base, cl100k_base, o200k_base, llama3.",
    ),
]
PatternOfFile: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--pattern",
        help="Pattern of a file that stores none (.tiktoken, vocab.json with merges.txt): gpt2, cl100k, o200k, "
        "llama3, none, or regex:EXPR.",
    ),
]
SpecialTokensOfFile: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(
        name="--special-token",
        show_default=False,
        help="A special token of a file that names none, with =ID where the next free one is not meant; give it "
        "once for each.",
    ),
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
    str | None,
    Parameter(name="TEXT", help="The text. Put -- before one that begins with a hyphen."),
]
TextFile: TypeAlias = Annotated[
    str | None, Parameter(name=["--file", "-f"], help="Take the text from this file; - is standard input.")
]
Threads: TypeAlias = Annotated[
    int | None,
    Parameter(
        validator=Number(gte=1), help="Threads to use. By default as many as the machine runs at once."
    ),
]
Errors: TypeAlias = Annotated[
    Literal["strict", "replace"],
    Parameter(help="What to do about bytes that are not UTF-8: fail, or read them as U+FFFD."),
]
AllowedSpecial: TypeAlias = Annotated[
    Literal["all", "none", "none_raise"],
    Parameter(
        help="Special tokens in the text: recognise all of them, take them as plain text, or fail.",
    ),
]
