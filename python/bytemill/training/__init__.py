"""Tokenizer training: counting pre-tokens, learning merges, building the tokenizer."""

from bytemill.tokenizer.training_report import TrainingReport
from bytemill.training.train import TrainingProgress, TrainingStoppedEarly, train, train_bpe

__all__ = ["TrainingProgress", "TrainingReport", "TrainingStoppedEarly", "train", "train_bpe"]
