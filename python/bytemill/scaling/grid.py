"""The grid of a sweep: sizes of models around the best one of each budget, and the trials of learning rates.

The grid is kept in the folder of the ledger, so that an interrupted sweep resumes with the same runs although the fit,
by which a new grid is centred, has changed in between.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import ScalingError
from bytemill.experiment.statistics import choose_rate
from bytemill.lm.training.config import resolve
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.trainer import train
from bytemill.scaling.fits import FLOPS_PER_TOKEN, fit_loss
from bytemill.scaling.ledger_runs import ledger_table
from bytemill.system.atomic_files import write_json
from bytemill.system.records import read_json_object

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bytemill.experiment.statistics import RateChoice
    from bytemill.scaling.fits import LossLaw
    from bytemill.scaling.ledger import Ledger
    from bytemill.scaling.points import Chain, Point

_FIRST_RATIO = 20.0
"""Tokens per N of the best model as long as there is no fit (Hoffmann et al. 2022)."""
_LEAST_SIZES = 3
_PROBE_STEPS = 12
_DAMAGED = "make it again: bytemill scaling plan SWEEP.toml"


@dataclass(frozen=True)
class Cell:
    """Runs that differ by their seed alone."""

    vocab_size: int
    depth: float
    budget: float


@dataclass(frozen=True)
class Grid:
    """The runs of a sweep."""

    cells: list[Cell]
    centres: dict[float, float]
    """Best N by budget, by a sixth of the FLOPs per token."""
    is_fitted: bool
    """Whether the centres come from a fit."""
    skipped: list[str]
    """Cells that are too short to be runs, and why."""


@dataclass(frozen=True)
class Cost:
    """What is missing of a grid."""

    n_runs: int
    """Runs of the grid, with trials."""
    n_missing: int
    flops: float
    """FLOPs that the missing runs cost."""
    left_flops: float
    seconds: float | None
    """Expected time of training with one job; None if the speed was not measured."""
    passes: float
    """Passes of the longest run over the training text."""


def planned_grid(ledger: Ledger, *, renew: bool = False) -> Grid:
    """Return the grid in the folder of the ledger, which is made if there is none for the settings of the sweep.

    Args:
        ledger: The ledger.
        renew: Make a new one, centred by the fit to the runs of the ledger.
    """
    path, key = ledger.path / "plan.json", _key(ledger)
    if not renew:
        try:
            stored = read_json_object(path, ScalingError, _DAMAGED)
            if stored.get("key") == key:
                return Grid(
                    [Cell(**each) for each in stored["cells"]],
                    {float(budget): centre for budget, centre in stored["centres"].items()},
                    stored["is_fitted"],
                    stored["skipped"],
                )
        except FileNotFoundError:
            pass
        except (KeyError, TypeError, AttributeError) as error:
            raise ScalingError(f"{path} is damaged: {error}", hint=_DAMAGED) from error
    grid = propose(ledger)
    content = {
        "key": key,
        "cells": [vars(cell) for cell in grid.cells],
        "centres": {str(budget): centre for budget, centre in grid.centres.items()},
        "is_fitted": grid.is_fitted,
        "skipped": grid.skipped,
    }
    write_json(path, content)
    return grid


def _key(ledger: Ledger) -> str:
    sweep = ledger.sweep
    values: list[Any] = [sweep.depths, sweep.depths_per_budget, sweep.budgets, sweep.vocabularies.to_dict()]
    return hashlib.sha256(
        json.dumps([*values, ledger.points.fingerprint], sort_keys=True).encode()
    ).hexdigest()


def propose(ledger: Ledger) -> Grid:
    """Propose a grid, centred by the fit to the runs of the ledger or, without one, by 20 tokens per N.

    Raises:
        ScalingError: A budget leaves fewer than three sizes of models.
    """
    sweep, law = ledger.sweep, _law(ledger)
    cells: list[Cell] = []
    centres: dict[float, float] = {}
    skipped: list[str] = []
    for budget in sorted(sweep.budgets):
        centre = law.best(budget)[0] if law else math.sqrt(budget / (FLOPS_PER_TOKEN * _FIRST_RATIO))
        centres[budget] = centre
        for number, vocab_size in enumerate(sweep.vocabularies.sizes):
            if number and budget not in sweep.compared_budgets:
                continue
            possible = _possible_depths(ledger, vocab_size, budget, skipped)
            wanted = sweep.vocabularies.depths if number else sweep.depths_per_budget
            chosen = nearest(possible, centre, wanted)
            if len(chosen) < min(_LEAST_SIZES, wanted):
                raise ScalingError(
                    f"the budget of {budget:.3g} FLOPs leaves {len(chosen)} of the depths with {vocab_size:,} ids",
                    hint=f"add smaller depths, raise the budget, or lower train.batch_size: {skipped[-1]}"
                    if skipped
                    else "add depths",
                )
            cells += [Cell(vocab_size, depth, budget) for depth in chosen]
    return Grid(cells, centres, law is not None, skipped)


def _law(ledger: Ledger) -> LossLaw | None:
    try:
        fit = fit_loss(ledger_table(ledger).runs)
    except ScalingError:
        return None
    return None if fit.at_bound else fit.law


def _possible_depths(
    ledger: Ledger, vocab_size: int, budget: float, skipped: list[str]
) -> dict[float, float]:
    """Return N by depth of the models whose run at a budget is long enough."""
    found: dict[float, float] = {}
    for depth in ledger.sweep.depths:
        settings = {"vocab_size": vocab_size, "depth": depth, "flops": budget}
        try:
            point = ledger.points.point(settings)
        except ScalingError as error:
            skipped.append(f"{budget:.3g} FLOPs: {error}")
            continue
        found[depth] = ledger.points.flops_per_token(point.chain) / FLOPS_PER_TOKEN
    return found


def nearest(sizes: dict[float, float], centre: float, n: int) -> list[float]:
    """Return the `n` depths around a centre: as many on both sides as there are.

    >>> nearest({1.0: 10.0, 2.0: 100.0, 3.0: 200.0, 4.0: 400.0, 5.0: 800.0}, 10.0, 3)
    [1.0, 2.0, 3.0]
    """
    depths = sorted(sizes)
    n = min(n, len(depths))
    middle = min(range(len(depths)), key=lambda own: abs(math.log(sizes[depths[own]] / centre)), default=0)
    first = min(max(0, middle - n // 2), len(depths) - n)
    return depths[first : first + n]


def trial_points(ledger: Ledger, grid: Grid) -> list[Point]:
    """Return the trials of learning rates: every depth with the first vocabulary, at its smallest budget."""
    factors = ledger.sweep.learning_rate.factors
    if len(factors) == 1:
        return []
    return [
        ledger.points.point(
            {
                "depth": depth,
                "flops": budget,
                "seed": seed,
                "learning_rate": factor * ledger.sweep.dial_rate(depth),
            }
        )
        for depth, budget in _smallest_budgets(ledger, grid).items()
        for factor in factors
        for seed in range(ledger.sweep.learning_rate.seeds)
    ]


def _smallest_budgets(ledger: Ledger, grid: Grid) -> dict[float, float]:
    found: dict[float, float] = {}
    for cell in grid.cells:
        if cell.vocab_size == ledger.sweep.vocabularies.sizes[0]:
            found[cell.depth] = min(cell.budget, found.get(cell.depth, math.inf))
    return found


def choose_rates(ledger: Ledger, grid: Grid) -> dict[float, RateChoice]:
    """Return the learning rate of each depth by its trials; empty if one rate is used without trials.

    Raises:
        ScalingError: A trial of every rate of a depth is missing or diverged.
    """
    bits: dict[float, dict[float, dict[int, float]]] = {}
    known = {outcome.point: outcome for outcome in ledger.outcomes}
    for point in trial_points(ledger, grid):
        outcome = known.get(point)
        rates = bits.setdefault(point.chain.depth, {})
        if outcome is not None and not outcome.problem and outcome.bits_per_byte is not None:
            rates.setdefault(point.chain.learning_rate, {})[point.chain.seed] = outcome.bits_per_byte
    chosen: dict[float, RateChoice] = {}
    for depth, rates in bits.items():
        choice = choose_rate(rates, n_seeds=ledger.sweep.learning_rate.seeds)
        if choice is None:
            raise ScalingError(
                f"no learning rate of depth {depth:g} has all its trials: they diverged, or are missing",
                hint="add smaller factors to learning_rate.factors, and run the sweep again",
            )
        chosen[depth] = choice
    return chosen


def grid_points(ledger: Ledger, grid: Grid, rates: dict[float, RateChoice] | None = None) -> list[Point]:
    """Return the runs of a grid, all seeds; without `rates`, with the depth dial's learning rates."""
    sweep = ledger.sweep
    factor = sweep.learning_rate.factors[0] if len(sweep.learning_rate.factors) == 1 else 1.0
    return [
        ledger.points.point(
            {
                "vocab_size": cell.vocab_size,
                "depth": cell.depth,
                "flops": cell.budget,
                "seed": seed,
                "learning_rate": rates[cell.depth].rate
                if rates and cell.depth in rates
                else factor * sweep.dial_rate(cell.depth),
            }
        )
        for cell in grid.cells
        for seed in range(sweep.seeds)
    ]


