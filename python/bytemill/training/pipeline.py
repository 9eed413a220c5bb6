"""Tokenizer training: open the corpus, count its pre-tokens, learn merges, build the tokenizer."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bytemill import profiling
from bytemill.corpus import Corpus
from bytemill.corpus.options import check_separator
from bytemill.errors import CorpusError, NotEnoughMemoryError
from bytemill.formats.patterns import resolve_pattern
from bytemill.formats.spec import Ties, TokenizerSpec
from bytemill.storage import exists, is_url, local_input, shown
from bytemill.storage.input_check import check_file_is_no_input, check_folder_is_no_input
from bytemill.system.locks import lock_output
from bytemill.tokenizer.tokenizer import Tokenizer
from bytemill.tokenizer.training_report import TrainingReport
from bytemill.training.counting import (
    CountingSettings,
    ReportCounted,
    corpus_identity,
    count_corpus,
    count_texts,
)
from bytemill.training.counts import (
    CountedCorpus,
    SavedCounts,
    check_compatible,
    check_same_corpus,
    load,
    merge,
    read_info,
    save,
)
from bytemill.training.learning import LearnedMerges, PhaseClock, learn_merges, training_report
from bytemill.training.memory_budget import frugal_allocation
from bytemill.training.options import (
    CHECKPOINT_SECONDS,
    SPECIAL_TOKENS,
    TrainingOptions,
    check_one_of,
    checkpoint_folder,
    training_options,
)
from bytemill.training.token_rules import TokenRules, first_merges
from bytemill.training.work_folder import WorkFolder, is_checkpoint_name

if TYPE_CHECKING:
    import os
    from collections.abc import Generator, Iterable, Sequence

    from bytemill.corpus import CorpusInputs
    from bytemill.formats.patterns import Pattern

__all__ = [
    "TrainingProgress",
    "TrainingReport",
    "TrainingStoppedEarly",
    "train",
    "train_bpe",
    "train_from_iterator",
]


@dataclass(frozen=True)
class TrainingProgress:
    """A progress report of training."""

    phase: Literal["count", "merge"]
    done: int
    """Bytes read ("count"; characters when counting texts) or merges learned ("merge")."""
    total: int | None
    """Final value of `done`, None if unknown, as for standard input. Merging may end earlier."""


ProgressCallback: TypeAlias = Callable[[TrainingProgress], None]


class TrainingStoppedEarly(UserWarning):
    """Training ended before the vocabulary was full, because no pair was left to merge."""


@dataclass(frozen=True)
class Texts:
    """Texts to train on."""

    items: Iterable[str]


TrainingSource: TypeAlias = Corpus | Texts | CountedCorpus | SavedCounts


def train(
    inputs: CorpusInputs | Corpus | CountedCorpus | SavedCounts,
    vocab_size: int,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
    *,
    pattern: str | Pattern | None = "gpt2",
    ties: Ties = "bytes",
    min_pretoken_count: int = 1,
    min_frequency: int = 1,
    special_ids: Literal["last", "first"] = "last",
    errors: Literal["strict", "replace"] = "strict",
    num_threads: int | None = None,
    chunk_bytes: int | None = None,
    max_memory: int | str | None = None,
    counts: str | os.PathLike[str] | None = None,
    work_folder: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    max_token_bytes: int | None = None,
    max_token_characters: int | None = None,
    max_token_words: int | None = None,
    forbid: Sequence[str] = (),
    require: Sequence[str] = (),
    initial: Tokenizer | None = None,
    progress: ProgressCallback | None = None,
) -> Tokenizer:
    """Train a byte-level BPE tokenizer on files, a corpus or saved counts.

    Each file is a document, and no pre-token crosses its end. Special tokens in the text separate documents too and
    are not counted. The result does not depend on `num_threads`, `chunk_bytes` and `max_memory`. To train on Python
    strings, use `train_from_iterator`.

    Algorithm: Sennrich, Haddow & Birch, "Neural machine translation of rare words with subword units" (2016), on
    bytes as in Radford et al., "Language models are unsupervised multitask learners" (2019).

    Args:
        inputs: Files, folders, globs, URLs or "-" for standard input (see `bytemill.Corpus`), a `Corpus`, or counts
            (see `bytemill.counts`).
        vocab_size: Upper bound on the number of tokens: 256 bytes, the merges and the special tokens.
        special_tokens: Tokens that are never split or merged. By default `<|endoftext|>`, which ends documents; an
            explicit list replaces it.
        pattern: How text is split into pre-tokens: a known name such as "gpt2" or "cl100k", a `bytemill.Pattern`, or
            None to make all text between special tokens one pre-token.
        ties: Which of equally frequent pairs is merged first: the lexicographically greatest pair of byte strings
            ("bytes"), or the one that Hugging Face's trainer picks ("huggingface").
        min_pretoken_count: Drop pre-tokens that occur less often. The training report says how many were dropped.
        min_frequency: Do not merge pairs that occur less often.
        special_ids: Give special tokens the last ids, or the first ones from 0.
        errors: Treat malformed UTF-8 in files as an error ("strict") or read it as U+FFFD ("replace"). A `Corpus` has
            its own option.
        num_threads: Number of threads; by default, as many as the machine runs at once.
        chunk_bytes: Text that a thread counts at a time, at most 1 GiB.
        max_memory: Bound on the resident memory of the process, in bytes or like "2GB"; full tables go to disk.
        counts: File of counts. If it exists, it replaces reading the corpus; otherwise the counts are saved to it.
        work_folder: Folder for checkpoints; by default next to `counts`. A later call with the same arguments resumes
            an interrupted counting of files there. The folder appears with the first checkpoint and is removed at
            the end.
        checkpoint_seconds: Time between two checkpoints.
        max_token_bytes: No merge makes a longer token.
        max_token_characters: No merge makes a token of more characters; part of a character counts as one.
        max_token_words: No merge makes a token of more words, for patterns that keep several together.
        forbid: Tokens that no merge makes, as they stand in texts; or `"regex:EXPRESSION"`, which forbids tokens whose
            text contains a match of an expression of Python's `re`.
        require: Words that are tokens, as they stand in texts: a word after a space begins with the space. Their merges
            come before those that are learned, and each beginning of a word on the way is a token too.
        initial: A byte-level tokenizer whose merges come first. Its special tokens and its pattern are not used.
        progress: Called about ten times a second in this thread. An exception that it raises ends training.

    Returns:
        The tokenizer; its `training_report` has statistics and timings.

    Raises:
        CorpusError: The corpus cannot be read, is empty or is not UTF-8, or `counts` belongs to another corpus.
        NotEnoughMemoryError: Memory runs out.
        SpecialTokenError: The corpus is divided at a token that is not one of `special_tokens`.
        OutputError: `counts` or the work folder cannot be written, another process is writing them, or they would
            replace an input.
        TokenizerError: An option is out of range.
        TypeError: An argument has the wrong type.

    Warns:
        TrainingStoppedEarly: No pair was left to merge before the vocabulary was full.

    >>> path = getfixture("tmp_path") / "corpus.txt"
    >>> _ = path.write_text("low low low low low lower lower")
    >>> train(path, vocab_size=259).merges
    [(b'o', b'w'), (b'l', b'ow')]
    """
    options = training_options(
        vocab_size,
        special_tokens,
        pattern=pattern,
        ties=ties,
        min_pretoken_count=min_pretoken_count,
        min_frequency=min_frequency,
        special_ids=special_ids,
        num_threads=num_threads,
        chunk_bytes=chunk_bytes,
        max_memory=max_memory,
        counts=counts,
        work_folder=work_folder,
        checkpoint_seconds=checkpoint_seconds,
        **token_options(
            pattern, max_token_bytes, max_token_characters, forbid, require, initial, max_token_words
        ),
    )
    check_one_of("errors", errors, ("strict", "replace"))
    is_opened = isinstance(inputs, (Corpus, CountedCorpus, SavedCounts))
    return _train(inputs if is_opened else Corpus(inputs, errors=errors), options, progress)


def train_from_iterator(
    texts: Iterable[str],
    vocab_size: int,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
    *,
    pattern: str | Pattern | None = "gpt2",
    ties: Ties = "bytes",
    min_pretoken_count: int = 1,
    min_frequency: int = 1,
    special_ids: Literal["last", "first"] = "last",
    num_threads: int | None = None,
    chunk_bytes: int | None = None,
    max_memory: int | str | None = None,
    counts: str | os.PathLike[str] | None = None,
    max_token_bytes: int | None = None,
    max_token_characters: int | None = None,
    max_token_words: int | None = None,
    forbid: Sequence[str] = (),
    require: Sequence[str] = (),
    initial: Tokenizer | None = None,
    progress: ProgressCallback | None = None,
) -> Tokenizer:
    """Train a byte-level BPE tokenizer on texts.

    Each text is a document, and no pre-token crosses its end. Lone surrogates are read as U+FFFD. The other arguments,
    the result and the exceptions are those of `train`.

    Args:
        texts: Any iterable of str, such as a list, a generator or an open file.

    Raises:
        TypeError: `texts` is a single str.

    >>> train_from_iterator(["low low low low low lower lower"], vocab_size=259).merges
    [(b'o', b'w'), (b'l', b'ow')]
    """
    options = training_options(
        vocab_size,
        special_tokens,
        pattern=pattern,
        ties=ties,
        min_pretoken_count=min_pretoken_count,
        min_frequency=min_frequency,
        special_ids=special_ids,
        num_threads=num_threads,
        chunk_bytes=chunk_bytes,
        max_memory=max_memory,
        counts=counts,
        **token_options(
            pattern, max_token_bytes, max_token_characters, forbid, require, initial, max_token_words
        ),
    )
    return _train(Texts(texts), options, progress)


def token_options(  # noqa: PLR0917
    pattern: str | Pattern | None,
    max_token_bytes: int | None,
    max_token_characters: int | None,
    forbid: Sequence[str],
    require: Sequence[str],
    initial: Tokenizer | None,
    max_token_words: int | None = None,
) -> dict[str, Any]:
    """Return the options of training that say what tokens are. Raises TokenizerError as `train` does."""
    rules = TokenRules.of(max_token_bytes, max_token_characters, forbid, max_token_words)
    first = first_merges(resolve_pattern(pattern), require, initial, rules)
    return {"token_rules": rules, "first": first}


def train_bpe(
    input_path: str | os.PathLike[str],
    vocab_size: int,
    special_tokens: Sequence[str],
    *,
    pattern: str | Pattern | None = "gpt2",
    num_threads: int | None = None,
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Train on one file with the interface of Stanford's CS336; see `train`.

    Args:
        input_path: The text file.
        vocab_size: Upper bound on the number of tokens.
        special_tokens: Tokens that are never split or merged.
        pattern: How text is split into pre-tokens.
        num_threads: Number of threads.

    Returns:
        The vocabulary (id -> bytes) and the merges in order.
    """
    tokenizer = train(input_path, vocab_size, special_tokens, pattern=pattern, num_threads=num_threads)
    return tokenizer.vocab, tokenizer.merges


