"""Scaling laws: exact on exact data, published numbers on published data, and intervals that hold."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import ScalingError
from bytemill.scaling import LossLaw, Runs, fit_isoflops, fit_loss
from bytemill.scaling.prediction import hold_out, predict
from bytemill.scaling.run_files import RunTable, read_runs

CHINCHILLA = LossLaw(1.69, 406.4, 410.7, 0.34, 0.28)
BUDGETS = (1e18, 1e19, 1e20, 1e21, 1e22)


def sweep(law: LossLaw, shift: float = 1.0, noise: float = 0.0, seed: int = 0) -> tuple[Runs, list[float]]:
    """Nine sizes from 1/16 to 16 of the best one, times `shift`, at each budget."""
    random = np.random.default_rng(seed)
    sizes, tokens, budgets = list[float](), list[float](), list[float]()
    for budget in BUDGETS:
        for factor in np.geomspace(1 / 16, 16, 9):
            sizes.append(law.best(budget)[0] * factor * shift)
            tokens.append(budget / 6 / sizes[-1])
            budgets.append(budget)
    n, d = np.array(sizes), np.array(tokens)
    return Runs(n, d, law.loss(n, d) * np.exp(random.normal(0, noise, len(n)))), budgets


@given(
    e=st.floats(0.5, 3),
    alpha=st.floats(0.2, 0.6),
    beta=st.floats(0.2, 0.6),
    a=st.floats(50, 2000),
    b=st.floats(50, 2000),
)
def test_exact_runs_give_their_law(e: float, alpha: float, beta: float, a: float, b: float) -> None:
    law = LossLaw(e, a, b, alpha, beta)
    found = fit_loss(sweep(law, shift=2.0)[0]).law
    assert found.alpha == pytest.approx(alpha, rel=1e-5)
    assert found.beta == pytest.approx(beta, rel=1e-5)
    assert found.best(1e24)[0] == pytest.approx(law.best(1e24)[0], rel=1e-4)
    assert found.loss(*found.best(1e24)) == pytest.approx(law.loss(*law.best(1e24)), rel=1e-6)


def test_parabolas_are_biased_where_the_law_is_exact() -> None:
    runs, budgets = sweep(CHINCHILLA, shift=2.0)
    best = CHINCHILLA.best(1e24)[0]
    assert abs(fit_loss(runs).law.best(1e24)[0] / best - 1) < 1e-6
    assert abs(fit_isoflops(runs, budgets, n_bootstrap=0).best(1e24).value / best - 1) > 0.02


def test_the_best_model_spends_the_budget_and_has_the_lowest_loss() -> None:
    n, d = CHINCHILLA.best(1e21)
    assert 6 * n * d == pytest.approx(1e21)
    for factor in (0.9, 1.1):
        assert CHINCHILLA.loss(n * factor, d / factor) > CHINCHILLA.loss(n, d)


def replication() -> Runs:
    path = Path(__file__).parents[2].parent / "shared" / "data" / "course" / "chinchilla_epoch.csv"
    if not path.exists():
        pytest.skip("platform: the points of the replication are not on this machine")
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    n, flops, loss = (
        np.array([float(row[name]) for row in rows]) for name in ("Model Size", "Training FLOP", "loss")
    )
    kept = np.sort(np.argsort(loss)[:-5])  # without the five highest losses, as in the replication
    return Runs(n[kept], (flops / (6 * n))[kept], loss[kept])


@pytest.mark.slow
def test_the_replication_of_chinchilla_is_found_from_any_start() -> None:
    runs, random = replication(), np.random.default_rng(0)
    for _ in range(100):
        law = fit_loss(runs, start=np.exp(random.uniform(np.log(0.02), np.log(1.9), 2)).tolist()).law
        assert round(law.e, 4) == 1.8172
        assert round(law.a, 1) == 477.8
        assert round(law.b) == 2143
        assert (round(law.alpha, 4), round(law.beta, 4)) == (0.3473, 0.3672)
    exponent = fit_loss(runs, n_bootstrap=1000).interval(lambda own: own.size_exponent)
    assert exponent.value == pytest.approx(0.5139, abs=1e-4)
    assert exponent.low == pytest.approx(0.481, abs=0.004)
    assert exponent.high == pytest.approx(0.555, abs=0.004)


@pytest.mark.slow
def test_plain_optimizers_stop_at_their_start() -> None:
    """The same objective, unscaled, with SciPy's L-BFGS-B and its default tolerances (log A, log B, log E, α, β)."""
    runs = replication()
    log_n, log_d, log_l = (np.log(own) for own in (runs.parameters, runs.tokens, runs.losses))

    def mean_huber(at: Any) -> float:
        terms = np.stack([at[0] - at[3] * log_n, at[1] - at[4] * log_d, np.full_like(log_n, at[2])])
        size = np.abs(np.logaddexp.reduce(terms) - log_l)
        return float(np.where(size < 1e-3, size**2 / 2, 1e-3 * (size - 5e-4)).mean())

    start = np.array([10.0, 10.0, 0.5, 1.0, 1.0])
    plain = scipy.optimize.minimize(mean_huber, start, method="L-BFGS-B").x
    assert np.abs(plain[3:] - start[3:]).max() < 0.01
    ours = fit_loss(runs, start=[1.0, 1.0])
    assert ours.law.alpha == pytest.approx(0.3473, abs=1e-4)
    assert ours.huber / len(runs) < mean_huber(plain)


