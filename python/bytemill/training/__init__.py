"""Tokenizer training: count pre-tokens, learn merges, build the tokenizer."""

from bytemill.tokenizer.training_report import TrainingReport
from bytemill.training.pipeline import (
    TrainingProgress,
    TrainingStoppedEarly,
    train,
    train_bpe,
    train_from_iterator,
)

__all__ = [
    "TrainingProgress",
    "TrainingReport",
    "TrainingStoppedEarly",
    "train",
    "train_bpe",
    "train_from_iterator",
]
