"""Routes of tokenizers and their vocabularies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from bytemill.errors import UnknownTokenError
from bytemill.formats.patterns import Pattern
from bytemill.studio.library import Entry
from bytemill.studio.schemas import Named, SourceList, TokenizerSummary, VocabularyColumns, large_response
from bytemill.studio.state import State, Studio

if TYPE_CHECKING:
    from bytemill.tokenizer.tokenizer import Tokenizer

router = APIRouter(tags=["tokenizers"])

NO_TOKEN = 0xFFFFFFFF


@router.get("/sources")
def sources(studio: Studio) -> SourceList:
    """List tokenizers and texts."""
    shelf = studio.library.shelf()
    return SourceList(
        tokenizers=[named(entry, studio) for entry in shelf["tokenizers"].values()],
        texts=[named(entry, studio) for entry in shelf["texts"].values()],
    )


def named(entry: Entry, studio: State) -> Named:
    """Return what the page may know of an entry."""
    stamp = studio.library.stamps.of_opened(entry.files)
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
    columns = vocabulary_table(tokenizer)
    return large_response(
        {
            "stamp": opened.stamp,
            "n_vocab": tokenizer.n_vocab,
            **columns,
            "special": tokenizer.special_tokens,
        }
    )


def vocabulary_table(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return every id from 0 to n_vocab − 1 as columns; ids without a token have no bytes.

    Returns:
        `data`, the bytes of all tokens one after the other; `lengths`; `left` and `right`, the ids of the parts, and
        `ranks`, the rank of the merge that makes a token (`NO_TOKEN` if none does); `counts`, the count in training of
        the pair of each rank, if the file has them.
    """
    n = tokenizer.n_vocab
    lengths = np.zeros(n, np.uint32)
    left, right, ranks = (np.full(n, NO_TOKEN, np.uint32) for _ in range(3))
    data = bytearray()  # and not `tokenizer.vocab`, which has an object for each token
    for token_id in range(n):
        try:
            token = tokenizer.core.token_bytes(token_id)
        except UnknownTokenError:
            continue
        data += token
        lengths[token_id] = len(token)
        merge = tokenizer.core.merge_of(token_id)
        if merge is not None:
            ranks[token_id], left[token_id], right[token_id] = merge
    return {
        "data": bytes(data),
        "lengths": lengths,
        "left": left,
        "right": right,
        "ranks": ranks,
        "counts": tokenizer.merge_counts,
    }


def smallest_size(tokenizer: Tokenizer) -> int | None:
    """Return the smallest size that a tokenizer can be truncated to, or None if it cannot be truncated.

    Like `Tokenizer.truncate`, without making the list of all merges: every token is a byte, special, or made by a
    merge, and ids follow the order of the merges.
    """
    core = tokenizer.core
    if core.ranked or core.fallback is not None:
        return None
    last_byte = max(core.bytes_to_id(bytes([byte])) or 0 for byte in range(256))
    special = set(tokenizer.special_tokens.values())
    rank, n_special = -1, 0
    for token_id in range(tokenizer.n_vocab):
        merge = core.merge_of(token_id)
        if merge is not None:
            if merge[0] < rank or token_id < last_byte:
                return None
            rank = merge[0]
        elif token_id in special:
            n_special += 1
        else:
            try:
                if len(core.token_bytes(token_id)) > 1:
                    return None
            except UnknownTokenError:
                continue
    return 256 + n_special
