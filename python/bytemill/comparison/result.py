"""What a comparison found, and its tables: rows of text, Markdown, CSV, LaTeX."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.analysis.inspection import visible
from bytemill.comparison.figures import FIGURES, format_value
from bytemill.errors import CorpusError
from bytemill.storage import write_file
from bytemill.system.units import format_bytes, format_count, format_share

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from bytemill.analysis.inspection import TextToken
    from bytemill.comparison.costs import ModelCost, Parallel, Speed
    from bytemill.comparison.differences import TextDifference, VocabularyDifference
    from bytemill.comparison.figures import Value

Rows = list[tuple[str, ...]]
"""The first row is the header."""


@dataclass(frozen=True)
class Comparison:
    """Figures of tokenizers on text groups, and what they were computed from.

    Equal tokenizers, texts and settings give equal results, to the last byte.
    """

    tokenizers: dict[str, dict[str, Any]]
    """Name -> n_vocab, pattern, fingerprint."""
    groups: dict[str, dict[str, Any]]
    """Name -> inputs, n_bytes, n_units, sha256."""
    values: dict[str, dict[str, dict[str, Value]]]
    """Group -> figure -> tokenizer -> value."""
    settings: dict[str, Any]
    version: str
    best: dict[str, dict[str, str | None]]
    """Group -> figure -> the tokenizer that is shown to be better than all others (see `figures.best_of`)."""
    parallel: Parallel | None = None
    by_size: dict[str, dict[str, dict[str, list[tuple[int, Value]]]]] = field(default_factory=dict[str, Any])
    """Group -> figure -> tokenizer -> vocabulary sizes in ascending order, and the values at them."""
    samples: dict[str, dict[str, list[TextToken]]] = field(default_factory=dict[str, Any])
    """Group -> tokenizer -> tokens of the beginning of the text; for the page, not in the JSON."""
    differences: dict[str, list[TextDifference]] = field(default_factory=dict[str, Any])
    """Group -> how pairs of tokenizers divide the text."""
    vocabularies: list[VocabularyDifference] = field(default_factory=list[Any])
    costs: dict[str, ModelCost] = field(default_factory=dict[str, Any])
    """Tokenizer -> what it costs the model of the settings."""
    speed: dict[str, Speed] = field(default_factory=dict[str, Any])
    """Tokenizer -> speed and memory, if they were measured. All else is the same in every run."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "bytemill_version": self.version,
            "settings": self.settings,
            "tokenizers": self.tokenizers,
            "groups": self.groups,
            "values": {
                group: {
                    figure: {name: value.to_dict() for name, value in values.items()}
                    for figure, values in figures.items()
                }
                for group, figures in self.values.items()
            },
            "best": self.best,
            "by_size": {
                group: {
                    figure: {
                        name: [{"n_vocab": size, **value.to_dict()} for size, value in values]
                        for name, values in own.items()
                    }
                    for figure, own in figures.items()
                }
                for group, figures in self.by_size.items()
            },
            "parallel": None if self.parallel is None else self.parallel.to_dict(),
            "differences": {
                group: [own.to_dict() for own in differences]
                for group, differences in self.differences.items()
            },
            "vocabularies": [own.to_dict() for own in self.vocabularies],
            "model_costs": {name: asdict(own) for name, own in self.costs.items()},
            **({"speed": {name: asdict(own) for name, own in self.speed.items()}} if self.speed else {}),
        }

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result as a page (.html), JSON (.json), Markdown (.md), CSV (.csv) or LaTeX (.tex), by the name.

        Raises:
            CorpusError: The name has another ending.
            OutputError: The file cannot be written.
            StorageError: The object store of a URL cannot be written.
        """
        check_output_name(path)
        write_file(path, WRITERS[Path(path).suffix](self).encode())


def check_output_name(path: str | os.PathLike[str]) -> None:
    """Raise CorpusError if the ending of a name is none that `Comparison.save` writes."""
    if Path(path).suffix not in WRITERS:
        raise CorpusError(
            f"{path} does not say which format to write",
            hint=f"end the name with one of {', '.join(WRITERS)}",
        )


def figure_rows(
    comparison: Comparison, group: str, *, with_interval: bool = False, star: str | None = None
) -> Rows:
    """All figures of a group.

    Args:
        comparison: The comparison.
        group: Name of the group.
        with_interval: With the intervals.
        star: Mark of the values that are shown to be best.
    """
    names = list(comparison.tokenizers)
    rows: Rows = [("figure", *names)]
    for figure, values in comparison.values[group].items():
        best = None if star is None else comparison.best[group][figure]
        shown = (format_value(FIGURES[figure], values[name], with_interval=with_interval) for name in names)
        cells = (f"{star} {cell}" if name == best else cell for name, cell in zip(names, shown, strict=True))
        rows.append((FIGURES[figure].title, *cells))
    return rows


def language_rows(comparison: Comparison, *, by_cost: bool = False) -> Rows:
    """Tokens of each language relative to the reference, and Gini coefficients.

    Args:
        comparison: The comparison.
        by_cost: In the order of cost for the first tokenizer.
    """
    own = comparison.parallel
    if own is None:
        return []
    names, premiums = list(own.premiums), list(own.premiums.values())
    languages = list(premiums[0])
    if by_cost:
        languages.sort(key=lambda language: premiums[0][language] or 0.0)
    rows: Rows = [("language", *names)]
    for language in languages:
        rows.append((language, *(_number(each[language], "{:.2f}") for each in premiums)))
    for title, values in (
        ("Gini coefficient", own.gini),
        ("Gini coefficient, mean over lines", own.line_gini),
    ):
        rows.append((title, *(_number(values[name], "{:.3f}") for name in names)))
    return rows


def boundary_rows(comparison: Comparison) -> Rows:
    """Boundaries that pairs of tokenizers share, by group."""
    rows: Rows = [("group", "tokenizers", "boundaries shared", "of the first", "of the second")]
    for group, differences in comparison.differences.items():
        for own in differences:
            first, second = ("–" if share is None else format_share(share) for share in own.shares)
            rows.append((group, f"{own.first}, {own.second}", format_count(own.n_shared), first, second))
    return rows


def vocabulary_rows(comparison: Comparison) -> Rows:
    """Tokens that pairs of vocabularies have in common."""
    rows: Rows = [("tokenizers", "common", "only the first", "only the second", "common / all")]
    for own in comparison.vocabularies:
        numbers = (own.n_common, *own.n_only)
        rows.append((f"{own.first}, {own.second}", *map(format_count, numbers), format_share(own.jaccard)))
    return rows


def token_rows(comparison: Comparison, group: str, n: int) -> Rows:
    """The most used tokens that only one of a pair has, in a group."""
    rows: Rows = [("tokenizer", "lacks a token of", "tokens by use")]
    for own in comparison.vocabularies:
        for name, other, tokens in (
            (own.second, own.first, own.only_first),
            (own.first, own.second, own.only_second),
        ):
            used = ((visible(token).replace(" ", "␣"), uses) for token, uses, _ in tokens[group][:n])
            shown = ", ".join(f"{token} {format_count(uses)}×" for token, uses in used)
            rows.append((name, other, shown or "none"))
    return rows


def document_rows(comparison: Comparison, group: str, n: int) -> Rows:
    """The documents on which pairs differ most, in a group."""
    rows: Rows = [("tokenizers", "document or passage", "tokens", "bytes", "begins with")]
    for own in comparison.differences[group]:
        for each in own.excerpts[:n]:
            n_tokens, text = ", ".join(map(format_count, each.n_tokens)), visible(each.text[:60].encode())
            numbers = (format_count(each.number), n_tokens, format_count(each.n_bytes))
            rows.append((f"{own.first}, {own.second}", *numbers, text))
    return rows


def cost_rows(comparison: Comparison) -> Rows:
    """What each tokenizer costs the model."""
    rows: Rows = [(f"for {comparison.settings['model']}", *comparison.costs)]
    if not comparison.costs:
        return rows
    costs = list(comparison.costs.values())
    rows += [
        ("ids, padded", *(format_count(own.vocab_size) for own in costs)),
        ("embedding and output parameters", *(format_count(own.embedding_parameters) for own in costs)),
        ("their share of all parameters", *(format_share(own.parameter_share) for own in costs)),
        ("output layer's share of FLOPs", *(format_share(own.output_flops_share) for own in costs)),
    ]
    for group in comparison.groups:
        cache = [own.cache_bytes_per_kilobyte[group] for own in costs]
        rows += [
            (f"FLOPs/byte, {group}", *(_number(own.flops_per_byte[group], "{:.3g}") for own in costs)),
            (f"KV cache per kB of text, {group}", *map(_size, cache)),
            (f"text in the context, {group}", *(_size(own.context_bytes[group]) for own in costs)),
        ]
    return rows


def speed_rows(comparison: Comparison) -> Rows:
    """Speed and memory of each tokenizer."""
    rows: Rows = [("one thread, new text", *comparison.speed)]
    if comparison.speed:
        own = list(comparison.speed.values())
        for group in comparison.groups:
            rows.append((f"MB/s, {group}", *(f"{each.bytes_per_second[group] / 1e6:,.0f}" for each in own)))
        rows.append(("memory", *(_size(each.memory_bytes) for each in own)))
    return rows


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _size(value: float | None) -> str:
    return "–" if value is None else format_bytes(value)


def markdown(comparison: Comparison) -> str:
    """Return a Markdown table for each group, with intervals, then those of differences, vocabularies and costs."""
    texts: list[str] = []

    def add(title: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
        rule = "|---|" + "---:|" * (len(header) - 1) + "\n"
        first, *lines = (f"| {' | '.join(row)} |\n" for row in (_escaped(header), *rows))
        texts.append(f"## {_escaped([title])[0]}\n\n{first}{rule}{''.join(lines)}")

    for group in comparison.values:
        header, *rows = figure_rows(comparison, group, with_interval=True)
        add(group, header, rows)
    others = {"Boundaries": boundary_rows, "Vocabularies": vocabulary_rows, "Costs": cost_rows}
    for title, table in others.items():
        header, *rows = table(comparison)
        if rows:
            add(title, header, map(_escaped, rows))
    return "\n".join(texts)


def comma_separated(comparison: Comparison) -> str:
    """Return a row for each group, figure and tokenizer."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["group", "figure", "tokenizer", "value", "low", "high", "note"])
    for group, figures in comparison.values.items():
        for figure, values in figures.items():
            for name, own in values.items():
                numbers = ("" if x is None else repr(x) for x in (own.value, own.low, own.high))
                writer.writerow([group, figure, name, *numbers, own.note or ""])
    return buffer.getvalue()


def latex(comparison: Comparison) -> str:
    """Return a tabular for each group."""
    lines: list[str] = []
    for group in comparison.values:
        (_, *names), *rows = figure_rows(comparison, group)
        lines += [f"% {group}".replace("\n", " "), "\\begin{tabular}{l" + "r" * len(names) + "}", "\\hline"]
        lines.append(" & ".join(["", *map(_tex, names)]) + " \\\\ \\hline")
        lines += [" & ".join(map(_tex, row)) + " \\\\" for row in rows]
        lines += ["\\hline", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def _escaped(cells: Iterable[str]) -> tuple[str, ...]:
    """Escape what Markdown takes for markup."""
    return tuple(
        "".join("\\" + c if c in "\\`*_{}[]<>#|" else " " if c in "\r\n" else c for c in cell)
        for cell in cells
    )


_TEX = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "–": "--",
    "α": "$\\alpha$",
    "\u2009": "\\,",
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(c) or ("\\" + c if c in "&%$#_{}" else c) for c in text)


WRITERS: dict[str, Callable[[Comparison], str]] = {
    ".json": Comparison.to_json,
    ".md": markdown,
    ".csv": comma_separated,
    ".tex": latex,
}
"""By the ending of the name; `run` adds the page, whose templates take long to import."""
