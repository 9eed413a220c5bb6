"""What `bytemill data encode` and `data reencode` do with `--executor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.cli import output
from bytemill.cli.executor_options import ExecutorOptions, write_estimate
from bytemill.cli.failures import interruptible

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.corpus import Corpus
    from bytemill.shards import Manifest, ShardCorpus
    from bytemill.shards.encode import EncodeOptions
    from bytemill.tokenizer.tokenizer import Tokenizer


def encode_by_units(
    processes: ExecutorOptions,
    tokenizer: Tokenizer,
    source: Corpus | ShardCorpus,
    output_folder: Path,
    *,
    settings: EncodeOptions,
    threads: int | None,
    overwrite: bool,
    recheck: bool,
    as_json: bool,
    quiet: bool,
) -> Manifest | None:
    """Encode on an executor; or show the plan and return None, for a dry run."""
    from bytemill.cli.output import ProgressDisplay
    from bytemill.cluster import encode_corpus
    from bytemill.cluster.estimate import estimate_encoding

    unit_bytes, num_threads = processes.unit_bytes, threads or 1
    with (
        interruptible("run the same command again to resume from the units that are done"),
        ProgressDisplay(quiet=quiet) as display,
        processes.open() as executor,
    ):
        if processes.dry_run:
            estimate = estimate_encoding(
                executor, tokenizer, source, unit_bytes=unit_bytes, num_threads=num_threads, **settings
            )
            write_estimate(estimate, as_json=as_json)
            return None
        output.note(f"encoding with {executor.description}", quiet=quiet or processes.json_progress)
        return encode_corpus(
            executor,
            tokenizer,
            source,
            output_folder,
            unit_bytes=unit_bytes,
            num_threads=num_threads,
            progress=processes.progress(display, quiet=quiet),
            note=lambda text: output.note(text, quiet=quiet),
            overwrite=overwrite,
            recheck=recheck,
            **settings,
        )
