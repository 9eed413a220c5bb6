"""Tables and page of a study. The terminal shows the same tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bytemill.comparison.figures import FIGURES
from bytemill.experiment.statistics import LEARNED_SHARE
from bytemill.report import Figure, Interval, Series, Table, interval_chart, line_chart, render
from bytemill.system.units import format_bytes, format_count

if TYPE_CHECKING:
    from bytemill.experiment.findings import Findings
    from bytemill.experiment.statistics import Mean


Rows = list[tuple[str, ...]]


def means_table(findings: Findings, model: str) -> Rows:
    """Bits per byte of each tokenizer by domain."""
    rows: Rows = [("tokenizer", *findings.domains, "seeds", "σ over seeds")]
    for tokenizer in findings.tokenizers:
        own = [findings.means(domain).get((model, tokenizer)) for domain in findings.domains]
        last = own[-1]
        rows.append(
            (
                tokenizer,
                *(_mean(each) for each in own),
                "0" if last is None else str(last.n),
                "–" if last is None or last.deviation is None else f"{last.deviation:.4f}",
            )
        )
    return rows


def _mean(own: Mean | None) -> str:
    if own is None:
        return "–"
    return f"{own.value:.4f}" + ("" if own.half_width is None else f" ± {own.half_width:.4f}")


def pairs_table(findings: Findings, model: str) -> Rows:
    """Differences of all pairs of tokenizers."""
    rows: Rows = [
        ("first − second", "difference", "± seeds", "over documents", "p", "p, corrected", "detectable"),
    ]
    for pair in findings.pairs:
        if pair.model != model:
            continue
        own = pair.difference
        detectable = own.detectable
        rows.append(
            (
                f"{pair.first} − {pair.second}",
                f"{own.value:+.4f}",
                _number(own.half_width),
                "–" if pair.documents is None else f"{pair.documents[0]:+.4f} to {pair.documents[1]:+.4f}",
                _p(own.p),
                _p(pair.corrected_p),
                _number(detectable),
            )
        )
    return rows


def class_table(findings: Findings, model: str) -> Rows:
    """Bits per byte by class of token."""
    rows: Rows = [("class of token", *findings.tokenizers)]
    for name, values in findings.by_class(model).items():
        rows.append((name, *(_number(values.get(tokenizer)) for tokenizer in findings.tokenizers)))
    return rows


def predictions_table(findings: Findings, model: str) -> Rows:
    """Rank correlation of cheap figures with the models' bits per byte."""
    rows: Rows = [("figure of the tokenizer", "Spearman's ρ with bits per byte", "p")]
    rows += [(FIGURES[own.figure].title, f"{own.rho:+.2f}", _p(own.p)) for own in findings.predictions(model)]
    return rows


def hellaswag_table(findings: Findings, model: str) -> Rows:
    """Accuracy on HellaSwag, the mean over the seeds."""
    rows: Rows = [("HellaSwag", "acc", "acc_norm", "items", "tokens shared with the context")]
    for tokenizer in findings.tokenizers:
        own = [
            result["hellaswag"]
            for result in findings.results
            if (result["model"], result["tokenizer"]) == (model, tokenizer) and result.get("hellaswag")
        ]
        if own:
            acc, acc_norm = (
                f"{sum(each[name] for each in own) / len(own):.2%}" for name in ("acc", "acc_norm")
            )
            rows.append((tokenizer, acc, acc_norm, f"{own[0]['n_items']:,}", f"{own[0]['n_unaligned']:,}"))
    return rows


def learning_table(findings: Findings, model: str) -> Rows:
    """How far the models are below the unigram distribution, and the context that they were scored with."""
    rows: Rows = [
        (
            "tokenizer",
            "bits per token",
            "unigram distribution",
            "uniform",
            "below the unigram",
            "over documents",
            "least context",
            "mean context",
        )
    ]
    for tokenizer in findings.tokenizers:
        own = findings.learning.get((model, tokenizer))
        if own is None:
            continue
        rows.append(
            (
                tokenizer,
                f"{own.loss:.2f}",
                f"{own.unigram:.2f}",
                f"{math.log2(findings.grid['tokenizers'][tokenizer]['n_ids']):.2f}",
                f"{own.gain:.1%}",
                "–" if own.interval is None else f"{own.interval[0]:.1%} to {own.interval[1]:.1%}",
                *_context(findings.context(model, tokenizer)),
            )
        )
    return rows


def _context(own: tuple[int | None, float] | None) -> tuple[str, str]:
    if own is None:
        return "–", "–"
    least, average = own
    return "whole documents" if least is None else f"{least:,} bytes", f"{average:,.0f} bytes"


def trials_table(findings: Findings) -> Rows:
    """Learning rates that were tried, and what they gave on the tuning text."""
    rows: Rows = [("tokenizer", "model", "learning rate", "seed", "bits per byte", "FLOPs")]
    rows += [
        (
            result["tokenizer"],
            result["model"],
            f"{result['learning_rate']:g}",
            str(result["seed"]),
            f"{result['bits_per_byte']['tuning']:.4f}",
            f"{result['flops']:.3g}",
        )
        for result in findings.trials
    ]
    return rows


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.0001" if value < 0.0001 else f"{value:.4f}"


_N_COLOURS = 7
_SCALES = {
    "bytes": (1e6, "MB of text"),
    "tokens": (1e6, "million tokens"),
    "flops": (1e12, "10¹² FLOPs"),
    "seconds": (1, "seconds of training"),
}


