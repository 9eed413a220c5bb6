"""Compare tokenizers: read the text once, count, and compute the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from bytemill._core import __version__
from bytemill.analysis.inspection import inspect
from bytemill.comparison.costs import SAMPLE_BYTES, check_preset, measure_parallel, measure_speed, model_cost
from bytemill.comparison.counting import SYNTAX_BYTES, SyntaxMarks, TokenTable, count_group
from bytemill.comparison.differences import DifferenceCounter, pairs_of, vocabulary_difference
from bytemill.comparison.figures import FIGURES, Counted, Value, best_of
from bytemill.comparison.ngram import NgramModels
from bytemill.comparison.result import WRITERS, Comparison
from bytemill.corpus import Corpus
from bytemill.corpus.options import check_separator
from bytemill.errors import CorpusError, TokenizerError
from bytemill.tokenizer import open_tokenizer
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.comparison.counting import GroupCounts, Progress
    from bytemill.corpus import CorpusInputs

Texts: TypeAlias = "Corpus | CorpusInputs"

NGRAM_BYTES = 50_000_000
MAX_TOKENIZERS = 20
_SAMPLES, _LEAST_SAMPLE = 1600, 100
"""Characters of the samples of a group on the page, and the fewest for a tokenizer."""
_ENDINGS = frozenset({".json", ".tiktoken", ".gguf", ".model", ".bpe", ".txt"})


def _page(comparison: Comparison) -> str:
    from bytemill.comparison.page import report  # templates are loaded for a page alone

    return report(comparison)


WRITERS[".html"] = _page


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
    sizes = sorted(set(sizes))
    measured = dict(opened)
    names_by_size: dict[str, list[tuple[int, str]]] = {}
    for name, tokenizer in opened.items():
        smaller = {f"{name}, {size:,} ids": size for size in sizes if size < tokenizer.n_vocab}
        measured |= {own: tokenizer.truncate(size) for own, size in smaller.items()}
        names_by_size[name] = [*((size, own) for own, size in smaller.items()), (tokenizer.n_vocab, name)]
    tables = {name: TokenTable(tokenizer) for name, tokenizer in measured.items()}
    corpora = _open_groups(texts, documents)
    special = {token: None for tokenizer in opened.values() for token in tokenizer.special_tokens}
    for corpus in corpora.values():
        if corpus.options.separator is not None:
            check_separator(corpus.options.separator, special)
    pairs = pairs_of(list(opened), all_pairs=all_pairs)
    result = Comparison(
        tokenizers={
            name: {
                "n_vocab": tokenizer.n_vocab,
                "pattern": None if tokenizer.pattern is None else str(tokenizer.pattern),
                "fingerprint": tokenizer.fingerprint,
            }
            for name, tokenizer in opened.items()
        },
        groups={},
        values={},
        best={},
        settings={
            "documents": documents,
            "ngram_bytes": ngram_bytes,
            "seed": seed,
            "sizes": sizes,
            "model": model,
            "all_pairs": all_pairs,
        },
        version=__version__,
        parallel=None if parallel is None else measure_parallel(Path(parallel), opened),
    )
    histograms: dict[str, dict[str, NDArray[np.int64]]] = {}
    beginnings: dict[str, bytes] = {}
    for group, corpus in corpora.items():
        differences = DifferenceCounter(pairs)
        counts = count_group(
            corpus,
            measured,
            tables,
            kept_bytes=max(ngram_bytes, SYNTAX_BYTES, SAMPLE_BYTES if speed else 0),
            each_block=differences.add,
            num_threads=num_threads,
            progress=progress,
            phase=f"counting {group}",
        )
        if not counts.n_bytes:
            raise _no_text(group)
        begin = partial(progress, f"n-gram models of {group}", 0, None) if progress else lambda: None
        models = NgramModels(counts.first_blocks(ngram_bytes), seed, num_threads, begin)
        figures = _figures(measured, tables, counts, models, SyntaxMarks(counts, num_threads), seed)
        result.best[group] = {
            name: best_of(FIGURES[name], {each: values[each] for each in opened})
            for name, values in figures.items()
        }
        for values in figures.values():
            for name, value in values.items():
                values[name] = replace(value, samples=None)
        result.values[group] = {
            figure: {name: own[name] for name in opened} for figure, own in figures.items()
        }
        if sizes:
            result.by_size[group] = {
                figure: {name: [(size, own[each]) for size, each in names_by_size[name]] for name in opened}
                for figure, own in figures.items()
            }
        for difference in differences.differences:
            difference.show(opened)
        result.differences[group] = differences.differences
        beginning = counts.beginning[: max(_LEAST_SAMPLE, _SAMPLES // len(opened))]
        result.samples[group] = {
            name: inspect(tokenizer, beginning, allowed_special="none").tokens
            for name, tokenizer in opened.items()
        }
        result.groups[group] = {
            "inputs": list(corpus.source_names),
            "n_bytes": counts.n_bytes,
            "n_units": counts.n_units,
            "sha256": counts.sha256,
        }
        histograms[group] = {name: counts.tokens[name].histogram for name in opened}
        beginnings[group] = b"".join(units.data for units in counts.kept) if speed else b""
    result.vocabularies.extend(
        vocabulary_difference(first, second, tables, histograms) for first, second in pairs
    )
    if model is not None:
        for name, tokenizer in opened.items():
            density = {group: own["bytes_per_token"][name].value for group, own in result.values.items()}
            result.costs[name] = model_cost(model, tokenizer.n_vocab, density)
    if speed:
        if progress:
            progress("measuring speed", 0, None)
        result.speed.update(measure_speed(opened, beginnings))
    return result


def _figures(  # noqa: PLR0917 (those of `Counted`)
    tokenizers: Mapping[str, Tokenizer],
    tables: Mapping[str, TokenTable],
    counts: GroupCounts,
    models: NgramModels,
    syntax: SyntaxMarks,
    seed: int,
) -> dict[str, dict[str, Value]]:
    """Return the values of all figures by tokenizer, with their samples."""
    values: dict[str, dict[str, Value]] = {name: {} for name in FIGURES}
    for name, tokenizer in tokenizers.items():
        own = counts.tokens[name]
        columns = counts.text.columns | own.sums.columns
        counted = Counted(tokenizer, tables[name], columns, own.lengths, own.histogram, models, syntax, seed)
        for figure in FIGURES.values():
            values[figure.name][name] = figure.compute(counted)
    return values


def _open_all(
    tokenizers: Sequence[str | os.PathLike[str] | Tokenizer] | Mapping[str, Tokenizer],
) -> dict[str, Tokenizer]:
    named: list[tuple[str, str | os.PathLike[str] | Tokenizer]]
    if isinstance(tokenizers, Mapping):
        named = list(tokenizers.items())
    else:
        own = [tokenizers] if isinstance(tokenizers, str) else list(tokenizers)
        names = iter(_names_of([each for each in own if not isinstance(each, Tokenizer)]))
        named = [
            (f"tokenizer {number}" if isinstance(each, Tokenizer) else next(names), each)
            for number, each in enumerate(own, 1)
        ]
    if not 2 <= len(named) <= MAX_TOKENIZERS:
        what = f"{len(named)} tokenizers cannot be compared"
        raise TokenizerError(what, hint=f"give 2 to {MAX_TOKENIZERS} of them")
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
    opened: dict[str, Corpus] = {}
    for name, own in groups.items():
        opened[name] = own if isinstance(own, Corpus) else Corpus(own, documents=documents)
        if opened[name].total_bytes == 0:
            raise _no_text(name)
    return opened


def _no_text(group: str) -> CorpusError:
    return CorpusError(f"the group {group!r} has no text", hint="give files that are not empty")
