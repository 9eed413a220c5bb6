"""Tokenizer training: count pre-tokens, learn merges, build the tokenizer."""

from bytemill.tokenizer.training_report import TrainingReport
from bytemill.training.progress import TrainingProgress
from bytemill.training.train import TrainingStoppedEarly, train, train_bpe, train_from_iterator

__all__ = [
    "TrainingProgress",
    "TrainingReport",
    "TrainingStoppedEarly",
    "train",
    "train_bpe",
    "train_from_iterator",
]
