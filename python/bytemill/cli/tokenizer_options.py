"""Options of `bytemill tokenizer`, and the files that they name: patterns, special tokens, corpora, counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import CycloptsError, Parameter

from bytemill._core import NAMED_PATTERNS
from bytemill.errors import OutputError, TokenizerError
from bytemill.formats.patterns import Pattern, resolve_pattern
from bytemill.storage import StoreFolder, exists, shown, split_url, url_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.cli.executor_options import ExecutorOptions
    from bytemill.cli.options import CorpusArguments
    from bytemill.cli.output import ProgressDisplay
    from bytemill.corpus import Corpus
    from bytemill.formats.spec import SpecialTokens
    from bytemill.training.counts import CountedCorpus, SavedCounts

_REGEX = "regex:"
_OVERWRITE_HINT = "choose another name, or replace it with --overwrite"

PATTERNS = f"{', '.join(NAMED_PATTERNS)}, none, or regex:EXPR."
"""The values of `--pattern`, for help texts."""

PatternOfFile: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--pattern",
        help=f"Pattern of a file that stores none (.tiktoken, vocab.json with merges.txt): {PATTERNS}",
    ),
]
SpecialTokensOfFile: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(
        name="--special-token",
        help="Special token of a file that stores none, as TOKEN or TOKEN=ID. Repeat for several.",
    ),
]


def parse_pattern(text: str) -> Pattern | None:
    r"""Return the pattern of `--pattern NAME|none|regex:EXPR`.

    Raises:
        TokenizerError: The name is unknown, or the expression does not compile.

    >>> parse_pattern(r"regex:\w+").expression
    '\\w+'
    """
    if text == "none":
        return None
    if text.startswith(_REGEX):
        return Pattern.regex(text.removeprefix(_REGEX))
    expression = resolve_pattern(text)
    return None if expression is None else Pattern(expression)


def load_arguments(pattern: str | None, special_tokens: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of `Tokenizer.load` for `--pattern` and `--special-token`, omitting unset ones.

    Raises:
        TokenizerError: The pattern is invalid, or only some of the special tokens have an id.

    >>> load_arguments("none", ["<|endoftext|>=50256"])
    {'pattern': None, 'special_tokens': {'<|endoftext|>': 50256}}
    >>> load_arguments(None, ["<s>", "</s>"])
    {'special_tokens': ['<s>', '</s>']}
    """
    arguments: dict[str, Any] = {}
    if pattern is not None:
        arguments["pattern"] = parse_pattern(pattern)
    if special_tokens:
        arguments["special_tokens"] = parse_special_tokens(special_tokens)
    return arguments


def parse_special_tokens(words: Sequence[str]) -> SpecialTokens:
    """Return special tokens of the command line, TOKEN or TOKEN=ID.

    Raises:
        TokenizerError: Only some of them have an id.
    """
    with_ids = dict(parsed for word in words if (parsed := _with_id(word)) is not None)
    if with_ids and len(with_ids) != len(words):
        raise TokenizerError(
            "some special tokens have an id and others do not", hint="add =ID to every one, or to none"
        )
    return with_ids or list(words)


def _with_id(word: str) -> tuple[str, int] | None:
    text, equals, number = word.rpartition("=")
    if not (text and equals and number.isascii() and number.isdigit() and len(number) <= 10):
        return None
    return text, int(number)


# Inputs and outputs of `bytemill tokenizer train`.


def check_usage(inputs: Sequence[str], counts: Sequence[str]) -> None:
    """Raise CycloptsError unless there is something to train on."""
    if not inputs and not counts:
        raise CycloptsError("name INPUTS to train on, or files of counts with --counts FILE")
    if inputs and len(counts) > 1:
        raise CycloptsError(
            "use --counts once with INPUTS; without INPUTS, several files of counts are added up"
        )


def training_inputs(
    inputs: Sequence[str], corpus: CorpusArguments, counts: Sequence[str]
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
    from bytemill.storage.files import check_output_object, working_path

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


def training_resume_hint(
    output_file: Path, work_folder: Path, counts: str | None, *, in_units: bool = False
) -> str:
    """Return how to continue an interrupted training of a tokenizer.

    Args:
        output_file: The tokenizer file, which was not written.
        work_folder: Folder of the checkpoints of counting.
        counts: File of counts, or None.
        in_units: Several processes count in units, each of which is kept.
    """
    from bytemill.training.work_folder import has_checkpoint

    if has_checkpoint(work_folder):
        how = "resume from the last checkpoint"
    elif counts is not None and exists(counts):
        how = f"train on the counts in {counts}"
    elif in_units:
        how = "resume after the units that are finished"
    else:
        how = "start over"
    return f"{shown(output_file)} was not written: run the same command again to {how}"


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
    from bytemill.training.counting import CountingSettings
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
