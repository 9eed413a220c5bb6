"""Tokenizer training: counting pre-tokens, learning merges, building the tokenizer."""

from bytemill.training.train import TrainingProgress, TrainingReport, TrainingStoppedEarly, train, train_bpe

__all__ = ["TrainingProgress", "TrainingReport", "TrainingStoppedEarly", "train", "train_bpe"]
