"""Training runs: they learn, resume bit for bit, and save when interrupted."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import bytemill
from bytemill.cli.lm_training import TrainingView
from bytemill.errors import (
    CheckpointError,
    NotEnoughMemoryError,
    OutputError,
    RunConfigError,
    ShardError,
    TrainingDivergedError,
)
from bytemill.lm.optim import AdamW
from bytemill.lm.training import preparation, trainer
from bytemill.lm.training.config import Resolved
from bytemill.lm.training.data import data_folders
from bytemill.lm.training.metrics_log import MEASURED, read_metrics
from bytemill.lm.training.run_checkpoint import OPTIMIZER, TRAINER, WEIGHTS
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.trainer import train

from .conftest import END, Corpus

Settings = Callable[..., Resolved]


def state_of(folder: RunFolder) -> dict[str, Any]:
    found = folder.load_newest()
    assert found is not None
    checkpoint = found.checkpoint
    moments = {}
    for path in (checkpoint.path / OPTIMIZER).glob("*"):
        moments.update(load_file(path))
    return {
        **checkpoint.trainer_state(),
        "model": load_file(checkpoint.path / WEIGHTS),
        "moments": moments,
        "iteration": checkpoint.step,
        "fingerprint": checkpoint.fingerprint,
    }


def metrics_of(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the records without values that depend on the clock."""
    return [
        {key: value for key, value in record.items() if key not in MEASURED}
        for record in read_metrics(folder.metrics)
    ]


def same_run(one: RunFolder, other: RunFolder) -> bool:
    a, b = state_of(one), state_of(other)
    assert metrics_of(one) == metrics_of(other)
    assert a["model"].keys() == b["model"].keys()
    assert all(torch.equal(a["model"][name], b["model"][name]) for name in a["model"])
    assert a["moments"].keys() == b["moments"].keys()
    assert all(torch.equal(a["moments"][name], b["moments"][name]) for name in a["moments"])
    return all(a[name] == b[name] for name in ("optimizer", "batches", "generators", "recent"))


def test_a_sample_never_ends_a_run(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], {END: 1000})
    tokenizer.save(tmp_path / "gap.json")
    bytemill.encode_corpus(
        tokenizer, bytemill.Corpus.from_texts(["Hello, world. " * 20]), tmp_path / "shards"
    )
    resolved = settings(
        data__tokenizer=str(tmp_path / "gap.json"),
        data__train=str(tmp_path / "shards"),
        data__validation=(),
        model__vocab_size=1003,
        training__steps=2,
        run__sample_every=1,
        run__sample_prompt="Hello",
    )
    folder = train(resolved)
    assert [set(record) for record in read_metrics(folder.metrics, "sample")] == [
        {"kind", "step", "prompt", "text"}
    ] * 2

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(trainer, "generate", fail)
    folder = train(resolved, overwrite=True, on_record=TrainingView(quiet=False))
    assert "step 2: no sample: RuntimeError: no luck" in capsys.readouterr().err
    samples = read_metrics(folder.metrics, "sample")
    assert [(each["text"], each["error"]) for each in samples] == [("", "RuntimeError: no luck")] * 2
    assert state_of(folder)["iteration"] == 2


