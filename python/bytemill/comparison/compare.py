"""Compare tokenizers: read the text once, count, and compute the figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bytemill._core import __version__
from bytemill.analysis.comparison.bootstrap import interval, quantiles_with_intervals, sampled_sums
from bytemill.analysis.comparison.fairness import gini, premiums
from bytemill.analysis.comparison.figures import FIGURES, Ratio
from bytemill.analysis.comparison.information import renyi_efficiency, used_share
from bytemill.analysis.comparison.ngram import ngram_scores, split_documents
from bytemill.analysis.inspection import inspect
from bytemill.comparison.counting import TokenTable, count_group, encode_units, unit_encoder
from bytemill.comparison.data import Parallel
from bytemill.comparison.result import Comparison
from bytemill.comparison.values import Value, best_of
from bytemill.corpus import Corpus
from bytemill.errors import CorpusError, TokenizerError
from bytemill.tokenizer.open_tokenizer import open_tokenizer
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bytemill.analysis.inspection import TextToken
    from bytemill.comparison.counting import Columns, GroupCounts
    from bytemill.corpus import CorpusInputs

    Samples = dict[str, NDArray[np.float64]]
    """Figure -> its values in the samples of the bootstrap."""
    Progress = Callable[[str, int, int | None], None]
    """Called with what is done, the bytes done, and their number if it is known."""

Texts: TypeAlias = "Corpus | CorpusInputs"

NGRAM_BYTES = 50_000_000
MAX_TOKENIZERS = 20
_QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}
_ALPHAS = {
    "shannon_efficiency": 1,
    "renyi_efficiency_2": 2,
    "renyi_efficiency_2.5": 2.5,
    "renyi_efficiency_3": 3,
}
_NGRAMS = {"bigram_bits_per_byte": 2, "trigram_bits_per_byte": 3}


def compare(
    tokenizers: Sequence[str | os.PathLike[str] | Tokenizer] | Mapping[str, Tokenizer],
    texts: Texts | Mapping[str, Texts],
    *,
    parallel: str | os.PathLike[str] | None = None,
    sizes: Sequence[int] = (),
    documents: str = "file",
    ngram_bytes: int = NGRAM_BYTES,
    seed: int = 0,
    num_threads: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare tokenizers on the same text.

    Intervals are bootstrapped over documents, and over passages of documents longer than 32 KB.

    Args:
        tokenizers: Two to twenty: files, published names, `Tokenizer` objects, or these by name.
        texts: Files, folders or globs, a `Corpus`, or several groups of them by name.
        parallel: Folder with a file for each language, with the same content line by line.
        sizes: Vocabulary sizes at which each tokenizer is measured too, where it is larger: its first merges are the
            tokenizer that a training with the smaller size gives.
        documents: What a document is in text files; see `Corpus`.
        ngram_bytes: Bytes of each group, from its start, that n-gram models are made of. 0: none.
        seed: Seed of the bootstrap and of the documents that are held out.
        num_threads: Threads of the encoders; by default one per core.
        progress: Called now and then. An exception that it raises ends the comparison.

    Raises:
        TokenizerError: There are fewer than two tokenizers, more than twenty, or two with the same name; or one cannot
            be made smaller.
        TokenizerFileError: A tokenizer cannot be loaded.
        CorpusError: A group has no text or cannot be read, or parallel files differ in their number of lines.
    """
    opened = _open_all(tokenizers)
    smaller = {
        (name, size): tokenizer.truncate(size)
        for name, tokenizer in opened.items()
        for size in sorted(set(sizes))
        if size < tokenizer.n_vocab
    }
    measured = opened | {_smaller_name(name, size): own for (name, size), own in smaller.items()}
    tables = {name: TokenTable(tokenizer) for name, tokenizer in measured.items()}
    groups = _open_groups(texts, documents)
    fairness = None if parallel is None else _parallel(Path(parallel), opened)
    values: dict[str, dict[str, dict[str, Value]]] = {}
    about: dict[str, dict[str, Any]] = {}
    best: dict[str, dict[str, str | None]] = {}
    by_size: dict[str, dict[str, dict[str, list[tuple[int, Value]]]]] = {}
    samples_of: dict[str, dict[str, list[TextToken]]] = {}
    for group, corpus in groups.items():
        report = None if progress is None else _reporter(progress, f"counting {group}", corpus.total_bytes)
        counts = count_group(
            corpus, measured, tables, kept_bytes=ngram_bytes, num_threads=num_threads, progress=report
        )
        if not counts.n_bytes:
            raise CorpusError(f"the group {group!r} has no text", hint="give files that are not empty")
        scores = _NgramModels(counts, group, seed, num_threads, progress)
        columns = {name: counts.text | counts.tokens[name] for name in measured}
        samples = _samples(columns, seed)
        found: dict[str, dict[str, Value]] = {}
        drawn: dict[str, Samples] = {}
        for name, tokenizer in measured.items():
            ratios, ratio_samples = _ratios(columns[name], samples[name])
            bits, bit_samples = scores.values(tokenizer)
            found[name] = ratios | bits | _quantiles(columns[name], seed)
            found[name] |= _uses(counts.histograms[name], tables[name])
            drawn[name] = ratio_samples | bit_samples
        values[group] = {figure: {name: found[name][figure] for name in opened} for figure in FIGURES}
        best[group] = {
            figure.name: best_of(
                figure, values[group][figure.name], {name: drawn[name].get(figure.name) for name in opened}
            )
            for figure in FIGURES.values()
        }
        if sizes:
            by_size[group] = {
                figure: {
                    name: [
                        *(
                            (size, found[_smaller_name(name, size)][figure])
                            for own, size in smaller
                            if own == name
                        ),
                        (tokenizer.n_vocab, found[name][figure]),
                    ]
                    for name, tokenizer in opened.items()
                }
                for figure in FIGURES
            }
        samples_of[group] = {
            name: inspect(tokenizer, counts.beginning, allowed_special="none").tokens
            for name, tokenizer in opened.items()
        }
        about[group] = {
            "inputs": list(corpus.source_names),
            "n_bytes": counts.n_bytes,
            "n_units": len(counts.text["n_bytes"]),
            "sha256": counts.sha256,
        }
    return Comparison(
        tokenizers={
            name: {
                "n_vocab": tokenizer.n_vocab,
                "pattern": None if tokenizer.pattern is None else str(tokenizer.pattern),
                "fingerprint": tokenizer.fingerprint,
            }
            for name, tokenizer in opened.items()
        },
        groups=about,
        values=values,
        best=best,
        settings={
            "documents": documents,
            "ngram_bytes": ngram_bytes,
            "seed": seed,
            "sizes": sorted(set(sizes)),
        },
        version=__version__,
        parallel=fairness,
        by_size=by_size,
        samples=samples_of,
    )


