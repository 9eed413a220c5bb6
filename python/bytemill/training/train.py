"""Training: a corpus in, a tokenizer out."""

from __future__ import annotations

import operator
import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from bytemill import profiling
from bytemill.errors import TokenizerError
from bytemill.formats.patterns import Pattern, resolve_pattern
from bytemill.formats.spec import Ties, TokenizerSpec
from bytemill.system import memory
from bytemill.tokenizer.tokenizer import Tokenizer
from bytemill.tokenizer.training_report import PhaseReport, TrainingReport
from bytemill.training.counting import CHECKPOINT_SECONDS, CountingOptions, obtain_counts
from bytemill.training.memory_budget import (
    MemoryBudget,
    frugal_allocation,
    parse_max_memory,
    release_freed_memory,
)
from bytemill.training.work_folder import WorkFolder

if TYPE_CHECKING:
    from bytemill._core import PretokenCounts
    from bytemill.corpus import Corpus, CorpusInputs
    from bytemill.training.counts import CountedCorpus, SavedCounts

Phase: TypeAlias = Literal["count", "merge"]

_N_LONGEST = 20

_MAX_TOKENS = (1 << 21) - 1
"""Ordinary tokens that a vocabulary of the core can hold."""
_MAX_THREADS = 4096
_MAX_CHUNK_BYTES = 1 << 30
"""Chunks are allocated whole, a few for every thread."""


class TrainingStoppedEarly(UserWarning):
    """No pair was left to merge before the vocabulary was full."""


@dataclass(frozen=True)
class TrainingProgress:
    """How far training has come."""

    phase: Phase
    done: int
    """Bytes read ("count"; of an iterable of texts: characters) or merges learnt ("merge")."""
    total: int | None
    """What `done` goes up to; None where nobody knows, as for standard input. Merging may end before."""


