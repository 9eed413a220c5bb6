"""`bytemill scaling`."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.scaling.conftest import write_sweep
from tests.scaling.test_fits import rows_of_a_sweep, write_table
from tests.scaling.test_sweep import faked

Run = Callable[..., Any]


def test_fit_and_predict(run: Run, tmp_path: Path) -> None:
    path = write_table(tmp_path / "runs.csv", rows_of_a_sweep())
    text = run(f"scaling fit {path} --bootstrap 20")
    assert text.status == 0, text.err
    assert "held out: 9 runs of 1e+22 FLOPs" in text.out
    found = json.loads(run(f"scaling fit {path} --bootstrap 20 --json").out)
    assert round(found["law"]["alpha"]["value"], 4) == 0.34
    assert len(found["budgets"]) == 5
    assert found["size_exponents"]["law"]["low"] <= found["size_exponents"]["law"]["high"]
    near = run(f"scaling predict {path} --flops 1e21 1e25 --bootstrap 20")
    assert "within the budgets of the runs" in near.out
    assert "1e+03 times the largest budget of the runs; tested to 10 times (not supported)" in near.out
    predicted = json.loads(run(f"scaling predict {path} --flops 1e21 --bootstrap 5 --json").out)
    assert predicted["predictions"][0]["beyond"] == 0.1


def test_columns_can_be_named(run: Run, tmp_path: Path) -> None:
    rows = [
        {"size": row["Params"], "budget": row["Compute"], "bits": row["loss"]} for row in rows_of_a_sweep()
    ]
    path = write_table(tmp_path / "runs.csv", rows)
    failed = run(f"scaling fit {path}")
    assert failed.status == 1
    assert "--parameters-column NAME" in failed.err
    named = run(f"scaling fit {path} --parameters-column size --loss-column bits --bootstrap 0")
    assert named.status == 0, named.err
    wrong = run(f"scaling fit {path} --parameters-column none --loss-column bits")
    assert "has no column 'none'" in wrong.err
    with path.open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 45


def test_submit_trains_a_run_once(run: Run, tmp_path: Path) -> None:
    sweep_file = write_sweep(tmp_path)
    first = run(f"scaling submit {sweep_file} 1 -o {sweep_file.parent}/out --training-tokens 640 --json -q")
    assert first.status == 0, first.err
    found = json.loads(first.out)
    assert found["n_tokens"] == 640
    assert found["left_flops"] == 1e10 - found["flops"]
    second = run(f"scaling submit {sweep_file} 1 -o {sweep_file.parent}/out --training-tokens 640")
    assert f"{found['bits_per_byte']:.4f}" in second.out
    assert "of 1e+10 FLOPs" in second.out
    refused = run(f"scaling submit {sweep_file} 3 -o {sweep_file.parent}/out --budget 1e12")
    assert refused.status == 1
    assert "error: the runs would cost" in refused.err
    assert "hint: ask for fewer or smaller runs" in refused.err


def test_what_runs_lack_is_said_in_one_line(run: Run, tmp_path: Path) -> None:
    rows = rows_of_a_sweep()
    rows[2]["loss"] = float("nan")
    for number, row in enumerate(rows):
        row["Compute"] *= 1 + number / 100  # no two runs have one budget
    text = run(f"scaling fit {write_table(tmp_path / 'runs.csv', rows)} --bootstrap 5")
    assert text.status == 0, text.err
    assert "left out: run 3: its loss is 'nan'" in text.out
    assert "no parabolas: 0 budgets show an optimum" in text.out
    assert "add runs of three sizes at each of two budgets" in text.out
    one_size = [{**row, "Params": 1e8, "tokens": 1e9 + number} for number, row in enumerate(rows[3:])]
    failed = run(f"scaling fit {write_table(tmp_path / 'one.csv', one_size)}")
    assert failed.err.splitlines()[0] == "error: all runs have one size"
    steep = [
        {
            **row,
            "tokens": 1e9 * (number % 5 + 1),
            "loss": 2 + 400 / row["Params"] ** 0.34 + (number % 5 + 1) ** -4.0,
        }
        for number, row in enumerate(rows[3:])
    ]
    bound = run(f"scaling fit {write_table(tmp_path / 'steep.csv', steep)} --bootstrap 0")
    assert "beta is at the end of its range: add runs with other numbers of tokens" in bound.out


def test_a_sweep_is_planned_and_reported(run: Run, tmp_path: Path) -> None:
    ledger = faked(tmp_path)
    folder = ledger.path
    plan = json.loads(run(f"scaling plan {tmp_path}/scaling.toml -o {folder} --no-probe --json -q").out)
    assert plan["is_fitted"] is True
    assert plan["flops"] <= plan["left_flops"]
    shown = run(f"scaling plan {tmp_path}/scaling.toml -o {folder} --no-probe")
    assert "Best sizes by the fit to the ledger" in shown.out
    predicted = run(f"scaling predict {folder} --flops 1e13 --bootstrap 10")
    assert predicted.status == 0, predicted.err
    assert "3.33 times the largest budget of the runs; tested to 3 times (not supported)" in predicted.out
    assert "the best vocabulary has" in predicted.out
    assert "depth" in predicted.out
    for convention in ("flops", "non-vocabulary", "all"):
        assert run(f"scaling fit {folder} --parameters {convention} --bootstrap 0").status == 0
    report = run(f"scaling report {folder} -o {tmp_path}/page.html --bootstrap 10")
    assert report.status == 0, report.err
    assert "Held out: 10 runs" in report.out
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<figure>") == 5
    missing = run(f"scaling report {tmp_path}/none")
    assert "is no ledger" in missing.err
