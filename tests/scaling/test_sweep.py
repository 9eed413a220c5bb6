"""Sweeps: the grid is centred and kept, trials choose rates, kills leave no trace, checks are written down first."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import ScalingError
from bytemill.lm.depth import depth_shape
from bytemill.scaling.check import read_checks, run_check
from bytemill.scaling.findings import ScalingFindings
from bytemill.scaling.fits import fit_loss
from bytemill.scaling.grid import choose_rates, cost, nearest, planned_grid, propose, trial_points
from bytemill.scaling.ledger import Ledger
from bytemill.scaling.ledger_runs import ledger_table, rate_shifts, usable
from bytemill.scaling.points import Outcome, Point
from bytemill.scaling.report import charts, report
from bytemill.scaling.run import run_sweep
from bytemill.scaling.sweep import dial_shape, load_sweep

from .conftest import FakeRuns, InThisProcess, write_sweep

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDED = Path(__file__).parents[2] / "experiments" / "scaling"


@pytest.mark.parametrize("depth", [1, 2, 5, 12])
def test_whole_depths_are_those_of_the_dial(depth: int) -> None:
    assert dial_shape(depth) == depth_shape(depth)


@given(st.floats(0.3, 30), st.sampled_from([16, 32, 64]))
def test_every_position_of_the_dial_is_a_model(depth: float, width: int) -> None:
    shape = dial_shape(depth, width)
    assert shape.d_model % (8 * shape.num_heads) == 0
    assert shape.num_layers == max(1, int(depth + 0.5))


@given(st.lists(st.floats(1, 1e6), min_size=3, max_size=9, unique=True), st.floats(1, 1e6), st.integers(1, 9))
def test_chosen_depths_are_neighbours_around_the_centre(sizes: list[float], centre: float, n: int) -> None:
    by_depth = {float(number): size for number, size in enumerate(sorted(sizes))}
    chosen = nearest(by_depth, centre, n)
    assert len(chosen) == min(n, len(sizes))
    assert np.diff(chosen).tolist() == [1.0] * (len(chosen) - 1)
    best = min(by_depth, key=lambda depth: abs(np.log(by_depth[depth] / centre)))
    assert abs(np.log(by_depth[best] / centre)) >= min(
        abs(np.log(by_depth[depth] / centre)) for depth in chosen
    )


def fake_outcomes(ledger: Ledger, bits: Callable[[float, float], float], n_seeds: int = 2) -> None:
    """Write the runs of the sweep's grid to the ledger as if they had been trained, with a law's losses."""
    outcomes: list[Outcome] = []
    for cell in propose(ledger).cells:
        for seed in range(n_seeds):
            settings = {
                "vocab_size": cell.vocab_size,
                "depth": cell.depth,
                "flops": cell.budget,
                "seed": seed,
            }
            point = ledger.points.point(settings)
            n_tokens = point.n_steps * ledger.sweep.step_tokens
            own = bits(ledger.points.flops_per_token(point.chain) / 6, n_tokens)
            own *= 1 + 0.001 * (-1) ** seed
            outcomes.append(
                Outcome(
                    point, n_tokens, 3 * n_tokens, ledger.points.parameters(point.chain), ledger.points.flops(point),
                    own, own, 9.0,
                )
            )  # fmt: skip
    ledger.file.write_text("".join(json.dumps(own.to_dict()) + "\n" for own in outcomes))


def bits_of_a_law(n: float, d: float) -> float:
    return 1.0 + 400 / n**0.5 + 60 / d**0.4


WIDE = (
    ("depths = [1, 2, 3]\n", "depths = [1, 1.5, 2, 3, 4, 6, 8, 12]\n"),
    ("width_per_layer = 16", "width_per_layer = 32"),
    ("budgets = [1e8, 2e8]\n", "budgets = [1e11, 3e11, 1e12, 3e12]\n"),
    ("depths_per_budget = 3", "depths_per_budget = 5"),
    ("limit_flops = 1e10", "limit_flops = 1e15"),
    ("budgets = [1e8]", "budgets = [1e11, 3e11]"),
    ("sizes = [270, 300]", "sizes = [270, 285, 300]"),
)


def faked(folder: Path) -> Ledger:
    """A ledger with the runs of a grid that follow a law."""
    Ledger(folder / "out", sweep=write_sweep(folder, *WIDE))
    fake_outcomes(Ledger(folder / "out"), bits_of_a_law)
    return Ledger(folder / "out")


def test_a_new_grid_is_centred_by_the_fit(tmp_path: Path) -> None:
    ledger = faked(tmp_path)
    grid = planned_grid(ledger)
    assert grid.is_fitted
    law = fit_loss(ledger_table(ledger).runs).law
    for budget, centre in grid.centres.items():
        assert centre == pytest.approx(law.best(budget)[0])
    assert planned_grid(Ledger(tmp_path / "out")) == grid
    ledger.file.unlink()
    assert planned_grid(Ledger(tmp_path / "out")) == grid
    assert not planned_grid(Ledger(tmp_path / "out"), renew=True).is_fitted


def test_the_law_of_a_ledger_is_found_by_every_convention(tmp_path: Path) -> None:
    ledger = faked(tmp_path)
    table = ledger_table(ledger)
    assert set(table.flops) == {1e11, 3e11, 1e12, 3e12}
    law = fit_loss(table.runs).law
    assert law.alpha == pytest.approx(0.5, rel=0.02)
    best = min((bits_of_a_law(n, 1e12 / 6 / n), n) for n in np.geomspace(1e4, 1e8, 4000).tolist())
    assert law.best(1e12)[0] == pytest.approx(best[1], rel=0.05)
    sizes = [ledger_table(ledger, convention=each).runs.parameters for each in ("non-vocabulary", "all")]
    assert (sizes[0] < sizes[1]).all()
    with pytest.raises(ScalingError, match="no runs with the vocabulary of 999"):
        ledger_table(ledger, 999)


def test_the_page_shows_curves_predictions_and_the_ledger(tmp_path: Path) -> None:
    findings = ScalingFindings(faked(tmp_path), n_bootstrap=10)
    page = report(findings)
    for expected in (
        "Bits per byte by size, at equal FLOPs",
        "Held out: 10 runs",
        "the best vocabulary has",
        "All runs",
    ):
        assert expected in page
    assert not re.search(r'(src|href)="http', page)
    assert len(charts(findings)) == 5
    found = findings.to_dict()
    assert found["held_out"]["largest_error"] < 0.01
    json.dumps(found)


def test_runs_that_diverged_or_learned_nothing_are_left_out(tmp_path: Path) -> None:
    outcomes = faked(tmp_path).outcomes[:4]
    values = [own.to_dict() for own in outcomes]
    values[0] |= {
        "loss": None,
        "bits_per_byte": None,
        "unigram_bits_per_byte": None,
        "diverged": "not finite",
    }
    values[1] |= {"bits_per_byte": 9.5}
    kept, left_out = usable([Outcome.from_dict(own) for own in values])
    assert len(kept) == 2
    assert [why for _, why in left_out] == [
        "diverged: not finite",
        "9.500 bits per byte are not below the 9.000 of the unigram distribution",
    ]


def test_a_sweep_is_run_once_and_its_trials_choose_rates(tmp_path: Path) -> None:
    tried = (
        'documents = "<|endoftext|>"',
        'documents = "<|endoftext|>"\n[learning_rate]\nfactors = [0.1, 1]',
    )
    ledger = Ledger(tmp_path / "out", sweep=write_sweep(tmp_path, tried))
    grid = planned_grid(ledger)
    expected = cost(ledger, grid)
    assert expected.n_missing == expected.n_runs
    assert len(trial_points(ledger, grid)) == 3 * 2 * 2
    executor = FakeRuns(ledger.sweep.dial_rate)
    assert run_sweep(ledger, execute=executor) == {}
    assert {depth: own.rate for depth, own in choose_rates(ledger, grid).items()} == {
        depth: ledger.sweep.dial_rate(depth) for depth in (1.0, 2.0, 3.0)
    }
    assert cost(ledger, grid).n_missing == 0
    n_chains = len(executor.performed)
    assert run_sweep(Ledger(tmp_path / "out"), execute=executor) == {}
    assert len(executor.performed) == n_chains
    assert ledger.spent_flops <= expected.flops * 1.001


def test_noise_in_the_choice_of_rates_widens_intervals(tmp_path: Path) -> None:
    ledger = faked(tmp_path)
    (first, *_) = ledger.outcomes

    def trial(rate: float, seed: int, bits: float) -> Outcome:
        point = Point(replace(first.point.chain, learning_rate=rate, seed=seed), first.point.n_steps)
        return replace(first, point=point, bits_per_byte=bits)

    clear = [
        trial(rate, seed, 2.0 + abs(np.log(rate / 0.01))) for rate in (0.005, 0.01, 0.02) for seed in (0, 1)
    ]
    shifts = rate_shifts(clear, [1.0, 5.0])
    assert shifts is not None
    assert shifts.shape == (200, 2)
    assert np.abs(shifts).max() < 1e-12
    unclear = [trial(rate, seed, 2.0 + 0.05 * seed) for rate in (0.005, 0.01, 0.02) for seed in (0, 1)]
    widened = rate_shifts(unclear, [1.0, 5.0])
    assert widened is not None
    assert widened[:, 0].max() > 0.01
    assert (widened >= -1e-12).all()
    assert not widened[:, 1].any()
    assert rate_shifts(clear[:2], [1.0]) is None
    runs = ledger_table(ledger).runs
    wide = np.random.default_rng(0).uniform(0, 0.1, (50, 1)) * (runs.parameters > np.median(runs.parameters))
    plain, carried = (
        fit_loss(runs, n_bootstrap=30, log_shifts=own).interval(lambda law: law.size_exponent)
        for own in (None, wide)
    )
    assert carried.value == plain.value
    assert carried.high - carried.low > plain.high - plain.low


def test_a_grid_that_exceeds_the_budget_is_not_begun(tmp_path: Path, executor: InThisProcess) -> None:
    sweep = write_sweep(tmp_path, ("limit_flops = 1e10", "limit_flops = 2e8"))
    ledger = Ledger(tmp_path / "out", sweep=sweep)
    with pytest.raises(ScalingError, match="the grid would cost"):
        run_sweep(ledger, execute=executor)
    assert executor.performed == []


def test_a_check_is_written_down_before_its_run(tmp_path: Path, executor: InThisProcess) -> None:
    folder = tmp_path / "out"
    fake_outcomes(
        Ledger(folder, sweep=write_sweep(tmp_path, ("[1e8, 2e8]", "[1e8, 2e8, 4e8]"))), bits_of_a_law
    )
    ledger = Ledger(folder)
    with pytest.raises(ScalingError, match="not more than"):
        run_check(ledger, 3e8, execute=executor)
    with pytest.raises(ScalingError, match="the check costs"):
        run_check(ledger, 1e12, execute=executor)
    checked = run_check(ledger, 6e8, n_bootstrap=10, execute=executor)
    assert checked.outcome is not None
    assert f"outcome {checked.outcome:.4f} bits per byte: outside of the interval" in checked.sentence
    before = (folder / "checks.json").read_bytes()
    assert run_check(Ledger(folder), 6e8, execute=executor) == checked
    assert (folder / "checks.json").read_bytes() == before
    assert read_checks(Ledger(folder)) == [checked]
    assert len(executor.performed) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("budgets = [1e8, 2e8]", "budgets = []"), "budgets is"),
        (("depths = [1, 2, 3]", "depths = [2]"), "depths is"),
        (("depths = [1, 2, 3]", "depths = [1, 1.1, 3]"), "are the same model"),
        (("budgets = [1e8, 2e8]", "budgets = [1e8, -1.0]"), "budgets is"),
        (
            ("sizes = [270, 300]\nbudgets = [1e8]", "sizes = [270, 300]\nbudgets = [1.5e8]"),
            "not among budgets",
        ),
        (("batch_size = 2", 'batch_size = "x"'), "batch_size is 'x'"),
        (("training.device", "training.steps"), "sets training.steps itself"),
        (("training.device", "training.devise"), "unknown setting training.devise"),
        (("limit_flops = 1e10", "limit = 1"), "limit"),
        (("seeds = 1", "seeds = 0"), "seeds is 0"),
    ],
)
def test_sweep_files_that_are_wrong_are_errors(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ScalingError, match=message) as raised:
        load_sweep(write_sweep(tmp_path, change))
    assert raised.value.hint


@pytest.mark.parametrize("name", ["first", "scaling"])
def test_the_recorded_sweeps_are_read(name: str) -> None:
    sweep = load_sweep(RECORDED / f"{name}.toml")
    assert sweep.vocabularies.sizes == (1024, 512, 2048, 4096)
    assert sweep.compared_budgets == (6e10, 1.5e11)


def test_budgets_that_leave_too_few_sizes_are_errors(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "out", sweep=write_sweep(tmp_path, ("[1e8, 2e8]\n", "[2e7, 1e8]\n")))
    with pytest.raises(ScalingError, match=r"leaves \d of the depths") as raised:
        propose(ledger)
    assert "fewer than" in str(raised.value.hint)


@pytest.mark.slow
def test_twenty_kills_leave_the_same_ledger_and_fit(tmp_path: Path) -> None:
    sweep = write_sweep(
        tmp_path, ("[1e8, 2e8]\n", "[1e8, 2e8, 4e8]\n"), ("limit_flops = 1e10", "limit_flops = 1e11")
    )
    command = [sys.executable, "-m", "bytemill", "scaling", "run", str(sweep), "--quiet", "--threads", "1"]
    whole = subprocess.run([*command, "-o", str(tmp_path / "whole")], check=True)
    assert whole.returncode == 0
    chance, n_kills = random.Random(0), 0
    while n_kills < 20:
        process = subprocess.Popen([*command, "-o", str(tmp_path / "killed")])
        try:
            process.wait(chance.uniform(0.5, 12.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            n_kills += 1
            time.sleep(0.2)
        else:
            shutil.rmtree(tmp_path / "killed")  # finished: begin again, until it was killed 20 times
    subprocess.run([*command, "-o", str(tmp_path / "killed")], check=True)
    ledgers = [Ledger(tmp_path / name) for name in ("whole", "killed")]
    assert ledgers[0].file.read_bytes() == ledgers[1].file.read_bytes()
    laws = [fit_loss(ledger_table(ledger).runs, n_bootstrap=5) for ledger in ledgers]
    assert laws[0].law == laws[1].law
    assert laws[0].samples == laws[1].samples
