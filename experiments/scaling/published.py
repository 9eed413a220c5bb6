"""Fit published sweeps: the best size by three methods with intervals, and the test on the largest budget.

python published.py isoflops_course.json isoflops_public.csv

A .json file holds one sweep (parameters, compute_budget, final_loss), a .csv file several, named in its column
`experiment`, whose rows with `outlier` are left out.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bytemill.errors import ScalingError
from bytemill.scaling import Interval, Runs, fit_loss
from bytemill.scaling.findings import isoflop_fits
from bytemill.scaling.prediction import hold_out
from bytemill.scaling.run_files import RunTable

if TYPE_CHECKING:
    from collections.abc import Iterator

N_BOOTSTRAP = 300


def sweeps(path: Path) -> Iterator[tuple[str, RunTable]]:
    """Yield the sweeps of a file by name; N D is the budget / 6."""
    if path.suffix == ".json":
        rows = json.loads(path.read_text(encoding="utf-8"))
        columns = ([row[name] for row in rows] for name in ("parameters", "compute_budget", "final_loss"))
        n, c, loss = (np.array(own, dtype=float) for own in columns)
        yield "course", RunTable(Runs(n, c / (6 * n), loss), c, 6.0, {})
        return
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["outlier"] != "True"]
    for name in sorted({row["experiment"] for row in rows}):
        own = [row for row in rows if row["experiment"] == name]
        n, d, c, loss = (
            np.array([float(row[key]) for row in own]) for key in ("params", "tokens", "budget", "loss")
        )
        yield name, RunTable(Runs(n, d, loss), c, float(np.exp(np.log(c / (n * d)).mean())), {})


def shown(own: Interval) -> str:
    """Return an interval as text."""
    return f"{own.value:.3f} ({own.low:.3f} to {own.high:.3f})"


def main() -> None:
    header = (
        "sweep",
        "runs",
        "budgets",
        "a by the law",
        "a by parabolas",
        "a by lowest runs",
        "best N at 10 times the largest budget: law; parabolas; lowest",
        "held out: mean, largest error",
    )
    print(f"| {' | '.join(header)} |")
    print("|---|---:|---:|---|---|---|---|---|")
    for path in map(Path, sys.argv[1:]):
        for name, table in sweeps(path):
            flops = 10 * float(table.flops.max())
            try:
                fit = fit_loss(table.runs, n_bootstrap=N_BOOTSTRAP)
                law = shown(fit.interval(lambda own: own.size_exponent))
                best = fit.interval(lambda own, c=flops, k=table.flops_per_token: own.best(c, k)[0])
                first = f"{best.value:.3g} ({best.low:.3g} to {best.high:.3g})"
                law += "".join(f", {each} at its bound" for each in fit.at_bound)
            except ScalingError as error:
                law, first = str(error), "–"
            methods = isoflop_fits(table, N_BOOTSTRAP)
            exponents = [
                shown(methods[own].exponent) if own in methods else "–" for own in ("parabola", "lowest")
            ]
            others = [
                f"{own.value:.3g} ({own.low:.3g} to {own.high:.3g})"
                for own in (methods[each].best(flops) for each in ("parabola", "lowest") if each in methods)
            ]
            held = hold_out(table)
            test = "–" if held is None else f"{held.mean_error:+.2%}, {held.largest_error:.2%}"
            n_budgets = len(np.unique(table.flops))
            cells = (
                name,
                str(len(table.runs)),
                str(n_budgets),
                law,
                *exponents,
                "; ".join([first, *others]),
                test,
            )
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
