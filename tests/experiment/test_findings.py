"""What results say: statistics of pairs, curves, predictions, verdicts and pages, from results that are made up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.stats

from bytemill.errors import RunConfigError
from bytemill.experiment.findings import OVERALL, Findings
from bytemill.experiment.report import means_table, pairs_table, report
from bytemill.experiment.results import StudyFolder
from bytemill.experiment.statistics import holm
from tests.report.page_script import without_script

from .made_up import DOMAINS, N_SEEDS, NAMES, write_scores, write_study, write_trials

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study in which b is better than a, and c is like b."""
    return write_study(tmp_path)


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
    log = folder / "cells" / "a.m.seed1" / "run" / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))  # its last validation is missing
    assert findings.curve("m", "a", "bytes") == [(30, bits[0])]


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


def test_the_choice_of_a_learning_rate_has_its_uncertainty(folder: Path):
    bits = {
        "a": {0.1: [1.0, 1.1], 0.2: [1.2, 1.31], 0.3: [1.3, 1.3]},
        "b": {0.1: [1.2, 1.2], 0.2: [1.1, 1.15], 0.3: [1.5, 1.5504]},
        "c": {0.1: [1.0], 0.2: [1.0, 1.0]},  # a trial failed
    }
    with (folder / "results.jsonl").open("a") as file:
        file.writelines(json.dumps(own) + "\n" for own in write_trials(folder, bits))
    findings = Findings(folder)
    choices = {tokenizer: own for (_, tokenizer), own in findings.rate_choices.items()}
    assert {name: (own.rate, own.n, own.is_at_edge) for name, own in choices.items()} == {
        "a": (0.1, 2, True),
        "b": (0.2, 2, False),
        "c": (0.2, 2, False),
    }
    test: Any = scipy.stats.ttest_rel([1.2, 1.31], [1.0, 1.1])
    low, high = test.confidence_interval(0.95)
    difference = choices["a"].neighbours[0.2]
    assert (difference.value, difference.half_width) == pytest.approx(((low + high) / 2, (high - low) / 2))
    assert [own.rivals for own in choices.values()] == [[], [0.1], []]
    first, second, _ = findings.rate_sentences
    assert "better than 0.2 (+0.2050 ± 0.0635 bits per byte)" in first
    assert "at the edge" in first
    assert "not told apart from 0.1" in second
    page = report(findings)
    assert "another one may be better" in page
    assert "not told apart from 0.1" in page


def test_trials_of_one_seed_are_not_told_apart(folder: Path):
    with (folder / "results.jsonl").open("a") as file:
        file.writelines(
            json.dumps(own) + "\n" for own in write_trials(folder, {"a": {0.1: [1.0], 0.2: [1.2]}})
        )
    (sentence,) = Findings(folder).rate_sentences
    assert "0.1 is best in 1 seed; not told apart from 0.2" in sentence


def test_an_untrained_model_has_no_verdict(folder: Path):
    # The unigram distribution has 4.0 bits per byte and the models 1.9 to 2.0, but for one seed of a.
    cell = folder / "cells" / "a.m.seed1"
    n_bytes = np.fromfile(cell / "bytes.x.i64", "<i8")
    bits = n_bytes * np.random.default_rng(0).normal(3.62, 0.3, len(n_bytes))
    results = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    (own,) = (result for result in results if result["cell"] == cell.name)
    for domain in DOMAINS:
        write_scores(cell, domain, bits, n_bytes)
        own["bits_per_byte"][domain] = float(bits.sum() / n_bytes.sum())
    (folder / "results.jsonl").write_text("".join(json.dumps(result) + "\n" for result in results))
    findings = Findings(folder)
    learned = findings.learning["m", "a"]
    assert learned is not None
    assert learned.interval is not None
    assert learned.interval[0] < 0.1 < learned.gain + 0.03
    assert [pair.difference.p is None for pair in findings.pairs] == [True, True, False]
    assert [pair.corrected_p is None for pair in findings.pairs] == [True, True, False]
    first, second, third = (pair.sentence for pair in findings.pairs)
    assert first.startswith("No verdict on a and b at equal bytes: a has ")
    assert "below the" in first
    assert second.startswith("No verdict on a and c")
    assert third.startswith("No difference between b and c")
    assert findings.predictions("m") == []  # of two trained tokenizers
    page = report(findings)
    assert "beats" not in page
    assert "have learned next to nothing" in page


def test_studies_of_earlier_versions_open_without_verdicts(folder: Path):
    grid = json.loads((folder / "study.json").read_text())
    grid["segment_bytes"] = grid.pop("context_bytes")
    (folder / "study.json").write_text(json.dumps(grid))
    results = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    for result in results:
        del result["unigram_bits_per_byte"], result["n_scored_tokens"], result["context"]
    (folder / "results.jsonl").write_text("".join(json.dumps(own) + "\n" for own in results))
    for path in folder.glob("cells/*/unigram.*"):
        path.unlink()
    findings = Findings(folder)
    for pair in findings.pairs:
        assert "was scored by an earlier version; run the study again" in pair.sentence
    assert "in pieces of 64 bytes" in report(findings)
    json.dumps(findings.to_dict())


def test_results_are_read_with_every_separator_of_lines_in_a_string(folder: Path):
    results = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    results[0]["samples"] = [{"prompt": "a", "text": "b\u2028c\x85d\x0ce"}]
    StudyFolder(folder).write_results(results)
    assert Findings(folder).results == results


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
