"""Compare tokenizers: read the text once, count, and compute the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bytemill._core import __version__
from bytemill.analysis.inspection import inspect
from bytemill.comparison.counting import count_group
from bytemill.comparison.differences import DifferenceCounter, pairs_of, vocabulary_difference
from bytemill.comparison.figures import FIGURES, Counted, Value, best_of
from bytemill.comparison.model_cost import check_preset, model_cost
from bytemill.comparison.ngram_models import NgramModels
from bytemill.comparison.parallel import measure_parallel
from bytemill.comparison.result import Comparison
from bytemill.comparison.speed import SAMPLE_BYTES, measure_speed
from bytemill.comparison.syntax import SYNTAX_BYTES, SyntaxMarks
from bytemill.comparison.token_table import TokenTable
from bytemill.corpus import Corpus
from bytemill.corpus.options import check_separator
from bytemill.errors import CorpusError, TokenizerError
from bytemill.tokenizer.open_tokenizer import open_tokenizer
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.analysis.inspection import TextToken
    from bytemill.comparison.counting import Progress
    from bytemill.comparison.differences import TextDifference
    from bytemill.corpus import CorpusInputs

Texts: TypeAlias = "Corpus | CorpusInputs"

NGRAM_BYTES = 50_000_000
MAX_TOKENIZERS = 20
_SAMPLES, _LEAST_SAMPLE = 1600, 100
"""Characters of the samples of a group on the page, and the fewest for a tokenizer."""
_ENDINGS = frozenset({".json", ".tiktoken", ".gguf", ".model", ".bpe", ".txt"})


def compare(
    tokenizers: Sequence[str | os.PathLike[str] | Tokenizer] | Mapping[str, Tokenizer],
    texts: Texts | Mapping[str, Texts],
    *,
    parallel: str | os.PathLike[str] | None = None,
    sizes: Sequence[int] = (),
    model: str | None = None,
    speed: bool = False,
    all_pairs: bool = False,
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
        model: Preset of a language model, such as "gpt2", for which costs are computed.
        speed: Also measure speed and memory, which differ from run to run.
        all_pairs: Compare every pair of tokenizers, not the first one with each other.
        documents: What a document is in text files; see `Corpus`.
        ngram_bytes: Bytes of each group, from its start, that n-gram models are made of. 0: none.
        seed: Seed of the bootstrap and of the documents that are held out.
        num_threads: Threads of the encoders; by default one per core.
        progress: Called now and then. An exception that it raises ends the comparison.

    Raises:
        TokenizerError: There are fewer than two tokenizers, more than twenty, or two with the same name; or one cannot
            be made smaller.
        TokenizerFileError: A tokenizer cannot be loaded.
        ModelConfigError: There is no such preset.
        SpecialTokenError: `documents` is neither "file" nor "line" nor a special token of any of the tokenizers.
        CorpusError: A group has no text or cannot be read, or parallel files differ in their number of lines.
    """
    opened = _open_all(tokenizers)
    if model is not None:
        check_preset(model)
    smaller = {
        (name, size): tokenizer.truncate(size)
        for name, tokenizer in opened.items()
        for size in sorted(set(sizes))
        if size < tokenizer.n_vocab
    }
    measured = opened | {_smaller_name(name, size): own for (name, size), own in smaller.items()}
    tables = {name: TokenTable(tokenizer) for name, tokenizer in measured.items()}
    groups = _open_groups(texts, documents)
    special = {token: None for tokenizer in opened.values() for token in tokenizer.special_tokens}
    for corpus in groups.values():
        if corpus.options.separator is not None:
            check_separator(corpus.options.separator, special)
    fairness = None if parallel is None else measure_parallel(Path(parallel), opened)
    pairs = pairs_of(list(opened), all_pairs=all_pairs)
    found = Findings()
    histograms: dict[str, dict[str, NDArray[np.int64]]] = {}
    beginnings: dict[str, bytes] = {}
    for group, corpus in groups.items():
        differences = DifferenceCounter(pairs)
        report = None if progress is None else _reporter(progress, f"counting {group}", corpus.total_bytes)
        counts = count_group(
            corpus,
            measured,
            tables,
            kept_bytes=max(ngram_bytes, SYNTAX_BYTES, SAMPLE_BYTES if speed else 0),
            differences=differences,
            num_threads=num_threads,
            progress=report,
        )
        if not counts.n_bytes:
            raise CorpusError(f"the group {group!r} has no text", hint="give files that are not empty")
        beginnings[group] = b"".join(data for data, _ in counts.kept) if speed else b""
        models = (
            NgramModels(counts, group, ngram_bytes, seed=seed, num_threads=num_threads, progress=progress)
            if ngram_bytes
            else None
        )
        syntax = SyntaxMarks(counts, num_threads)
        figures: dict[str, dict[str, Value]] = {}
        for name, tokenizer in measured.items():
            counted = Counted(
                tokenizer,
                tables[name],
                counts.text | counts.tokens[name],
                counts.lengths[name],
                counts.histograms[name],
                models,
                syntax,
                seed,
            )
            figures[name] = {figure.name: figure.compute(counted) for figure in FIGURES.values()}
        found.add(group, figures, opened, smaller)
        histograms[group] = counts.histograms
        found.differences[group] = differences.differences
        for difference in differences.differences:
            difference.show(opened)
        beginning = counts.beginning[: max(_LEAST_SAMPLE, _SAMPLES // len(opened))]
        found.samples[group] = {
            name: inspect(tokenizer, beginning, allowed_special="none").tokens
            for name, tokenizer in opened.items()
        }
        found.about[group] = {
            "inputs": list(corpus.source_names),
            "n_bytes": counts.n_bytes,
            "n_units": counts.n_units,
            "sha256": counts.sha256,
        }
    if speed and progress:
        progress("measuring speed", 0, None)
    return Comparison(
        tokenizers={
            name: {
                "n_vocab": tokenizer.n_vocab,
                "pattern": None if tokenizer.pattern is None else str(tokenizer.pattern),
                "fingerprint": tokenizer.fingerprint,
            }
            for name, tokenizer in opened.items()
        },
        groups=found.about,
        values=found.values,
        best=found.best,
        settings={
            "documents": documents,
            "ngram_bytes": ngram_bytes,
            "seed": seed,
            "sizes": sorted(set(sizes)),
            "model": model,
            "all_pairs": all_pairs,
        },
        version=__version__,
        parallel=fairness,
        by_size=found.by_size if sizes else {},
        samples=found.samples,
        differences=found.differences,
        vocabularies=[vocabulary_difference(first, second, tables, histograms) for first, second in pairs],
        costs={}
        if model is None
        else {
            name: model_cost(
                model,
                tokenizer.n_vocab,
                {group: figures["bytes_per_token"][name].value for group, figures in found.values.items()},
            )
            for name, tokenizer in opened.items()
        },
        speed=measure_speed(opened, beginnings) if speed else {},
    )


@dataclass
class Findings:
    """What has been found so far, by group."""

    values: dict[str, dict[str, dict[str, Value]]] = field(default_factory=dict[str, Any])
    about: dict[str, dict[str, Any]] = field(default_factory=dict[str, Any])
    best: dict[str, dict[str, str | None]] = field(default_factory=dict[str, Any])
    by_size: dict[str, dict[str, dict[str, list[tuple[int, Value]]]]] = field(default_factory=dict[str, Any])
    samples: dict[str, dict[str, list[TextToken]]] = field(default_factory=dict[str, Any])
    differences: dict[str, list[TextDifference]] = field(default_factory=dict[str, Any])

    def add(
        self,
        group: str,
        figures: dict[str, dict[str, Value]],
        opened: Mapping[str, Tokenizer],
        smaller: Mapping[tuple[str, int], Tokenizer],
    ) -> None:
        """Add the figures of a group by tokenizer."""
        self.best[group] = {
            figure.name: best_of(figure, {name: figures[name][figure.name] for name in opened})
            for figure in FIGURES.values()
        }
        figures = {
            name: {figure: replace(value, samples=None) for figure, value in own.items()}
            for name, own in figures.items()
        }
        self.values[group] = {figure: {name: figures[name][figure] for name in opened} for figure in FIGURES}
        self.by_size[group] = {
            figure: {
                name: [
                    *(
                        (size, figures[_smaller_name(name, size)][figure])
                        for own, size in smaller
                        if own == name
                    ),
                    (tokenizer.n_vocab, figures[name][figure]),
                ]
                for name, tokenizer in opened.items()
            }
            for figure in FIGURES
        }


def _smaller_name(name: str, size: int) -> str:
    return f"{name}, {size:,} ids"


def _open_all(
    tokenizers: Sequence[str | os.PathLike[str] | Tokenizer] | Mapping[str, Tokenizer],
) -> dict[str, Tokenizer]:
    named: list[tuple[str, str | os.PathLike[str] | Tokenizer]]
    if isinstance(tokenizers, Mapping):
        named = list(tokenizers.items())
    else:
        given = [tokenizers] if isinstance(tokenizers, str) else list(tokenizers)
        names = iter(_names_of([each for each in given if not isinstance(each, Tokenizer)]))
        named = [
            (f"tokenizer {number}" if isinstance(each, Tokenizer) else next(names), each)
            for number, each in enumerate(given, 1)
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


def _names_of(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the file name without a known ending, the folder's name, or a published name.

    Equal names are told apart by the folders before them.

    >>> _names_of(["gpt2", "a/own.json", "Qwen2.5/tokenizer.json"]), _names_of(["a/own.json", "b/own.json"])
    (['gpt2', 'own', 'Qwen2.5'], ['a/own', 'b/own'])
    """
    parts = [_parts_of(Path(path)) for path in paths]
    different = set(map(tuple, parts))
    names = [own[-1] for own in parts]
    n = 1
    while len(set(names)) < len(different):
        n += 1
        names = [
            "/".join(own[-n:]) if names.count(name) > 1 else name
            for own, name in zip(parts, names, strict=True)
        ]
    return names


def _parts_of(path: Path) -> list[str]:
    if path.name == "tokenizer.json" and path.parent.name:
        path = path.parent
    elif path.suffix in _ENDINGS and not path.is_dir():
        path = path.with_suffix("")
    return list(path.parts)


def _open_groups(texts: Texts | Mapping[str, Texts], documents: str) -> dict[str, Corpus]:
    groups = dict(texts) if isinstance(texts, Mapping) else {"text": texts}
    if not groups:
        raise CorpusError("there is no text to compare on", hint="give a file")
    opened = {
        name: own if isinstance(own, Corpus) else Corpus(own, documents=documents)
        for name, own in groups.items()
    }
    for name, corpus in opened.items():
        if corpus.total_bytes == 0:
            raise CorpusError(f"the group {name!r} has no text", hint="give files that are not empty")
    return opened


def _reporter(progress: Progress, what: str, total: int | None) -> Callable[[int], None]:
    return lambda n_bytes: progress(what, n_bytes, total)
