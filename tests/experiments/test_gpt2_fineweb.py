"""The study gpt2-fineweb: its miniature runs from text to the table, resumes, and checks the disk first."""

import importlib
import io
import json
import sys
from collections import namedtuple
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch

import bytemill
from bytemill.cli import main as command_line

ROOT = Path(__file__).resolve().parents[2]
STORIES = ROOT / "tests/data/tinystories.txt"


@pytest.fixture(autouse=True)
def _the_study_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "experiments/gpt2-fineweb")


def study() -> Any:
    return importlib.import_module("run")


@pytest.fixture(scope="module")
def base_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stand-in for GPT-2's tokenizer."""
    path = tmp_path_factory.mktemp("base") / "base.json"
    bytemill.train_from_iterator([STORIES.read_text(encoding="utf-8")[:50_000]], 400, ["<|endoftext|>"]).save(
        path
    )
    return path


class Calls:
    """Runs commands in this process; the one with index `fail_at` fails."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.commands: list[tuple[str, ...]] = []
        self._fail_at = fail_at

    def __call__(self, words: tuple[str, ...], output: Path | None) -> int:
        self.commands.append(words)
        if len(self.commands) - 1 == self._fail_at:
            return 1
        written = io.StringIO()
        with redirect_stdout(written), redirect_stderr(io.StringIO()):
            code = command_line(list(words))
        if output is not None:
            output.write_text(written.getvalue(), encoding="utf-8")
        return code


def words(folder: Path, tokenizer: Path, *more: str) -> list[str]:
    named = ("--tokenizer", str(tokenizer), "--vocab-size", "400", "--documents", "<|endoftext|>")
    return ["miniature", str(STORIES), "--folder", str(folder), *named, *more]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """For tiny models, a second thread costs more than it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_an_interrupted_study_resumes_and_ends_with_the_table(
    tmp_path: Path, base_tokenizer: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bytemill.lm.training.preparation.matmul_rate", lambda *_: 1e10)
    folder = tmp_path / "study"
    interrupted = Calls(fail_at=7)
    hellaswag = ("--hellaswag", str(items(tmp_path / "hellaswag.jsonl")))
    assert study().main(words(folder, base_tokenizer, *hellaswag), interrupted) == 1
    assert "stage 8 failed" in capsys.readouterr().err

    rest = Calls()
    assert study().main(words(folder, base_tokenizer, *hellaswag), rest) == 0
    assert [command[:2] for command in interrupted.commands[:7]] == [
        *[("tokenizer", "train")] * 2,
        ("data", "encode"),
        *[("data", "reencode")] * 4,
    ]
    assert [command[:2] for command in rest.commands] == [("lm", "train"), ("lm", "eval")] * 3
    table = (folder / "results.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out.endswith(table)
    rows = [row.split(" | ") for row in table.splitlines()[2:]]
    assert [row[0] for row in rows] == ["| gpt2", "| own-512", "| own-1k"]
    assert all(0 < float(row[3]) < 8 and "%" in row[5] for row in rows)
    scores = [
        json.loads((folder / f"{name}.scores.json").read_text()) for name in ("gpt2", "own-512", "own-1k")
    ]
    # All models are scored on the same bytes, except for the first token of each model.
    sizes = [text["n_bytes"] for score in scores for text in score["texts"].values()]
    assert max(sizes) - min(sizes) < 16

    nothing = Calls()
    assert study().main(words(folder, base_tokenizer, *hellaswag), nothing) == 0
    assert nothing.commands == []


def test_existing_shards_of_llm_c_replace_the_encoding(tmp_path: Path, base_tokenizer: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for name in ("edu_train_000001", "edu_val_000000"):
        made = tmp_path / name
        source = bytemill.Corpus([str(STORIES)], documents="<|endoftext|>", limit_bytes=20_000)
        tokenizer = bytemill.Tokenizer.load(base_tokenizer)
        bytemill.encode_corpus(tokenizer, source, made, layout="llmc", documents="<|endoftext|>")
        [shard] = made.glob("*.bin")
        shard.rename(old / f"{name}.bin")
    calls = Calls(fail_at=8)
    assert study().main(words(tmp_path / "study", base_tokenizer, "--shards", str(old)), calls) == 1
    assert [command[:2] for command in calls.commands[2:4]] == [("data", "convert")] * 2
    manifest = json.loads((tmp_path / "study/shards/own-1k/train/manifest.json").read_text())
    assert manifest["n_documents"] > 10


def test_a_dry_run_writes_nothing_and_names_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "study"
    calls = Calls()
    words = ["single-gpu", "web", "--folder", str(folder), "--dry-run", "--gpu", "rtx4090"]
    study().main(words, calls)
    out = capsys.readouterr().out
    assert out.count("\n      bytemill ") == 13
    assert "13 of 13 stages to do" in out
    assert not calls.commands
    assert not folder.exists()


def test_a_disk_that_is_too_small_is_refused_before_the_first_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")(10**12, 10**12 - 10**9, 10**9)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    calls = Calls()
    assert study().main(["full", "web", "--folder", str(tmp_path / "study"), "--devices", "8"], calls) == 1
    assert "1.00 GB are free" in capsys.readouterr().err
    assert not calls.commands


def test_more_gpus_shorten_the_estimate_of_training_alone() -> None:
    def seconds(devices: int) -> list[float]:
        options = study().parse(["full", "web", "--devices", str(devices)])
        return [stage.seconds for stage in study().stages(options)]

    one, eight = seconds(1), seconds(8)
    assert [a / b for a, b in zip(one, eight, strict=True)] == pytest.approx([1] * 7 + [8, 1] * 3)


COMMAND_THAT_SAVES = """
import os, signal, sys, time

def save(*_):
    time.sleep(0.3)
    print("saved", flush=True)
    sys.exit(130)

name, to = sys.argv[1:]
signal.signal(signal.Signals[name], save)
time.sleep(0.3)
for process in (os.getppid(), os.getpid()) if to == "both" else (os.getppid(),):
    os.kill(process, signal.Signals[name])
time.sleep(60)
"""


@pytest.mark.parametrize("signal_and_receiver", [("SIGINT", "both"), ("SIGTERM", "script")])
def test_a_signal_ends_the_command_after_it_has_saved(
    signal_and_receiver: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A terminal sends SIGINT to both processes; kill sends SIGTERM to the script alone.
    monkeypatch.setattr(study(), "COMMAND", (sys.executable, "-c", COMMAND_THAT_SAVES))
    assert study().bytemill(signal_and_receiver, tmp_path / "out") == 130
    assert (tmp_path / "out").read_text() == "saved\n"


def items(path: Path) -> Path:
    """Write two HellaSwag items."""
    item = {
        "ind": 0,
        "activity_label": "Play",
        "ctx": "A girl",
        "ctx_a": "A girl",
        "ctx_b": "",
        "split": "val",
    }
    item |= {"label": 1, "endings": ["runs.", "sleeps.", "eats a cake.", "sees a cat."], "source_id": "x"}
    path.write_text("".join(json.dumps({**item, "ind": i}) + "\n" for i in range(2)), encoding="utf-8")
    return path
