"""`bytemill scaling`."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.scaling.conftest import write_sweep
from tests.scaling.test_fits import rows_of_a_sweep, write_table

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
    first = run(f"scaling submit {sweep_file} -o {sweep_file.parent}/out --depth 1 --tokens 640 --json -q")
    assert first.status == 0, first.err
    found = json.loads(first.out)
    assert found["n_tokens"] == 640
    assert found["left_flops"] == 1e10 - found["flops"]
    second = run(f"scaling submit {sweep_file} -o {sweep_file.parent}/out --depth 1 --tokens 640")
    assert f"{found['bits_per_byte']:.4f}" in second.out
    assert "of 1e+10 FLOPs" in second.out
    refused = run(f"scaling submit {sweep_file} -o {sweep_file.parent}/out --depth 3 --flops 1e12")
    assert refused.status == 1
    assert "error: the runs would cost" in refused.err
    assert "hint: ask for fewer or smaller runs" in refused.err