def _train(source: TrainingSource, options: TrainingOptions, progress: ProgressCallback | None) -> Tokenizer:
    return count_and_learn(source, options, progress, lambda learned: _spec(learned, options))


def count_and_learn(
    source: TrainingSource,
    options: TrainingOptions,
    progress: ProgressCallback | None,
    spec_of: Callable[[LearnedMerges], TokenizerSpec],
) -> Tokenizer:
    """Count the pre-tokens of a source, learn merges and build the tokenizer that `spec_of` makes of them."""
    _check_documents(source, options.special_tokens)
    _check_outputs(source, options)
    clock = PhaseClock()
    report_counted: ReportCounted | None = (
        (lambda done, total: progress(TrainingProgress("count", done, total))) if progress else None
    )
    report_learned: Callable[[int], None] | None = (
        (lambda done: progress(TrainingProgress("merge", done, options.n_merges))) if progress else None
    )
    with _memory(options), _counts_lock(options), WorkFolder(options.work_folder) as work:
        with clock.phase("count"), profiling.phase("count"):
            counted = _count(source, options, work, report_counted)
            clock.read_seconds = counted.counts.read_seconds
            if not counted.is_from_file:
                profiling.add("count", n_bytes=counted.counts.n_bytes)
        with clock.phase("merge"), profiling.phase("learn"):
            # Counts on disk cannot be copied: they serve for one training.
            is_kept = counted is source and not counted.counts.is_on_disk
            learned = learn_merges(counted.counts, options, report_learned, keep_counts=is_kept)
    with clock.phase("build"), profiling.phase("build"):
        tokenizer = Tokenizer.from_spec(spec_of(learned))
    tokenizer.training_report = training_report(counted, learned, options, clock.phases)
    if tokenizer.training_report.stopped_early:
        often_enough = "any more" if options.min_frequency <= 1 else f"{options.min_frequency} times"
        warnings.warn(
            f"training ended after {len(learned.merges)} of {options.n_merges} merges: "
            f"no pair of tokens occurs {often_enough}; the vocabulary has {tokenizer.n_vocab} tokens",
            TrainingStoppedEarly,
            stacklevel=4,
        )
    return tokenizer