def _smaller_name(name: str, size: int) -> str:
    return f"{name}, {size:,} ids"


def _open_all(
    tokenizers: Sequence[str | os.PathLike[str] | Tokenizer] | Mapping[str, Tokenizer],
) -> dict[str, Tokenizer]:
    named: list[tuple[str, str | os.PathLike[str] | Tokenizer]]
    if isinstance(tokenizers, Mapping):
        named = list(tokenizers.items())
    else:
        named = [
            (f"tokenizer {number}" if isinstance(each, Tokenizer) else _name_of(each), each)
            for number, each in enumerate([tokenizers] if isinstance(tokenizers, str) else tokenizers, 1)
        ]
    if not 2 <= len(named) <= MAX_TOKENIZERS:
        raise TokenizerError(
            f"{len(named)} tokenizers cannot be compared", hint=f"give 2 to {MAX_TOKENIZERS} of them"
        )
    opened: dict[str, Tokenizer] = {}
    for name, each in named:
        if name in opened:
            raise TokenizerError(f"two tokenizers are named {name!r}", hint="rename one of the files")
        opened[name] = each if isinstance(each, Tokenizer) else open_tokenizer(each)
    return opened


def _name_of(path: str | os.PathLike[str]) -> str:
    """Return a published name as it is, and a path without its folders and ending."""
    path = Path(path)
    return path.parent.name if path.name == "tokenizer.json" and path.parent.name else path.stem


def _open_groups(texts: Texts | Mapping[str, Texts], documents: str) -> dict[str, Corpus]:
    groups = dict(texts) if isinstance(texts, Mapping) else {"text": texts}
    if not groups:
        raise CorpusError("there is no text to compare on", hint="give a file")
    return {
        name: own if isinstance(own, Corpus) else Corpus(own, documents=documents)
        for name, own in groups.items()
    }


def _reporter(progress: Progress, what: str, total: int | None) -> Callable[[int], None]:
    return lambda n_bytes: progress(what, n_bytes, total)


def _samples(columns: dict[str, Columns], seed: int) -> dict[str, Columns]:
    """Return the sums of each tokenizer's columns over units drawn with replacement, the same for all."""
    keys = [(name, column) for name, own in columns.items() for column in own]
    if len(next(iter(columns.values()))["n_bytes"]) < 2:
        return {name: {} for name in columns}
    sums = sampled_sums(np.stack([columns[name][column] for name, column in keys], axis=1), seed)
    samples: dict[str, Columns] = {name: {} for name in columns}
    for (name, column), own in zip(keys, sums.T, strict=True):
        samples[name][column] = own
    return samples


