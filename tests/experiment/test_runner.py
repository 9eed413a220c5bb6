"""Running a study: equal documents, exact resuming, results that depend on the study alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bytemill.errors import OutputError, RunConfigError
from bytemill.experiment import job, run_study
from bytemill.experiment.findings import Findings
from bytemill.lm.training import trainer
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.shards import TokenShards
from bytemill.tokenizer.tokenizer import Tokenizer

from .conftest import InThisProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_every_arm_reads_the_same_text_in_the_same_order(
    study_file: Path, executor: InThisProcess, tmp_path: Path
):
    folder = run_study(study_file, tmp_path / "out", execute=executor).path
    texts: dict[int, set[bytes]] = {0: set(), 1: set()}
    for seed in (0, 1):
        for name in ("bytes", "own"):
            tokenizer = Tokenizer.load(folder / "tokenizers" / f"{name}.json")
            ids = TokenShards(folder / "shards" / name / f"seed{seed}")[:].tolist()
            texts[seed].add(tokenizer.decode_bytes(ids).replace(b"<|endoftext|>", b"\n"))
    assert [len(own) for own in texts.values()] == [1, 1]
    assert texts[0] != texts[1]
    (text,) = texts[0]
    assert 4000 <= len(text.replace(b"\n", b"")) + text.count(b"\n") <= 4000 + text.count(b"\n")
    findings = Findings(folder)
    assert findings.missing == []
    for result in findings.results:
        assert result["n_bytes"] <= 4000
        per_step = result["n_bytes"] / result["n_steps"]
        assert result["n_bytes"] + per_step > 4000 - per_step
        (metrics,) = read_metrics(folder / "cells" / result["cell"] / "run" / "metrics.jsonl", "step")[-1:]
        assert metrics["step"] == result["n_steps"]
        assert metrics["n_tokens"] == result["n_tokens"]


def test_results_are_the_same_again_and_only_changed_cells_are_trained(
    study_file: Path, executor: InThisProcess, tmp_path: Path
):
    study_file.write_text(study_file.read_text().replace("seeds = 2", "seeds = 1"))
    folder = run_study(study_file, tmp_path / "out", execute=executor)
    before = folder.results.read_bytes()
    assert len(before.splitlines()) == len(executor.performed) == 2
    again = run_study(study_file, tmp_path / "again", execute=InThisProcess())
    assert again.results.read_bytes() == before
    executor.performed.clear()
    run_study(study_file, tmp_path / "out", execute=executor)
    assert executor.performed == []
    study_file.write_text(study_file.read_text().replace("[270]", "[280]"))
    run_study(study_file, tmp_path / "out", execute=executor)
    assert executor.performed == ["own.mini.seed0"]
    executor.performed.clear()
    study_file.write_text(study_file.read_text().replace("batch_size = 4", "batch_size = 8"))
    run_study(study_file, tmp_path / "out", execute=executor)
    assert len(executor.performed) == 2


def test_other_validation_text_is_scored_without_training_again(
    study_file: Path, executor: InThisProcess, tmp_path: Path
):
    study_file.write_text(study_file.read_text().replace("seeds = 2", "seeds = 1"))
    folder = run_study(study_file, tmp_path / "out", execute=executor)
    logs = [path.read_bytes() for path in sorted(folder.path.glob("cells/*/run/metrics.jsonl"))]
    before = Findings(folder.path).results
    (tmp_path / "code.txt").write_text("while True:\n    pass\n" * 40)
    run_study(study_file, tmp_path / "out", execute=executor)
    assert len(executor.performed) == 4
    assert [path.read_bytes() for path in sorted(folder.path.glob("cells/*/run/metrics.jsonl"))] == logs
    for old, new in zip(before, Findings(folder.path).results, strict=True):
        assert old["bits_per_byte"]["stories"] == new["bits_per_byte"]["stories"]
        assert old["bits_per_byte"]["code"] != new["bits_per_byte"]["code"]


def test_models_are_scored_on_hellaswag_and_continue_prompts(
    study_file: Path, executor: InThisProcess, tmp_path: Path
):
    lines = [line for n in range(3) for line in (f"The cat {n}", str(n % 4), "saw", "ate", "the bird", "x")]
    (tmp_path / "items.txt").write_text("\n".join(lines) + "\n")
    text = study_file.read_text().replace(
        "seeds = 2", 'seeds = 1\nhellaswag = "items.txt"\nprompts = ["The dog"]'
    )
    study_file.write_text(text)
    folder = run_study(study_file, tmp_path / "out", execute=executor)
    for result in Findings(folder.path).results:
        assert result["hellaswag"]["n_items"] == 3
        assert 0 <= result["hellaswag"]["acc"] <= 1
        (sample,) = result["samples"]
        assert sample["prompt"] == "The dog"
        assert sample["text"]
    page = folder.report.read_text(encoding="utf-8")
    for expected in ("acc_norm", "What the models write", "<b>The dog</b>"):
        assert expected in page


def test_a_cell_that_fails_is_reported_and_tried_again(
    study_file: Path, executor: InThisProcess, tmp_path: Path
):
    executor.failing = "own.mini.seed1"
    folder = run_study(study_file, tmp_path / "out", execute=executor)
    findings = Findings(folder.path)
    assert findings.failures == {"own.mini.seed1": "the loss is not finite"}
    assert len(findings.results) == 3
    assert [pair.difference.n for pair in findings.pairs] == [1]
    assert "the loss is not finite" in folder.report.read_text()
    executor.failing = ""
    executor.performed.clear()
    assert not Findings(run_study(study_file, tmp_path / "out", execute=executor).path).failures
    assert executor.performed == ["own.mini.seed1"]


def test_learning_rates_are_chosen_by_arm_on_text_of_their_own(
    study_file: Path, executor: InThisProcess, tmp_path: Path
):
    (tmp_path / "tune.txt").write_text("The dog ate the cat. " * 20)
    text = (
        study_file.read_text()
        .replace("[text]", '[text]\ntuning = ["tune.txt"]')
        .replace("seeds = 2", "seeds = 1")
    )
    text = text.replace("[tokenizers.bytes]\nvocab_sizes = [257]\n", "")
    study_file.write_text(text + "[learning_rate]\nsearch = [1e-6, 0.01]\nshare = 0.5\n")
    findings = Findings(run_study(study_file, tmp_path / "out", execute=executor).path)
    assert len(findings.trials) == 4  # two rates, two seeds
    assert {choice.n for choice in findings.rate_choices.values()} == {2}
    assert {result["learning_rate"] for result in findings.results} == {0.01}
    for trial in findings.trials:
        assert list(trial["bits_per_byte"]) == ["tuning"]
        (final,) = [own for own in findings.results if own["tokenizer"] == trial["tokenizer"]]
        assert trial["n_steps"] == final["n_steps"] // 2
        assert trial["flops"] == pytest.approx(final["flops"] * trial["n_steps"] / final["n_steps"])


@pytest.mark.parametrize(("rule", "amount"), [("tokens", "2000"), ("flops", "1e8"), ("time", "0.02")])
def test_other_budgets_are_equal_too(
    study_file: Path, executor: InThisProcess, tmp_path: Path, rule: str, amount: str
):
    text = study_file.read_text().replace("amount = 4000", f'equal = "{rule}"\namount = {amount}')
    study_file.write_text(text.replace("seeds = 2", "seeds = 1"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.toml").touch()
    (tmp_path / "out" / "probe.json").write_text('{"bytes/mini": 100000, "own/mini": 50000}')
    findings = Findings(run_study(study_file, tmp_path / "out", execute=executor).path)
    assert len(findings.results) == 2
    if rule == "time":
        assert [result["n_tokens"] for result in findings.results] == [1920, 896]  # whole steps of 128
    if rule != "time":
        for result in findings.results:
            spent = result["n_tokens" if rule == "tokens" else "flops"]
            assert float(amount) * (1 - 1 / result["n_steps"]) - 1 <= spent <= float(amount)
            assert np.isfinite(result["bits_per_byte"]["stories"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("amount = 4000", "amount = 100", "fewer than the 128 of one step"),
        ("vocab_sizes = [257]", "vocab_sizes = [5000]", "the text supports"),
        ('["train.txt"]', '["nothing.txt"]', "nothing.txt"),
    ],
)
def test_mistakes_are_found_before_a_model_is_trained(
    study_file: Path, executor: InThisProcess, tmp_path: Path, old: str, new: str, message: str
):
    study_file.write_text(study_file.read_text().replace(old, new))
    with pytest.raises((RunConfigError, OutputError, Exception), match=message):
        run_study(study_file, tmp_path / "out", execute=executor)
    assert executor.performed == []


def test_a_folder_with_other_files_is_refused(study_file: Path, executor: InThisProcess, tmp_path: Path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").touch()
    with pytest.raises(OutputError, match="holds files that are not of a study"):
        run_study(study_file, tmp_path / "notes", execute=executor)


def command(study_file: Path, folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "bytemill", "experiment", "run", str(study_file), "-o", str(folder), *words]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills a group of processes")
@pytest.mark.parametrize("n_kills", [20])
def test_kills_anywhere_leave_the_same_results(study_file: Path, tmp_path: Path, n_kills: int):
    expected = run_study(study_file, tmp_path / "whole", execute=InThisProcess()).results.read_bytes()
    chance = random.Random(1)
    for number in range(n_kills):
        process = subprocess.Popen(command(study_file, tmp_path / "out", "--quiet"))
        time.sleep(chance.uniform(0.3, 7))
        if number % 3 == 0:  # a cell alone
            own = subprocess.run(["pgrep", "-f", "cell_process"], capture_output=True, text=True, check=False)
            for pid in own.stdout.split():
                os.kill(int(pid), signal.SIGKILL)
        process.kill()
        process.wait()
    subprocess.run(command(study_file, tmp_path / "out", "--quiet"), check=True)
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == expected


class KilledError(BaseException):
    """Stands for SIGKILL."""


def test_a_line_of_the_results_is_that_of_an_undisturbed_run_to_the_byte(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = study_file.read_text().replace("seeds = 2", 'seeds = 1\nprompts = ["The dog"]')
    study_file.write_text(text.replace("[tokenizers.bytes]\nvocab_sizes = [257]\n", ""))
    expected = run_study(study_file, tmp_path / "whole", execute=InThisProcess())
    (result,) = Findings(expected.path).results
    assert sorted(result) == [
        "bits_per_byte", "cell", "classes", "context", "context_bytes", "flops", "inputs", "is_trial", "learning_rate",
        "model", "n_bytes", "n_ids", "n_scored_bytes", "n_scored_tokens", "n_steps", "n_tokens", "parameters",
        "samples", "seed", "tokenizer", "unigram_bits_per_byte",
    ]  # fmt: skip
    assert result["classes"]

    def kill_in(module: Any, name: str, when: Callable[..., bool]) -> None:
        """Kill the study in a function, before it does anything."""
        original = getattr(module, name)

        def killed(*arguments: Any, **options: Any) -> Any:
            if when(*arguments):
                raise KilledError
            return original(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(module, name, killed)
            with pytest.raises(KilledError):
                run_study(study_file, tmp_path / "out", execute=InThisProcess())

    n_steps = result["n_steps"]
    kill_in(trainer, "accumulate_gradients", lambda run, _: run.step == n_steps - 1)
    kill_in(trainer, "evaluate_if_due", lambda run, _: run.step == n_steps)  # after the last checkpoint
    kill_in(job, "score_documents", lambda *_: True)
    kill_in(job, "write_json", lambda path, _: path.name == "result.json")
    resumed = run_study(study_file, tmp_path / "out", execute=InThisProcess())
    assert resumed.results.read_bytes() == expected.results.read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_ends_and_the_same_command_resumes(study_file: Path, tmp_path: Path):
    text = study_file.read_text().replace("seeds = 2", "seeds = 1")
    study_file.write_text(text)
    process = subprocess.Popen(command(study_file, tmp_path / "out"), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "training bytes.mini.seed0" in line:
            break
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 130
    assert "run the same command again to resume" in rest
    resumed = run_study(study_file, tmp_path / "out", execute=InThisProcess())
    whole = run_study(study_file, tmp_path / "whole", execute=InThisProcess())
    assert resumed.results.read_bytes() == whole.results.read_bytes()
