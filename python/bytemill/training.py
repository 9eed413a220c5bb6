"""Training: a corpus in, a tokenizer out."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from bytemill import memory
from bytemill._core import PretokenCounter, PretokenCounts, check_pattern
from bytemill.corpus import CorpusInputs, Source, is_texts, not_utf8, resolve_inputs
from bytemill.corpus.sources import empty_corpus, unreadable
from bytemill.errors import CorpusError, TokenizerError
from bytemill.formats.spec import Ties, TokenizerSpec
from bytemill.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os

Phase: TypeAlias = Literal["count", "merge"]

_BATCH_CHARACTERS = 1 << 20
"""Texts of an iterable that go to the counting threads together: a call for each would cost more than its work."""

_N_LONGEST = 20


class TrainingStoppedEarly(UserWarning):  # noqa: N818 (a warning, and not an error, is what it is)
    """No pair was left to merge before the vocabulary was full."""


@dataclass(frozen=True)
class TrainingProgress:
    """How far training has come."""

    phase: Phase
    done: int
    """Bytes read ("count") or merges learnt ("merge")."""
    total: int | None
    """What `done` goes up to; None where nobody knows, as for standard input."""


@dataclass(frozen=True)
class PhaseReport:
    """What one phase of training took."""

    name: Literal["read", "count", "merge", "build"]
    seconds: float
    """Wall-clock seconds. Reading goes on beside counting, whose time includes it."""
    peak_memory_bytes: int
    """Most resident memory of the process during the phase."""


@dataclass(frozen=True)
class TrainingReport:
    """What `train` did."""

    n_bytes: int
    n_pretokens: int
    n_unique_pretokens: int
    n_special_tokens: int
    """How often special tokens stood in the corpus."""
    n_replaced: int
    """Malformed sequences read as U+FFFD."""
    n_merges: int
    n_merges_wanted: int
    phases: list[PhaseReport]
    longest_tokens: list[bytes]
    """Ordinary tokens with the most bytes, the longest first."""
    num_threads: int | None
    """As asked for; None: as many as the machine runs at once."""

    @property
    def stopped_early(self) -> bool:
        """True where no pair was left to merge before the vocabulary was full."""
        return self.n_merges < self.n_merges_wanted

    @property
    def seconds(self) -> float:
        """Wall-clock seconds in all."""
        return sum(phase.seconds for phase in self.phases if phase.name != "read")

    @property
    def peak_memory_bytes(self) -> int:
        """Most resident memory of the process during training."""
        return max(phase.peak_memory_bytes for phase in self.phases)


def train(
    inputs: CorpusInputs,
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    *,
    pattern: str | None = "gpt2",
    ties: Ties = "bytes",
    min_frequency: int = 1,
    special_ids: Literal["last", "first"] = "last",
    errors: Literal["strict", "replace"] = "strict",
    num_threads: int | None = None,
    chunk_bytes: int | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> Tokenizer:
    """Trains a byte-level BPE tokenizer; `Tokenizer.training_report` says what it took.

    `inputs` are files, globs and "-" for standard input (see `bytemill.corpus.resolve_inputs`), or an iterable of
    texts that is no list, such as a generator; each file and each text is a document, and no pre-token reaches across
    its end. The vocabulary has at most `vocab_size` tokens: the 256 bytes, the merges, the special tokens. Special
    tokens in the corpus separate documents and are not counted. `special_ids="first"` gives them the ids from 0 on.

    `pattern` is a name (`gpt2`, `cl100k`, `o200k`, `llama3`), any regular expression, or None: then all text between
    special tokens is one pre-token. Of equally frequent pairs the lexicographically greatest (as two byte strings) is
    merged first; `ties="huggingface"` takes the one that Hugging Face's trainer takes. Pairs that occur less often than
    `min_frequency` are not merged; where none is left, training ends early with the warning `TrainingStoppedEarly`.

    The result depends on neither `num_threads` (default: as many as the machine runs at once) nor `chunk_bytes`.
    `progress` is called about ten times a second, in this thread; an exception that it raises ends training.

    Raises `CorpusError` for a corpus that cannot be read, is empty, or is not UTF-8 (`errors="replace"` reads such
    bytes as U+FFFD), and `TokenizerError` for options that cannot be.

    Source of the algorithm: Sennrich, Haddow & Birch, "Neural machine translation of rare words with subword units"
    (2016), on bytes as in Radford et al., "Language models are unsupervised multitask learners" (2019).

    >>> tok = train(iter(["low low low low low lower lower"]), vocab_size=258)
    >>> tok.merges
    [(b'o', b'w'), (b'l', b'ow')]
    """
    special = _checked_special(special_tokens)
    n_merges = _n_merges(vocab_size, special)
    check_pattern(pattern)
    clock = _Clock()
    with clock.phase("count"):
        counter = PretokenCounter(pattern, special, num_threads, chunk_bytes)
        counts = _count(counter, inputs, errors, progress)
        clock.add_read(counts.read_seconds)
    with clock.phase("merge"):
        report_merges = _reporter(progress, n_merges)
        merges, merge_counts = counts.learn_merges(n_merges, ties, min_frequency, num_threads, report_merges)
    with clock.phase("build"):
        spec = _spec(merges, special, special_ids, pattern, ties, merge_counts)
        tokenizer = Tokenizer.from_spec(spec)
    tokenizer.training_report = TrainingReport(
        n_bytes=counts.n_bytes,
        n_pretokens=counts.n_pretokens,
        n_unique_pretokens=counts.n_unique,
        n_special_tokens=counts.n_special,
        n_replaced=counts.n_replaced,
        n_merges=len(merges),
        n_merges_wanted=n_merges,
        phases=clock.phases,
        longest_tokens=sorted((a + b for a, b in merges), key=len, reverse=True)[:_N_LONGEST],
        num_threads=num_threads,
    )
    if tokenizer.training_report.stopped_early:
        warnings.warn(
            f"training ended after {len(merges)} of {n_merges} merges: no pair of tokens occurs "
            f"{'any more' if min_frequency <= 1 else f'{min_frequency} times'}; the vocabulary has {tokenizer.n_vocab} tokens",
            TrainingStoppedEarly,
            stacklevel=2,
        )
    return tokenizer


def train_bpe(
    input_path: str | os.PathLike[str],
    vocab_size: int,
    special_tokens: Sequence[str],
    *,
    pattern: str | None = "gpt2",
    num_threads: int | None = None,
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """`train` on one file, as Stanford's CS336 names it: gives the vocabulary (id -> bytes) and the merges in order."""
    tokenizer = train(input_path, vocab_size, special_tokens, pattern=pattern, num_threads=num_threads)
    return tokenizer.vocab, tokenizer.merges


