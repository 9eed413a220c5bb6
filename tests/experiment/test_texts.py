"""Texts as arms of a study: equal FLOPs and tokenizers, the same held-out documents, paired differences."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bytemill.experiment import run_study
from bytemill.experiment.findings import Findings
from bytemill.experiment.plan import plan_study
from bytemill.experiment.report import report
from bytemill.experiment.statistics import holm
from tests.lm.conftest import sentences

from .conftest import InThisProcess, edit, write_inputs

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = """
[[texts]]
name = "raw"
train = ["train.txt"]

[[texts]]
name = "clean"
train = ["clean.txt"]

[budget]
equal = "flops"
"""


def write_study(folder: Path, *changes: tuple[str, str]) -> Path:
    study_file = write_inputs(folder)
    (folder / "clean.txt").write_text(sentences(3, 200))
    edit(
        study_file,
        ("\n[budget]", TEXTS),
        ("amount = 4000", "amount = 2e8"),
        ('hellaswag = "items.txt"\n', ""),
    )
    return edit(study_file, *changes)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, _quick_training: None) -> Path:
    """A finished study of one tokenizer and two texts."""
    folder = tmp_path_factory.mktemp("texts")
    study_file = write_study(folder, ("[tokenizers.bytes]\nvocab_sizes = [257]", ""))
    return run_study(study_file, folder / "out", execute=InThisProcess()).path


def test_arms_differ_in_the_text_alone(compared: Path):
    lines = [json.loads(line) for line in (compared / "results.jsonl").read_text().splitlines()]
    assert [line["cell"] for line in lines] == [
        f"own+{text}.mini.seed{seed}" for seed in (0, 1) for text in ("raw", "clean")
    ]
    assert {line["text"] for line in lines} == {"raw", "clean"}
    assert len({(line["flops"], line["n_steps"], line["n_tokens"], line["tokenizer"]) for line in lines}) == 1
    assert len({json.dumps(line["n_scored_bytes"]) for line in lines}) == 1
    inputs = [json.loads((compared / "cells" / line["cell"] / "inputs.json").read_text()) for line in lines]
    assert len(set(inputs)) == 4


def test_differences_are_between_texts_on_two_domains(compared: Path):
    findings = Findings(compared)
    assert findings.compared == "text"
    assert findings.tokenizers == ["raw", "clean"]
    (pair,) = findings.pairs
    assert (pair.first, pair.second) == ("raw", "clean")
    expected = [
        sum(result["bits_per_byte"].values()) / 2 for result in findings.results if result["text"] == "raw"
    ]
    assert list(findings.values("mini", "raw", findings.domains[-1]).values()) == pytest.approx(expected)
    assert findings.means("code").keys() == {("mini", "raw"), ("mini", "clean")}
    page = report(findings)
    assert "raw − clean" in page
    assert "not which text is better" in page
    assert "own+raw" not in page.replace("own+raw.mini", "")


def test_pairs_of_tokenizers_and_texts_differ_in_one_thing(tmp_path: Path):
    study_file = write_study(tmp_path, ("seeds = 2", "seeds = 2"))
    findings = Findings(run_study(study_file, tmp_path / "out", execute=InThisProcess()).path)
    assert findings.compared == "tokenizer and text"
    names = {(pair.first, pair.second) for pair in findings.pairs}
    assert names == {
        ("bytes+raw", "bytes+clean"),
        ("own+raw", "own+clean"),
        ("bytes+raw", "own+raw"),
        ("bytes+clean", "own+clean"),
    }
    tested = [pair for pair in findings.pairs if pair.difference.p is not None]
    ps = [pair.difference.p or 0.0 for pair in tested]
    assert [pair.corrected_p for pair in tested] == holm(ps)
    assert findings.to_dict()["curves"].keys() == {f"{name}/mini" for name in findings.tokenizers}


def test_a_plan_counts_the_passes_over_each_text(tmp_path: Path):
    study_file = write_study(tmp_path)
    plan = plan_study(study_file, tmp_path / "out", probe=False)
    assert plan.n_cells == 8
    passes = {(arm.tokenizer, arm.text): arm.passes for arm in plan.arms}
    assert passes["own", "clean"] > 2 * passes["own", "raw"]
    assert any("own+clean with mini reads the text" in warning for warning in plan.warnings)


def test_another_text_trains_its_own_models_alone(compared: Path, tmp_path: Path):
    study_file = write_study(tmp_path, ("[tokenizers.bytes]\nvocab_sizes = [257]", ""))
    (tmp_path / "clean.txt").write_text(sentences(4, 200))
    executor = InThisProcess(compared)
    run_study(study_file, tmp_path / "out", execute=executor)
    trained = [
        name
        for name in executor.performed
        if (tmp_path / "out" / "cells" / name / "result.json").read_bytes()
        != (compared / "cells" / name / "result.json").read_bytes()
    ]
    assert trained == ["own+clean.mini.seed0", "own+clean.mini.seed1"]
