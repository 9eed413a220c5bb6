"""Branches of a run continue it exactly, and the fit finds the critical batch size."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import RunConfigError
from bytemill.lm.batch_size import RESULT, fit_bend, measure_batch_size
from bytemill.lm.training.branches import branch
from bytemill.lm.training.config import Resolved, file_layer
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.trainer import train

Settings = Callable[..., Resolved]
SIZES = [256 << number for number in range(8)]


@given(critical=st.floats(300, 30_000), gain=st.floats(0.01, 2.0))
def test_exact_improvements_give_the_critical_size(critical: float, gain: float) -> None:
    improvements = np.array([[gain / (1 + size / critical)] * 2 for size in SIZES])
    bend = fit_bend(SIZES, improvements)
    assert bend.critical == pytest.approx(critical, rel=1e-3)
    assert bend.gain == pytest.approx(gain, rel=1e-3)
    assert bend.low == pytest.approx(bend.high)


def test_the_interval_contains_the_critical_size_of_noisy_improvements() -> None:
    random = np.random.default_rng(7)
    exact = np.array([0.2 / (1 + size / 4000) for size in SIZES])
    hits = 0
    for _ in range(60):
        bend = fit_bend(SIZES, exact[:, None] + random.normal(0, 0.004, (len(SIZES), 5)))
        hits += bend.low <= 4000 <= bend.high
    assert 48 <= hits <= 60  # a bootstrap of five values is somewhat narrow


def test_equal_improvements_have_no_bend() -> None:
    bend = fit_bend(SIZES, np.full((len(SIZES), 2), 0.3))
    assert math.isinf(bend.critical)
    assert bend.gain == pytest.approx(0.3)


def test_a_branch_goes_on_as_the_run_itself_does(settings: Settings, tmp_path: Path) -> None:
    constant = {"schedule__name": "constant", "schedule__warmup_steps": 0, "run__validate_every": 0}
    train(settings(training__steps=8, run__folder=str(tmp_path / "whole"), **constant))
    train(settings(training__steps=4, run__folder=str(tmp_path / "half"), **constant))
    newest = {name: RunFolder(tmp_path / name).load_newest() for name in ("whole", "half")}
    assert newest["whole"] is not None
    assert newest["half"] is not None
    before = {path: path.read_bytes() for path in (tmp_path / "half").rglob("*") if path.is_file()}
    changes = {"training.steps": 8, "run.folder": str(tmp_path / "branch")}
    train(branch(newest["half"].checkpoint, file_layer(tmp_path / "half"), changes))
    found = RunFolder(tmp_path / "branch").load_newest()
    assert found is not None
    assert found.checkpoint.weights_sha256 == newest["whole"].checkpoint.weights_sha256
    assert {path: path.read_bytes() for path in (tmp_path / "half").rglob("*") if path.is_file()} == before


def test_branches_are_measured_once(settings: Settings, tmp_path: Path) -> None:
    train(settings(training__steps=6, run__checkpoint_every=3, schedule__name="constant"))
    tokens = 64 * settings().config.model.context_length
    records: list[dict[str, object]] = []

    def measure(**options: object) -> object:
        records.clear()
        return measure_batch_size(
            tmp_path / "run",
            tmp_path / "branches",
            **{
                "batch_sizes": [1, 2, 4, 8],
                "tokens": tokens,
                "repetitions": 2,
                "on_record": records.append,
                **options,
            },  # type: ignore[arg-type]
        )

    measured = measure()
    assert [len(row) for row in measured.bits_per_byte] == [2] * 4  # type: ignore[attr-defined]
    assert all(abs(a - b) > 1e-9 for a, b in measured.bits_per_byte)  # type: ignore[attr-defined]
    assert json.loads((tmp_path / "branches" / RESULT).read_bytes())["step"] == 6
    assert not list((tmp_path / "branches").rglob("model.safetensors"))
    assert measure() == measured
    assert records == []
    with pytest.raises(RunConfigError, match="branches of another checkpoint"):
        measure(tokens=2 * tokens)
    with pytest.raises(RunConfigError, match="no bend"):
        measure(batch_sizes=[1, 2])
    with pytest.raises(RunConfigError, match="no whole number of steps"):
        measure(batch_sizes=[1, 3, 4, 8])
