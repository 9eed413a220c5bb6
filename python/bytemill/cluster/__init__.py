"""Counting and encoding by several processes, on one machine or on a Ray cluster, with the results of one process.

    from bytemill.cluster import encode_corpus, open_executor

    with open_executor("local", num_workers=8) as executor:
        encode_corpus(executor, tokenizer, "corpus/*.jsonl", "shards")

- `executor`: what runs tasks; `local` and `ray_cluster`, its two implementations; `opening` chooses one
- `schedule`: runs idempotent tasks on an executor: retries, second copies of slow tasks, progress
- `stage`: the folder in which tasks leave their results
- `encode`, `count`: what the tasks do
"""

from bytemill.cluster.count import count_corpus
from bytemill.cluster.encode import encode_corpus
from bytemill.cluster.executor import Executor
from bytemill.cluster.opening import open_executor
from bytemill.cluster.schedule import UnitProgress

__all__ = ["Executor", "UnitProgress", "count_corpus", "encode_corpus", "open_executor"]
