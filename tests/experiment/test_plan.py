"""Plans: steps and FLOPs of the study that follows, measured speed, warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bytemill.experiment import run_study
from bytemill.experiment.findings import Findings
from bytemill.experiment.inputs import StudyInputs, probe_rates
from bytemill.experiment.plan import plan_study
from bytemill.experiment.study import load_study

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import InThisProcess


def test_a_plan_is_what_the_study_takes(study_file: Path, executor: InThisProcess, tmp_path: Path):
    plan = plan_study(study_file, tmp_path / "out", probe=False)
    assert (plan.n_cells, plan.n_trials, plan.seconds) == (4, 0, None)
    findings = Findings(run_study(study_file, tmp_path / "out", execute=executor).path)
    for arm in plan.arms:
        for result in findings.results:
            if result["tokenizer"] == arm.tokenizer:
                assert result["n_steps"] == pytest.approx(arm.n_steps, abs=1)
                assert result["parameters"] == arm.parameters
    assert plan.flops == pytest.approx(sum(result["flops"] for result in findings.results), rel=0.1)
    assert plan.context_bytes == findings.grid["context_bytes"]
    assert all("steps and" in warning for warning in plan.warnings)
    for arm in plan.arms:
        assert arm.tokens_per_parameter == arm.n_tokens / sum(arm.parameters.values())


def test_models_that_will_not_leave_the_unigram_distribution_are_warned_of(study_file: Path, tmp_path: Path):
    plan = plan_study(study_file, tmp_path / "out", probe=False)
    first, second = plan.warnings
    assert first.startswith(
        "bytes with mini: 31 steps and 0.31 tokens per parameter are few. The loss may fall from 8.0"
    )
    assert "get no verdict" in first
    assert second.startswith("own with mini: 19 steps")
    text = study_file.read_text().replace("amount = 4000", "amount = 100_000")
    study_file.write_text(text.replace("[train]", "[learning_rate]\nfixed = 0.03\n[train]"))
    assert not [
        own for own in plan_study(study_file, tmp_path / "out", probe=False).warnings if "verdict" in own
    ]


def test_several_passes_and_single_seeds_are_warned_of(study_file: Path, tmp_path: Path):
    text = (
        study_file.read_text().replace("amount = 4000", 'amount = "100kB"').replace("seeds = 2", "seeds = 1")
    )
    study_file.write_text(text)
    plan = plan_study(study_file, tmp_path / "out", probe=False)
    assert any("reads the text" in warning and "times" in warning for warning in plan.warnings)
    assert any("one seed gives no interval" in warning for warning in plan.warnings)
    assert plan.detectable is None


def test_speed_is_measured_once(study_file: Path, tmp_path: Path):
    study_inputs = StudyInputs(load_study(study_file), tmp_path / "out", tmp_path)
    shown: list[str] = []
    rates = probe_rates(study_inputs, shown.append, n_steps=4)
    assert set(rates) == {("bytes", "mini"), ("own", "mini")}
    assert all(rate > 0 for rate in rates.values())
    assert len(shown) == 2
    assert probe_rates(study_inputs, shown.append, n_steps=4) == rates
    assert len(shown) == 2
