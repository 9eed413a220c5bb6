"""The values of a comparison as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from bytemill.comparison.figures import FIGURES, Value, Values, format_value
from bytemill.comparison.more_tables import boundary_rows, cost_rows, vocabulary_rows

if TYPE_CHECKING:
    from bytemill.comparison.data import ComparisonData


def markdown(groups: Values) -> str:
    """Return a Markdown table for each group, with intervals."""
    lines: list[str] = []
    for group, figures in groups.items():
        names = list(next(iter(figures.values())))
        lines += ["", f"## {_escaped(group)}", ""] if lines else [f"## {_escaped(group)}", ""]
        lines.append("| " + " | ".join(["figure", *map(_escaped, names)]) + " |")
        lines.append("|---|" + "---:|" * len(names))
        for name, values in figures.items():
            figure = FIGURES[name]
            cells = [format_value(figure, values[tokenizer], with_interval=True) for tokenizer in names]
            lines.append("| " + " | ".join([figure.title, *cells]) + " |")
    return "\n".join(lines) + "\n"


def other_tables(comparison: ComparisonData) -> str:
    """Return the tables of differences, vocabularies and costs in Markdown."""
    lines: list[str] = []
    for title, rows in (
        ("Boundaries", boundary_rows(comparison)),
        ("Vocabularies", vocabulary_rows(comparison)),
        ("Costs", cost_rows(comparison)),
    ):
        if len(rows) > 1:
            header, *rest = [[_escaped(cell) for cell in row] for row in rows]
            lines += [
                "",
                f"## {title}",
                "",
                f"| {' | '.join(header)} |",
                "|---|" + "---:|" * (len(header) - 1),
            ]
            lines += [f"| {' | '.join(row)} |" for row in rest]
    return "\n".join(lines) + "\n"


def comma_separated(groups: Values) -> str:
    """Return a row for each group, figure and tokenizer."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["group", "figure", "tokenizer", "value", "low", "high", "note"])
    for group, figures in groups.items():
        for name, values in figures.items():
            for tokenizer, value in values.items():
                writer.writerow([group, name, tokenizer, *_cells(value), value.note or ""])
    return buffer.getvalue()


def latex(groups: Values) -> str:
    """Return a tabular for each group."""
    lines: list[str] = []
    for group, figures in groups.items():
        names = list(next(iter(figures.values())))
        lines += [f"% {group}".replace("\n", " "), "\\begin{tabular}{l" + "r" * len(names) + "}", "\\hline"]
        lines.append(" & ".join(["", *map(_tex, names)]) + " \\\\ \\hline")
        for name, values in figures.items():
            figure = FIGURES[name]
            cells = [_tex(format_value(figure, values[tokenizer])) for tokenizer in names]
            lines.append(" & ".join([_tex(figure.title), *cells]) + " \\\\")
        lines += ["\\hline", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def _cells(value: Value) -> list[str]:
    return ["" if x is None else repr(x) for x in (value.value, value.low, value.high)]


def _escaped(text: str) -> str:
    return "".join("\\" + c if c in "\\`*_{}[]<>#|" else " " if c in "\r\n" else c for c in text)


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
