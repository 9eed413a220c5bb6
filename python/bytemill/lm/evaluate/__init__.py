"""Evaluation: loss, perplexity and bits per byte on text, and HellaSwag accuracy."""

from bytemill.lm.evaluate.hellaswag import HellaSwagItem, HellaSwagScore, evaluate_hellaswag, read_items
from bytemill.lm.evaluate.sources import score_shards, score_text_file
from bytemill.lm.evaluate.text import TextScore, evaluate_text, evaluate_windows

__all__ = [
    "HellaSwagItem",
    "HellaSwagScore",
    "TextScore",
    "evaluate_hellaswag",
    "evaluate_text",
    "evaluate_windows",
    "read_items",
    "score_shards",
    "score_text_file",
]