def _check_documents(source: TrainingSource, special_tokens: Sequence[str]) -> None:
    """Raise SpecialTokenError if text would be divided at a token that is trained on as text."""
    separator = source.options.separator if isinstance(source, Corpus) else None
    if separator is not None:
        check_separator(separator, special_tokens, more="; --special-token (special_tokens=) adds one")


def _check_outputs(source: TrainingSource, options: TrainingOptions) -> None:
    """Raise OutputError if the counts or the checkpoints would replace what is read."""
    if isinstance(source, SavedCounts) and options.counts is not None:
        check_file_is_no_input(options.counts, source.input_files)
    if isinstance(source, Corpus) and options.work_folder is not None:
        check_folder_is_no_input(
            options.work_folder,
            files=source.input_files,
            folders=source.input_folders,
            replaced=is_checkpoint_name,
        )


def _count(
    source: TrainingSource, options: TrainingOptions, work: WorkFolder, report: ReportCounted | None
) -> CountedCorpus:
    """Return the counts of the source: existing ones, or counted now and saved if `options.counts` is set."""
    if isinstance(source, CountedCorpus):
        check_compatible("the corpus", source.info, options.pattern, options.special_tokens, options.rules)
        return source
    if isinstance(source, SavedCounts):
        for name, _ in source.files:
            check_compatible(name, read_info(name), options.pattern, options.special_tokens, options.rules)
        plan = options.budget.counting(1, None, in_batches=False) if options.budget else None
        counted = merge(list(source.files), plan=plan, work=work)
    elif options.counts is not None and exists(options.counts):
        info = read_info(local_input(options.counts))
        check_compatible(shown(options.counts), info, options.pattern, options.special_tokens, options.rules)
        identity = corpus_identity(source) if isinstance(source, Corpus) else None
        check_same_corpus(shown(options.counts), info, identity)
        if options.work_folder == checkpoint_folder(
            options.counts
        ):  # another one may hold another checkpoint
            work.remove_leftovers()
        return load(options.counts)
    else:
        settings = CountingSettings(
            options.special_tokens,
            options.pattern,
            options.num_threads,
            options.chunk_bytes,
            options.budget,
            options.checkpoint_seconds,
            options.base,
        )
        if isinstance(source, Corpus):
            counted = count_corpus(source, settings, work, report)
        else:
            counted = count_texts(source.items, settings, work, report)
    if options.counts is not None:
        save(counted, options.counts)
    return counted


