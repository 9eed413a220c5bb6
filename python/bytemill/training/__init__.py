"""Tokenizer training: count pre-tokens, learn merges, build the tokenizer."""

from bytemill.tokenizer.training_report import TrainingReport
from bytemill.training.extension import extend, extend_from_iterator
from bytemill.training.pipeline import (
    TrainingProgress,
    TrainingStoppedEarly,
    train,
    train_bpe,
    train_from_iterator,
)
from bytemill.training.superwords import train_superwords

__all__ = [
    "TrainingProgress",
    "TrainingReport",
    "TrainingStoppedEarly",
    "extend",
    "extend_from_iterator",
    "train",
    "train_bpe",
    "train_from_iterator",
    "train_superwords",
]
