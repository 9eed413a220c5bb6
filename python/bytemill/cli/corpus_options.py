"""Options that say what a corpus is, for every command that reads one."""

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
    """The options of `bytemill.Corpus`. A command takes them as `corpus: CorpusOptions = CorpusOptions()`."""

    format: Annotated[
        Literal["auto", "text", "jsonl", "parquet", "arrow", "warc"],
        Parameter(
            help="What the inputs are; auto goes by their names and first bytes. All may be compressed."
        ),
    ] = "auto"
    field: Annotated[
        str,
        Parameter(
            name=["--field", "--column"],
            help="The JSON field or the Parquet column that holds the text; meta.text is the field text of meta.",
        ),
    ] = "text"
    documents: Annotated[
        str,
        Parameter(
            help="What is a document in text files: the file, each line, or what ends with this special token."
        ),
    ] = "file"
    limit_bytes: Annotated[
        str | None,
        Parameter(
            show_default=False,
            help="Stop after the document that reaches this much text, such as 500MB or 2GB.",
        ),
    ] = None
    sample: Annotated[
        float | None,
        Parameter(
            show_default=False, help="Take this fraction of the documents, chosen at random by --seed."
        ),
    ] = None
    seed: Annotated[int, Parameter(help="Which documents --sample takes.")] = 0
    weight: Annotated[
        tuple[str, ...],
        Parameter(
            show_default=False,
            help="INPUT=NUMBER: the documents of this input count so many times; give it once for each input.",
        ),
    ] = ()
    encoding_errors: Annotated[
        Literal["strict", "replace", "skip"],
        Parameter(
            name=["--encoding-errors", "--errors"],
            help="Bytes that are not UTF-8: an error, U+FFFD in their place, or nothing in their place.",
        ),
    ] = "strict"
    on_error: Annotated[
        Literal["fail", "skip"],
        Parameter(
            help="A broken document (bad JSON, no such field, not UTF-8): stop, or leave it out and count it."
        ),
    ] = "fail"

    def corpus(self, inputs: Sequence[str], *, repeat_by_weight: bool = False) -> Corpus:
        """The corpus of these inputs. Raises `CorpusError`."""
        from bytemill.corpus import Corpus

        return Corpus(list(inputs), repeat_by_weight=repeat_by_weight, **self.arguments())

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `Corpus` that these options stand for."""
        from bytemill.corpus import parse_bytes

        return {
            "format": self.format,
            "field": self.field,
            "documents": self.documents,
            "limit_bytes": None if self.limit_bytes is None else parse_bytes(self.limit_bytes),
            "sample": self.sample,
            "seed": self.seed,
            "weights": _weights(self.weight),
            "encoding_errors": self.encoding_errors,
            "on_error": self.on_error,
        }


def corpus_notes(counts: CorpusCounts) -> list[str]:
    """What the end of the work has to say about the documents, a sentence each; nothing where all was well.

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
    return notes


def _weights(given: tuple[str, ...]) -> Mapping[str, float] | None:
    weights: dict[str, float] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise CycloptsError(f"{text!r} is no weight: write --weight INPUT=NUMBER, such as books.txt=2.5")
    return weights or None
