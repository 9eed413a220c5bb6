"""Byte-level BPE tokenizers: trained, measured and seen; and the small language models built on them."""

from bytemill._core import __version__
from bytemill.baselines import ByteTokenizer, CharacterTokenizer, WordTokenizer
from bytemill.corpus import Corpus
from bytemill.errors import (
    BytemillError,
    CorpusError,
    OutputError,
    ShardError,
    SpecialTokenError,
    TokenizerError,
    TokenizerFileError,
)
from bytemill.metrics import compression_ratio
from bytemill.tokenizer import Tokenizer
from bytemill.training import TrainingProgress, TrainingReport, TrainingStoppedEarly, train, train_bpe

__all__ = [
    "ByteTokenizer",
    "BytemillError",
    "CharacterTokenizer",
    "Corpus",
    "CorpusError",
    "OutputError",
    "ShardError",
    "SpecialTokenError",
    "Tokenizer",
    "TokenizerError",
    "TokenizerFileError",
    "TrainingProgress",
    "TrainingReport",
    "TrainingStoppedEarly",
    "WordTokenizer",
    "__version__",
    "compression_ratio",
    "train",
    "train_bpe",
]
