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
)
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bytemill import datasets
    from bytemill.analysis.baselines import ByteTokenizer, CharacterTokenizer, WordTokenizer
    from bytemill.analysis.metrics import compression_ratio
    from bytemill.corpus import Corpus
    from bytemill.training import counts
    from bytemill.training.train import (
        TrainingProgress,
        TrainingReport,
        TrainingStoppedEarly,
        train,
        train_bpe,
    )

__all__ = [
    "ByteTokenizer",
    "BytemillError",
    "CharacterTokenizer",
    "Corpus",
    "CorpusError",
    "DownloadError",
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
    "counts",
    "datasets",
    "train",
    "train_bpe",
]

_MODULES_OF_NAMES = {
    "analysis.baselines": ("ByteTokenizer", "CharacterTokenizer", "WordTokenizer"),
    "analysis.metrics": ("compression_ratio",),
    "corpus": ("Corpus",),
    "training": ("TrainingProgress", "TrainingReport", "TrainingStoppedEarly", "train", "train_bpe"),
}
_LATER = {name: f"bytemill.{module}" for module, names in _MODULES_OF_NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in ("counts", "datasets", *_MODULES_OF_NAMES):
        return import_module(f"bytemill.{name}")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