def train(
    inputs: CorpusInputs | Corpus | CountedCorpus | SavedCounts,
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    *,
    pattern: str | Pattern | None = "gpt2",
    ties: Ties = "bytes",
    min_count: int = 1,
    min_frequency: int = 1,
    special_ids: Literal["last", "first"] = "last",
    errors: Literal["strict", "replace"] = "strict",
    num_threads: int | None = None,
    chunk_bytes: int | None = None,
    max_memory: int | str | None = None,
    counts: str | os.PathLike[str] | None = None,
    work_folder: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> Tokenizer:
    """Trains a byte-level BPE tokenizer; `Tokenizer.training_report` says what it took.

    `inputs` are files, globs and "-" for standard input (see `bytemill.corpus.resolve_inputs`), or an
    iterable of texts that is no list, such as a generator; each file and each text is a document, and no
    pre-token reaches across its end. Or they are a `bytemill.Corpus`, which knows other formats and weights; or what
    `bytemill.counts.load` and `merge` give. The vocabulary has at most `vocab_size` tokens: the 256 bytes, the
    merges, the special tokens. Special tokens in the corpus separate documents and are not counted.
    `special_ids="first"` gives them the ids from 0 on.

    `pattern` is a name (`gpt2`, `cl100k`, `o200k`, `llama3`), a `bytemill.Pattern`, or None: then all text
    between special tokens is one pre-token. Of equally frequent pairs the lexicographically greatest (as two
    byte strings) is merged first; `ties="huggingface"` takes the one that Hugging Face's trainer takes. Pairs
    that occur less often than `min_frequency` are not merged; where none is left, training ends early with
    the warning `TrainingStoppedEarly`.

    Pre-tokens that occur less often than `min_count` are left out: it is the one option that loses anything, and
    the report says how much. `max_memory`, such as "2GB", bounds the resident memory of the process: tables that
    are full go to disk, with the same result. `counts` names a file in which the counts of the pre-tokens are
    kept, or from which they are taken if it is there: then the corpus is not read, and another vocabulary size,
    tie rule or special token costs only the learning (see `bytemill.counts`).

    Counting of files that is interrupted goes on in the next call from its last checkpoint, at most
    `checkpoint_seconds` back, if it has a folder that the next call finds: `work_folder`, or one beside `counts`. The
    folder appears with the first checkpoint and is removed at the end.

    The result depends on neither `num_threads` (default: as many as the machine runs at once) nor
    `chunk_bytes` (text that a thread counts at a time; at most 1 GiB). `progress` is called about ten times a
    second, in this thread; an exception that it raises ends training. Lone surrogates in a text are read as
    U+FFFD.

    Raises `CorpusError` for a corpus that cannot be read, is empty, or is not UTF-8 (`errors="replace"` reads
    such bytes as U+FFFD), `TokenizerError` for options that cannot be, and TypeError for those of a wrong
    type.

    Source of the algorithm: Sennrich, Haddow & Birch, "Neural machine translation of rare words with subword
    units" (2016), on bytes as in Radford et al., "Language models are unsupervised multitask learners"
    (2019).

    >>> tok = train(iter(["low low low low low lower lower"]), vocab_size=258)
    >>> tok.merges
    [(b'o', b'w'), (b'l', b'ow')]
    """
    special = _checked_special(special_tokens)
    n_merges = _n_merges(vocab_size, special)
    expression = resolve_pattern(pattern)
    _check_one_of("ties", ties, ("bytes", "huggingface"))
    _check_one_of("special_ids", special_ids, ("last", "first"))
    _check_one_of("errors", errors, ("strict", "replace"))
    _check_int("min_frequency", min_frequency, 1, (1 << 64) - 1)
    if num_threads is not None:
        _check_int("num_threads", num_threads, 1, _MAX_THREADS)
    if chunk_bytes is not None:
        _check_int("chunk_bytes", chunk_bytes, 1, _MAX_CHUNK_BYTES)
    _check_int("min_count", min_count, 1, (1 << 64) - 1)
    budget = None if max_memory is None else MemoryBudget(parse_max_memory(max_memory))
    options = CountingOptions(special, expression, num_threads, chunk_bytes, budget, checkpoint_seconds)
    clock = _Clock()
    with (
        frugal_allocation() if budget else nullcontext(),
        WorkFolder(_work_path(work_folder, counts)) as work,
    ):
        with clock.phase("count"), profiling.phase("count"):
            counted = obtain_counts(
                inputs, errors, options, file=counts, work=work, report=_count_reporter(progress)
            )
            clock.add_read(counted.counts.read_seconds)
        if not counted.is_from_file:
            profiling.add("count", n_bytes=counted.counts.n_bytes)
        is_callers = counted is inputs
        pretokens = counted.counts.copy() if is_callers and (budget or min_count > 1) else counted.counts
        n_unique, (n_dropped, n_dropped_occurrences) = pretokens.n_unique, pretokens.drop_below(min_count)
        with clock.phase("merge"), profiling.phase("learn"):
            report_merges = _merge_reporter(progress, n_merges)
            learning = (n_merges, ties, min_frequency, num_threads, report_merges)
            merges, merge_counts = _learn(pretokens, learning, budget, keep=is_callers)
            if report_merges:
                report_merges(len(merges))
    with clock.phase("build"), profiling.phase("build"):
        spec = _spec(
            merges, special, expression, special_ids=special_ids, ties=ties, merge_counts=merge_counts
        )
        tokenizer = Tokenizer.from_spec(spec)
    info = counted.info
    spilled_bytes, spilled_runs, spill_seconds = counted.counts.spilled
    tokenizer.training_report = TrainingReport(
        n_bytes=info.n_bytes,
        n_pretokens=info.n_pretokens,
        n_unique_pretokens=n_unique,
        n_special_tokens=info.n_special,
        n_replaced=info.reading.n_replaced,
        n_merges=len(merges),
        n_merges_wanted=n_merges,
        phases=clock.phases,
        longest_tokens=sorted((a + b for a, b in merges), key=len, reverse=True)[:_N_LONGEST],
        num_threads=num_threads,
        n_documents=info.reading.n_documents,
        n_broken=info.reading.n_broken,
        n_skipped_bytes=info.reading.n_skipped_bytes,
        min_count=min_count,
        n_dropped_pretokens=n_dropped,
        n_dropped_occurrences=n_dropped_occurrences,
        max_memory=budget.max_bytes if budget else None,
        spilled_bytes=spilled_bytes,
        spilled_runs=spilled_runs,
        spill_seconds=spill_seconds,
        counts_file=None if counts is None else os.fspath(counts),
        from_counts=counted.is_from_file,
        notes=counted.notes,
    )
    if tokenizer.training_report.stopped_early:
        often_enough = "any more" if min_frequency <= 1 else f"{min_frequency} times"
        warnings.warn(
            f"training ended after {len(merges)} of {n_merges} merges: "
            f"no pair of tokens occurs {often_enough}; the vocabulary has {tokenizer.n_vocab} tokens",
            TrainingStoppedEarly,
            stacklevel=2,
        )
    return tokenizer


def train_bpe(
    input_path: str | os.PathLike[str],
    vocab_size: int,
    special_tokens: Sequence[str],
    *,
    pattern: str | Pattern | None = "gpt2",
    num_threads: int | None = None,
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """`train` on one file, as Stanford's CS336 names it: vocabulary (id -> bytes) and merges in order."""
    tokenizer = train(input_path, vocab_size, special_tokens, pattern=pattern, num_threads=num_threads)
    return tokenizer.vocab, tokenizer.merges


_Learning: TypeAlias = "tuple[int, Ties, int, int | None, Callable[[int], None] | None]"


def _learn(
    counts: PretokenCounts, learning: _Learning, budget: MemoryBudget | None, *, keep: bool
) -> tuple[list[tuple[bytes, bytes]], list[int]]:
    """Learns merges, within the budget if there is one; uses the counts up, unless they are to be kept."""
    if budget is None:
        return counts.learn_merges(*learning, consume=not keep)
    release_freed_memory()
    try:
        return counts.learn_merges(*learning, max_bytes=budget.learning(counts.memory_bytes), consume=True)
    except TokenizerError as error:
        if least := re.search(r"takes (\d+) bytes of memory at least", str(error)):
            raise budget.too_little_to_learn(int(least[1])) from error
        raise


def _work_path(
    work_folder: str | os.PathLike[str] | None, counts: str | os.PathLike[str] | None
) -> Path | None:
    if work_folder is not None:
        return Path(work_folder)
    return None if counts is None else Path(counts).with_name(f".{Path(counts).name}.counting")


@dataclass
class _Clock:
    """Time and peak memory of each phase."""

    phases: list[PhaseReport] = field(default_factory=list[PhaseReport])
    read_seconds: float = 0.0

    @contextmanager
    def phase(self, name: Literal["count", "merge", "build"]) -> Generator[None]:
        memory.reset_peak()
        started = time.perf_counter()
        yield
        seconds, peak = time.perf_counter() - started, memory.peak_bytes()
        if name == "count":
            self.phases.append(PhaseReport("read", self.read_seconds, peak))
        self.phases.append(PhaseReport(name, seconds, peak))

    def add_read(self, seconds: float) -> None:
        """Reading goes on during counting, so its time comes from the core."""
        self.read_seconds = seconds


def _checked_special(special_tokens: Any) -> list[str]:
    if isinstance(special_tokens, str):
        raise TokenizerError(
            "special_tokens is a str; give a list of them", hint=f"special_tokens=[{special_tokens!r}]"
        )
    given = (
        cast("Iterable[Any]", special_tokens) if isinstance(special_tokens, Iterable) else [special_tokens]
    )
    special = list(given)
    if not all(isinstance(token, str) for token in special):
        raise TypeError(f"special_tokens must be a list of str, not {special_tokens!r:.80}")
    for token, n_times in Counter(special).items():
        if not token:
            raise TokenizerError("a special token is empty", hint="remove it: it would be everywhere")
        if n_times > 1:
            raise TokenizerError(f"special token {token!r} is there twice", hint="name it once")
        if any("\ud800" <= character <= "\udfff" for character in token):
            raise TokenizerError(f"special token {token!r} holds a surrogate, which is no character")
    return special


def _special_tokens(n: int) -> str:
    return "1 special token" if n == 1 else f"{n} special tokens"


def _n_merges(vocab_size: int, special: list[str]) -> int:
    smallest = 256 + len(special)
    vocab_size = _as_int("vocab_size", vocab_size)
    if vocab_size < smallest:
        raise TokenizerError(
            f"vocab_size {vocab_size} is too small: "
            f"256 bytes and {_special_tokens(len(special))} make {smallest}",
            hint=f"give a vocab_size of at least {smallest}",
        )
    largest = _MAX_TOKENS + len(special)
    if vocab_size > largest:
        raise TokenizerError(
            f"vocab_size {vocab_size} is too large: "
            f"at most {_MAX_TOKENS} tokens beside the special ones are supported",
            hint=f"give a vocab_size of at most {largest}",
        )
    return vocab_size - smallest


def _as_int(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__} ({value!r:.40})") from None


def _check_int(name: str, value: Any, smallest: int, largest: int) -> None:
    number = _as_int(name, value)
    if not smallest <= number <= largest:
        bound = f"at least {smallest}" if number < smallest else f"at most {largest}"
        raise TokenizerError(f"{name} is {number}", hint=f"give a {name} of {bound}")


def _check_one_of(name: str, value: object, choices: tuple[str, str]) -> None:
    if value not in choices:
        raise TokenizerError(f"{name} is {value!r}", hint=f"use {choices[0]!r} or {choices[1]!r}")


def _count_reporter(
    progress: Callable[[TrainingProgress], None] | None,
) -> Callable[[int, int | None], None] | None:
    if progress is None:
        return None
    return lambda done, total: progress(TrainingProgress("count", done, total))


def _merge_reporter(
    progress: Callable[[TrainingProgress], None] | None, n_merges: int
) -> Callable[[int], None] | None:
    if progress is None:
        return None
    return lambda done: progress(TrainingProgress("merge", done, n_merges))


def _spec(
    merges: list[tuple[bytes, bytes]],
    special: list[str],
    pattern: str | None,
    *,
    special_ids: Literal["last", "first"],
    ties: Ties,
    merge_counts: list[int],
) -> TokenizerSpec:
    ordinary = [bytes([byte]) for byte in range(256)] + [left + right for left, right in merges]
    first_special, first_ordinary = (0, len(special)) if special_ids == "first" else (len(ordinary), 0)
    return TokenizerSpec(
        pattern=pattern,
        special_tokens={token: first_special + place for place, token in enumerate(special)},
        vocab={first_ordinary + place: token for place, token in enumerate(ordinary)},
        merges=merges,
        ties=ties,
        merge_counts=merge_counts,
    )
