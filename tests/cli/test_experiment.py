"""`bytemill experiment` on folders of studies, whole and damaged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.experiment.made_up import write_study

Run = Callable[..., Any]


def test_a_damaged_study_is_an_error_and_leaves_the_others_in_the_list(tmp_path: Path, run: Run):
    write_study(tmp_path / "whole", n_seeds=2)
    damaged = write_study(tmp_path / "damaged", n_seeds=2)
    (damaged / "results.jsonl").write_text('{"cell": "/tmp/x"}\n')
    outcome = run("experiment", "report", str(damaged))
    assert outcome.status == 1
    assert "results.jsonl:1 is damaged: cell is '/tmp/x'; it must be a name without a folder" in outcome.err
    assert "bug" not in outcome.err
    outcome = run("experiment", "list", str(tmp_path))
    assert outcome.status == 0
    assert str(tmp_path / "whole") in outcome.out
    assert "results.jsonl:1 is damaged" in outcome.err


def test_the_report_says_why_there_is_no_verdict(tmp_path: Path, run: Run):
    folder = write_study(tmp_path / "study", n_seeds=2)
    text = (folder / "results.jsonl").read_text()
    (folder / "results.jsonl").write_text(text.replace('"unigram_bits_per_byte"', '"of_a_later_version"'))
    outcome = run("experiment", "report", str(folder))
    assert outcome.status == 0
    assert "No verdict on a and b at equal bytes: a was scored by an earlier version" in outcome.out
