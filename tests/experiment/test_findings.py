"""What results say: statistics of pairs, curves, predictions, verdicts and pages, from results that are made up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.stats

from bytemill.errors import RunConfigError
from bytemill.experiment.findings import OVERALL, Findings
from bytemill.experiment.report import report
from bytemill.experiment.results import StudyFolder, read_study_folder
from bytemill.experiment.statistics import holm
from bytemill.experiment.tables import means_table, pairs_table
from tests.report.page_script import without_script

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["a", "b", "c"]
DOMAINS = ["x", "y"]
N_SEEDS = 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study in which b is better than a, and c is like b."""
    random = np.random.default_rng(0)
    results: list[dict[str, Any]] = []
    n_bytes = random.integers(50, 100, 30)
    for seed in range(N_SEEDS):
        chance = random.normal(0, 0.05)  # shared by the tokenizers
        for name, level in zip(NAMES, (2.0, 1.9, 1.9), strict=True):
            cell = tmp_path / "cells" / f"{name}.m.seed{seed}"
            (cell / "run").mkdir(parents=True)
            bits: dict[str, float] = {}
            for domain in DOMAINS:
                own = n_bytes * (level + chance + random.normal(0, 0.01) + random.normal(0, 0.02, 30))
                own.astype("<f8").tofile(cell / f"bits.{domain}.f64")
                n_bytes.astype("<i8").tofile(cell / f"bytes.{domain}.i64")
                bits[domain] = float(own.sum() / n_bytes.sum())
            records = [
                {"kind": "step", "step": step, "n_tokens": 10 * step, "tokens_per_second": 5.0, "loss": 1.0}
                for step in (1, 2)
            ] + [{"kind": "validation", "step": step, "bits_per_byte": 3.0 - step + seed} for step in (1, 2)]
            (cell / "run" / "metrics.jsonl").write_text("".join(json.dumps(own) + "\n" for own in records))
            results.append(
                {
                    "cell": cell.name,
                    "tokenizer": name,
                    "model": "m",
                    "seed": seed,
                    "is_trial": False,
                    "learning_rate": 0.1,
                    "n_steps": 2,
                    "n_tokens": 20,
                    "n_bytes": 60,
                    "flops": 1e9,
                    "bits_per_byte": bits,
                    "classes": {"digits": {"bits_per_byte": level}, "special": {"bits_per_byte": None}},
                }
            )
    grid = {
        "title": "<b>&",
        "budget": {"equal": "bytes", "amount": 60},
        "tokenizers": {name: {"n_ids": 300 + 100 * i, "fingerprint": name} for i, name in enumerate(NAMES)},
        "models": {"m": {}},
        "seeds": list(range(N_SEEDS)),
        "domains": DOMAINS,
        "parameters": {f"{name}/m": {"embedding": 1, "output layer": 2, "rest": 3} for name in NAMES},
        "segment_bytes": 64,
        "cells": [result["cell"] for result in results],
        "text": {"train": "0" * 64},
    }
    (tmp_path / "study.json").write_text(json.dumps(grid))
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(own) + "\n" for own in results))
    figures = {
        "bytes_per_token": {"a": 1.0, "b": 2.0, "c": 3.0},
        "tokens_per_word": {"a": 1, "b": 1, "c": None},
    }
    (tmp_path / "figures.json").write_text(json.dumps(figures))
    return tmp_path


def test_pairs_are_paired_t_tests_corrected_for_their_number(folder: Path):
    findings = Findings(folder)
    values = {name: list(findings.values("m", name, OVERALL).values()) for name in NAMES}
    tests: list[Any] = [
        scipy.stats.ttest_rel(values[first], values[second])
        for first, second in (("a", "b"), ("a", "c"), ("b", "c"))
    ]
    assert [pair.difference.p for pair in findings.pairs] == pytest.approx([own.pvalue for own in tests])
    corrected = [pair.corrected_p for pair in findings.pairs]
    assert corrected == pytest.approx(holm([own.pvalue for own in tests]))
    first, _, last = findings.pairs
    assert first.sentence.startswith("b beats a by 0.1")
    assert last.sentence.startswith("No difference between b and c is shown at equal bytes")
    assert "4 seeds show differences of" in last.sentence
    assert first.documents is not None
    assert first.documents[0] < first.difference.value < first.documents[1]