def course_points() -> tuple[Runs, list[float]]:
    path = Path(__file__).parents[2].parent / "shared" / "data" / "course" / "isoflops_course.json"
    if not path.exists():
        pytest.skip("platform: the points of the course are not on this machine")
    rows = json.loads(path.read_text(encoding="utf-8"))
    columns = ([row[name] for row in rows] for name in ("parameters", "compute_budget", "final_loss"))
    n, budgets, losses = (np.array(own, dtype=float) for own in columns)
    return Runs(n, budgets / (6 * n), losses), budgets.tolist()


def test_the_points_of_the_course_follow_one_law() -> None:
    runs, budgets = course_points()
    fit = fit_loss(runs, n_bootstrap=5)
    assert fit.n_runs == 72
    assert np.abs(fit.residuals).max() < 1e-3
    exponent = fit.interval(lambda own: own.size_exponent)
    assert exponent.value == pytest.approx(0.514, abs=0.001)
    parabolas = fit_isoflops(runs, budgets, n_bootstrap=20).exponent
    assert parabolas.low <= exponent.value <= parabolas.high


@pytest.mark.slow
def test_intervals_hold_as_often_as_they_say() -> None:
    quantities: list[Callable[[LossLaw], float]] = [
        lambda law: law.size_exponent,
        lambda law: law.best(1e24)[0],
    ]
    hits, n = np.zeros(len(quantities)), 500
    for seed in range(n):
        runs, _ = sweep(CHINCHILLA, noise=0.004, seed=seed)
        fit = fit_loss(runs, n_bootstrap=200, seed=seed)
        for number, quantity in enumerate(quantities):
            own = fit.interval(quantity)
            hits[number] += own.low <= quantity(CHINCHILLA) <= own.high
    assert (hits / n >= 0.93).all()
    assert (hits / n <= 0.97).all()


def test_isoflops_leave_out_budgets_without_an_optimum() -> None:
    runs, budgets = sweep(CHINCHILLA)
    n, losses = runs.parameters.copy(), runs.losses.copy()
    losses[:9] = np.log(n[:9])[::-1]  # rises all the way, bent downwards
    found = fit_isoflops(Runs(n, runs.tokens, losses), [*budgets[:9], *budgets[9:]], n_bootstrap=20)
    assert [budget for budget, _ in found.left_out] == [BUDGETS[0]]
    assert len(found.budgets) == len(BUDGETS) - 1
    few = fit_isoflops(runs.take(np.arange(2, 45)), budgets[2:], n_bootstrap=5)
    assert few.exponent.low <= few.exponent.value <= few.exponent.high
    lowest = fit_isoflops(runs, budgets, method="lowest", n_bootstrap=5)
    assert lowest.exponent.value == pytest.approx(CHINCHILLA.size_exponent, abs=1e-6)
    with pytest.raises(ScalingError, match="a law needs two"):
        fit_isoflops(runs.take(np.arange(9)), budgets[:9])


