"""Where text comes from."""

from bytemill.corpus.corpus import Corpus
from bytemill.corpus.documents import CorpusCounts, DocumentBatch, DocumentSource, Position
from bytemill.corpus.messages import not_utf8
from bytemill.corpus.options import parse_bytes
from bytemill.corpus.reading import read_blocks
from bytemill.corpus.sources import CorpusInputs, Source, is_texts, resolve_inputs
from bytemill.corpus.texts import iter_texts

__all__ = [
    "Corpus",
    "CorpusCounts",
    "CorpusInputs",
    "DocumentBatch",
    "DocumentSource",
    "Position",
    "Source",
    "is_texts",
    "iter_texts",
    "not_utf8",
    "parse_bytes",
    "read_blocks",
    "resolve_inputs",
]
