"""What the runs of a ledger tell: the law, the best sizes by budget, the best vocabulary, predictions and outcomes."""

from __future__ import annotations

import typing
from dataclasses import asdict
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import ScalingError
from bytemill.scaling.check import nearest_depth, read_checks
from bytemill.scaling.fits import LEVEL, Fit, Interval
from bytemill.scaling.grid import choose_rates, planned_grid
from bytemill.scaling.isoflops import IsoFlopFit, Method, fit_isoflops
from bytemill.scaling.ledger_runs import Convention, ledger_table, nominal_budget, usable
from bytemill.scaling.prediction import HeldOut, fit_table, hold_out, predict
from bytemill.scaling.vocabulary import BestVocabulary, best_vocabulary, fit_vocabulary, vocabulary_runs

if TYPE_CHECKING:
    from bytemill.experiment.statistics import RateChoice
    from bytemill.scaling.check import Check
    from bytemill.scaling.ledger import Ledger
    from bytemill.scaling.prediction import Prediction
    from bytemill.scaling.run_files import RunTable
    from bytemill.scaling.vocabulary import VocabularyFit


class ScalingFindings:
    """What the runs of a ledger tell.

    Args:
        ledger: The ledger.
        n_bootstrap: Bootstrap samples of the intervals.
        convention: What N counts in the law of one vocabulary.

    Raises:
        ScalingError: The ledger has no runs, or too few for a law.
    """

    def __init__(self, ledger: Ledger, n_bootstrap: int = 300, convention: Convention = "flops") -> None:
        self.ledger, self.n_bootstrap = ledger, n_bootstrap
        self.table: RunTable = ledger_table(ledger, convention=convention)
        self.fit: Fit = fit_table(self.table, n_bootstrap)

    @cached_property
    def law(self) -> dict[str, Interval]:
        """The numbers of the law."""
        return {name: self.fit.interval(attrgetter(name)) for name in ("e", "a", "b", "alpha", "beta")}

    @cached_property
    def isoflops(self) -> dict[str, IsoFlopFit]:
        """The best sizes by budget, by method."""
        return isoflop_fits(self.table, self.n_bootstrap)

    @cached_property
    def exponents(self) -> dict[str, Interval]:
        """a in N ∝ C^a, by method."""
        own = {"law": self.fit.interval(attrgetter("size_exponent"))}
        return own | {name: fit.exponent for name, fit in self.isoflops.items()}

    @cached_property
    def held_out(self) -> HeldOut | None:
        """The test on the largest budget."""
        return hold_out(self.table)

    @cached_property
    def checks(self) -> list[Check]:
        """Predictions of larger budgets, with their outcomes."""
        return read_checks(self.ledger)

    @cached_property
    def rates(self) -> dict[float, RateChoice]:
        """Learning rates by depth, chosen by trials."""
        try:
            return choose_rates(self.ledger, planned_grid(self.ledger))
        except ScalingError:
            return {}

    @cached_property
    def vocabulary(self) -> VocabularyFit | None:
        """The law with vocabularies; None if the ledger has too few."""
        try:
            return fit_vocabulary(vocabulary_runs(self.ledger), n_bootstrap=self.n_bootstrap)
        except ScalingError:
            return None

    def best_vocabulary(self, flops: float) -> BestVocabulary | None:
        """Return the best vocabulary for a budget; None if the ledger has too few."""
        if self.vocabulary is None:
            return None
        densities: dict[int, float] = {}
        for own in self.ledger.outcomes:
            densities[own.point.chain.vocab_size] = own.n_bytes / own.n_tokens
        return best_vocabulary(self.vocabulary, self.ledger.sweep, densities, flops)

    def lowest_by_vocabulary(self, flops: float) -> list[tuple[float, float]]:
        """Return (ids, lowest mean over seeds in bits per byte) of each vocabulary at a budget of the sweep."""
        means: dict[int, dict[float, list[float]]] = {}
        for own in usable(self.ledger.outcomes)[0]:
            if nominal_budget(self.ledger, own.point) == flops and own.bits_per_byte is not None:
                chain = own.point.chain
                means.setdefault(chain.vocab_size, {}).setdefault(chain.depth, []).append(own.bits_per_byte)
        return [
            (float(size), min(float(np.mean(own)) for own in depths.values()))
            for size, depths in sorted(means.items())
        ]

    def predict(self, flops: float) -> Prediction:
        """Predict the best model with the first vocabulary for a budget."""
        return predict(self.fit, self.table, flops)

    def depth_of(self, parameters: float) -> float:
        """Return the position of the dial nearest to a number of parameters, a sixth of the FLOPs per token."""
        return nearest_depth(self.ledger, parameters)

    def losses_at(self, parameters: np.ndarray[Any, Any], tokens: np.ndarray[Any, Any]) -> list[Interval]:
        """Return the law's losses with their intervals."""
        value = self.fit.law.loss(parameters, tokens)
        drawn = np.stack([law.loss(parameters, tokens) for law in self.fit.samples or (self.fit.law,)])
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        return [Interval(*(float(each) for each in own)) for own in zip(value, low, high, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        budgets = self.ledger.sweep.compared_budgets
        best = [own for own in map(self.best_vocabulary, budgets) if own is not None]
        return {
            "n_runs": self.fit.n_runs,
            "parameters": self.table.convention,
            "left_out": self.table.left_out,
            "law": {name: asdict(each) for name, each in self.law.items()},
            "at_bound": self.fit.at_bound,
            "size_exponents": {name: asdict(each) for name, each in self.exponents.items()},
            "held_out": None if self.held_out is None else self.held_out.to_dict(),
            "vocabularies": [{**asdict(own), "sentence": own.sentence} for own in best],
            "checks": [{**asdict(own), "sentence": own.sentence} for own in self.checks],
            "learning_rates": {f"{depth:g}": own.rate for depth, own in self.rates.items()},
            "spent_flops": self.ledger.spent_flops,
            "budget_flops": self.ledger.budget_flops,
        }


def isoflop_fits(table: RunTable, n_bootstrap: int) -> dict[str, IsoFlopFit]:
    """Return the best sizes by budget, by parabola and by lowest run; empty if runs have no common budgets."""
    found: dict[str, IsoFlopFit] = {}
    for method in typing.get_args(Method):
        try:
            found[method] = fit_isoflops(
                table.runs, table.flops.tolist(), method=method, n_bootstrap=n_bootstrap
            )
        except ScalingError:
            continue
    return found
