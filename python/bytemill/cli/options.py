"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import CycloptsError, Group, Parameter
from cyclopts.validators import Number

from bytemill.system.units import parse_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cyclopts import Token

    from bytemill.corpus import Corpus

_CORPUS = Group("Corpus", sort_key=0)

OUTPUT = Group("Output", sort_key=1)


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


@Parameter(name="*", group=_CORPUS)
@dataclass(frozen=True, kw_only=True)
class CorpusArguments:
    """Options of `bytemill.Corpus`, for a parameter `corpus: CorpusArguments = CorpusArguments()` of a command."""

    format: Annotated[
        str,
        Parameter(
            # Not derived from the registry, whose import would slow every command down; a test compares the two.
            help="Format of the inputs: text, jsonl, csv, tsv, parquet, arrow, warc or html; auto detects it from file "
            "names and first bytes. All formats may be compressed."
        ),
    ] = "auto"
    field: Annotated[
        str,
        Parameter(
            name=["--field", "--column"],
            help="JSON field, or column of a table, that contains the text; meta.text is the field text of meta.",
        ),
    ] = "text"
    documents: Annotated[
        str,
        Parameter(
            help="What a document is in text files: file, line, or the special token that ends documents."
        ),
    ] = "file"
    limit_bytes: Annotated[
        str | None,
        Parameter(help="Stop after the document that reaches this much text, such as 500MB or 2GB."),
    ] = None
    sample: Annotated[
        float | None, Parameter(help="Use this fraction of the documents, chosen at random by --seed.")
    ] = None
    seed: Annotated[int, Parameter(help="Random seed of --sample.")] = 0
    weight: Annotated[
        tuple[str, ...],
        Parameter(
            help="INPUT=NUMBER: count the documents of this input NUMBER times. Repeat for several inputs."
        ),
    ] = ()
    errors: Annotated[
        Literal["strict", "replace", "skip"],
        Parameter(name="--errors", help="Malformed UTF-8: fail, replace it with U+FFFD, or leave it out."),
    ] = "strict"
    on_error: Annotated[
        Literal["fail", "skip"],
        Parameter(
            help="Broken documents (bad JSON, missing field, not UTF-8, too large): fail, or leave them out."
        ),
    ] = "fail"
    max_document_bytes: Annotated[
        str,
        Parameter(
            help="Size limit of a JSON line, row or WARC record, which is held in memory. Larger documents are broken."
        ),
    ] = "256MB"
    verify_input: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Hash every file before and after it is read, and fail if its content has changed.",
        ),
    ] = False

    def corpus(self, inputs: Sequence[str], *, repeat_by_weight: bool = False) -> Corpus:
        """Open the corpus. Raises `CorpusError`."""
        from bytemill.corpus import Corpus

        return Corpus(list(inputs), repeat_by_weight=repeat_by_weight, **self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `Corpus`."""
        from bytemill.corpus import parse_bytes

        return {
            "format": self.format,
            "field": self.field,
            "documents": self.documents,
            "limit_bytes": None if self.limit_bytes is None else parse_bytes(self.limit_bytes),
            "sample": self.sample,
            "seed": self.seed,
            "weights": _weights(self.weight),
            "errors": self.errors,
            "on_error": self.on_error,
            "max_document_bytes": parse_bytes(self.max_document_bytes),
            "verify_input": self.verify_input,
        }


def _weights(arguments: tuple[str, ...]) -> Mapping[str, float] | None:
    weights: dict[str, float] = {}
    for text in arguments:
        name, equals, number = text.rpartition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise CycloptsError(
                f"{text!r} is not a weight: write --weight INPUT=NUMBER, such as books.txt=2.5"
            )
    return weights or None
