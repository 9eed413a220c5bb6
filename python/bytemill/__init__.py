"""Byte-level BPE tokenizers: trained, measured and seen; and the small language models built on them.

What reads corpora and trains is imported when it is first asked for: a program that only encodes starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bytemill._core import __version__
from bytemill.errors import (
    BytemillError,
    CorpusError,
    DownloadError,
    OutputError,
    ShardError,
    SpecialTokenError,
    TokenizerError,
    TokenizerFileError,
    UnknownTokenError,
)
from bytemill.formats.patterns import Pattern
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bytemill import datasets
    from bytemill.analysis.baselines import ByteTokenizer, CharacterTokenizer, WordTokenizer
    from bytemill.analysis.metrics import compression_ratio
    from bytemill.corpus import Corpus
    from bytemill.shards import encode_corpus
    from bytemill.training import counts
    from bytemill.training.train import (
        TrainingProgress,
        TrainingReport,
        TrainingStoppedEarly,
        train,
        train_bpe,
        train_from_iterator,
    )

__all__ = [
    "ByteTokenizer",
    "BytemillError",
    "CharacterTokenizer",
    "Corpus",
    "CorpusError",
    "DownloadError",
    "OutputError",
    "Pattern",
    "ShardError",
    "SpecialTokenError",
    "Tokenizer",
    "TokenizerError",
    "TokenizerFileError",
    "TrainingProgress",
    "TrainingReport",
    "TrainingStoppedEarly",
    "UnknownTokenError",
    "WordTokenizer",
    "__version__",
    "compression_ratio",
    "counts",
    "datasets",
    "encode_corpus",
    "train",
    "train_bpe",
    "train_from_iterator",
]

_LAZY_NAMES = {
    "bytemill.analysis.baselines": ("ByteTokenizer", "CharacterTokenizer", "WordTokenizer"),
    "bytemill.analysis.metrics": ("compression_ratio",),
    "bytemill.corpus": ("Corpus",),
    "bytemill.shards": ("encode_corpus",),
    "bytemill.training": (
        "TrainingProgress",
        "TrainingReport",
        "TrainingStoppedEarly",
        "train",
        "train_bpe",
        "train_from_iterator",
    ),
}
_MODULE_OF_NAME = {name: module for module, names in _LAZY_NAMES.items() for name in names}
_LAZY_MODULES = {"counts": "bytemill.training.counts", "datasets": "bytemill.datasets"}


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        value = import_module(_LAZY_MODULES[name])
    elif name in _MODULE_OF_NAME:
        value = getattr(import_module(_MODULE_OF_NAME[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
