"""Counts of pre-tokens in files: counted once, trained of as often as one likes, added up with weights.

    bytemill.train("corpus/*.jsonl", 32_000, counts="corpus.counts")   # counts, and keeps the counts
    bytemill.train("corpus/*.jsonl", 50_000, counts="corpus.counts")   # reads them
    both = bytemill.counts.merge({"books.counts": 1, "web.counts": 0.5})
    bytemill.train(both, 32_000)

The format is described in docs/counts.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bytemill._core import UNICODE_VERSION, PretokenCounter, PretokenCounts, named_pattern, read_counts_header
from bytemill.corpus.documents import CorpusCounts
from bytemill.errors import CorpusError, TokenizerError
from bytemill.system.atomic_files import AtomicFile
from bytemill.training.mixture import Weight, common_scale, exact_weight

if TYPE_CHECKING:
    import os

    from bytemill.training.memory_budget import CountingPlan
    from bytemill.training.work_folder import WorkFolder

_DAMAGED_HINT = "remove it and count again, or take a copy that is whole"


@dataclass(frozen=True)
class CountsInfo:
    """What was counted, and how."""

    pattern: str | None
    """What cut the text: a name, an expression, or None for nothing."""
    special_tokens: dict[str, int]
    """The special tokens that were looked for, and how often each stood in the text."""
    n_bytes: int
    """Bytes of text."""
    n_pretokens: int
    """Pre-tokens in the text, before any weights."""
    reading: CorpusCounts = field(default_factory=CorpusCounts)
    """What reading came across: documents, what was replaced or left out."""
    corpus: dict[str, Any] | None = None
    """The inputs and how they were read; None where nobody can say whether others are the same."""
    unicode_version: str = UNICODE_VERSION
    """The version of Unicode that said what is a letter."""

    @property
    def n_special(self) -> int:
        """How often special tokens stood in the text."""
        return sum(self.special_tokens.values())

    def to_json(self) -> str:
        """The header of a file."""
        return json.dumps(
            {**vars(self), "reading": vars(self.reading)},
            ensure_ascii=True,
            sort_keys=True,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> CountsInfo:
        """What a header says. Raises ValueError, TypeError or KeyError where it is none."""
        document = cast("dict[str, Any]", json.loads(text))
        reading = CorpusCounts(**document.pop("reading"))
        info = cls(**document, reading=reading)
        if not isinstance(cast("object", info.special_tokens), dict):
            raise TypeError("special_tokens are no dict")
        return info


@dataclass
class CountedCorpus:
    """The pre-tokens of a corpus and their counts, which `bytemill.train` takes in place of the corpus.

    Training uses them up where it has a budget of memory.
    """

    counts: PretokenCounts
    info: CountsInfo
    notes: list[str] = field(default_factory=list[str])
    """What the counting has to say, a sentence each."""
    is_from_file: bool = False
    """True where nothing was counted."""

    @property
    def n_unique(self) -> int:
        """Number of different pre-tokens."""
        return self.counts.n_unique

    def items(self) -> list[tuple[bytes, int]]:
        """The pre-tokens and their counts, the most frequent first."""
        return self.counts.items()


@dataclass(frozen=True)
class SavedCounts:
    """Files of counts with their weights, which `bytemill.train` adds up, within its budget of memory."""

    files: Sequence[tuple[str, Weight]]


def canonical_pattern(pattern: str | None) -> str | None:
    """The name of a pattern that has one, else the pattern."""
    return None if pattern is None else named_pattern(pattern) or pattern


def save(counted: CountedCorpus, path: str | os.PathLike[str]) -> None:
    """Writes counts to a file, which is there whole or not at all. Raises `OutputError`."""
    with AtomicFile(path) as atomic:
        # The core opens the file by its name; this process keeps it open to sync it to the disk.
        counted.counts.save(str(atomic.file.name), counted.info.to_json())


def load(path: str | os.PathLike[str]) -> CountedCorpus:
    """The counts of a file. Raises `CorpusError` where there is none, or it is damaged or of another version."""
    info = read_info(path)
    try:
        counts = PretokenCounts.load(str(path))
    except OSError as error:
        raise _unreadable(path, error) from error
    except TokenizerError as error:
        raise CorpusError(str(error), hint=_DAMAGED_HINT) from error
    return CountedCorpus(counts, info, is_from_file=True)


def read_info(path: str | os.PathLike[str]) -> CountsInfo:
    """What a file of counts says of itself; the counts are not read, so damage to them goes unseen.

    Raises `CorpusError`.
    """
    if Path(path).is_dir():
        raise CorpusError(f"{path} is a folder, not a file of counts", hint="give the name of a file")
    try:
        header = read_counts_header(str(path))
    except OSError as error:
        raise _unreadable(path, error) from error
    except TokenizerError as error:
        raise CorpusError(
            str(error), hint="give a file that `--counts` or bytemill.counts.save has written"
        ) from error
    try:
        return CountsInfo.from_json(header)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorpusError(f"{path} is damaged: its header makes no sense", hint=_DAMAGED_HINT) from error


def merge(
    files: Mapping[str | os.PathLike[str], Weight]
    | Sequence[str | os.PathLike[str] | tuple[str | os.PathLike[str], Weight]],
    *,
    plan: CountingPlan | None = None,
    work: WorkFolder | None = None,
) -> CountedCorpus:
    """The counts of several files added up, each as often as its weight says.

    Sums are exact and rounded once, to the nearest whole number, a half up; but none becomes 0. A float weight stands
    for the decimal number that it is written as. Files may be named with their weights, or in pairs, or alone (then
    with a weight of 1). `plan` and `work` are for those who have a budget of memory.

    Raises `CorpusError` where the files were not counted in the same way: with the same pattern, and none with a
    special token in its text that another did not look for.
    """
    pairs: list[tuple[str, Weight]] = []
    for item in files.items() if isinstance(files, Mapping) else files:
        name, weight = item if isinstance(item, tuple) else (item, 1)
        pairs.append((str(name), weight))
    if not pairs:
        raise CorpusError("no file of counts is given", hint="give at least one")
    if len(pairs) == 1 and exact_weight(pairs[0][1]) == 1:
        name = pairs[0][0]
        read_info(name)
        # In memory they take less than in the file, but learning needs its part too.
        if plan is None or Path(name).stat().st_size < plan.table_bytes // 4:
            return load(name)
        pairs = [(name, 1)]
    infos = [read_info(name) for name, _ in pairs]
    _check_alike([name for name, _ in pairs], infos)
    multiples, denominator = common_scale([weight for _, weight in pairs])
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
            raise CorpusError(str(error), hint=_DAMAGED_HINT) from error
    try:
        counts = counter.finish(denominator, plan is not None and work is not None)
    except TokenizerError as error:
        raise CorpusError(str(error), hint="give smaller weights, or round them") from error
    return CountedCorpus(counts, _sum_of(infos), is_from_file=True)


def check_fits(
    path: str | os.PathLike[str], info: CountsInfo, pattern: str | None, special: Sequence[str]
) -> None:
    """Raises `CorpusError` where counts cannot stand for a text that is cut by `pattern`, with these special tokens.

    Special tokens that stood in the counted text, and cut it, have to be among those asked for. Those that were looked
    for in vain may be left out, and others may be added: the counts are those of a text in which they do not stand.
    """
    if info.unicode_version != UNICODE_VERSION:
        raise CorpusError(
            f"{path} was counted with Unicode {info.unicode_version}, and this bytemill has {UNICODE_VERSION}",
            hint="count again",
        )
    if info.pattern != canonical_pattern(pattern):
        raise CorpusError(
            f"{path} was counted with the pattern {_shown(info.pattern)}, not {_shown(canonical_pattern(pattern))}",
            hint="give that pattern, or another file of counts",
        )
    for token, n_times in info.special_tokens.items():
        if n_times and token not in special:
            raise CorpusError(
                f"{path} was counted with the special token {token!r}, which stands in the text {n_times:,} times",
                hint="give it too, or count again without it into another file",
            )


def check_same_corpus(path: str | os.PathLike[str], info: CountsInfo, corpus: dict[str, Any] | None) -> None:
    """Raises `CorpusError` where the counts are of other inputs than `corpus` describes."""
    if corpus is None:
        raise CorpusError(
            f"{path} is there already, and nobody can say whether it is of this input, which can be read only once",
            hint="leave the input out to train of the file, or name another file",
        )
    wanted = cast("dict[str, Any]", json.loads(json.dumps(corpus)))
    if info.corpus == wanted:
        return
    differing = [name for name in wanted if info.corpus is None or info.corpus.get(name) != wanted[name]]
    what = f" (they differ in {', '.join(differing)})" if info.corpus and differing else ""
    raise CorpusError(
        f"{path} was counted of other inputs, or of files that were changed since{what}",
        hint="remove it to count again, name another file, or leave the inputs out to train of it",
    )


def _check_alike(names: list[str], infos: list[CountsInfo]) -> None:
    first = infos[0]
    for name, info in zip(names[1:], infos[1:], strict=True):
        if info.pattern != first.pattern:
            raise CorpusError(
                f"{names[0]} was counted with the pattern {_shown(first.pattern)}, {name} with {_shown(info.pattern)}",
                hint="count them with the same pattern",
            )
        if info.unicode_version != first.unicode_version:
            raise CorpusError(
                f"{names[0]} was counted with Unicode {first.unicode_version}, {name} with {info.unicode_version}",
                hint="count them again with one version of bytemill",
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
        return CorpusError(f"no such file: {path}", hint="give inputs too: then they are counted into it")
    return CorpusError(f"cannot read {path}: {error.strerror or error}", hint="check permissions and disk")