def test_seeds_are_drawn_within_their_group() -> None:
    runs, _ = sweep(CHINCHILLA, noise=0.01)
    n, d, losses = (np.repeat(each, 2) for each in (runs.parameters, runs.tokens, runs.losses))
    doubled = Runs(n, d, losses, groups=np.arange(90) // 2)
    fit = fit_loss(doubled, n_bootstrap=30)
    assert len(fit.samples) == 30
    assert fit.law.alpha == pytest.approx(fit_loss(runs).law.alpha, rel=1e-4)


def ones(n: int) -> Any:
    return np.ones(n)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fit_loss(Runs(ones(5), ones(5), ones(5))), "5 runs do not tell"),
        (lambda: fit_loss(Runs(ones(8), np.arange(1.0, 9), ones(8))), "all runs have one size"),
        (lambda: fit_loss(Runs(np.arange(1.0, 9), ones(8), ones(8))), "one number of tokens"),
        (lambda: Runs(ones(2), ones(2), np.array([1.0, np.nan])), "losses of run 2 is nan"),
        (lambda: Runs(ones(2), ones(3), ones(2)), "differ in length"),
        (lambda: Runs(np.array([1.0, -1]), ones(2), ones(2)), "parameters of run 2"),
    ],
)
def test_runs_that_tell_nothing_are_errors(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ScalingError, match=message):
        make()


def test_a_fit_that_does_not_converge_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bytemill.scaling.fits._MOST_EVALUATIONS", 1)
    with pytest.raises(ScalingError, match="does not converge") as raised:
        fit_loss(sweep(CHINCHILLA, noise=0.05)[0])
    assert "add runs" in str(raised.value.hint)


def test_an_exponent_that_the_runs_do_not_tell_is_named() -> None:
    n, d = np.meshgrid(np.geomspace(1e6, 1e9, 5), np.geomspace(1e8, 1e11, 5))
    flat = Runs(n.ravel(), d.ravel(), 2.0 + 400 / d.ravel() ** 0.4)  # the size makes no difference
    assert fit_loss(flat).law.loss(1e8, 1e10) == pytest.approx(2.0 + 400 / 1e10**0.4, rel=1e-3)


def write_table(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        lines = [json.dumps(row) for row in rows]
        path.write_text(
            "\n".join(lines) if path.suffix == ".jsonl" else f"[{','.join(lines)}]", encoding="utf-8"
        )
    return path


def rows_of_a_sweep() -> list[dict[str, Any]]:
    runs, budgets = sweep(CHINCHILLA)
    return [
        {"Params": n, "Compute": c, "loss": loss}
        for n, c, loss in zip(runs.parameters.tolist(), budgets, runs.losses.tolist(), strict=True)
    ]


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl"])
def test_tables_of_all_formats_are_read(tmp_path: Path, suffix: str) -> None:
    table = read_runs(write_table(tmp_path / f"runs{suffix}", rows_of_a_sweep()))
    assert table.columns == {"parameters": "Params", "flops": "Compute", "loss": "loss"}
    assert fit_loss(table.runs).law.alpha == pytest.approx(0.34, rel=1e-5)
    held = hold_out(table)
    assert held is not None
    assert held.ratio == pytest.approx(10)
    assert abs(held.mean_error) < 1e-6
    found = predict(fit_loss(table.runs, n_bootstrap=5), table, 1e24)
    assert found.beyond == pytest.approx(100)
    assert found.parameters.value == pytest.approx(CHINCHILLA.best(1e24)[0], rel=1e-4)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"params": 1, "flops": 2}], "known to be the loss"),
        ([{"params": 1, "loss": 2}], "neither tokens nor FLOPs"),
        ([{"params": 1, "flops": "x", "loss": 2}], "flops of run 1 is 'x'"),
    ],
)
def test_tables_that_lack_something_are_errors(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ScalingError, match=message):
        read_runs(write_table(tmp_path / "runs.csv", rows))
    with pytest.raises(ScalingError, match="cannot read"):
        read_runs(tmp_path / "none.csv")


def test_runs_of_a_table_that_diverged_are_left_out_and_named(tmp_path: Path) -> None:
    rows = rows_of_a_sweep()
    rows[3]["loss"] = float("nan")
    table = read_runs(write_table(tmp_path / "runs.csv", rows))
    assert len(table.runs) == len(rows) - 1
    assert table.left_out == (("run 4", "its loss is 'nan'"),)
    with pytest.raises(ScalingError, match=r"all runs of .* diverged"):
        read_runs(write_table(tmp_path / "none.csv", [{**row, "loss": "inf"} for row in rows]))


def test_a_table_that_leaves_no_runs_is_not_held_out() -> None:
    runs, budgets = sweep(CHINCHILLA)
    table = RunTable(runs.take(np.arange(12)), np.array(budgets[:9] + [1e19] * 3), 6.0, {})
    assert hold_out(table) is not None
    assert hold_out(RunTable(runs.take(np.arange(9)), np.array(budgets[:9]), 6.0, {})) is None
