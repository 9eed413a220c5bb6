"""Routes of texts: open, edit, encode, explain."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException
from fastapi.responses import StreamingResponse

from bytemill.studio.arrays import large_response
from bytemill.studio.schemas import (
    Explained,
    ExplainSpec,
    Ids,
    NewText,
    PreToken,
    Step,
    TextEdit,
    TextEdited,
    TextOpened,
    ViewSpec,
)
from bytemill.studio.state import Studio
from bytemill.studio.texts import Edit, View

router = APIRouter(tags=["texts"])


@router.post("/texts")
def open_text(spec: NewText, studio: Studio) -> TextOpened:
    """Store a text, or open one that the library has."""
    if (spec.text is None) == (spec.source is None):
        raise HTTPException(422, "give either text or source")
    if spec.source is not None:
        own = studio.library.text(spec.source)
        text_id, text = studio.texts.add(own.content)
        return TextOpened(
            id=text_id, version=0, n_bytes=text.n_bytes, name=own.name, text=own.content, stamp=own.stamp
        )
    text_id, text = studio.texts.add(spec.text or "")
    return TextOpened(id=text_id, version=0, n_bytes=text.n_bytes)


@router.patch("/texts/{text_id}", response_model=TextEdited)
def edit_text(text_id: str, spec: TextEdit, studio: Studio) -> StreamingResponse:
    """Edit a text, and return what changes in its ids."""
    text, changes = studio.texts.edit(
        text_id,
        spec.version,
        [Edit(edit.start, edit.end, edit.text) for edit in spec.edits],
        [_view(view) for view in spec.views],
    )
    views = [vars(each) for each in changes]
    return large_response({"version": text.version, "n_bytes": text.n_bytes, "views": views})


@router.post("/texts/{text_id}/ids", response_model=Ids)
def text_ids(text_id: str, spec: ViewSpec, studio: Studio) -> StreamingResponse:
    """Return all ids of a text."""
    text, found = studio.texts.ids(text_id, _view(spec))
    return large_response({"version": text.version, "n_bytes": text.n_bytes, **vars(found)})


@router.post("/explanation")
def explain(spec: ExplainSpec, studio: Studio) -> Explained:
    """Return the pre-tokens of a text, and the merges of each."""
    own = studio.tokenizers(_view(spec))
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


def _view(spec: ViewSpec) -> View:
    return View(spec.tokenizer, spec.special, spec.vocab_size)
