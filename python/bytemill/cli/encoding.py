"""What `bytemill data encode` and `data reencode` share: the work of one process or several, with progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.cli import output
from bytemill.cli.executor_options import ExecutorOptions, write_estimate
from bytemill.cli.failures import interruptible, resume_hint
from bytemill.storage import shown
from bytemill.system.units import format_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.corpus import Corpus
    from bytemill.data import EncodeProgress, EncodeSettings, Manifest, ShardCorpus
    from bytemill.tokenizer.tokenizer import Tokenizer


def encode(
    processes: ExecutorOptions,
    tokenizer: Tokenizer,
    source: Corpus | ShardCorpus,
    output_folder: Path,
    settings: EncodeSettings,
    *,
    threads: int | None,
    overwrite: bool,
    recheck: bool,
    as_json: bool,
    quiet: bool,
) -> tuple[Manifest, EncodeProgress | None] | None:
    """Encode, and return the manifest and the last progress of this process; or show a plan and return None."""
    if processes.is_distributed:
        manifest = _encode_by_units(
            processes,
            tokenizer,
            source,
            output_folder,
            settings,
            threads=threads or 1,
            overwrite=overwrite,
            recheck=recheck,
            as_json=as_json,
            quiet=quiet,
        )
        return manifest and (manifest, None)
    from bytemill.cli.output import ProgressDisplay, encoding_progress
    from bytemill.data.encode import encode_with

    last: EncodeProgress | None = None
    said: list[str] = []
    with interruptible(lambda: resume_hint(output_folder)), ProgressDisplay(quiet=quiet) as display:
        show = encoding_progress(display)

        def progress(event: EncodeProgress) -> None:
            nonlocal last
            last = event
            if event.already_complete:
                said.append(f"{shown(output_folder)} already contains these shards: nothing to do")
            elif event.n_bytes_before and not said:
                said.append(f"resuming an interrupted run at {format_bytes(event.n_bytes_before)}")
            else:
                show(event)
                return
            output.note(said[-1], quiet=quiet)

        manifest = encode_with(
            tokenizer,
            source,
            output_folder,
            settings,
            num_threads=threads,
            progress=progress,
            note=lambda text: output.note(text, quiet=quiet),
            overwrite=overwrite,
            recheck=recheck,
        )
    return manifest, last


def _encode_by_units(
    processes: ExecutorOptions,
    tokenizer: Tokenizer,
    source: Corpus | ShardCorpus,
    output_folder: Path,
    settings: EncodeSettings,
    *,
    threads: int,
    overwrite: bool,
    recheck: bool,
    as_json: bool,
    quiet: bool,
) -> Manifest | None:
    from bytemill.cli.output import ProgressDisplay
    from bytemill.data.executors.encode import encode_with
    from bytemill.data.executors.plan import estimate_encoding

    with (
        interruptible("run the same command again to resume from the units that are done"),
        ProgressDisplay(quiet=quiet) as display,
        processes.open() as executor,
    ):
        if processes.dry_run:
            estimate = estimate_encoding(
                executor, tokenizer, source, settings, unit_bytes=processes.unit_bytes, num_threads=threads
            )
            write_estimate(estimate, as_json=as_json)
            return None
        output.note(f"encoding with {executor.description}", quiet=quiet or processes.json_progress)
        return encode_with(
            executor,
            tokenizer,
            source,
            output_folder,
            settings,
            unit_bytes=processes.unit_bytes,
            num_threads=threads,
            progress=processes.progress(display, quiet=quiet),
            note=lambda text: output.note(text, quiet=quiet),
            overwrite=overwrite,
            recheck=recheck,
        )
