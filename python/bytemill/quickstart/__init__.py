"""The guided first run: corpus, tokenizer, shards, comparison, language model, report."""

from bytemill.quickstart.pipeline import run
from bytemill.quickstart.result import QuickstartResult

__all__ = ["QuickstartResult", "run"]
