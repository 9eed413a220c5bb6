"""Tables, charts and page of a sweep. The terminal shows the same tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.report import Cloud, Figure, Table, render, scatter_chart
from bytemill.system.units import format_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bytemill.report import Chart
    from bytemill.scaling.findings import ScalingFindings
    from bytemill.scaling.fits import Interval

Rows = list[tuple[str, ...]]
_N_COLOURS = 7
_N_CURVE = 41
METHODS = {"law": "the law", "parabola": "parabolas", "lowest": "lowest runs"}


def shown(own: Interval, digits: int = 4) -> tuple[str, str]:
    """Return the value and the interval as text."""
    value = f"{own.value:.{digits}g}"
    ends = "–" if own.low != own.low else f"{own.low:.{digits}g} to {own.high:.{digits}g}"
    return value, ends


def law_table(findings: ScalingFindings) -> Rows:
    """The numbers of the law."""
    rows: Rows = [("L = E + A / N^α + B / D^β", "value", "95 % interval")]
    names = {"e": "E", "a": "A", "b": "B", "alpha": "α", "beta": "β"}
    return rows + [(names[name], *shown(own)) for name, own in findings.law.items()]


def exponents_table(findings: ScalingFindings) -> Rows:
    """a in N ∝ C^a by method."""
    rows: Rows = [("best N ∝ C^a by", "a", "95 % interval")]
    return rows + [(METHODS[name], *shown(own)) for name, own in findings.exponents.items()]


def budgets_table(findings: ScalingFindings) -> Rows:
    """The best size at each budget, by method."""
    rows: Rows = [("FLOPs", "runs", "N by the law", "95 % interval", "N by parabola", "lowest run")]
    table = findings.table
    found = {
        name: {each.flops: each.parameters for each in fit.budgets} for name, fit in findings.isoflops.items()
    }
    for budget in np.unique(table.flops).tolist():
        own = findings.predict(budget).parameters
        others = (found.get(name, {}).get(budget) for name in ("parabola", "lowest"))
        cells = ("–" if each is None else f"{each:.3g}" for each in others)
        rows.append((f"{budget:.3g}", str(int((table.flops == budget).sum())), *shown(own, 3), *cells))
    return rows


def checks_table(findings: ScalingFindings) -> Rows:
    """Predictions of larger budgets against their outcomes."""
    rows: Rows = [("FLOPs", "depth", "tokens", "predicted", "95 % interval", "outcome", "seeds", "error")]
    for own in findings.checks:
        outcome = own.outcome
        error = "–" if outcome is None else f"{own.predicted.value / outcome - 1:+.2%}"
        cells = ("–" if outcome is None else f"{outcome:.4f}", str(own.n_seeds), error)
        head = (f"{own.flops:.3g}", f"{own.depth:g}", format_count(own.n_tokens))
        rows.append((*head, f"{own.predicted.value:.4f}", shown(own.predicted)[1], *cells))
    return rows


def rates_table(findings: ScalingFindings) -> Rows:
    """Learning rates by depth, with the difference to the next ones."""
    rows: Rows = [("depth", "learning rate", "next rate", "bits per byte more", "95 % interval")]
    for depth, own in findings.rates.items():
        for rate, difference in own.neighbours.items():
            half = difference.half_width
            ends = (
                "–" if half is None else f"{difference.value - half:+.4f} to {difference.value + half:+.4f}"
            )
            rows.append((f"{depth:g}", f"{own.rate:.3g}", f"{rate:.3g}", f"{difference.value:+.4f}", ends))
    return rows


def ledger_table_rows(findings: ScalingFindings) -> Rows:
    """All runs."""
    header = ("ids", "depth", "seed", "learning rate", "steps", "tokens", "non-vocabulary", "all", "FLOPs")
    rows: Rows = [(*header, "nats per token", "bits per byte", "")]
    for own in findings.ledger.outcomes:
        chain = own.point.chain
        counts = own.parameters["rest"], sum(own.parameters.values())
        loss = ("–", "–") if own.loss is None else (f"{own.loss:.4f}", f"{own.bits_per_byte:.4f}")
        settings = (
            f"{chain.vocab_size:,}",
            f"{chain.depth:g}",
            str(chain.seed),
            f"{chain.learning_rate:.3g}",
        )
        amounts = (f"{own.point.n_steps:,}", *map(format_count, (own.n_tokens, *counts)), f"{own.flops:.3g}")
        rows.append((*settings, *amounts, *loss, own.problem))
    return rows


def report(findings: ScalingFindings) -> str:
    """Render the page, which loads nothing from elsewhere."""
    ledger = findings.ledger
    sweep = ledger.sweep
    return render(
        "scaling.html",
        "bytemill.scaling",
        title=sweep.title or "A sweep of model sizes",
        n_runs=len(ledger.outcomes),
        budgets=[f"{budget:.3g}" for budget in np.unique(findings.table.flops)],
        spent=f"{ledger.spent_flops:.3g} of {ledger.budget_flops:.3g}",
        sentences=sentences(findings),
        figures=[Figure(chart, caption) for chart, caption in charts(findings)],
        tables=[
            _table("The law, in bits per byte", law_table(findings)),
            _table("How the best size grows", exponents_table(findings)),
            _table("The best size by budget", budgets_table(findings)),
        ],
        checks=_table("Predictions and outcomes", checks_table(findings)),
        rates=_table("Learning rates by trials", rates_table(findings)),
        left_out=findings.table.left_out,
        convention=findings.table.convention,
        ledger=_table("All runs", ledger_table_rows(findings), 0),
    )


def _table(caption: str, rows: Rows, n_text_columns: int = 1) -> Table | None:
    return Table(caption, rows[0], rows[1:], n_text_columns) if len(rows) > 1 else None


def sentences(findings: ScalingFindings) -> list[str]:
    """Return the results in words."""
    held = findings.held_out
    found: list[str] = []
    if held is not None:
        found.append(
            f"Held out: {held.n_runs} runs of {held.flops:.3g} FLOPs, predicted from budgets at least "
            f"{held.ratio:.2g} times smaller. The bits per byte are off by {abs(held.mean_error):.2%} on average and "
            f"{held.largest_error:.2%} at most; {held.n_inside} of {held.n_runs} are inside of their interval."
        )
    found += [f"Checked: {own.sentence}." for own in findings.checks]
    found += [
        f"{own.sentence}."
        for own in map(findings.best_vocabulary, findings.ledger.sweep.compared_budgets)
        if own
    ]
    return found


def charts(findings: ScalingFindings) -> list[tuple[Chart, str]]:
    """Return the charts with their captions."""
    drawn = [_isoflops(findings), _frontier(findings), _best_loss(findings), _residuals(findings)]
    vocabulary = _vocabulary(findings)
    return drawn if vocabulary is None else [*drawn, vocabulary]


def _isoflops(findings: ScalingFindings) -> tuple[Chart, str]:
    table, clouds = findings.table, list[Cloud]()
    low, high = float(table.runs.parameters.min()), float(table.runs.parameters.max())
    described: list[str] = []
    for number, budget in enumerate(np.unique(table.flops).tolist()):
        own = table.flops == budget
        n = table.runs.parameters[own]
        best = findings.fit.law.best(budget, table.flops_per_token)
        has_ring = low / 4 < best[0] < high * 4
        first, last = (min(n.min(), best[0]), max(n.max(), best[0])) if has_ring else (n.min(), n.max())
        near: NDArray[np.float64] = np.geomspace(float(first) / 1.15, float(last) * 1.15, _N_CURVE)
        curve = findings.losses_at(near, budget / table.flops_per_token / near)
        clouds.append(
            Cloud(
                f"{budget:.3g} FLOPs",
                number % _N_COLOURS + 1,
                list(zip(n.tolist(), table.runs.losses[own].tolist(), strict=True)),
                [(float(x), each.value) for x, each in zip(near, curve, strict=True)],
                [(float(x), each.low, each.high) for x, each in zip(near, curve, strict=True)],
                marks=[(best[0], float(findings.fit.law.loss(*best)))] if has_ring else [],
            )
        )
        described.append(f"{budget:.3g} FLOPs lowest near {best[0]:.3g}")
    chart = scatter_chart(
        "isoflops",
        "Bits per byte by size, at equal FLOPs",
        f"Curves of the law with the runs: {'; '.join(described)}.",
        clouds,
        x_axis="N (FLOPs per token / 6)",
        y_axis="bits per byte",
    )
    return chart, "Dots are runs, curves the law with its 95 % band, rings the best size of each budget."


def _budget_line(findings: ScalingFindings) -> np.ndarray[Any, Any]:
    budgets = [*np.unique(findings.table.flops).tolist(), *(own.flops for own in findings.checks)]
    return np.geomspace(min(budgets) / 1.5, max(budgets) * 2, _N_CURVE)


def _frontier(findings: ScalingFindings) -> tuple[Chart, str]:
    line = _budget_line(findings)
    best = [findings.predict(float(flops)).parameters for flops in line]
    clouds = [
        Cloud(
            "the law",
            1,
            curve=[(float(x), own.value) for x, own in zip(line, best, strict=True)],
            band=[(float(x), own.low, own.high) for x, own in zip(line, best, strict=True)],
        )
    ]
    clouds += [
        Cloud(METHODS[name], number, [(each.flops, each.parameters) for each in fit.budgets])
        for number, (name, fit) in enumerate(findings.isoflops.items(), 2)
    ]
    own = findings.exponents["law"]
    described = (
        f"The best N grows as FLOPs to the power {own.value:.3f}, interval {own.low:.3f} to {own.high:.3f}."
    )
    chart = scatter_chart(
        "frontier", "The best size by budget", described, clouds, x_axis="FLOPs", y_axis="best N", log_y=True
    )
    return chart, "The band is the 95 % interval of the law; dots are the lowest points of each budget."


def _best_loss(findings: ScalingFindings) -> tuple[Chart, str]:
    line = _budget_line(findings)
    best = [findings.predict(float(flops)).loss for flops in line]
    table = findings.table
    lowest = [
        (flops, float(table.runs.losses[table.flops == flops].min()))
        for flops in np.unique(table.flops).tolist()
    ]
    clouds = [
        Cloud(
            "the law",
            1,
            curve=[(float(x), own.value) for x, own in zip(line, best, strict=True)],
            band=[(float(x), own.low, own.high) for x, own in zip(line, best, strict=True)],
        ),
        Cloud("lowest run of a budget", 2, lowest),
    ]
    if findings.checks:
        clouds.append(
            Cloud(
                "predicted before its runs",
                3,
                [(own.flops, own.outcome) for own in findings.checks if own.outcome is not None],
                bars=[(own.flops, own.predicted.low, own.predicted.high) for own in findings.checks],
            )
        )
    chart = scatter_chart(
        "loss",
        "Bits per byte of the best model by budget",
        f"The law falls from {best[0].value:.3f} to {best[-1].value:.3f} bits per byte.",
        clouds,
        x_axis="FLOPs",
        y_axis="bits per byte",
    )
    return chart, "Intervals of predictions are for the mean of their runs, whose outcome is the dot."


def _residuals(findings: ScalingFindings) -> tuple[Chart, str]:
    table, errors = findings.table, 100 * findings.fit.residuals
    clouds = [
        Cloud(
            f"{budget:.3g} FLOPs",
            number % _N_COLOURS + 1,
            list(
                zip(
                    table.runs.parameters[table.flops == budget].tolist(),
                    errors[table.flops == budget].tolist(),
                    strict=True,
                )
            ),
        )
        for number, budget in enumerate(np.unique(table.flops).tolist())
    ]
    chart = scatter_chart(
        "residuals",
        "Residuals of the law by size",
        f"Runs are off by {float(np.abs(errors).mean()):.2f} % on average, {np.abs(errors).max():.2f} % at most.",
        clouds,
        x_axis="N (FLOPs per token / 6)",
        y_axis="% above the law",
        zero=True,
    )
    return chart, "Runs that lie above or below zero together show what the law misses."


def _vocabulary(findings: ScalingFindings) -> tuple[Chart, str] | None:
    ledger = findings.ledger
    clouds: list[Cloud] = []
    described: list[str] = []
    for number, budget in enumerate(ledger.sweep.compared_budgets):
        best = findings.best_vocabulary(budget)
        if best is None:
            return None
        described.append(best.sentence)
        clouds.append(
            Cloud(
                f"{budget:.3g} FLOPs",
                number % _N_COLOURS + 1,
                curve=[(size, own.value) for size, own in best.curve],
                band=[(size, own.low, own.high) for size, own in best.curve],
                points=findings.lowest_by_vocabulary(budget),
                marks=[(best.size.value, best.loss.value)],
            )
        )
    if not clouds:
        return None
    chart = scatter_chart(
        "vocabulary",
        "Bits per byte by size of the vocabulary, at equal FLOPs",
        "; ".join(described) + ".",
        clouds,
        x_axis="ids",
        y_axis="bits per byte",
    )
    return (
        chart,
        "The best model with each vocabulary by the law with its 95 % band; dots are the lowest means over seeds.",
    )