def test_means_are_those_of_the_seeds_and_domains_count_the_same(folder: Path):
    findings = Findings(folder)
    for name in NAMES:
        by_domain = [list(findings.values("m", name, domain).values()) for domain in DOMAINS]
        overall = np.mean(by_domain, axis=0)
        mean = findings.means(OVERALL)["m", name]
        assert mean.value == pytest.approx(overall.mean())
        assert mean.deviation == pytest.approx(overall.std(ddof=1))


def test_curves_are_means_over_seeds_against_each_axis(folder: Path):
    findings = Findings(folder)
    bits = [2.0 + 1.5, 1.0 + 1.5]
    for axis, end in (("bytes", 60), ("tokens", 20), ("flops", 1e9), ("seconds", 4)):
        assert findings.curve("m", "a", axis) == [(end / 2, bits[0]), (end, bits[1])]


def test_figures_are_ranked_by_how_well_they_predict(folder: Path):
    (prediction,) = Findings(folder).predictions("m")  # the other figure is missing for one tokenizer
    means = [Findings(folder).means(OVERALL)["m", name].value for name in NAMES]
    expected: Any = scipy.stats.spearmanr([1, 2, 3], means)
    assert prediction.rho == pytest.approx(expected.statistic)


def test_an_unfinished_study_says_what_is_missing(folder: Path):
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(lines[:1]))
    (folder / "failures.json").write_text(json.dumps({"b.m.seed0": "out of memory"}))
    findings = Findings(folder)
    assert len(findings.missing) == 3 * N_SEEDS - 2
    assert findings.pairs == []
    assert [row[-2] for row in means_table(findings, "m")] == ["seeds", "1", "0", "0"]
    page = report(findings)
    assert "b.m.seed0 failed: out of memory" in page


def test_a_learning_rate_at_the_edge_is_reported(folder: Path):
    trials = [
        {"cell": f"{name}.{rate}", "tokenizer": name, "model": "m", "seed": 0, "is_trial": True, "learning_rate": rate,
         "bits_per_byte": {"tuning": bits}, "flops": 1e9}
        for name, values in (("a", (1.0, 1.1, 1.2)), ("b", (1.2, 1.1, 1.3)))
        for rate, bits in zip((0.1, 0.2, 0.3), values, strict=True)
    ]  # fmt: skip
    with (folder / "results.jsonl").open("a") as file:
        file.writelines(json.dumps(own) + "\n" for own in trials)
    assert Findings(folder).rates_at_the_edge == ["a with m"]
    assert "another one may be better" in report(Findings(folder))


def test_samples_may_contain_every_line_separator(folder: Path):
    _, results, _ = read_study_folder(folder)
    results[0]["samples"] = [{"prompt": "", "text": "a\u2028b\x85c\x0cd"}]
    StudyFolder(folder).write_results(results)
    assert read_study_folder(folder)[1] == results


def test_one_seed_shows_nothing(folder: Path):
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(lines[:2]))
    (pair,) = Findings(folder).pairs
    assert pair.sentence.startswith("With one seed nothing is shown")
    assert pairs_table(Findings(folder), "m")[1][2] == "–"


def test_the_page_is_self_contained_and_names_are_inert(folder: Path):
    page = without_script(report(Findings(folder)))
    assert "<b>&" not in page
    assert "http" not in page.replace("http-equiv", "")
    for expected in ("b beats a", "Bits per byte by class of token", "Learning curves", "detectable", "ids"):
        assert expected in page
    json.dumps(Findings(folder).to_dict())


def test_another_folder_is_an_error(tmp_path: Path):
    with pytest.raises(RunConfigError, match="is not the folder of a study"):
        Findings(tmp_path)
