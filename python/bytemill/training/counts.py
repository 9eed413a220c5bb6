"""Saved counts of pre-tokens: count a corpus once, train on it repeatedly, mix corpora with weights.

    bytemill.train("corpus/*.jsonl", 32_000, counts="corpus.counts")   # counts, and saves the counts
    bytemill.train("corpus/*.jsonl", 50_000, counts="corpus.counts")   # reads them
    both = bytemill.counts.merge({"books.counts": 1, "web.counts": 0.5})
    bytemill.train(both, 32_000)

The format is described in docs/guides/counts.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from bytemill._core import UNICODE_VERSION, PretokenCounter, PretokenCounts, named_pattern, read_counts_header
from bytemill.corpus.documents import CorpusCounts
from bytemill.errors import CorpusError, TokenizerError
from bytemill.storage import local_input, local_output
from bytemill.system.atomic_files import AtomicFile
from bytemill.system.records import Count, Record, Text, parse_json_object, parse_record

if TYPE_CHECKING:
    import os
    from fractions import Fraction
    from numbers import Rational

    from bytemill.training.memory_budget import CountingPlan
    from bytemill.training.work_folder import WorkFolder


_DAMAGED_HINT = "remove it and count again, or use an intact copy"


@dataclass(frozen=True)
class CountsInfo(Record):
    """What was counted and how; the header of a file of counts."""

    pattern: Text | None
    """The pattern that split the text: a name, an expression, or None."""
    special_tokens: dict[Text, Count]
    """Special tokens recognised while counting, with their occurrences."""
    n_bytes: Count
    """Bytes of text."""
    n_pretokens: Count
    """Pre-tokens in the text, before any weights."""
    reading: CorpusCounts = field(default_factory=CorpusCounts)
    """Counts of documents, and of what was replaced or left out."""
    corpus: dict[str, Any] | None = None
    """The inputs and how they were read; None if they cannot be compared with others."""
    unicode_version: Text = UNICODE_VERSION
    """Version of the Unicode character classes of the pattern."""
    unit: Text = "1"
    """The smallest mixture weight, as a fraction: what a count of 1 stands for."""
    rules: Text | None = None
    """Normalizer and rules of special tokens of the tokenizer whose pre-tokens were counted; None without any."""

    @property
    def n_special(self) -> int:
        """Occurrences of special tokens in the text."""
        return sum(self.special_tokens.values())

    def to_json(self) -> str:
        """Serialize the header. It names unit and rules only where they are not the defaults."""
        defaults = (("unit", "1"), ("rules", None))
        fields = {name: value for name, value in vars(self).items() if (name, value) not in defaults}
        return json.dumps(
            {**fields, "reading": vars(self.reading)},
            ensure_ascii=True,
            sort_keys=True,
            separators=(",", ":"),
        )


@dataclass
class CountedCorpus:
    """The pre-tokens of a corpus and their counts. `bytemill.train` accepts it in place of the corpus.

    Counts that a limit of memory keeps on disk serve for one training.
    """

    counts: PretokenCounts
    info: CountsInfo
    notes: list[str] = field(default_factory=list[str])
    """Notes on the counting, a sentence each."""
    is_from_file: bool = False
    """True if the counts were loaded rather than counted."""

    @property
    def n_unique(self) -> int:
        """Number of unique pre-tokens."""
        return self.counts.n_unique

    def items(self) -> list[tuple[bytes, int]]:
        """Return the pre-tokens and their counts, the most frequent first."""
        return self.counts.items()


@dataclass(frozen=True)
class SavedCounts:
    """Files of counts with weights, which `bytemill.train` merges within its memory budget."""

    files: Sequence[tuple[str, Weight]]

    @property
    def input_files(self) -> list[str]:
        """Names of the files."""
        return [name for name, _ in self.files]


def canonical_pattern(pattern: str | None) -> str | None:
    """Return the name of a known pattern, and any other pattern unchanged."""
    return None if pattern is None else named_pattern(pattern) or pattern


def save(counted: CountedCorpus, path: str | os.PathLike[str]) -> None:
    """Write counts to a file, atomically.

    Args:
        counted: The counts.
        path: The file, or its URL in an object store.

    Raises:
        OutputError: The file cannot be written.
        StorageError: The object store cannot be written.
    """
    with local_output(path) as local, AtomicFile(local) as atomic:
        # The core opens the file by name; this handle remains open to sync it to disk.
        counted.counts.save(str(atomic.file.name), counted.info.to_json())


def load(path: str | os.PathLike[str]) -> CountedCorpus:
    """Load a file of counts.

    Args:
        path: The file, or its URL in an object store.

    Raises:
        CorpusError: The file does not exist, is damaged, or has another version.
        StorageError: The object store cannot be read.
    """
    path = local_input(path)
    info = read_info(path)
    try:
        counts = PretokenCounts.load(str(path))
    except OSError as error:
        raise _unreadable(path, error) from error
    except TokenizerError as error:
        raise CorpusError(str(error), hint=_DAMAGED_HINT) from error
    return CountedCorpus(counts, info, is_from_file=True)


def read_info(path: str | os.PathLike[str]) -> CountsInfo:
    """Read the header of a file of counts, without checking the counts.

    Args:
        path: The file.

    Raises:
        CorpusError: The file does not exist, or its header is damaged.
    """
    if Path(path).is_dir():
        raise CorpusError(f"{path} is a folder, not a file of counts", hint="name a file")
    try:
        header = read_counts_header(str(path))
    except OSError as error:
        raise _unreadable(path, error) from error
    except TokenizerError as error:
        raise CorpusError(
            str(error), hint="use a file written by --counts or bytemill.counts.save"
        ) from error
    document = parse_json_object(header, Path(path), CorpusError, _DAMAGED_HINT)
    return parse_record(CountsInfo, document, Path(path), CorpusError, _DAMAGED_HINT)


def merge(
    files: Mapping[str | os.PathLike[str], Weight]
    | Sequence[str | os.PathLike[str] | tuple[str | os.PathLike[str], Weight]],
    *,
    plan: CountingPlan | None = None,
    work: WorkFolder | None = None,
) -> CountedCorpus:
    """Add up files of counts, each multiplied by its weight.

    Only the ratios of the weights matter: sums are in units of the smallest one. They are exact and rounded once, half
    up. A float weight stands for the decimal number that it prints as.

    Args:
        files: A mapping of files to weights, or a sequence of files (weight 1) and pairs (file, weight).
        plan: Memory limits.
        work: Folder for runs; required with `plan`.

    Raises:
        CorpusError: A file cannot be read, or the files were counted with different patterns or special tokens.
    """
    pairs: list[tuple[str, Weight]] = []
    for item in files.items() if isinstance(files, Mapping) else files:
        name, weight = item if isinstance(item, tuple) else (item, 1)
        pairs.append((str(name), weight))
    if not pairs:
        raise CorpusError("there is no file of counts", hint="name at least one")
    infos = [read_info(name) for name, _ in pairs]
    _check_alike([name for name, _ in pairs], infos)
    weights = [
        exact_weight(weight) * exact_weight(info.unit) for (_, weight), info in zip(pairs, infos, strict=True)
    ]
    info = replace(_sum_of(infos) if len(infos) > 1 else infos[0], unit=str(min(weights)))
    # In memory the counts are smaller than in the file, but learning needs memory too.
    if len(pairs) == 1 and (plan is None or Path(pairs[0][0]).stat().st_size < plan.table_bytes // 4):
        return replace(load(pairs[0][0]), info=info)
    multiples, denominator = common_scale(weights)
    table_bytes = plan.table_bytes if plan else None
    counter = PretokenCounter(None, [], 1, None, table_bytes)
    if plan and work:
        counter.set_folder(str(work.open()))
    for (name, _), multiple in zip(pairs, multiples, strict=True):
        try:
            counter.add_counts(name, multiple)
        except OSError as error:
            raise error if isinstance(error, CorpusError) else _unreadable(name, error) from error
        except TokenizerError as error:
            hint = WEIGHTS_HINT if "weights" in str(error) else _DAMAGED_HINT
            raise CorpusError(str(error), hint=hint) from error
    counts = finish_weighted(counter, denominator, may_stay=plan is not None and work is not None)
    return CountedCorpus(counts, info, is_from_file=True)


def check_compatible(
    path: str | os.PathLike[str],
    info: CountsInfo,
    pattern: str | None,
    special: Sequence[str],
    rules: str | None = None,
) -> None:
    """Raise `CorpusError` if counts cannot be used with this pattern and these special tokens.

    Special tokens that occurred in the counted text split it, so they must be among the requested ones. Others may be
    left out or added: the counts are those of a text in which they do not occur.
    """
    if info.unicode_version != UNICODE_VERSION:
        raise CorpusError(
            f"{path} was counted with Unicode {info.unicode_version}; this version of bytemill has {UNICODE_VERSION}",
            hint="count the corpus again",
        )
    if info.pattern != canonical_pattern(pattern):
        raise CorpusError(
            f"{path} was counted with the pattern {_shown(info.pattern)}, not {_shown(canonical_pattern(pattern))}",
            hint="use that pattern, or another file of counts",
        )
    if info.rules != rules:
        raise CorpusError(
            f"{path} was counted with another normalizer, or other rules of special tokens",
            hint="count the corpus again with this tokenizer",
        )
    for token, n_times in info.special_tokens.items():
        if n_times and token not in special:
            raise CorpusError(
                f"{path} was counted with the special token {token!r}, which occurs {n_times:,} times in the text",
                hint="add it to the special tokens, or count again without it into another file",
            )


def check_same_corpus(path: str | os.PathLike[str], info: CountsInfo, corpus: dict[str, Any] | None) -> None:
    """Raise `CorpusError` if counts are of other inputs than the described corpus."""
    if corpus is None:
        raise CorpusError(
            f"{path} already exists, and this input can be read only once, so they cannot be compared",
            hint="leave out the input to train on the file, or choose another file",
        )
    wanted = cast("dict[str, Any]", json.loads(json.dumps(corpus)))
    known = dict(info.corpus or {})
    if "sha256" not in wanted or "sha256" not in known:  # not both were counted with `verify_input`
        known.pop("sha256", None)
        wanted.pop("sha256", None)
    if known == wanted:
        return
    differing = [name for name in wanted if known.get(name) != wanted[name]]
    what = f" (they differ in {', '.join(differing)})" if info.corpus and differing else ""
    raise CorpusError(
        f"{path} belongs to other inputs, or to files that changed since{what}",
        hint="remove it to count again, choose another file, or leave out the inputs to train on it",
    )


def _check_alike(names: list[str], infos: list[CountsInfo]) -> None:
    first = infos[0]
    for name, info in zip(names[1:], infos[1:], strict=True):
        if info.pattern != first.pattern:
            raise CorpusError(
                f"{names[0]} was counted with the pattern {_shown(first.pattern)}, {name} with {_shown(info.pattern)}",
                hint="count them with the same pattern",
            )
        if info.rules != first.rules:
            raise CorpusError(
                f"{names[0]} and {name} were counted with different normalizers or rules of special tokens",
                hint="count them with the same tokenizer",
            )
        if info.unicode_version != first.unicode_version:
            raise CorpusError(
                f"{names[0]} was counted with Unicode {first.unicode_version}, {name} with {info.unicode_version}",
                hint="count them again with the same version of bytemill",
            )
    for name, info in zip(names, infos, strict=True):
        for token, n_times in info.special_tokens.items():
            for other_name, other in zip(names, infos, strict=True):
                if n_times and token not in other.special_tokens:
                    raise CorpusError(
                        f"{name} was counted with the special token {token!r}, {other_name} without it",
                        hint="count them with the same special tokens",
                    )


def _sum_of(infos: list[CountsInfo]) -> CountsInfo:
    special: dict[str, int] = {}
    for info in infos:
        for token, n_times in info.special_tokens.items():
            special[token] = special.get(token, 0) + n_times
    readings = [vars(info.reading) for info in infos]
    return replace(
        infos[0],
        special_tokens=special,
        n_bytes=sum(info.n_bytes for info in infos),
        n_pretokens=sum(info.n_pretokens for info in infos),
        reading=CorpusCounts(**{name: sum(reading[name] for reading in readings) for name in readings[0]}),
        corpus=None,
    )


def _shown(pattern: str | None) -> str:
    return "none" if pattern is None else f"{pattern:.60}"


def _unreadable(path: str | os.PathLike[str], error: OSError) -> CorpusError:
    if isinstance(error, FileNotFoundError):
        return CorpusError(f"no such file: {path}", hint="add inputs to count into it")
    return CorpusError(f"cannot read {path}: {error.strerror or error}", hint="check permissions and disk")


Weight: TypeAlias = "int | float | str | Rational"
"""A number above 0. A float stands for its shortest decimal representation: 0.1 is a tenth."""

WEIGHTS_HINT = "use weights that differ less, or have fewer digits"
_MOST = (1 << 63) - 1


def exact_weight(weight: Weight) -> Fraction:
    """Return a weight as a fraction. Raises `CorpusError` unless it is a number above 0.

    >>> exact_weight(0.1), exact_weight("1/3"), exact_weight(2)
    (Fraction(1, 10), Fraction(1, 3), Fraction(2, 1))
    """
    from fractions import Fraction

    try:
        exact = Fraction(repr(weight)) if isinstance(weight, float) else Fraction(weight)
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        exact = Fraction(0)
    if exact <= 0:
        raise CorpusError(f"{weight!r} is not a weight", hint="use a number above 0, such as 2, 0.5 or 1/3")
    return exact


def common_scale(weights: Sequence[Weight]) -> tuple[list[int], int]:
    """Return the weights as multiples of 1 / denominator of the smallest, and the denominator.

    Merges depend on the ratios of the weights alone. In units of the smallest, no weight rounds counts away.

    Raises:
        CorpusError: The multiples exceed 64 bits.

    >>> common_scale([0.5, 1, "1/3"])
    ([3, 6, 2], 2)
    """
    exact = [exact_weight(weight) for weight in weights]
    smallest = min(exact, default=1)
    ratios = [weight / smallest for weight in exact]
    denominator = math.lcm(1, *(ratio.denominator for ratio in ratios))
    multiples = [int(ratio * denominator) for ratio in ratios]
    if max([denominator, *multiples]) > _MOST:
        raise CorpusError(
            "the ratios of the weights have no common denominator below 2**63",
            hint=WEIGHTS_HINT,
        )
    return multiples, denominator


def finish_weighted(counter: PretokenCounter, denominator: int, *, may_stay: bool) -> PretokenCounts:
    """Return the counts of a counter whose weights are multiples of 1 / denominator.

    Args:
        counter: The counter, which is finished.
        denominator: The denominator.
        may_stay: Leave counts that exceed the memory limit on disk.

    Raises:
        CorpusError: The counts exceed 64 bits.
        TokenizerError: The pattern failed on a text.
    """
    try:
        return counter.finish(denominator, may_stay)
    except TokenizerError as error:
        if "weights" not in str(error):
            raise
        raise CorpusError(str(error), hint=WEIGHTS_HINT) from error
