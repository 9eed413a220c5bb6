"""Command-line options of a corpus, shared by all commands that read one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import CycloptsError, Group, Parameter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bytemill.corpus import Corpus, CorpusCounts

_CORPUS = Group("Corpus", sort_key=0)


@Parameter(name="*", group=_CORPUS)
@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """Options of `bytemill.Corpus`, for a parameter `corpus: CorpusOptions = CorpusOptions()` of a command."""

    format: Annotated[
        str,
        Parameter(
            help="Format of the inputs: text, jsonl, csv, tsv, parquet, arrow or warc; auto detects it from file "
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


def corpus_notes(counts: CorpusCounts) -> list[str]:
    """Return notes about what was replaced or left out, a sentence each.

    >>> from bytemill.corpus import CorpusCounts
    >>> corpus_notes(CorpusCounts(n_replaced=1_204, n_broken=1))
    ['1,204 malformed sequences were read as U+FFFD', '1 broken document was left out']
    """
    notes: list[str] = []
    if n := counts.n_replaced:
        notes.append(f"{n:,} malformed {'sequence was' if n == 1 else 'sequences were'} read as U+FFFD")
    if n := counts.n_skipped_bytes:
        notes.append(
            f"{n:,} {'byte that is not UTF-8 was' if n == 1 else 'bytes that are not UTF-8 were'} left out"
        )
    if n := counts.n_broken:
        notes.append(f"{n:,} broken {'document was' if n == 1 else 'documents were'} left out")
    if n := counts.n_byte_order_marks:
        files = "1 file" if n == 1 else f"{n:,} files"
        notes.append(f"a UTF-8 byte-order mark was dropped from the start of {files}")
    return notes


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
