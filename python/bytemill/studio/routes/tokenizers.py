"""Routes of tokenizers and their vocabularies."""

from __future__ import annotations

from importlib.util import find_spec

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from bytemill._core import __version__
from bytemill.formats.patterns import Pattern
from bytemill.studio.arrays import large_response
from bytemill.studio.files import shown_name
from bytemill.studio.library import Entry
from bytemill.studio.schemas import Named, SourceList, Status, TokenizerSummary, VocabularyColumns
from bytemill.studio.state import Studio
from bytemill.studio.vocabulary_table import smallest_size, vocabulary_table

router = APIRouter(tags=["tokenizers"])


@router.get("/status")
def status(studio: Studio) -> Status:
    """Return what the page needs to know first."""
    root = studio.library.root
    return Status(
        version=__version__,
        started=studio.started,
        root=None if root is None else shown_name(root.name) or "/",
        has_models=find_spec("torch") is not None,
    )


@router.get("/sources")
def sources(studio: Studio) -> SourceList:
    """List tokenizers and texts."""
    shelf = studio.library.shelf()
    return SourceList(
        tokenizers=[named(entry) for entry in shelf.tokenizers.values()],
        texts=[named(entry) for entry in shelf.texts.values()],
    )


def named(entry: Entry) -> Named:
    """Return what the page may know of an entry."""
    return Named(id=entry.id, name=entry.name, origin=entry.origin)


@router.get("/tokenizers/{tokenizer_id}")
def tokenizer_summary(tokenizer_id: str, studio: Studio) -> TokenizerSummary:
    """Describe a tokenizer."""
    entry = studio.library.shelf().tokenizers[tokenizer_id]
    tokenizer = studio.library.tokenizer(tokenizer_id)
    return TokenizerSummary(
        id=tokenizer_id,
        name=entry.name,
        argument=studio.library.argument_of(entry),
        n_vocab=tokenizer.n_vocab,
        n_tokens=len(tokenizer),
        n_special=len(tokenizer.special_tokens),
        pattern=tokenizer.pattern,
        pattern_name=None if tokenizer.pattern is None else Pattern(tokenizer.pattern).name,
        normalizer=tokenizer.normalizer,
        fingerprint=tokenizer.fingerprint,
        smallest_size=smallest_size(tokenizer),
        special=tokenizer.special_tokens,
    )


@router.get("/tokenizers/{tokenizer_id}/vocabulary", response_model=VocabularyColumns)
def vocabulary(tokenizer_id: str, studio: Studio) -> StreamingResponse:
    """Return all tokens of a tokenizer, as columns."""
    tokenizer = studio.library.tokenizer(tokenizer_id)
    table = vocabulary_table(tokenizer)
    return large_response(
        {
            "n_vocab": tokenizer.n_vocab,
            "data": table.data,
            "lengths": table.lengths,
            "left": table.left,
            "right": table.right,
            "ranks": table.ranks,
            "counts": table.counts,
            "special": tokenizer.special_tokens,
        }
    )