def _ratios(columns: Columns, samples: Columns) -> tuple[dict[str, Value], Samples]:
    """Return the figures that are ratios of sums, and their values in the samples."""
    round_trips = bool(columns["round_trips"].all())
    values: dict[str, Value] = {}
    drawn: Samples = {}
    for figure in FIGURES.values():
        if not isinstance(figure, Ratio):
            continue
        top, bottom = figure.numerator, figure.denominator
        total = int(columns[bottom].sum())
        if total == 0:
            values[figure.name] = Value(None, note="the text has none")
        elif not round_trips and top in _PLACES:
            values[figure.name] = Value(None, note="the tokens are not the text")
        else:
            ratio = int(columns[top].sum()) / total
            if not samples:
                values[figure.name] = Value(ratio, note="a single document")
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                drawn[figure.name] = samples[top] / samples[bottom]
            values[figure.name] = Value(ratio, *(interval(drawn[figure.name]) or (None, None)))
    return values, drawn


def _quantiles(columns: Columns, seed: int) -> dict[str, Value]:
    quantiles = quantiles_with_intervals(columns["n_tokens"], list(_QUANTILES.values()), seed)
    return {
        f"tokens_per_document_{name}": Value(value, *(ends or (None, None)))
        for name, (value, ends) in zip(_QUANTILES, quantiles, strict=True)
    }


def _uses(histogram: NDArray[np.int64], table: TokenTable) -> dict[str, Value]:
    """Return the figures of how often each id is used; they have no intervals."""
    partial = float(histogram[table.is_partial].sum() / histogram.sum()) if histogram.sum() else None
    return {
        "vocabulary_used": Value(used_share(histogram)),
        "partial_characters": Value(partial),
        **{name: Value(renyi_efficiency(histogram, alpha)) for name, alpha in _ALPHAS.items()},
    }


_PLACES = frozenset(
    {"n_whole_words", "n_split_characters", "n_whole_short_numbers", "n_grouped_numbers", "n_whole_indents"}
)


class _NgramModels:
    """N-gram models of the beginning of a group."""

    def __init__(
        self,
        counts: GroupCounts,
        group: str,
        seed: int,
        num_threads: int | None,
        progress: Progress | None,
    ) -> None:
        self._progress = progress
        self._group = group
        self._seed = seed
        self._num_threads = num_threads
        self._blocks = counts.kept

    def values(self, tokenizer: Tokenizer) -> tuple[dict[str, Value], Samples]:
        """Return the bits per byte of both models, and their values in the samples."""
        n_units = sum(len(ends) for _, ends in self._blocks)
        if n_units < 2:
            note = "a single document" if n_units else "not computed"
            return dict.fromkeys(_NGRAMS, Value(None, note=note)), {}
        if self._progress:
            self._progress(f"n-gram models of {self._group}", 0, None)
        encoder = unit_encoder(tokenizer, self._num_threads)
        ids: list[NDArray[Any]] = []
        ends: list[NDArray[np.int64]] = []
        for data, unit_ends in self._blocks:
            own, own_ends = encode_units(encoder, data, unit_ends)
            ends.append(own_ends + sum(map(len, ids)))
            ids.append(own)
        n_bytes = np.concatenate([np.diff(unit_ends, prepend=0) for _, unit_ends in self._blocks])
        held_out = split_documents(n_units, self._seed)
        scores = ngram_scores(
            np.concatenate(ids), np.concatenate(ends), n_bytes, tokenizer.n_vocab, held_out=held_out
        )
        values: dict[str, Value] = {}
        drawn: Samples = {}
        for name, score in zip(_NGRAMS, scores, strict=True):
            ends_ = None
            if len(score.bits) > 1:
                sums = sampled_sums(np.stack([score.bits, score.n_bytes], axis=1), self._seed)
                drawn[name] = sums[:, 0] / sums[:, 1]
                ends_ = interval(drawn[name])
            values[name] = Value(score.bits_per_byte, *(ends_ or (None, None)))
        return values, drawn


def _parallel(folder: Path, tokenizers: Mapping[str, Tokenizer]) -> Parallel:
    """Measure the files of a folder, one for each language, with the same content line by line."""
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix == ".txt")
        lines = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in files}
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"cannot read {folder}: {error}") from error
    if len(lines) < 2:
        raise CorpusError(
            f"{folder} has {len(lines)} text files", hint="give a folder with a .txt file for each language"
        )
    numbers = {language: len(own) for language, own in lines.items()}
    first, *_ = numbers
    for language, n in numbers.items():
        if n != numbers[first]:
            raise CorpusError(
                f"{folder / language}.txt has {n:,} lines, but {first}.txt has {numbers[first]:,}",
                hint="line i of every file must have the same content",
            )
    reference = next((name for name in ("english", "eng", "en") if name in lines), first)
    tokens = {
        name: {
            language: np.array([len(ids) for ids in tokenizer.encode_ordinary_batch(own)])
            for language, own in lines.items()
        }
        for name, tokenizer in tokenizers.items()
    }
    return Parallel(
        reference=reference,
        n_lines=numbers[first],
        premiums={name: premiums(own, reference) for name, own in tokens.items()},
        gini={name: gini(np.array([int(n.sum()) for n in own.values()])) for name, own in tokens.items()},
    )
