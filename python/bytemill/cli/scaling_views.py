"""Print scaling laws and predictions, as tables or JSON."""

from __future__ import annotations

import typing
from dataclasses import asdict
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from bytemill.cli import output
from bytemill.errors import ScalingError
from bytemill.scaling.isoflops import Method, fit_isoflops
from bytemill.scaling.prediction import HeldOut, fit_table, hold_out, predict
from bytemill.system.units import format_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.scaling.fits import Interval
    from bytemill.scaling.isoflops import IsoFlopFit
    from bytemill.scaling.run_files import RunTable
    from bytemill.scaling.vocabulary import BestVocabulary


class BestModels(Protocol):
    """What a ledger tells of the best models, beside the law."""

    def depth(self, parameters: float) -> float:
        """Return the position of the depth dial nearest to N."""
        ...

    def vocabulary(self, flops: float, n_bootstrap: int) -> BestVocabulary | None:
        """Return the best vocabulary for a budget; None if the runs do not tell it."""
        ...


def write_fit(table: RunTable, *, n_bootstrap: int, as_json: bool) -> None:
    """Print the law of a table of runs, the best sizes by budget, and the test on the largest budget."""
    fit = fit_table(table, n_bootstrap)
    names = ("e", "a", "b", "alpha", "beta")
    law = {name: fit.interval(attrgetter(name)) for name in names}
    exponents = {"law": fit.interval(lambda own: own.size_exponent)}
    methods: dict[str, IsoFlopFit] = {}
    no_optima = ""
    for method in typing.get_args(Method):
        try:
            own = fit_isoflops(table.runs, table.flops.tolist(), method=method, n_bootstrap=n_bootstrap)
        except ScalingError as error:
            no_optima = f"no parabolas: {error}; add runs of three sizes at each of two budgets"
        else:
            methods[method], exponents[method] = own, own.exponent
    held = hold_out(table)
    if as_json:
        output.write_json(
            {
                "n_runs": fit.n_runs,
                "columns": table.columns,
                "parameters": table.convention,
                "left_out": table.left_out,
                "flops_per_token": table.flops_per_token,
                "law": {name: asdict(each) for name, each in law.items()},
                "at_bound": fit.at_bound,
                "size_exponents": {name: asdict(each) for name, each in exponents.items()},
                "budgets": [asdict(each) for each in methods["parabola"].budgets] if methods else [],
                "held_out": None if held is None else held.to_dict(),
            }
        )
        return
    output.write_line(f"{fit.n_runs} runs; loss = E + A / N^alpha + B / D^beta; N {table.convention}")
    for name, why in table.left_out:
        output.write_line(f"left out: {name}: {why}")
    rows = [(name.upper() if len(name) == 1 else name, *_cells(each)) for name, each in law.items()]
    output.write_table(("", "value", "95 % interval"), rows, right=(1,))
    for name in fit.at_bound:
        output.write_line(f"{name} is at the end of its range: add runs with other {_VARIED[name]}")
    output.write_line()
    output.write_line("the best size grows as (FLOPs)^a")
    rows = [(_METHODS[name], *_cells(each)) for name, each in exponents.items()]
    output.write_table(("a by", "value", "95 % interval"), rows, right=(1,))
    if methods:
        output.write_line()
        shown = [
            (
                f"{each.flops:.3g}",
                f"{each.n_runs}",
                f"{each.parameters:.3g}",
                f"{each.loss:.4g}",
                "" if each.is_inside else "outside of the sizes",
            )
            for each in methods["parabola"].budgets
        ]
        output.write_table(("FLOPs", "runs", "best size", "loss", ""), shown, right=(0, 1, 2, 3))
        for budget, why in methods["parabola"].left_out:
            output.write_line(f"{budget:.3g} FLOPs: {why}")
    elif no_optima:
        output.write_line(no_optima)
    output.write_line()
    output.write_line(_held_out_line(held))


_METHODS = {"law": "the law", "parabola": "parabolas", "lowest": "lowest runs"}
_VARIED = {"alpha": "sizes", "beta": "numbers of tokens"}


def write_predictions(
    table: RunTable, budgets: Sequence[float], models: BestModels | None, *, n_bootstrap: int, as_json: bool
) -> None:
    """Print the best model for each budget; with a ledger, also its depth and the best vocabulary."""
    fit = fit_table(table, n_bootstrap)
    predictions = [predict(fit, table, flops) for flops in budgets]
    held = hold_out(table)
    depths = [None if models is None else models.depth(each.parameters.value) for each in predictions]
    vocabularies = [None if models is None else models.vocabulary(flops, n_bootstrap) for flops in budgets]
    if as_json:
        more = [
            {"depth": depth, "vocabulary": None if own is None else asdict(own.size)}
            for depth, own in zip(depths, vocabularies, strict=True)
        ]
        output.write_json(
            {
                "predictions": [
                    {**each.to_dict(), **own} for each, own in zip(predictions, more, strict=True)
                ],
                "held_out": None if held is None else held.to_dict(),
            }
        )
        return
    for name in fit.at_bound:
        output.note(f"{name} is at the end of its range: add runs with other {_VARIED[name]}")
    for each, depth, vocabulary in zip(predictions, depths, vocabularies, strict=True):
        output.write_line(output.styled(f"{each.flops:.3g} FLOPs", "1") + _extrapolation(each.beyond, held))
        output.write_fields(
            [
                (name, "  ".join(_cells(own)))
                for name, own in (
                    ("parameters", each.parameters),
                    ("tokens", each.tokens),
                    ("loss", each.loss),
                )
            ]
            + ([] if depth is None else [("depth", f"{depth:g}")])
        )
        if vocabulary is not None:
            output.write_line(vocabulary.sentence)
    output.write_line(_held_out_line(held))


def _cells(interval: Interval) -> tuple[str, str]:
    value = f"{interval.value:.4g}"
    return (
        (value, "") if interval.low != interval.low else (value, f"{interval.low:.4g} to {interval.high:.4g}")
    )


def _extrapolation(beyond: float, held: HeldOut | None) -> str:
    if beyond <= 1:
        return ", within the budgets of the runs"
    tested = "" if held is None else f"; tested to {held.ratio:.2g} times"
    warning = " (not supported)" if held is None or beyond > held.ratio else ""
    return f", {beyond:.3g} times the largest budget of the runs{tested}{warning}"


def _held_out_line(held: HeldOut | None) -> str:
    if held is None:
        return "no budget could be held out: too few runs are left"
    return (
        f"held out: {held.n_runs} runs of {held.flops:.3g} FLOPs, predicted from budgets {held.ratio:.2g} times "
        f"smaller: the loss is off by {format_share(abs(held.mean_error))} on average, "
        f"{format_share(held.largest_error)} at most; {held.n_inside} of {held.n_runs} are inside of their interval"
    )