@dataclass
class _Clock:
    """Time and peak memory of each phase."""

    phases: list[PhaseReport] = field(default_factory=lambda: [])
    read_seconds: float = 0.0

    @contextmanager
    def phase(self, name: Literal["count", "merge", "build"]) -> Iterator[None]:
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


def _checked_special(special_tokens: Sequence[str]) -> list[str]:
    if isinstance(special_tokens, str):
        raise TokenizerError(
            "special_tokens is a str; give a list of them", hint=f"special_tokens=[{special_tokens!r}]"
        )
    special = list(special_tokens)
    if "" in special:
        raise TokenizerError("a special token is empty", hint="remove it: every text would hold it everywhere")
    repeated = next((token for place, token in enumerate(special) if token in special[:place]), None)
    if repeated is not None:
        raise TokenizerError(f"special token {repeated!r} is there twice", hint="name each special token once")
    return special


def _n_merges(vocab_size: int, special: list[str]) -> int:
    smallest = 256 + len(special)
    if vocab_size < smallest:
        raise TokenizerError(
            f"vocab_size {vocab_size} is too small: 256 bytes and {len(special)} special tokens make {smallest}",
            hint=f"give a vocab_size of at least {smallest}",
        )
    return vocab_size - smallest


def _count(
    counter: PretokenCounter,
    inputs: CorpusInputs,
    errors: Literal["strict", "replace"],
    progress: Callable[[TrainingProgress], None] | None,
) -> PretokenCounts:
    if is_texts(inputs):
        for batch, n_characters in _batches(inputs):
            counter.add_texts(batch)
            if progress:
                progress(TrainingProgress("count", n_characters, None))
        counts = counter.finish()
        if not counts.n_bytes:
            raise CorpusError("the corpus is empty: its texts hold no character", hint="give texts to train on")
        return counts
    sources = resolve_inputs(inputs)
    sizes = [source.n_bytes for source in sources]
    total = sum(size or 0 for size in sizes) if None not in sizes else None
    done = 0
    for source in sources:
        done += _count_source(counter, source, errors, _reporter_of_bytes(progress, done, total))
    counts = counter.finish()
    if not counts.n_bytes:
        raise empty_corpus([source.name for source in sources])
    return counts


def _count_source(
    counter: PretokenCounter,
    source: Source,
    errors: Literal["strict", "replace"],
    report: Callable[[int], None] | None,
) -> int:
    """Counts one source; gives its size in bytes as far as it was known beforehand."""
    try:
        if source.path is not None:
            counter.add_file(str(source.path), errors, report)
        else:
            with source.open() as stream:
                counter.add_stream(stream, errors, report)
    except UnicodeDecodeError as error:
        raise not_utf8(source, error) from error
    except OSError as error:
        raise unreadable(source.name, error) from error
    if report:
        report(source.n_bytes or 0)
    return source.n_bytes or 0


def _reporter_of_bytes(
    progress: Callable[[TrainingProgress], None] | None, before: int, total: int | None
) -> Callable[[int], None] | None:
    if progress is None:
        return None
    return lambda n: progress(TrainingProgress("count", before + n, total))


def _reporter(
    progress: Callable[[TrainingProgress], None] | None, n_merges: int
) -> Callable[[int], None] | None:
    if progress is None:
        return None
    return lambda n: progress(TrainingProgress("merge", n, n_merges))


def _batches(texts: Iterable[str]) -> Iterator[tuple[list[str], int]]:
    """The texts in batches, each with the number of characters so far."""
    batch: list[str] = []
    n_characters = n_in_batch = 0
    for text in texts:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CorpusError(f"an iterable of str is needed; this one gives {type(text).__name__}")
        batch.append(text)
        n_in_batch += len(text)
        if n_in_batch >= _BATCH_CHARACTERS:
            n_characters += n_in_batch
            yield batch, n_characters
            batch, n_in_batch = [], 0
    if batch:
        yield batch, n_characters + n_in_batch


def _spec(
    merges: list[tuple[bytes, bytes]],
    special: list[str],
    special_ids: Literal["last", "first"],
    pattern: str | None,
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
