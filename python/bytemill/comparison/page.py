"""The page of a comparison."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from bytemill.analysis.inspection import visible
from bytemill.comparison.figures import FIGURES, format_value
from bytemill.comparison.result import (
    boundary_rows,
    cost_rows,
    document_rows,
    figure_rows,
    language_rows,
    speed_rows,
    token_rows,
    vocabulary_rows,
)
from bytemill.report import Figure, Interval, Series, Table, heat_map, interval_chart, line_chart, render
from bytemill.system.units import format_count

if TYPE_CHECKING:
    from bytemill.comparison.figures import Value
    from bytemill.comparison.result import Comparison, Rows


_CHARTS = ("trigram_bits_per_byte", "bytes_per_token", "whole_words")
_N_COLOURS = 7
_N_TOKENS = 20
_N_DOCUMENTS = 10
_N_EXCERPTS = 3


def report(comparison: Comparison) -> str:
    """Render the page, which loads nothing from elsewhere."""
    parallel = comparison.parallel
    figures = ((own.title, own.formula, own.blind_to) for own in FIGURES.values())
    tokenizers = (
        (name, about["fingerprint"][:16], format_count(about["n_vocab"]))
        for name, about in comparison.tokenizers.items()
    )
    texts = (
        (name, _inputs(about["inputs"]), about["sha256"][:16]) for name, about in comparison.groups.items()
    )
    return render(
        "comparison.html",
        "bytemill.comparison",
        names=[_shown(name) for name in comparison.tokenizers],
        n_bytes=sum(about["n_bytes"] for about in comparison.groups.values()),
        groups=[group_section(comparison, group, number) for number, group in enumerate(comparison.groups)],
        parallel=parallel,
        overview=_overview(comparison),
        languages=parallel
        and _table(f"Tokens relative to {parallel.reference}", language_rows(comparison, by_cost=True)),
        lorenz=_lorenz(comparison),
        boundaries=_table("Boundaries that both have", boundary_rows(comparison), 2),
        vocabularies=_table("Vocabularies, without special tokens", vocabulary_rows(comparison)),
        differences=[
            {
                "name": _shown(group),
                "tokens": _table(
                    "The most used tokens that the other lacks", token_rows(comparison, group, _N_TOKENS), 3
                ),
                "documents": _table("Where they differ most", document_rows(comparison, group, _N_DOCUMENTS)),
                "excerpts": _excerpts(comparison, group),
            }
            for group in comparison.groups
        ],
        costs=_table("Cost for the model", cost_rows(comparison)),
        speed=_table("Speed and memory on this machine", speed_rows(comparison)),
        meaning=_table("Figures", [("figure", "formula", "it does not show"), *figures], 3),
        tokenizers=_table("Tokenizers", [("tokenizer", "fingerprint", "ids"), *tokenizers], 2),
        texts=_table("Texts", [("group", "inputs", "SHA-256 of the text"), *texts], 3),
        version=comparison.version,
        settings=", ".join(f"{name} {value}" for name, value in comparison.settings.items()),
    )


def group_section(comparison: Comparison, group: str, number: int) -> dict[str, Any]:
    """Return what a page says of a text group: sentences, figures, a table and samples.

    Args:
        comparison: The comparison.
        group: Name of the group.
        number: Number that makes the ids of its charts unique on the page.
    """
    figures = comparison.values[group]
    notes = {
        f"{FIGURES[name].title}: {value.note}"
        for name, values in figures.items()
        for value in values.values()
        if value.value is None and value.note
    }
    verdicts = (_verdict(name, figures[name], comparison.best[group][name]) for name in _CHARTS[:2])
    return {
        "name": _shown(group),
        "n_bytes": comparison.groups[group]["n_bytes"],
        "n_units": comparison.groups[group]["n_units"],
        "sentences": list(filter(None, verdicts)),
        "figures": _interval_figures(comparison, group, number) + _size_figures(comparison, group, number),
        "table": _table(
            f"All figures on {group}, with 95 % intervals; ★ shown to be best",
            figure_rows(comparison, group, with_interval=True, star="★"),
        ),
        "missing": sorted(notes),
        "samples": [(_shown(name), tokens) for name, tokens in comparison.samples.get(group, {}).items()],
    }


def _overview(comparison: Comparison) -> list[Figure]:
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


def _table(caption: str, rows: Rows, n_text_columns: int = 1) -> Table | None:
    header, *shown = (tuple(map(_shown, row)) for row in rows)
    return Table(_shown(caption), header, shown, n_text_columns) if shown else None


def _excerpts(comparison: Comparison, group: str) -> list[dict[str, Any]]:
    """Return the document of each pair that differs most, as both tokenizers divide it."""
    found: list[dict[str, Any]] = []
    for own in comparison.differences[group][:_N_EXCERPTS]:
        if own.excerpts and (tokens := own.excerpts[0].tokens):
            names = _shown(own.first), _shown(own.second)
            sides = list(zip(names, own.excerpts[0].n_tokens, tokens, strict=True))
            found.append({"number": own.excerpts[0].number, "sides": sides})
    return found


def _interval_figures(comparison: Comparison, group: str, number: int) -> list[Figure]:
    """Return charts of figures with their intervals."""
    charts: list[Figure] = []
    for name in _CHARTS:
        figure = FIGURES[name]
        factor = 100 if figure.is_share else 1
        rows: list[Interval] = []
        for colour, (tokenizer, own) in enumerate(comparison.values[group][name].items()):
            if own.value is not None:
                ends = (
                    own.value if own.low is None else own.low,
                    own.value if own.high is None else own.high,
                )
                value, low, high = (factor * each for each in (own.value, *ends))
                shown, css_class = format_value(figure, own), f"f{colour % _N_COLOURS + 1}"
                rows.append(Interval(_shown(tokenizer), value, low, high, shown, css_class))
        if len(rows) > 1:
            axis = f"{figure.title}{' (%)' if figure.is_share else ''}, {figure.better} is better"
            key = f"group-{number}-{name.replace('_', '-')}"
            chart = interval_chart(key, f"{figure.title} on {_shown(group)}", rows, axis)
            charts.append(Figure(chart, f"{figure.formula[:1].upper()}{figure.formula[1:]}."))
    return charts


def _lorenz(comparison: Comparison) -> Figure | None:
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


def _size_figures(comparison: Comparison, group: str, number: int) -> list[Figure]:
    """Return charts of figures against the size of the vocabulary."""
    figures: list[Figure] = []
    for name in _CHARTS[:2]:
        by_tokenizer = comparison.by_size.get(group, {}).get(name, {})
        series = [
            Series(_shown(tokenizer), colour % _N_COLOURS + 1, points)
            for colour, (tokenizer, values) in enumerate(by_tokenizer.items())
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


def _verdict(name: str, values: dict[str, Value], best: str | None) -> str:
    known = [value for value in values.values() if value.value is not None]
    if len(known) < 2:
        return ""
    title, beyond = FIGURES[name].title, "its difference to each other one has a 95 % interval beyond 0"
    if best is None:
        return f"No tokenizer is shown to be best by {title}."
    return f"{_shown(best)} is best by {title}: {beyond}."


def _inputs(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def _shown(name: str) -> str:
    """Make a name visible, which may hold control characters."""
    return visible(os.fsencode(name))
