"""Counting and encoding by several processes, on one machine or on a Ray cluster, with the results of one process.

from bytemill.cluster import encode_corpus, open_executor

with open_executor("local", num_workers=8) as executor:
    encode_corpus(executor, tokenizer, "corpus/*.jsonl", "shards")
"""

from bytemill.data.executors import Executor, UnitProgress, count_corpus, encode_corpus, open_executor

__all__ = ["Executor", "UnitProgress", "count_corpus", "encode_corpus", "open_executor"]