@contextlib.contextmanager
def _memory(options: TrainingOptions) -> Generator[None]:
    """Keep allocations within the budget, and explain a failed one."""
    try:
        with frugal_allocation() if options.budget else contextlib.nullcontext():
            yield
    except CorpusError:
        raise
    except MemoryError as error:
        raise NotEnoughMemoryError(
            "training does not fit into memory",
            hint="set --max-memory (max_memory=) below the memory that is available, or use fewer "
            "--threads (num_threads=)",
        ) from error


@contextlib.contextmanager
def _counts_lock(options: TrainingOptions) -> Generator[None]:
    """Lock the file of counts if it is going to be written."""
    if options.counts is None or is_url(options.counts) or options.counts.exists():
        yield
        return
    with lock_output(options.counts):
        yield


def _spec(learned: LearnedMerges, options: TrainingOptions) -> TokenizerSpec:
    special = options.special_tokens
    tokens = [bytes([byte]) for byte in range(256)] + [left + right for left, right in learned.merges]
    is_first = options.special_ids == "first"
    first_special, first_ordinary = (0, len(special)) if is_first else (len(tokens), 0)
    return TokenizerSpec(
        pattern=options.pattern,
        special_tokens={token: first_special + number for number, token in enumerate(special)},
        vocab={first_ordinary + number: token for number, token in enumerate(tokens)},
        merges=learned.merges,
        ties=options.ties,
        merge_counts=learned.merge_counts,
    )