def cost(ledger: Ledger, grid: Grid, speeds: dict[float, float] | None = None) -> Cost:
    """Return what is missing of a grid. Learning rates that are not chosen yet are taken to be the dial's."""
    trials = trial_points(ledger, grid)
    known = {outcome.point for outcome in ledger.outcomes}
    try:
        rates = choose_rates(ledger, grid)
    except ScalingError:
        rates = {}
    points = list({*trials, *grid_points(ledger, grid, rates)})
    flops = ledger.cost(points)
    seconds = None
    if speeds is not None:
        by_chain: dict[Chain, list[Point]] = {}
        for point in points:
            if point not in known:
                by_chain.setdefault(point.chain, []).append(point)
        seconds = sum(
            ledger.points.spent(own) / ledger.points.flops_per_token(chain) / speeds[chain.depth]
            for chain, own in by_chain.items()
        )
    n_bytes = (point.n_steps * ledger.bytes_per_token(point.chain.vocab_size) for point in points)
    longest = max(n_bytes, default=0.0) * ledger.sweep.step_tokens
    return Cost(
        len(points),
        sum(point not in known for point in points),
        flops,
        ledger.budget_flops - ledger.spent_flops,
        seconds,
        longest / ledger.n_text_bytes,
    )


def probe(ledger: Ledger, depths: Sequence[float], report: Callable[[str], None]) -> dict[float, float]:
    """Return the tokens per second of each depth with the first vocabulary, measured once over 12 steps."""
    path = ledger.path / "probe.json"
    try:
        known = {float(depth): rate for depth, rate in read_json_object(path, ScalingError, _DAMAGED).items()}
    except FileNotFoundError:
        known = {}
    for depth in depths:
        if depth in known:
            continue
        report(f"measuring the speed of depth {depth:g}")
        settings = ledger.probe_settings(depth)
        with tempfile.TemporaryDirectory() as folder:
            config = {
                **settings,
                "schedule.warmup_steps": 0,
                "training.steps": _PROBE_STEPS,
                "run.folder": f"{folder}/run",
                "run.log_every": 3,
                "run.checkpoint_every": 0,
            }
            records = read_metrics(train(resolve([("the probe", config)])).metrics, "step")
        rates = [record["tokens_per_second"] for record in records]
        known[depth] = float(np.median(rates[len(rates) // 2 :]))
        write_json(path, {f"{each:g}": rate for each, rate in known.items()})
    return known