def report(findings: Findings) -> str:
    """Render the page, which loads nothing from elsewhere."""
    grid = findings.grid
    return render(
        "study.html",
        "bytemill.experiment",
        title=grid["title"] or "A study of tokenizers",
        budget=describe_budget(grid["budget"]),
        tokenizers=findings.tokenizers,
        n_seeds=len(grid["seeds"]),
        domains=grid["domains"],
        segment_bytes=grid.get("segment_bytes"),
        context_bytes=grid.get("context_bytes"),
        learned_share=f"{LEARNED_SHARE:.0%}",
        missing=findings.missing,
        failures=findings.failures,
        models=[_model(findings, model, number) for number, model in enumerate(findings.models)],
        rate_sentences=findings.rate_sentences,
        trials=_table("Learning rates that were tried", trials_table(findings), 2),
        parameters=Table(
            "Parameters",
            ("tokenizer / model", "ids", "embedding", "output layer", "rest"),
            [
                (
                    name,
                    format_count(grid["tokenizers"][name.split("/")[0]]["n_ids"]),
                    *(format_count(n) for n in parts.values()),
                )
                for name, parts in grid["parameters"].items()
            ],
        ),
        texts=Table(
            "Text",
            ("text", "SHA-256"),
            [(name, digest[:16]) for name, digest in grid["text"].items()],
            n_text_columns=2,
        ),
    )


def describe_budget(budget: dict[str, Any]) -> str:
    """Return the budget in words.

    >>> describe_budget({"equal": "bytes", "amount": 2e6}), describe_budget({"equal": "flops", "amount": 1e15})
    ('2.00 MB of text', '1e+15 FLOPs')
    """
    amount = budget["amount"]
    return {
        "bytes": lambda: f"{format_bytes(amount)} of text",
        "tokens": lambda: f"{format_count(round(amount))} tokens",
        "flops": lambda: f"{amount:.4g} FLOPs",
        "time": lambda: f"{amount:,.0f} seconds of training",
    }[budget["equal"]]()


def _model(findings: Findings, model: str, number: int) -> dict[str, Any]:
    return {
        "name": model,
        "sentences": [pair.sentence for pair in findings.pairs if pair.model == model],
        "figures": [
            figure for draw in (_intervals, _curves, _sizes) for figure in draw(findings, model, number)
        ],
        "more": [
            figure for axis in ("tokens", "seconds") for figure in _curve(findings, model, number, axis)
        ],
        "means": _table(
            "Bits per byte: means over the seeds with 95 % intervals", means_table(findings, model), 1
        ),
        "pairs": _table("Differences, paired by seed", pairs_table(findings, model), 1),
        "learning": _table("Is it trained? Loss on the scored text", learning_table(findings, model), 1),
        "classes": _table("Bits per byte by class of token", class_table(findings, model), 1),
        "hellaswag": _table(
            "HellaSwag: means over the seeds, which small models do not tell apart",
            hellaswag_table(findings, model),
            1,
        ),
        "samples": [
            (result["tokenizer"], sample["prompt"], sample["text"])
            for result in findings.results
            if result["model"] == model and result["seed"] == findings.grid["seeds"][0]
            for sample in result.get("samples", [])
        ],
        "predictions": _table("Does a figure predict the models?", predictions_table(findings, model), 1),
    }


def _table(caption: str, rows: list[tuple[str, ...]], n_text_columns: int) -> Table | None:
    return Table(caption, rows[0], rows[1:], n_text_columns) if len(rows) > 1 else None


def _intervals(findings: Findings, model: str, number: int) -> list[Figure]:
    domain = findings.domains[-1]
    rows = [
        Interval(
            tokenizer,
            own.value,
            own.value - (own.half_width or 0),
            own.value + (own.half_width or 0),
            f"{own.value:.4f}",
        )
        for (name, tokenizer), own in findings.means(domain).items()
        if name == model
    ]
    if len(rows) < 2:
        return []
    chart = interval_chart(
        f"means-{number}", f"Bits per byte, {domain}", rows, "bits per byte (lower is better)"
    )
    return [
        Figure(
            chart,
            "Means over the seeds with 95 % intervals. Seeds are shared, so that differences are known better than the "
            "means: see the table of differences.",
        )
    ]


def _curves(findings: Findings, model: str, number: int) -> list[Figure]:
    return [figure for axis in ("bytes", "flops") for figure in _curve(findings, model, number, axis)]


def _curve(findings: Findings, model: str, number: int, axis: str) -> list[Figure]:
    unit, name = _SCALES[axis]
    series = [
        Series(tokenizer, colour % _N_COLOURS + 1, [(round(x / unit, 4), y) for x, y in points])
        for colour, tokenizer in enumerate(findings.tokenizers)
        if (points := findings.curve(model, tokenizer, axis))
    ]
    if not series:
        return []
    described = "; ".join(f"{one.name} ends at {one.points[-1][1]:.3f}" for one in series)
    chart = line_chart(
        f"curve-{axis}-{number}",
        f"Learning curves against {name}",
        f"Lines, bits per byte against {name}: {described}.",
        series,
        x_axis=name,
        y_axis="bits per byte",
        from_zero=False,
    )
    return [Figure(chart, "Validation during training, on windows of the text; means over the seeds.")]


def _sizes(findings: Findings, model: str, number: int) -> list[Figure]:
    points = sorted(
        (findings.grid["tokenizers"][tokenizer]["n_ids"], own.value)
        for (name, tokenizer), own in findings.means(findings.domains[-1]).items()
        if name == model
    )
    if len({x for x, _ in points}) < 3:
        return []
    chart = line_chart(
        f"sizes-{number}",
        "Bits per byte against vocabulary size",
        "; ".join(f"{x:,} ids {y:.4f}" for x, y in points),
        [Series("all tokenizers", 1, points)],
        x_axis="ids",
        y_axis="bits per byte",
        log_x=True,
        from_zero=False,
    )
    return [Figure(chart, "Every tokenizer of the study by its number of ids.")]
