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
    """Bits per byte of each tokenizer, or text, by domain."""
    rows: Rows = [(findings.compared, *findings.domains, "seeds", "σ over seeds")]
    means = [findings.means(domain) for domain in findings.domains]
    for tokenizer in findings.tokenizers:
        own = [each.get((model, tokenizer)) for each in means]
        last, shown = own[-1], map(_mean, own)
        n_seeds, deviation = ("0", None) if last is None else (str(last.n), last.deviation)
        rows.append((tokenizer, *shown, n_seeds, _number(deviation)))
    return rows


def _mean(own: Mean | None) -> str:
    if own is None:
        return "–"
    return f"{own.value:.4f}" + ("" if own.half_width is None else f" ± {own.half_width:.4f}")


def pairs_table(findings: Findings, model: str) -> Rows:
    """Differences of all pairs of tokenizers, or of texts."""
    rows: Rows = [
        ("first − second", "difference", "± seeds", "over documents", "p", "p, corrected", "detectable")
    ]
    for pair in findings.pairs:
        if pair.model == model:
            own, ends = pair.difference, pair.documents
            documents = "–" if ends is None else f"{ends[0]:+.4f} to {ends[1]:+.4f}"
            ps = _p(own.p), _p(pair.corrected_p)
            numbers = (f"{own.value:+.4f}", _number(own.half_width), documents, *ps, _number(own.detectable))
            rows.append((f"{pair.first} − {pair.second}", *numbers))
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
        results = findings.of_arm(model, tokenizer)
        own = [result["hellaswag"] for result in results if result.get("hellaswag")]
        if own:
            means = (sum(each[name] for each in own) / len(own) for name in ("acc", "acc_norm"))
            counts = f"{own[0]['n_items']:,}", f"{own[0]['n_unaligned']:,}"
            rows.append((tokenizer, *(f"{mean:.2%}" for mean in means), *counts))
    return rows


def learning_table(findings: Findings, model: str) -> Rows:
    """How far the models are below the unigram distribution, and the context that they were scored with."""
    losses = (findings.compared, "bits per token", "unigram distribution", "uniform", "below the unigram")
    rows: Rows = [(*losses, "over documents", "least context", "mean context")]
    for tokenizer in findings.tokenizers:
        own = findings.learning.get((model, tokenizer))
        if own is None:
            continue
        uniform = math.log2(findings.n_ids(tokenizer))
        ends = "–" if own.interval is None else f"{own.interval[0]:.1%} to {own.interval[1]:.1%}"
        shown = (f"{own.loss:.2f}", f"{own.unigram:.2f}", f"{uniform:.2f}", f"{own.gain:.1%}", ends)
        rows.append((tokenizer, *shown, *_context(findings.context(model, tokenizer))))
    return rows


def _context(own: tuple[int | None, float] | None) -> tuple[str, str]:
    if own is None:
        return "–", "–"
    least, average = own
    return "whole documents" if least is None else f"{least:,} bytes", f"{average:,.0f} bytes"


def trials_table(findings: Findings) -> Rows:
    """Learning rates that were tried, and what they gave on the tuning text."""
    rows: Rows = [(findings.compared, "model", "learning rate", "seed", "bits per byte", "FLOPs")]
    for own in findings.trials:
        bits, rate = own["bits_per_byte"]["tuning"], own["learning_rate"]
        numbers = (f"{rate:g}", str(own["seed"]), f"{bits:.4f}", f"{own['flops']:.3g}")
        rows.append((findings.name_of(own), own["model"], *numbers))
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
    parameters: Rows = [("tokenizer / model", "ids", "embedding", "output layer", "rest")]
    for name, parts in grid["parameters"].items():
        n_ids = grid["tokenizers"][name.split("/")[0]]["n_ids"]
        parameters.append((name, *map(format_count, (n_ids, *parts.values()))))
    texts: Rows = [("text", "SHA-256"), *((name, digest[:16]) for name, digest in grid["text"].items())]
    return render(
        "study.html",
        "bytemill.experiment",
        title=grid["title"] or f"A study of {'texts' if grid.get('texts') else 'tokenizers'}",
        compared=findings.compared,
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
        parameters=Table("Parameters", parameters[0], parameters[1:]),
        texts=Table("Text", texts[0], texts[1:], 2),
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
    def curves(*axes: str) -> list[Figure]:
        drawn = (_curve(findings, model, number, axis) for axis in axes)
        return [figure for figure in drawn if figure is not None]

    drawn = (_intervals(findings, model, number), *curves("bytes", "flops"), _sizes(findings, model, number))
    first_seed = findings.grid["seeds"][0]
    return {
        "name": model,
        "sentences": [pair.sentence for pair in findings.pairs if pair.model == model],
        "figures": [figure for figure in drawn if figure is not None],
        "more": curves("tokens", "seconds"),
        "means": _table(
            "Bits per byte: means over the seeds with 95 % intervals", means_table(findings, model)
        ),
        "pairs": _table("Differences, paired by seed", pairs_table(findings, model)),
        "learning": _table("Is it trained? Loss on the scored text", learning_table(findings, model)),
        "classes": _table("Bits per byte by class of token", class_table(findings, model)),
        "hellaswag": _table(
            "HellaSwag: means over the seeds, which small models do not tell apart",
            hellaswag_table(findings, model),
        ),
        "samples": [
            (findings.name_of(result), sample["prompt"], sample["text"])
            for result in findings.results
            if result["model"] == model and result["seed"] == first_seed
            for sample in result.get("samples", [])
        ],
        "predictions": _table("Does a figure predict the models?", predictions_table(findings, model)),
    }


def _table(caption: str, rows: Rows, n_text_columns: int = 1) -> Table | None:
    return Table(caption, rows[0], rows[1:], n_text_columns) if len(rows) > 1 else None


def _intervals(findings: Findings, model: str, number: int) -> Figure | None:
    domain = findings.domains[-1]
    rows: list[Interval] = []
    for (name, tokenizer), own in findings.means(domain).items():
        if name == model:
            value, half = own.value, own.half_width or 0
            rows.append(Interval(tokenizer, value, value - half, value + half, f"{value:.4f}"))
    if len(rows) < 2:
        return None
    title, axis = f"Bits per byte, {domain}", "bits per byte (lower is better)"
    return Figure(
        interval_chart(f"means-{number}", title, rows, axis),
        "Means over the seeds with 95 % intervals. Seeds are shared, so that differences are known better than the "
        "means: see the table of differences.",
    )


def _curve(findings: Findings, model: str, number: int, axis: str) -> Figure | None:
    unit, name = _SCALES[axis]
    series = [
        Series(tokenizer, colour % _N_COLOURS + 1, [(round(x / unit, 4), y) for x, y in points])
        for colour, tokenizer in enumerate(findings.tokenizers)
        if (points := findings.curve(model, tokenizer, axis))
    ]
    if not series:
        return None
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
    return Figure(chart, "Validation during training, on windows of the text; means over the seeds.")


def _sizes(findings: Findings, model: str, number: int) -> Figure | None:
    points = sorted(
        (findings.n_ids(tokenizer), own.value)
        for (name, tokenizer), own in findings.means(findings.domains[-1]).items()
        if name == model
    )
    if len({x for x, _ in points}) < 3:
        return None
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
    return Figure(chart, "Every tokenizer of the study by its number of ids.")
