"""Evaluation: loss, perplexity and bits per byte on text, also by class of token, and HellaSwag accuracy."""

from bytemill.lm.evaluate.hellaswag import HellaSwagItem, HellaSwagScore, evaluate_hellaswag, read_items
from bytemill.lm.evaluate.text import (
    TextScore,
    evaluate_text,
    evaluate_windows,
    score_shards,
    score_text_file,
)
from bytemill.lm.evaluate.token_classes import LossByClass

__all__ = [
    "HellaSwagItem",
    "HellaSwagScore",
    "LossByClass",
    "TextScore",
    "evaluate_hellaswag",
    "evaluate_text",
    "evaluate_windows",
    "read_items",
    "score_shards",
    "score_text_file",
]
