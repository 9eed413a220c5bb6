"""The whole arc on text that every machine has: corpus, tokenizer, shards, comparison, report."""

from bytemill.quickstart.pipeline import run
from bytemill.quickstart.result import QuickstartResult

__all__ = ["QuickstartResult", "run"]
