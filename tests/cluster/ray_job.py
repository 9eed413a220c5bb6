"""A driver for the tests of faults: encodes a corpus on a Ray cluster, or counts it, in a process of its own.

python -m tests.cluster.ray_job ADDRESS encode|count OUT UNIT_BYTES FILE...
"""

import sys
from pathlib import Path

from bytemill.cluster import count_corpus, encode_corpus, open_executor
from bytemill.corpus import Corpus
from bytemill.errors import BytemillError
from bytemill.training.counting import CountingSettings
from bytemill.training.counts import save
from tests.cluster.corpora import EOT, tokenizer


def main() -> int:
    """Run the job; 1 for an error that says so."""
    address, what, out, unit_bytes, *files = sys.argv[1:]
    try:
        with open_executor("ray", address=address) as executor:
            if what == "encode":
                encode_corpus(
                    executor, tokenizer(), Corpus(files), out, unit_bytes=int(unit_bytes), shard_tokens=20_000
                )
            else:
                counting = CountingSettings([EOT], num_threads=1)
                work = Path(f"{out}.work")
                counted = count_corpus(executor, Corpus(files), counting, work, unit_bytes=int(unit_bytes))
                save(counted, out)
    except BytemillError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
