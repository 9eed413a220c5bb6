"""The page of a comparison."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from bytemill.analysis.inspection import visible
from bytemill.comparison.figures import FIGURES, format_value
from bytemill.comparison.more_tables import (
    boundary_rows,
    cost_rows,
    document_rows,
    speed_rows,
    token_rows,
    vocabulary_rows,
)
from bytemill.report import Figure, Interval, Series, Table, heat_map, interval_chart, line_chart, render
from bytemill.system.units import format_count

if TYPE_CHECKING:
    from bytemill.comparison.data import ComparisonData
    from bytemill.comparison.figures import Value
    from bytemill.comparison.more_tables import Rows


_CHARTS = ("trigram_bits_per_byte", "bytes_per_token", "whole_words")
_N_COLOURS = 7
_N_TOKENS = 20
_N_DOCUMENTS = 10
_N_EXCERPTS = 3


def report(comparison: ComparisonData) -> str:
    """Render the page, which loads nothing from elsewhere."""
    names = list(comparison.tokenizers)
    return render(
        "comparison.html",
        "bytemill.comparison",
        names=[_shown(name) for name in names],
        n_bytes=sum(about["n_bytes"] for about in comparison.groups.values()),
        groups=[_group(comparison, group, number) for number, group in enumerate(comparison.groups)],
        parallel=comparison.parallel,
        overview=_overview(comparison),
        languages=_languages(comparison),
        lorenz=_lorenz(comparison),
        boundaries=_table("Boundaries that both have", boundary_rows(comparison), 2),
        vocabularies=_table("Vocabularies, without special tokens", vocabulary_rows(comparison), 1),
        differences=[
            {
                "name": _shown(group),
                "tokens": _table(
                    "The most used tokens that the other lacks", token_rows(comparison, group, _N_TOKENS), 3
                ),
                "documents": _table(
                    "Where they differ most", document_rows(comparison, group, _N_DOCUMENTS), 1
                ),
                "excerpts": _excerpts(comparison, group),
            }
            for group in comparison.groups
        ],
        costs=_table("Cost for the model", cost_rows(comparison), 1),
        speed=_table("Speed and memory on this machine", speed_rows(comparison), 1),
        meaning=Table(
            "Figures",
            ("figure", "formula", "it does not show"),
            [(figure.title, figure.formula, figure.blind_to) for figure in FIGURES.values()],
            n_text_columns=3,
        ),
        tokenizers=Table(
            "Tokenizers",
            ("tokenizer", "fingerprint", "ids"),
            [
                (_shown(name), about["fingerprint"][:16], format_count(about["n_vocab"]))
                for name, about in comparison.tokenizers.items()
            ],
            n_text_columns=2,
        ),
        texts=Table(
            "Texts",
            ("group", "inputs", "SHA-256 of the text"),
            [
                (_shown(name), _inputs(about["inputs"]), about["sha256"][:16])
                for name, about in comparison.groups.items()
            ],
            n_text_columns=3,
        ),
        version=comparison.version,
        settings=", ".join(f"{name} {value}" for name, value in comparison.settings.items()),
    )


def _group(comparison: ComparisonData, group: str, number: int) -> dict[str, Any]:
    figures = comparison.values[group]
    names = list(comparison.tokenizers)
    notes = {
        f"{FIGURES[name].title}: {value.note}"
        for name, values in figures.items()
        for value in values.values()
        if value.value is None and value.note
    }
    return {
        "name": _shown(group),
        "n_bytes": comparison.groups[group]["n_bytes"],
        "n_units": comparison.groups[group]["n_units"],
        "sentences": [
            sentence
            for name in _CHARTS[:2]
            if (sentence := _verdict(name, figures[name], comparison.best[group][name]))
        ],
        "figures": [
            Figure(
                interval_chart(
                    f"group-{number}-{name.replace('_', '-')}",
                    f"{FIGURES[name].title} on {_shown(group)}",
                    rows,
                    _axis(name),
                ),
                f"{FIGURES[name].formula[:1].upper()}{FIGURES[name].formula[1:]}.",
            )
            for name in _CHARTS
            if len(rows := _rows(name, figures[name])) > 1
        ]
        + _size_figures(comparison, group, number),
        "table": Table(
            f"All figures on {_shown(group)}, with 95 % intervals; ★ shown to be best",
            ("figure", *map(_shown, names)),
            [
                (FIGURES[name].title, *_cells(name, values, names, comparison.best[group][name]))
                for name, values in figures.items()
            ],
        ),
        "missing": sorted(notes),
        "samples": [(_shown(name), tokens) for name, tokens in comparison.samples.get(group, {}).items()],
    }


def _overview(comparison: ComparisonData) -> list[Figure]:
    """Return heat maps of the figures that matter most, by tokenizer and group."""
    groups, names = list(comparison.groups), list(comparison.tokenizers)
    if len(groups) < 2:
        return []
    figures: list[Figure] = []
    for name in ("bytes_per_token", "trigram_bits_per_byte"):
        own = FIGURES[name]
        rows = [[comparison.values[group][name][tokenizer].value for group in groups] for tokenizer in names]
        if all(value is not None for row in rows for value in row):
            chart = heat_map(
                f"overview-{name.replace('_', '-')}",
                own.title,
                [_shown(tokenizer) for tokenizer in names],
                [_shown(group) for group in groups],
                rows,
                shown=lambda value: f"{value:.2f}",
            )
            figures.append(
                Figure(chart, f"{own.title}: {own.better} is better. The darker, the greater in its column.")
            )
    return figures


def _table(caption: str, rows: Rows, n_text_columns: int) -> Table | None:
    shown = [tuple(map(_shown, row)) for row in rows]
    return Table(caption, shown[0], shown[1:], n_text_columns) if len(rows) > 1 else None


def _excerpts(comparison: ComparisonData, group: str) -> list[dict[str, Any]]:
    """Return the document of each pair that differs most, as both tokenizers divide it."""
    return [
        {
            "number": own.excerpts[0].number,
            "sides": [
                (_shown(name), n, tokens)
                for name, n, tokens in zip(
                    (own.first, own.second), own.excerpts[0].n_tokens, own.excerpts[0].tokens, strict=True
                )
            ],
        }
        for own in comparison.differences[group][:_N_EXCERPTS]
        if own.excerpts and own.excerpts[0].tokens
    ]


def _lorenz(comparison: ComparisonData) -> Figure | None:
    """Return the Lorenz curves over the languages."""
    if comparison.parallel is None:
        return None
    series = [
        Series(_shown(name), colour % _N_COLOURS + 1, points)
        for colour, (name, points) in enumerate(comparison.parallel.lorenz.items())
        if points
    ]
    if not series:
        return None
    equal = Series("equal cost", _N_COLOURS, [(0.0, 0.0), (1.0, 1.0)], dashed=True, has_dots=False)
    chart = line_chart(
        "lorenz",
        "Lorenz curves over the languages",
        "Share of the tokens against share of the languages, from the cheapest language on.",
        [*series, equal],
        x_axis="share of the languages, the cheapest first",
        y_axis="share of the tokens",
    )
    return Figure(chart, "The further below the diagonal, the more unevenly languages are treated.")


def _size_figures(comparison: ComparisonData, group: str, number: int) -> list[Figure]:
    """Return charts of figures against the size of the vocabulary."""
    figures: list[Figure] = []
    for name in _CHARTS[:2]:
        series = [
            Series(_shown(tokenizer), colour % _N_COLOURS + 1, points)
            for colour, (tokenizer, values) in enumerate(
                comparison.by_size.get(group, {}).get(name, {}).items()
            )
            if (points := [(size, value.value) for size, value in values if value.value is not None])
        ]
        if series and len({x for one in series for x, _ in one.points}) > 1:
            title = f"{FIGURES[name].title} against vocabulary size, on {_shown(group)}"
            described = "; ".join(
                f"{one.name}: " + ", ".join(f"{y:.2f} at {x:,.0f}" for x, y in one.points) for one in series
            )
            chart = line_chart(
                f"sizes-{number}-{name.replace('_', '-')}",
                title,
                f"Lines: {described}.",
                series,
                x_axis="ids",
                y_axis=FIGURES[name].title,
                log_x=True,
            )
            figures.append(Figure(chart, f"{FIGURES[name].title}, with the first merges of each tokenizer."))
    return figures


def _axis(name: str) -> str:
    figure = FIGURES[name]
    unit = " (%)" if figure.is_share else ""
    return f"{figure.title}{unit}" + (f", {figure.better} is better" if figure.better else "")


def _cells(name: str, values: dict[str, Value], names: list[str], best: str | None) -> list[str]:
    figure = FIGURES[name]
    return [
        ("★ " if each == best else "") + format_value(figure, values[each], with_interval=True)
        for each in names
    ]


def _rows(name: str, values: dict[str, Value]) -> list[Interval]:
    factor = 100 if FIGURES[name].is_share else 1
    return [
        Interval(
            _shown(tokenizer),
            factor * value.value,
            factor * (value.value if value.low is None else value.low),
            factor * (value.value if value.high is None else value.high),
            format_value(FIGURES[name], value),
            f"f{number % _N_COLOURS + 1}",
        )
        for number, (tokenizer, value) in enumerate(values.items())
        if value.value is not None
    ]


def _verdict(name: str, values: dict[str, Value], best: str | None) -> str:
    known = [value for value in values.values() if value.value is not None]
    if len(known) < 2:
        return ""
    title = FIGURES[name].title
    if best is None:
        return f"No tokenizer is shown to be best by {title}."
    return (
        f"{_shown(best)} is best by {title}: its difference to each other one has a 95 % interval beyond 0."
    )


def _languages(comparison: ComparisonData) -> Table | None:
    own = comparison.parallel
    if own is None:
        return None
    names = list(own.premiums)
    languages = sorted(
        next(iter(own.premiums.values())), key=lambda language: own.premiums[names[0]][language] or 0.0
    )
    rows = [
        (_shown(language), *(_decimals(own.premiums[name][language], 2) for name in names))
        for language in languages
    ]
    rows += [
        ("Gini coefficient", *(_decimals(own.gini[name], 3) for name in names)),
        ("Gini coefficient, mean over lines", *(_decimals(own.line_gini[name], 3) for name in names)),
    ]
    return Table(f"Tokens relative to {own.reference}", ("language", *map(_shown, names)), rows)


def _decimals(value: float | None, n: int) -> str:
    return "–" if value is None else f"{value:.{n}f}"


def _inputs(names: list[str]) -> str:
    shown = ", ".join(_shown(name) for name in names[:3])
    return shown + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def _shown(name: str) -> str:
    """Make a name visible, which may hold control characters."""
    return visible(os.fsencode(name))
