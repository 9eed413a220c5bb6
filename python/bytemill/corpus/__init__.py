"""Where text comes from."""

from bytemill.corpus.documents import CorpusCounts, DocumentBatch, DocumentSource, Position
from bytemill.corpus.reading import iter_texts, not_utf8, read_blocks
from bytemill.corpus.sources import CorpusInputs, Source, is_texts, resolve_inputs

__all__ = [
    "CorpusCounts",
    "CorpusInputs",
    "DocumentBatch",
    "DocumentSource",
    "Position",
    "Source",
    "is_texts",
    "iter_texts",
    "not_utf8",
    "read_blocks",
    "resolve_inputs",
]
