"""Running a study: equal documents, exact resuming, results that depend on the study alone, plans, object stores."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from bytemill.errors import BytemillError, StorageError
from bytemill.experiment import job, run_study
from bytemill.experiment.findings import Findings
from bytemill.experiment.inputs import StudyInputs, probe_rates
from bytemill.experiment.plan import plan_study
from bytemill.experiment.report import report, tasks_table
from bytemill.experiment.runner import Event
from bytemill.experiment.study import load_study
from bytemill.lm.benchmarks.evaluate import evaluate_task, load_tasks
from bytemill.lm.training import trainer
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.saved_model import load_trained
from bytemill.shards import TokenShards
from bytemill.storage import StoreFolder
from bytemill.tokenizer.tokenizer import Tokenizer

from .conftest import InThisProcess, edit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bytemill.experiment.job import Job
    from tests.support.s3_server import S3Server

ONE_SEED = ("seeds = 2", "seeds = 1")


def lines_of_seed_0(folder: Path) -> bytes:
    """Return the results of the cells of the first seed."""
    lines = (folder / "results.jsonl").read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if b".seed0" in line)


def test_every_arm_reads_the_same_text_in_the_same_order(finished: Path):
    texts: dict[int, set[bytes]] = {0: set(), 1: set()}
    for seed in (0, 1):
        for name in ("bytes", "own"):
            tokenizer = Tokenizer.load(finished / "tokenizers" / f"{name}.json")
            ids = TokenShards(finished / "shards" / name / f"seed{seed}")[:].tolist()
            texts[seed].add(tokenizer.decode_bytes(ids).replace(b"<|endoftext|>", b"\n"))
    assert [len(own) for own in texts.values()] == [1, 1]
    assert texts[0] != texts[1]
    (text,) = texts[0]
    assert 4000 <= len(text.replace(b"\n", b"")) + text.count(b"\n") <= 4000 + text.count(b"\n")
    findings = Findings(finished)
    assert findings.missing == []
    for result in findings.results:
        assert result["n_bytes"] <= 4000
        per_step = result["n_bytes"] / result["n_steps"]
        assert result["n_bytes"] + per_step > 4000 - per_step
        (metrics,) = read_metrics(finished / "cells" / result["cell"] / "run" / "metrics.jsonl", "step")[-1:]
        assert (metrics["step"], metrics["n_tokens"]) == (result["n_steps"], result["n_tokens"])


def test_models_are_scored_on_tasks_of_lm_eval(finished: Path) -> None:
    findings = Findings(finished)
    for result in findings.results:
        arc, gsm8k = result["tasks"]["ARC"], result["tasks"]["GSM8K"]
        trained = load_trained(finished / "cells" / result["cell"] / "run", "cpu")
        (items,) = load_tasks([f"arc={finished.parent / 'arc.jsonl'}"])
        assert arc == {"n_items": 3, "accuracy": evaluate_task(trained, items).accuracy}
        assert (gsm8k["n_items"], gsm8k["accuracy"]["strict"]) == (2, 0)
    head, *rows = tasks_table(findings, "mini")
    assert head[:4] == ("task", "items", "tokenizer", "accuracy")
    seeds = [own["tasks"]["ARC"]["accuracy"]["sum"] for own in findings.of_arm("mini", "own")]
    (row,) = (row for row in rows if row[0] == "ARC, sum" and row[2] == "own")
    assert row[3].startswith(f"{statistics.mean(seeds):.2%} ± ")
    assert row[4].startswith(("+", "-"))
    assert "Tasks: means over the seeds" in (finished / "report.html").read_text(encoding="utf-8")


def test_wrong_tasks_are_errors_before_anything_is_trained(study_file: Path, tmp_path: Path) -> None:
    for task, message in (("ark=arc.jsonl", "no task 'ark'"), ("arc", "file is missing"), ("arc=no", "no")):
        edit(study_file, ('tasks = ["arc=arc.jsonl", "gsm8k=sums.jsonl"]', f'tasks = ["{task}"]'))
        with pytest.raises(BytemillError, match=message):
            run_study(study_file, tmp_path / "out")
        edit(study_file, (f'tasks = ["{task}"]', 'tasks = ["arc=arc.jsonl", "gsm8k=sums.jsonl"]'))
    assert not (tmp_path / "out" / "cells").exists()


def test_models_are_scored_on_hellaswag_and_continue_prompts(finished: Path):
    for result in Findings(finished).results:
        assert result["hellaswag"]["n_items"] == 3
        assert 0 <= result["hellaswag"]["acc"] <= 1
        (sample,) = result["samples"]
        assert sample["prompt"] == "The dog"
        assert sample["text"]
    page = (finished / "report.html").read_text(encoding="utf-8")
    for expected in ("acc_norm", "What the models write", "<b>The dog</b>"):
        assert expected in page


def test_only_changed_cells_are_trained(study_file: Path, copied: Path, executor: InThisProcess):
    before = (copied / "results.jsonl").read_bytes()
    assert len(before.splitlines()) == 4
    run_study(study_file, copied, execute=executor)
    assert executor.performed == []
    assert (copied / "results.jsonl").read_bytes() == before
    run_study(edit(study_file, ONE_SEED, ("[270]", "[280]")), copied, execute=executor)
    assert executor.performed == ["own.mini.seed0"]
    run_study(edit(study_file, ("batch_size = 4", "batch_size = 8")), copied, execute=executor)
    assert executor.performed[1:] == ["bytes.mini.seed0", "own.mini.seed0"]


def test_other_validation_text_is_scored_without_training_again(
    study_file: Path, copied: Path, executor: InThisProcess, tmp_path: Path
):
    logs = {path: path.read_bytes() for path in sorted(copied.glob("cells/*.seed0/run/metrics.jsonl"))}
    before = Findings(copied).results[:2]
    (tmp_path / "code.txt").write_text("while True:\n    pass\n" * 20)
    run_study(edit(study_file, ONE_SEED), copied, execute=executor)
    assert executor.performed == ["bytes.mini.seed0", "own.mini.seed0"]
    assert {path: path.read_bytes() for path in logs} == logs
    for old, new in zip(before, Findings(copied).results, strict=True):
        assert old["bits_per_byte"]["stories"] == new["bits_per_byte"]["stories"]
        assert old["bits_per_byte"]["code"] != new["bits_per_byte"]["code"]


def test_a_cell_that_fails_is_reported_and_tried_again(study_file: Path, finished: Path, tmp_path: Path):
    executor = InThisProcess(known=finished)
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
    search = ("[budget]", "[learning_rate]\nsearch = [1e-6, 0.01]\nshare = 0.5\n[budget]")
    alone = ("[tokenizers.bytes]\nvocab_sizes = [257]\n", "")
    edit(study_file, ONE_SEED, ("[text]", '[text]\ntuning = ["tune.txt"]'), alone, search)
    findings = Findings(run_study(study_file, tmp_path / "out", execute=executor).path)
    assert len(findings.trials) == 4  # two rates, two seeds
    assert {choice.n for choice in findings.rate_choices.values()} == {2}
    (final,) = findings.results
    assert final["learning_rate"] == 0.01
    for trial in findings.trials:
        assert list(trial["bits_per_byte"]) == ["tuning"]
        assert trial["n_steps"] == final["n_steps"] // 2
        assert trial["flops"] == pytest.approx(final["flops"] * trial["n_steps"] / final["n_steps"])


@pytest.mark.parametrize(("rule", "amount"), [("tokens", "2000"), ("flops", "1e8"), ("time", "0.02")])
def test_other_budgets_are_equal_too(study_file: Path, tmp_path: Path, rule: str, amount: str):
    edit(study_file, ("seeds = 2", "seeds = [3]"), ("amount = 4000", f'equal = "{rule}"\namount = {amount}'))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.toml").touch()
    (tmp_path / "out" / "probe.json").write_text('{"bytes/mini": 100000, "own/mini": 50000}')
    planned: list[Job] = []

    def refuse(jobs: Iterator[Job]) -> Iterator[Event]:
        for own in jobs:
            planned.append(own)
            yield Event("failed", own.name, "not trained")

    run_study(study_file, tmp_path / "out", execute=refuse)
    assert len(planned) == 2
    for own in planned:
        assert len(TokenShards(own.settings["data.train"])) > own.facts["n_tokens"]
        assert (own.settings["training.seed"], own.facts["seed"]) == (3, 3)
    if rule == "time":
        assert [own.facts["n_tokens"] for own in planned] == [1920, 896]  # whole steps of 128
        return
    for own in planned:
        spent = own.facts["n_tokens" if rule == "tokens" else "flops"]
        assert float(amount) * (1 - 1 / own.facts["n_steps"]) - 1 <= spent <= float(amount)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("amount = 4000", "amount = 100", "fewer than the 128 of one step"),
        ("vocab_sizes = [257]", "vocab_sizes = [5000]", "the text supports"),
        ('["train.txt"]', '["nothing.txt"]', "nothing.txt"),
        ("", "", "holds files that are not of a study"),
    ],
)
def test_mistakes_are_found_before_a_model_is_trained(
    study_file: Path, executor: InThisProcess, tmp_path: Path, old: str, new: str, message: str
):
    if not old:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "notes.txt").touch()
    with pytest.raises(Exception, match=message):
        run_study(edit(study_file, (old, new)) if old else study_file, tmp_path / "out", execute=executor)
    assert executor.performed == []


class KilledError(BaseException):
    """Stands for SIGKILL."""


def test_a_line_of_the_results_is_that_of_an_undisturbed_run_to_the_byte(
    study_file: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    edit(study_file, ONE_SEED)
    result = Findings(finished).results[0]
    assert sorted(result) == [
        "bits_per_byte", "cell", "classes", "context", "context_bytes", "flops", "hellaswag", "inputs", "is_trial",
        "learning_rate", "model", "n_bytes", "n_ids", "n_scored_bytes", "n_scored_tokens", "n_steps", "n_tokens",
        "parameters", "samples", "seed", "tasks", "tokenizer", "unigram_bits_per_byte",
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
    assert resumed.results.read_bytes() == lines_of_seed_0(finished)


def command(study_file: Path, folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "bytemill", "experiment", "run", str(study_file), "-o", str(folder), *words]


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_ends_and_the_same_command_resumes(study_file: Path, finished: Path, tmp_path: Path):
    edit(study_file, ONE_SEED)
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
    assert resumed.results.read_bytes() == lines_of_seed_0(finished)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="platform: finds children in /proc")
def test_kills_anywhere_leave_the_same_results(study_file: Path, tmp_path: Path):
    # Sums depend on the number of threads, so the whole study runs in processes like the ones that are killed.
    subprocess.run(command(study_file, tmp_path / "whole", "--quiet"), check=True)
    chance = random.Random(1)
    for number in range(20):
        process = subprocess.Popen(command(study_file, tmp_path / "out", "--quiet"))
        time.sleep(chance.uniform(0.3, 7))
        if number % 3 == 0:  # cells alone
            for children in Path(f"/proc/{process.pid}/task").glob("*/children"):
                for pid in children.read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
        process.kill()
        process.wait()
    subprocess.run(command(study_file, tmp_path / "out", "--quiet"), check=True)
    results = [(tmp_path / name / "results.jsonl").read_bytes() for name in ("out", "whole")]
    assert results[0] == results[1]


# Plans: steps and FLOPs of the study that follows, measured speed, warnings.


def test_a_plan_is_what_the_study_takes(study_file: Path, finished: Path, tmp_path: Path):
    plan = plan_study(study_file, tmp_path / "out", probe=False)
    assert (plan.n_cells, plan.n_trials, plan.seconds) == (4, 0, None)
    findings = Findings(finished)
    for arm in plan.arms:
        for result in findings.results:
            if result["tokenizer"] == arm.tokenizer:
                assert result["n_steps"] == pytest.approx(arm.n_steps, abs=1)
                assert result["parameters"] == arm.parameters
        assert arm.tokens_per_parameter == arm.n_tokens / sum(arm.parameters.values())
    assert plan.flops == pytest.approx(sum(result["flops"] for result in findings.results), rel=0.1)
    assert plan.context_bytes == findings.grid["context_bytes"]
    first, second = plan.warnings
    start = "bytes with mini: 31 steps and 0.31 tokens per parameter are few. The loss may fall from 8.0"
    assert first.startswith(start)
    assert "get no verdict" in first
    assert second.startswith("own with mini: 19 steps")
    # More text, a higher rate, and a search of rates.
    (tmp_path / "tune.txt").write_text("The dog ate the cat. " * 20)
    more = "[learning_rate]\nsearch = [0.01, 0.03]\nshare = 0.5\n[train]"
    edit(study_file, ONE_SEED, ("amount = 4000", "amount = 100_000"), ("[train]", more))
    plan = plan_study(
        edit(study_file, ("[text]", '[text]\ntuning = ["tune.txt"]')), tmp_path / "out", probe=False
    )
    assert plan.n_trials == 2 * 2 * 2
    assert plan.trial_flops == pytest.approx(sum(arm.flops for arm in plan.arms) * 0.5 * 2 * 2)
    assert not [own for own in plan.warnings if "verdict" in own]
    assert any("reads the text" in own and "times" in own for own in plan.warnings)
    assert any("one seed gives no interval" in own for own in plan.warnings)
    assert plan.detectable is None


def test_speed_is_measured_once(study_file: Path, tmp_path: Path):
    edit(study_file, ("[tokenizers.bytes]\nvocab_sizes = [257]\n", ""))
    study_inputs = StudyInputs(load_study(study_file), tmp_path / "out", tmp_path)
    shown: list[str] = []
    rates = probe_rates(study_inputs, shown.append, n_steps=4)
    assert set(rates) == {("own", "mini")}
    assert all(rate > 0 for rate in rates.values())
    assert probe_rates(study_inputs, shown.append, n_steps=4) == rates
    assert len(shown) == 1


# Object stores: another machine runs what is missing, and shows it.


def test_another_machine_goes_on(
    study_file: Path, finished: Path, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
):
    edit(study_file, ONE_SEED)
    url = f"{s3.bucket()}/study"

    def stop(event: Event) -> None:
        if event.kind == "finished" and event.n_done == 1:
            raise KeyboardInterrupt

    def machine(name: str) -> InThisProcess:
        monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / name))
        return InThisProcess(known=finished)

    is_failing = s3.fault(
        lambda request: "403" if request.method == "PUT" and "/bytes." in request.path else None
    )
    with is_failing, pytest.raises(StorageError):  # a result is uploaded after its files
        run_study(study_file, url, execute=machine("zeroth"))
    assert not [name for name in StoreFolder(url).list() if name.endswith("result.json")]
    with pytest.raises(KeyboardInterrupt):
        run_study(study_file, url, execute=machine("first"), on_event=stop)
    executor = machine("second")
    assert len(Findings(url).missing) == 1
    folder = run_study(study_file, url, execute=executor)
    assert len(executor.performed) == 1
    assert folder.results.read_bytes() == lines_of_seed_0(finished)
    executor = machine("third")
    assert report(Findings(url)) == report(Findings(folder.path))
    names = StoreFolder(url).list()
    assert {"report.html", "results.jsonl", "study.toml", "study.json"} <= names.keys()
    assert not [name for name in names if "checkpoints" in name or name.startswith(("text/", "shards/"))]
    run_study(study_file, url, execute=executor)
    assert executor.performed == []


@pytest.mark.parametrize("name", ["/x/result.json", "../x/result.json", "cells/../../x.json", "a\\b.json"])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    store = SimpleNamespace(list=lambda: {"study.json": 1, name: 1})
    monkeypatch.setattr("bytemill.experiment.results.StoreFolder", lambda _: store)
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path))
    with pytest.raises(StorageError, match="which is no file of a study"):
        Findings("s3://bucket/study")
    assert list(tmp_path.iterdir()) == []
