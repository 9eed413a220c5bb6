"""Tokenizer training: count pre-tokens, learn merges, build the tokenizer."""

from bytemill.tokenizer.training_report import TrainingReport
from bytemill.training.pipeline import TrainingStoppedEarly, train, train_bpe, train_from_iterator
from bytemill.training.progress import TrainingProgress

__all__ = [
    "TrainingProgress",
    "TrainingReport",
    "TrainingStoppedEarly",
    "train",
    "train_bpe",
    "train_from_iterator",
]
