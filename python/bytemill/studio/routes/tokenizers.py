"""Routes of tokenizers and their vocabularies."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from bytemill.formats.patterns import Pattern
from bytemill.studio.arrays import large_response
from bytemill.studio.library import Entry
from bytemill.studio.schemas import Named, SourceList, TokenizerSummary, VocabularyColumns
from bytemill.studio.state import State, Studio
from bytemill.studio.vocabulary_table import smallest_size, vocabulary_table

router = APIRouter(tags=["tokenizers"])


@router.get("/sources")
def sources(studio: Studio) -> SourceList:
    """List tokenizers and texts."""
    shelf = studio.library.shelf()
    return SourceList(
        tokenizers=[named("tokenizers", entry, studio) for entry in shelf.tokenizers.values()],
        texts=[named("texts", entry, studio) for entry in shelf.texts.values()],
    )


def named(kind: Literal["tokenizers", "studies", "texts"], entry: Entry, studio: State) -> Named:
    """Return what the page may know of an entry."""
    stamp = studio.library.stamp_of_opened(kind, entry)
    return Named(id=entry.id, name=entry.name, origin=entry.origin, stamp=stamp)


@router.get("/tokenizers/{tokenizer_id}")
def tokenizer_summary(tokenizer_id: str, studio: Studio) -> TokenizerSummary:
    """Describe a tokenizer."""
    entry = studio.library.entry("tokenizers", tokenizer_id)
    opened = studio.library.open_tokenizer(tokenizer_id)
    tokenizer = opened.tokenizer
    return TokenizerSummary(
        id=tokenizer_id,
        stamp=opened.stamp,
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
    opened = studio.library.open_tokenizer(tokenizer_id)
    tokenizer = opened.tokenizer
    table = vocabulary_table(tokenizer)
    return large_response(
        {
            "stamp": opened.stamp,
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
