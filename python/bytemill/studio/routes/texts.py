"""Routes of texts: open, edit, encode, explain."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException

from bytemill.studio.arrays import packed
from bytemill.studio.schemas import (
    Explained,
    ExplainSpec,
    Ids,
    IdsChanged,
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
        name, content = studio.library.text(spec.source)
        text_id, text = studio.texts.add(content)
        return TextOpened(id=text_id, version=0, n_bytes=text.n_bytes, name=name, text=content)
    text_id, text = studio.texts.add(spec.text or "")
    return TextOpened(id=text_id, version=0, n_bytes=text.n_bytes)


@router.patch("/texts/{text_id}")
def edit_text(text_id: str, spec: TextEdit, studio: Studio) -> TextEdited:
    """Edit a text, and return what changes in its ids."""
    text, changes = studio.texts.edit(
        text_id,
        spec.version,
        [Edit(edit.start, edit.end, edit.text) for edit in spec.edits],
        [_view(view) for view in spec.views],
    )
    return TextEdited(
        version=text.version,
        n_bytes=text.n_bytes,
        views=[
            IdsChanged(
                start=change.start,
                n_removed=change.n_removed,
                ids=packed(change.ids, "u4"),
                n_tokens=change.n_tokens,
            )
            for change in changes
        ],
    )


@router.post("/texts/{text_id}/ids")
def text_ids(text_id: str, spec: ViewSpec, studio: Studio) -> Ids:
    """Return all ids of a text."""
    text, ids = studio.texts.ids(text_id, _view(spec))
    return Ids(version=text.version, n_bytes=text.n_bytes, ids=packed(ids, "u4"))


@router.post("/explanation")
def explain(spec: ExplainSpec, studio: Studio) -> Explained:
    """Return the pre-tokens of a text, and the merges of each."""
    tokenizer, renumbered = studio.tokenizers(_view(spec))
    explained = tokenizer.explain(spec.text, allowed_special="all" if spec.special else "none")
    return Explained(
        pretokens=[
            PreToken(
                bytes=b"".join(part.tokens).hex(),
                special=part.special,
                ids=[renumbered.get(i, i) for i in part.ids],
                steps=[Step(rank=step.rank, at=step.at) for step in part.steps],
            )
            for part in explained
        ]
    )


def _view(spec: ViewSpec) -> View:
    return View(spec.tokenizer, spec.special, spec.vocab_size)
