"""Inputs of `bytemill tokenizer train`: a corpus, or saved counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import CycloptsError

from bytemill.errors import OutputError
from bytemill.storage import StoreFolder, exists, split_url, url_of

_OVERWRITE_HINT = "choose another name, or replace it with --overwrite"

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.cli.corpus_options import CorpusOptions
    from bytemill.cli.executor_options import ExecutorOptions
    from bytemill.cli.progress import ProgressDisplay
    from bytemill.corpus import Corpus
    from bytemill.formats.patterns import Pattern
    from bytemill.training.counts import CountedCorpus, SavedCounts


def check_usage(inputs: Sequence[str], counts: Sequence[str]) -> None:
    """Raise CycloptsError unless there is something to train on."""
    if not inputs and not counts:
        raise CycloptsError("name INPUTS to train on, or files of counts with --counts FILE")
    if inputs and len(counts) > 1:
        raise CycloptsError(
            "use --counts once with INPUTS; without INPUTS, several files of counts are added up"
        )


def training_inputs(
    inputs: Sequence[str], corpus: CorpusOptions, counts: Sequence[str]
) -> tuple[Corpus | SavedCounts, str | None]:
    """Return the inputs of `train`, and the file of counts to read or write."""
    from bytemill.training.counts import SavedCounts

    if not inputs:
        return SavedCounts([_file_and_weight(text) for text in counts]), None
    return corpus.corpus(inputs), counts[0] if counts else None


def local_path(output_file: Path, *, overwrite: bool) -> Path:
    """Return where a file is written before it goes to an object store: the file itself, if it does not.

    Raises:
        OutputError: The store has a file of this name, and `overwrite` is False.
        StorageError: The store cannot be written.
    """
    from bytemill.storage.files import check_output_object
    from bytemill.storage.local_copies import working_path

    url = url_of(output_file)
    if url is None:
        return output_file
    check_output_object(url, overwrite=overwrite)
    path = working_path(url)
    path.unlink(missing_ok=True)
    return path


def publish_output(file: Path, output_file: Path, *, overwrite: bool) -> None:
    """Move a file that `local_path` has named to the object store, if that is where it goes.

    Raises:
        OutputError: The store has a file of this name by now, and `overwrite` is False.
    """
    url = url_of(output_file)
    if url is None:
        return
    folder, name = split_url(url)
    data = file.read_bytes()
    if overwrite:
        StoreFolder(folder).put(name, data)
    elif not StoreFolder(folder).create(name, data):
        raise OutputError(
            f"another process has written {url}; this result is in {file}", hint=_OVERWRITE_HINT
        )
    file.unlink()


def checkpoint_folder(output_file: Path, counts: str | None) -> Path:
    """Return the folder of the checkpoints of counting."""
    from bytemill.storage.local_copies import working_path

    path = output_file if counts is None else Path(counts)
    if (url := url_of(path)) is not None:
        path = working_path(url)
    return path.with_name(f".{path.name}.counting")


def _file_and_weight(text: str) -> tuple[str, str]:
    """Split FILE=WEIGHT; an existing file whose name contains an equals sign has weight 1."""
    name, equals, weight = text.rpartition("=")
    return (text, "1") if not equals or Path(text).exists() else (name, weight)


def count_by_processes(
    processes: ExecutorOptions,
    source: Corpus | SavedCounts,
    output_file: Path,
    display: ProgressDisplay,
    *,
    special_tokens: Sequence[str],
    pattern: Pattern | None,
    threads: int | None,
    max_memory: str | None,
    counts_file: str | None,
    as_json: bool,
    quiet: bool,
) -> CountedCorpus | None:
    """Count a corpus on an executor. Returns None if only the plan was asked for."""
    from bytemill.cli import output
    from bytemill.cli.executor_options import write_estimate
    from bytemill.corpus import Corpus
    from bytemill.data.executors import count_corpus
    from bytemill.data.executors.plan import estimate_counting
    from bytemill.training.counting_session import CountingSettings
    from bytemill.training.counts import save
    from bytemill.training.memory_budget import MemoryBudget, parse_max_memory

    if not isinstance(source, Corpus) or (counts_file is not None and exists(counts_file)):
        raise CycloptsError("leave out --executor: these counts exist, so there is nothing to count")
    budget = None if max_memory is None else MemoryBudget(parse_max_memory(max_memory))
    expression = None if pattern is None else pattern.expression
    settings = CountingSettings(special_tokens, expression, threads or 1, budget=budget)
    with processes.open() as executor:
        if processes.dry_run:
            estimate = estimate_counting(executor, source, settings, unit_bytes=processes.unit_bytes)
            write_estimate(estimate, as_json=as_json)
            return None
        output.note(f"counting with {executor.description}", quiet=quiet or processes.json_progress)
        progress = processes.progress(display, quiet=quiet)
        counted = count_corpus(
            executor,
            source,
            settings,
            _units_folder(output_file),
            unit_bytes=processes.unit_bytes,
            progress=progress,
            note=lambda text: output.note(text, quiet=quiet),
        )
    if counts_file is not None:
        save(counted, counts_file)
    return counted


def remove_units(output_file: Path) -> None:
    """Remove what the processes left that counted for this output. Raises OutputError."""
    from bytemill.data.executors.count import remove_work

    remove_work(_units_folder(output_file))


def _units_folder(output_file: Path) -> Path | str:
    if (url := url_of(output_file)) is not None:
        folder, name = split_url(url)
        return f"{folder}/.{name}.units"
    return output_file.with_name(f".{output_file.name}.units")
