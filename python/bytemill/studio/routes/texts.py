"""Routes of texts: open, edit, encode, explain, compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import StreamingResponse

from bytemill.comparison.figures import FIGURES, Value, format_value
from bytemill.corpus import Corpus
from bytemill.datasets import DECLARATION
from bytemill.errors import CorpusError
from bytemill.studio.library import read_text
from bytemill.studio.schemas import (
    Compared,
    ComparisonSpec,
    Explained,
    ExplainSpec,
    FigureRow,
    FigureValue,
    Ids,
    Languages,
    NewText,
    PreToken,
    Step,
    TextEdit,
    TextEdited,
    TextOpened,
    ViewSpec,
    large_response,
)
from bytemill.studio.state import Studio

if TYPE_CHECKING:
    from bytemill.comparison import Comparison
    from bytemill.comparison.figures import Figure
    from bytemill.studio.jobs import Check
    from bytemill.studio.library import OpenedTokenizer

router = APIRouter()


@router.post("/texts", tags=["texts"])
def open_text(spec: NewText, studio: Studio) -> TextOpened:
    """Store a text, or open one that the library has."""
    if (spec.text is None) == (spec.source is None):
        raise HTTPException(422, "give either text or source")
    if spec.source is not None:
        entry = studio.library.entry("texts", spec.source)
        content, stamp = studio.library.stamps.read(entry.name, entry.files, lambda: read_text(entry))
        text_id, text = studio.texts.add(content)
        return TextOpened(
            id=text_id, version=0, n_bytes=text.n_bytes, name=entry.name, text=content, stamp=stamp
        )
    text_id, text = studio.texts.add(spec.text or "")
    return TextOpened(id=text_id, version=0, n_bytes=text.n_bytes)


@router.patch("/texts/{text_id}", tags=["texts"], response_model=TextEdited)
def edit_text(text_id: str, spec: TextEdit, studio: Studio) -> StreamingResponse:
    """Edit a text, and return what changes in its ids."""
    text, changes = studio.texts.edit(text_id, spec.version, spec.edits, spec.views)
    views = [vars(each) for each in changes]
    return large_response({"version": text.version, "n_bytes": text.n_bytes, "views": views})


@router.post("/texts/{text_id}/ids", tags=["texts"], response_model=Ids)
def text_ids(text_id: str, spec: ViewSpec, studio: Studio) -> StreamingResponse:
    """Return all ids of a text."""
    text, found = studio.texts.ids(text_id, spec)
    return large_response({"version": text.version, "n_bytes": text.n_bytes, **vars(found)})


@router.post("/explanation", tags=["texts"])
def explain(spec: ExplainSpec, studio: Studio) -> Explained:
    """Return the pre-tokens of a text, and the merges of each."""
    own = studio.library.open_tokenizer(spec.tokenizer, spec.vocab_size)
    explained = own.tokenizer.explain(spec.text, allowed_special="all" if spec.special else "none")
    return Explained(
        stamp=own.stamp,
        pretokens=[
            PreToken(
                bytes=b"".join(part.tokens).hex(),
                special=part.special,
                ids=[own.renumbered.get(i, i) for i in part.ids],
                steps=[Step(rank=step.rank, at=step.at) for step in part.steps],
            )
            for part in explained
        ],
    )


@router.post("/comparison", tags=["comparison"])
async def compare(spec: ComparisonSpec, request: Request, studio: Studio) -> Compared:
    """Compare tokenizers on a text, whose lines are the documents, and on the bundled parallel text."""

    def work(check: Check) -> Compared:
        from bytemill.comparison import compare as run

        content = studio.texts.get(spec.text).content
        # As `bytemill tokenizer compare --documents line` reads them.
        lines = [line for each in content.split("\n") if (line := each.removesuffix("\r"))]
        if not lines:
            raise CorpusError("the text is empty", hint="type a text, or open one")
        tokenizers: dict[str, OpenedTokenizer] = {}
        for tokenizer_id in dict.fromkeys(spec.tokenizers):
            name = studio.library.entry("tokenizers", tokenizer_id).name
            tokenizers[name if name not in tokenizers else f"{name} ({tokenizer_id})"] = (
                studio.library.open_tokenizer(tokenizer_id)
            )

        def progress(_phase: str, _done: int, _total: int | None) -> None:
            check()

        result = run(
            {name: opened.tokenizer for name, opened in tokenizers.items()},
            Corpus.from_texts(lines),
            parallel=DECLARATION,
            progress=progress,
        )
        return _compared(result, list(tokenizers), [opened.stamp for opened in tokenizers.values()])

    return await studio.jobs.run(request, work)


def _compared(result: Comparison, names: list[str], stamps: list[str]) -> Compared:
    (group, figures), *_ = result.values.items()
    parallel = result.parallel
    assert parallel is not None  # it was asked for  # noqa: S101
    languages = list(parallel.premiums[names[0]])
    return Compared(
        names=names,
        stamps=stamps,
        n_bytes=result.groups[group]["n_bytes"],
        figures=[
            _row(FIGURES[figure], values, names, result.best[group][figure])
            for figure, values in figures.items()
        ],
        languages=Languages(
            reference=parallel.reference,
            languages=languages,
            premiums=[[parallel.premiums[name][language] for language in languages] for name in names],
            gini=[parallel.gini[name] for name in names],
        ),
    )


def _row(figure: Figure, values: dict[str, Value], names: list[str], best: str | None) -> FigureRow:
    return FigureRow(
        name=figure.name,
        title=figure.title,
        formula=figure.formula,
        blind_to=figure.blind_to,
        better=figure.better,
        best=None if best is None else names.index(best),
        values=[
            FigureValue(
                value=values[name].value,
                low=values[name].low,
                high=values[name].high,
                shown=format_value(figure, values[name]),
            )
            for name in names
        ],
    )