def test_the_loss_falls_and_every_record_is_written(settings: Settings, corpus: Corpus):
    records: list[dict[str, Any]] = []
    resolved = settings(
        training__steps=60,
        optimizer__learning_rate=1e-2,
        run__log_every=10,
        run__validate_every=30,
        run__sample_every=60,
        run__sample_prompt="The",
    )
    folder = train(resolved, on_record=records.append)
    steps = read_metrics(folder.metrics, "step")
    assert [record["step"] for record in steps] == [10, 20, 30, 40, 50, 60]
    assert steps[-1]["loss"] < 0.5 * steps[0]["loss"]
    for record in steps:
        assert record["n_tokens"] == record["step"] * 4 * 16
        assert record["learning_rate"] > 0
        assert all(record[name] > 0 for name in MEASURED & record.keys() - {"seconds_left"})
        assert 0 < record["bits_per_byte"] < record["loss"] / math.log(2)
    validations = read_metrics(folder.metrics, "validation")
    assert [record["step"] for record in validations] == [30, 60]
    assert validations[1]["bits_per_byte"] < validations[0]["bits_per_byte"]
    assert validations[1]["perplexity"] == pytest.approx(math.exp(validations[1]["loss"]))
    (sample,) = read_metrics(folder.metrics, "sample")
    assert sample["prompt"] == "The"
    assert sample["text"]
    kinds = [record["kind"] for record in records]
    assert kinds[0] == "start"
    assert kinds[-1] == "end"
    assert kinds.index("checkpoint") < kinds.index("validation")  # saved before the evaluation
    assert bytemill.Tokenizer.load(folder.tokenizer).fingerprint == corpus.tokenizer.fingerprint
    assert tomllib.loads(folder.config.read_text())["training"]["steps"] == 60
    assert len(folder.checkpoint_files()) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"training__accumulation": 3},
        {"optimizer__name": "muon"},
        {"model__dropout": 0.2},
        {"training__precision": "float16"},
    ],
)
def test_stopped_and_resumed_is_bit_for_bit_the_same(
    settings: Settings, tmp_path: Path, options: dict[str, Any]
):
    always = {
        **options,
        "training__steps": 14,
        "run__log_every": 4,
        "run__checkpoint_every": 5,
        "run__validate_every": 7,
        "run__sample_every": 7,
    }
    whole = train(settings(**always, run__folder=str(tmp_path / "whole")))

    def stop_at(step: int) -> Callable[[dict[str, Any]], None]:
        def look(record: dict[str, Any]) -> None:
            if record["kind"] == "checkpoint" and record["step"] >= step:
                raise RuntimeError("the power fails")

        return look

    parts = settings(**always, run__folder=str(tmp_path / "parts"))
    for step in (5, 7):
        with pytest.raises(RuntimeError, match="power"):
            train(parts, on_record=stop_at(step))
    torch.rand(7)  # other use of the global generator in the process
    assert same_run(train(parts), whole)


PROGRAM = """
import json
import sys
import torch
torch.set_num_threads(1)
from bytemill.lm.training.config import resolve
from bytemill.lm.training.trainer import train
def show(record):
    print(record["kind"], record["step"], bool({"ray", "torch._dynamo"} & sys.modules.keys()), flush=True)
train(resolve([("file", json.loads(sys.argv[1]))]), on_record=show)
"""


def in_a_process(config: dict[str, Any]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps(config)], stdout=subprocess.PIPE, text=True
    )


def test_killed_in_the_middle_and_resumed_is_bit_for_bit_the_same(settings: Settings, tmp_path: Path):
    always = {
        "training__steps": 60,
        "training__accumulation": 2,
        "run__log_every": 3,
        "run__checkpoint_every": 5,
        "run__validate_every": 20,
        "model__dropout": 0.1,
    }
    killed_settings = settings(**always, run__folder=str(tmp_path / "killed")).config.to_dict()
    flat = {
        f"{section}.{name}": value for section, own in killed_settings.items() for name, value in own.items()
    }
    whole = settings(**always, run__folder=str(tmp_path / "whole"))
    process = in_a_process(flat)
    assert process.stdout is not None
    for line in process.stdout:
        kind, step, has_more = line.split()
        assert has_more == "False", (
            "ray or torch's compiler was imported, which takes seconds and serves nobody"
        )
        if kind == "step" and int(step) > 12:
            os.kill(process.pid, signal.SIGKILL)
            break
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    killed = RunFolder(tmp_path / "killed")
    assert killed.lock.exists()  # the system released the lock with the process
    stopped_at = state_of(killed)["iteration"]
    assert 10 <= stopped_at < 60
    resumed = train(settings(**always, run__folder=str(killed.path)))
    assert state_of(resumed)["iteration"] == 60
    assert same_run(resumed, train(whole))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_save_first(settings: Settings, tmp_path: Path, number: signal.Signals):
    def interrupt(record: dict[str, Any]) -> None:
        if record["kind"] == "step" and record["step"] == 3:
            os.kill(os.getpid(), number)

    resolved = settings(training__steps=8, run__log_every=1, run__checkpoint_every=0, run__validate_every=0)
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        train(resolved, on_record=interrupt)
    assert signal.getsignal(number) is before
    assert state_of(RunFolder(tmp_path / "run"))["iteration"] in (3, 4)
    whole = settings(
        training__steps=8,
        run__log_every=1,
        run__checkpoint_every=0,
        run__validate_every=0,
        run__folder=str(tmp_path / "w"),
    )
    assert same_run(train(resolved), train(whole))


