"""Corpora: inputs, formats, and documents in batches."""

from bytemill.corpus.corpus import Corpus, iter_texts
from bytemill.corpus.documents import CorpusCounts, DocumentBatch, DocumentSource, Position
from bytemill.corpus.formats import CorpusFormat, register_corpus_format
from bytemill.corpus.options import parse_bytes
from bytemill.corpus.sources import CorpusInputs, Source, resolve_inputs
from bytemill.corpus.streams import not_utf8, read_blocks, read_decompressed

__all__ = [
    "Corpus",
    "CorpusCounts",
    "CorpusFormat",
    "CorpusInputs",
    "DocumentBatch",
    "DocumentSource",
    "Position",
    "Source",
    "iter_texts",
    "not_utf8",
    "parse_bytes",
    "read_blocks",
    "read_decompressed",
    "register_corpus_format",
    "resolve_inputs",
]
