"""Byte-level BPE tokenizers: trained, measured and seen; and the small language models built on them.

Names are imported when they are first used, so that `import bytemill` takes about a millisecond.
"""

TYPE_CHECKING = False  # as in typing, whose import takes longer than everything else here
if TYPE_CHECKING:
    from typing import Any

    from bytemill import datasets
    from bytemill._core import __version__
    from bytemill.analysis.baselines import ByteTokenizer, CharacterTokenizer, WordTokenizer
    from bytemill.analysis.metrics import compression_ratio
    from bytemill.comparison import compare
    from bytemill.corpus import Corpus
    from bytemill.data import encode_corpus
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
    from bytemill.tokenizer.surgery.extension import add_words
    from bytemill.tokenizer.surgery.lint import lint
    from bytemill.tokenizer.surgery.trimming import trim
    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.training import counts
    from bytemill.training.extension import extend, extend_from_iterator
    from bytemill.training.pipeline import (
        TrainingProgress,
        TrainingReport,
        TrainingStoppedEarly,
        train,
        train_bpe,
        train_from_iterator,
    )
    from bytemill.training.superwords import train_superwords
    from bytemill.training.usage import count_tokens

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
    "add_words",
    "compare",
    "compression_ratio",
    "count_tokens",
    "counts",
    "datasets",
    "encode_corpus",
    "extend",
    "extend_from_iterator",
    "lint",
    "train",
    "train_bpe",
    "train_from_iterator",
    "train_superwords",
    "trim",
]

_NAMES = {
    "bytemill._core": ("__version__",),
    "bytemill.analysis.baselines": ("ByteTokenizer", "CharacterTokenizer", "WordTokenizer"),
    "bytemill.analysis.metrics": ("compression_ratio",),
    "bytemill.comparison": ("compare",),
    "bytemill.corpus": ("Corpus",),
    "bytemill.errors": (
        "BytemillError",
        "CorpusError",
        "DownloadError",
        "OutputError",
        "ShardError",
        "SpecialTokenError",
        "TokenizerError",
        "TokenizerFileError",
        "UnknownTokenError",
    ),
    "bytemill.formats.patterns": ("Pattern",),
    "bytemill.data": ("encode_corpus",),
    "bytemill.tokenizer.tokenizer": ("Tokenizer",),
    "bytemill.tokenizer.surgery.extension": ("add_words",),
    "bytemill.tokenizer.surgery.lint": ("lint",),
    "bytemill.tokenizer.surgery.trimming": ("trim",),
    "bytemill.training.usage": ("count_tokens",),
    "bytemill.training": (
        "TrainingProgress",
        "TrainingReport",
        "TrainingStoppedEarly",
        "extend",
        "extend_from_iterator",
        "train",
        "train_bpe",
        "train_from_iterator",
        "train_superwords",
    ),
}
_MODULE_OF_NAME = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = {
    "counts": "bytemill.training.counts",
    "datasets": "bytemill.datasets",
    "shards": "bytemill.shards",
}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name in _MODULES:
        value = import_module(_MODULES[name])
    elif name in _MODULE_OF_NAME:
        value = getattr(import_module(_MODULE_OF_NAME[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