def test_only_the_newest_checkpoints_are_kept(settings: Settings):
    folder = train(
        settings(training__steps=10, run__checkpoint_every=2, run__keep_checkpoints=3, run__validate_every=0)
    )
    assert [path.name for path in folder.checkpoint_files()] == [f"step_{step:08d}" for step in (10, 8, 6)]


@pytest.mark.parametrize("damaged", [WEIGHTS, TRAINER])
def test_a_truncated_checkpoint_is_skipped_for_the_one_before(
    settings: Settings, tmp_path: Path, damaged: str
):
    always = {
        "training__steps": 12,
        "run__checkpoint_every": 4,
        "run__validate_every": 0,
        "run__log_every": 4,
    }
    whole = train(settings(**always, run__folder=str(tmp_path / "whole")))
    folder = train(settings(**always))
    newest = folder.checkpoint_files()[0]
    os.truncate(newest / damaged, (newest / damaged).stat().st_size // 2)
    records: list[dict[str, Any]] = []
    again = train(settings(**always), on_record=records.append)
    assert records[0]["resumed_from"].endswith("step_00000008")
    assert f"{damaged} is damaged" in records[0]["refused"][0]
    assert same_run(again, whole)
    for path in folder.checkpoint_files():
        (path / WEIGHTS).write_bytes(b"")
    with pytest.raises(CheckpointError, match="no checkpoint in") as caught:
        train(settings(**always))
    assert "--overwrite" in (caught.value.hint or "")


def test_resuming_with_other_settings_or_another_tokenizer_is_refused(settings: Settings, tmp_path: Path):
    train(settings(training__steps=2))
    with pytest.raises(
        CheckpointError, match=r"model\.num_layers is 1 and was 2; optimizer\.beta2 is 0\.9 and was 0\.95"
    ):
        train(settings(training__steps=2, model__num_layers=1, optimizer__beta2=0.9))
    other = bytemill.train_from_iterator(["abcabc"], 258, ["<|endoftext|>"])
    other.save(tmp_path / "other.json")
    bytemill.encode_corpus(other, bytemill.Corpus.from_texts(["abcabc" * 50]), tmp_path / "shards")
    with pytest.raises(ShardError, match="another tokenizer"):
        train(settings(data__tokenizer=str(tmp_path / "other.json")))
    changed = settings(
        training__steps=2,
        data__tokenizer=str(tmp_path / "other.json"),
        data__train=str(tmp_path / "shards"),
        data__validation=[],
    )
    with pytest.raises(CheckpointError, match="trained with another tokenizer"):
        train(changed)
    assert state_of(train(changed, overwrite=True))["fingerprint"] == other.fingerprint


def test_more_steps_continue_a_finished_run_and_equal_steps_do_nothing(settings: Settings):
    folder = train(settings(training__steps=4, schedule__name="constant"))
    before = folder.checkpoint_files()[0].stat().st_mtime_ns
    records: list[dict[str, Any]] = []
    train(settings(training__steps=4, schedule__name="constant"), on_record=records.append)
    assert [record["kind"] for record in records] == ["start", "end"]
    assert folder.checkpoint_files()[0].stat().st_mtime_ns == before
    assert state_of(train(settings(training__steps=6, schedule__name="constant")))["iteration"] == 6


def test_losses_that_are_not_finite_are_skipped_and_several_stop_the_run(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    real = trainer.accumulate_gradients
    bad = {3, 5}

    def sometimes(run: Any, compute_loss: Any) -> tuple[Any, int, Any]:
        loss, n_tokens, n_bytes = real(run, compute_loss)
        if run.step in bad:
            for parameter in run.model.parameters():
                parameter.grad.fill_(math.nan)
            return math.nan, n_tokens, n_bytes
        return loss, n_tokens, n_bytes

    monkeypatch.setattr(trainer, "accumulate_gradients", sometimes)
    folder = train(settings(training__steps=8, run__log_every=1, run__checkpoint_every=2))
    skipped = read_metrics(folder.metrics, "skipped")
    assert [(record["step"], record["loss"], record["n_consecutive"]) for record in skipped] == [
        (4, None, 1),
        (6, None, 1),
    ]
    assert [record["step"] for record in read_metrics(folder.metrics, "step")] == [1, 2, 3, 5, 7, 8]
    assert all(tensor.isfinite().all() for tensor in state_of(folder)["model"].values())
    bad.update(range(9, 100))
    with pytest.raises(TrainingDivergedError, match=r"in 3 consecutive steps up to step 12.*step_0000001\d"):
        train(
            settings(training__steps=50, run__log_every=1, run__checkpoint_every=2, training__max_bad_steps=3)
        )


@pytest.mark.parametrize("bad", [set(), {2, 3, 6}])
def test_reading_numbers_one_step_late_changes_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, bad: set[int]
):
    real = trainer.accumulate_gradients
    late: list[int] = []

    def sometimes(run: Any, compute_loss: Any) -> tuple[Any, int, Any]:
        loss, n_tokens, n_bytes = real(run, compute_loss)
        late.append(run.step - run.n_tokens // n_tokens)
        if run.step in bad:
            for parameter in run.model.parameters():
                parameter.grad.fill_(math.nan)
        return loss, n_tokens, n_bytes

    monkeypatch.setattr(trainer, "accumulate_gradients", sometimes)
    found: list[Any] = []
    for can_skip in (False, True):  # True on a GPU
        monkeypatch.setattr(AdamW, "can_skip", can_skip)
        folder = train(settings(training__steps=10, run__log_every=5), overwrite=True)
        kept = ("kind", "step", "loss", "grad_norm", "bits_per_byte", "n_tokens", "n_consecutive")
        records = [
            {name: record.get(name) for name in kept}
            for kind in ("step", "skipped")
            for record in read_metrics(folder.metrics, kind)
        ]
        state = state_of(folder)
        found.append((records, state["model"], state["moments"], list(late)))
        late.clear()
    (records, weights, moments, in_time), (late_records, late_weights, late_moments, one_late) = found
    assert set(in_time) == {0}
    assert set(one_late) == {0, 1}
    assert records == late_records
    assert sum(record["kind"] == "skipped" for record in records) == len(bad)
    for own, other in ((weights, late_weights), (moments, late_moments)):
        assert all(torch.equal(own[name], other[name]) for name in own)


def test_a_folder_with_other_files_is_refused(settings: Settings, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.toml").write_text("precious")
    with pytest.raises(OutputError, match="not those of a run"):
        train(settings(training__steps=1))
    assert (tmp_path / "run/config.toml").read_text() == "precious"


def test_a_folder_locked_by_another_process_is_refused(settings: Settings, tmp_path: Path):
    resolved = settings(training__steps=2, run__validate_every=0)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    for overwrite in (False, True):
        with pytest.raises(OutputError, match=r"another process is training in .*run") as caught:
            train(resolved, overwrite=overwrite)
        assert "another folder" in (caught.value.hint or "")
    assert sorted(path.name for path in folder.path.iterdir()) == ["run.lock"]
    process.kill()
    process.communicate()
    assert folder.lock.exists()
    train(resolved)
    assert not folder.lock.exists()


HOLDER = """
import sys
from pathlib import Path
from bytemill.system.locks import try_lock
lock = try_lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""  # like `RunFolder.locked`, without the import of torch


def test_missing_settings_are_named(settings: Settings, tmp_path: Path):
    with pytest.raises(RunConfigError, match=r"data\.tokenizer is not set"):
        train(settings(data__tokenizer=""))
    with pytest.raises(RunConfigError, match=r"data\.train is not set"):
        train(settings(data__train=[]))
    with pytest.raises(ShardError, match="too few"):
        train(settings(model__context_length=100_000))
    plain = bytemill.train_from_iterator(["abcabc"], 257, [])
    plain.save(tmp_path / "plain.json")
    bytemill.encode_corpus(plain, bytemill.Corpus.from_texts(["abc" * 20]), tmp_path / "shards")
    data = {"data__tokenizer": str(tmp_path / "plain.json"), "data__train": str(tmp_path / "shards")}
    with pytest.raises(RunConfigError, match="the prompt is empty") as caught:
        train(settings(**data, run__sample_every=50))
    assert "--run.sample-prompt" in (caught.value.hint or "")
    with pytest.raises(RunConfigError, match="unknown device"):
        train(settings(training__device="nothing"))


def test_a_run_in_bfloat16_learns(settings: Settings):
    folder = train(
        settings(training__steps=20, training__precision="bfloat16", optimizer__learning_rate=1e-2)
    )
    first, last = read_metrics(folder.metrics, "step")
    assert last["loss"] < first["loss"]
    assert all(tensor.dtype == torch.float32 for tensor in state_of(folder)["model"].values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_model_gives_the_same_losses(settings: Settings, tmp_path: Path):
    plain = train(settings(training__steps=5, run__log_every=1))
    compiled = train(
        settings(
            training__steps=5,
            run__log_every=1,
            training__compile=True,
            run__folder=str(tmp_path / "compiled"),
        )
    )
    losses = [
        [record["loss"] for record in read_metrics(folder.metrics, "step")] for folder in (plain, compiled)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.gpu
def test_on_an_accelerator_it_learns_and_resumes(settings: Settings):
    always = {"training__device": "cuda", "run__checkpoint_every": 10, "schedule__name": "constant"}
    folder = train(settings(training__steps=20, **always))
    train(settings(training__steps=40, **always))
    losses = [record["loss"] for record in read_metrics(folder.metrics, "step")]
    assert len(losses) == 4
    assert losses[-1] < losses[0]


def test_a_split_folder_gives_training_and_validation_data(settings: Settings, corpus: Corpus):
    split = settings(training__steps=2, data__train=str(corpus.folder), data__validation=[])
    assert data_folders(split.config.data) == (
        [corpus.folder / "train"],
        {"validation": [corpus.folder / "validation"]},
    )
    assert read_metrics(train(split).metrics, "validation")


def test_the_same_data_at_another_path_resumes(
    settings: Settings, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    constant = {"schedule__name": "constant"}
    train(settings(training__steps=2, **constant))
    shutil.copytree(corpus.folder, tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    data = {"tokenizer": "tokenizer.json", "train": "train", "validation": "named=validation"}
    records: list[dict[str, Any]] = []
    moved = settings(training__steps=4, **constant, **{f"data__{key}": path for key, path in data.items()})
    folder = train(moved, on_record=records.append)
    assert records[0]["resumed_from"] == str(folder.checkpoint_path(2))
    whole = train(settings(training__steps=4, **constant, run__folder=str(tmp_path / "whole")))
    one, other = (load_file(run.checkpoint_path(4) / WEIGHTS) for run in (folder, whole))
    assert all(one[name].equal(other[name]) for name in other)


@pytest.mark.parametrize("role", ["training", "validation"])
def test_resuming_names_the_shard_that_was_replaced(
    settings: Settings, corpus: Corpus, tmp_path: Path, role: str
):
    option = {"training": "train", "validation": "validation"}[role]
    shards = shutil.copytree(corpus.folder / option, tmp_path / "shards")
    resolved = settings(training__steps=2, **{f"data__{option}": str(shards)})
    train(resolved)
    shutil.rmtree(shards)
    words = corpus.text.split(" ")
    text = " ".join([words[1], words[0], *words[2:]])
    bytemill.encode_corpus(corpus.tokenizer, bytemill.Corpus.from_texts([text]), shards, shard_tokens=100_000)
    with pytest.raises(
        CheckpointError, match=rf"the {role} data has changed .*shards/shard_00000\.npy has other content"
    ) as caught:
        train(resolved)
    assert "--overwrite" in (caught.value.hint or "")


def test_a_batch_too_large_for_the_machine_says_what_to_lower(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(preparation, "total_memory", lambda: 50_000_000)
    with pytest.raises(
        NotEnoughMemoryError, match=r"10,000 sequences of 16 tokens needs at least .* the machine has 50"
    ) as caught:
        train(settings(training__steps=1, training__batch_size=10_000))
    hint = caught.value.hint or ""
    assert "--training.batch-size, --model.context-length or --model.num-layers" in hint
    largest = int(hint.rsplit(" ", 1)[1].replace(",", ""))
    assert 1 <= largest < 10_000
    train(settings(training__steps=1, training__batch_size=min(largest, 64)))


def test_a_failed_allocation_says_what_to_lower(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preparation, "total_memory", lambda: None)
    with pytest.raises(NotEnoughMemoryError, match="not enough memory") as caught:
        train(settings(training__steps=1, training__batch_size=1 << 44))
    assert "--training.batch-size" in (caught.value.hint or "")
