"""GRPO as a run: what it learns, that it repeats itself exactly, and its errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from bytemill.errors import BytemillError, CheckpointError, CorpusError, RunConfigError
from bytemill.lm.model import TransformerLM
from bytemill.lm.training.config import config_to_toml
from bytemill.lm.training.metrics_log import MEASURED, read_metrics
from bytemill.lm.training.run_checkpoint import RunCheckpoint
from bytemill.lm.training.saved_model import find_saved_model
from bytemill.lm.tuning.rewards import REWARDS
from bytemill.lm.tuning.tune import tune

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.training.config import Resolved

    Make = Callable[..., Resolved]


def weights(run: Path) -> dict[str, torch.Tensor]:
    saved = find_saved_model(run)
    model = TransformerLM(saved.config.model)
    saved.load_weights(model)
    return {name: tensor.detach() for name, tensor in model.named_parameters()}


def records(run: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in record.items() if name not in MEASURED}
        for record in read_metrics(run / "metrics.jsonl")
    ]


def same(first: Path, second: Path) -> bool:
    a, b = weights(first), weights(second)
    return records(first) == records(second) and all(torch.equal(a[name], b[name]) for name in a)


def test_rewards_rise(settings: Make, tmp_path: Path) -> None:
    resolved = settings(
        "grpo",
        training__steps=80,
        optimizer__learning_rate=1e-3,
        tuning__prompts_per_step=16,
        run__sample_every=40,
        run__checkpoint_every=0,
    )
    tune(resolved)
    found = read_metrics(tmp_path / "run" / "metrics.jsonl", "rollout")
    early, late = ([record["reward"] for record in part] for part in (found[:15], found[-15:]))
    assert sum(late) / 15 > sum(early) / 15 + 0.1
    group = found[39]["group"]
    assert len(group["answers"]) == 8
    assert sum(answer["advantage"] for answer in group["answers"]) == pytest.approx(0, abs=1e-4)
    assert {"reward_error", "equal_groups", "cut_share", "clip_share", "entropy", "answer_tokens"} <= found[
        0
    ].keys()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tuning__updates": 2, "tuning__algorithm": "gspo", "tuning__kl_weight": 0.1},
        {"tuning__algorithm": "dr-grpo", "tuning__baseline": "leave-one-out", "training__batch_size": 5},
    ],
)
def test_a_run_that_was_stopped_repeats_itself(
    settings: Make, tmp_path: Path, options: dict[str, Any]
) -> None:
    tune(settings("grpo", run__folder=str(tmp_path / "whole"), **options))
    for n_steps in (2, 6):
        tune(settings("grpo", run__folder=str(tmp_path / "parts"), training__steps=n_steps, **options))
    assert same(tmp_path / "whole", tmp_path / "parts")
    changed = weights(tmp_path / "whole")
    assert any(not torch.equal(tensor, changed[name]) for name, tensor in weights(_base(settings)).items())


def test_a_reference_with_other_weights_is_refused(settings: Make, tmp_path: Path) -> None:
    options = {"tuning__kl_weight": 0.1, "training__steps": 1}
    tune(settings("grpo", **options))
    checkpoint = find_saved_model(tmp_path / "run").weights
    assert isinstance(checkpoint, RunCheckpoint)
    assert checkpoint.initial == find_saved_model(_base(settings)).weights_sha256
    more = options | {"training__steps": 2}
    with pytest.raises(CheckpointError, match="other weights than those that the run began with") as caught:
        tune(settings("grpo", **more, training__init_from=str(tmp_path / "run")))
    assert "--training.init-from RUN/checkpoints/STEP" in str(caught.value.hint)
    tune(settings("grpo", **more))


def _base(settings: Make) -> Path:
    return Path(settings("grpo").config.training.init_from)


@pytest.mark.slow  # stopping is like it, and test_trainer kills a run
def test_a_run_that_was_killed_repeats_itself(settings: Make, tmp_path: Path) -> None:
    options = {"training__steps": 30, "run__checkpoint_every": 3}
    tune(settings("grpo", run__folder=str(tmp_path / "whole"), **options))
    resolved = settings("grpo", run__folder=str(tmp_path / "killed"), **options)
    (tmp_path / "killed.toml").write_text(config_to_toml(resolved))
    threads = ["--threads", str(torch.get_num_threads()), "--quiet"]  # of sums, which depend on their number
    command = [sys.executable, "-m", "bytemill", "lm", "train", str(tmp_path / "killed.toml"), *threads]
    killed = subprocess.Popen(command, start_new_session=True)
    while not (tmp_path / "killed" / "checkpoints").exists():
        assert killed.poll() is None
        time.sleep(0.02)
    time.sleep(0.2)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    tune(resolved)
    assert same(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tuning__prompts": []}, "tuning.prompts is not set"),
        ({"tuning__group_size": 1}, "nothing to be compared with"),
        ({"tuning__max_tokens": 64}, "exceeds the context of 16 tokens"),
        ({"tuning__updates": 3}, "cannot be divided evenly among 3 updates"),
        ({"tuning__updates": 2, "tuning__algorithm": "rft"}, "ratio none"),
        ({"tuning__reward": "nice"}, "unknown reward 'nice'"),
        ({"tuning__reward": "nowhere.py:f"}, "there is no file nowhere.py"),
        ({"tuning__template": "{question}"}, "does not fit the row"),
        ({"training__init_from": ""}, "training.init_from is not set"),
        ({"training__precision": "float16"}, "does not scale its loss"),
        ({"training__accumulation": 2}, "training.accumulation has no meaning for grpo"),
    ],
)
def test_wrong_settings_are_errors_before_the_run(
    settings: Make, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BytemillError, match=message):
        tune(settings("grpo", **options))
    assert not (tmp_path / "run").exists()


def test_rows_that_cannot_be_used_are_errors(settings: Make, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for text, message in [
        ("\n", "contains no rows"),
        ('{"prompt": "1"}\n[]', "rows.jsonl:2 is not a JSON object"),
        ('{"prompt": "1"}\n\n{"prompt"', "rows.jsonl:3 is not JSON"),
        ('{"answer": "1"}', "does not fit the row"),
    ]:
        path.write_text(text)
        with pytest.raises(CorpusError, match=message):
            tune(settings("grpo", tuning__prompts=[str(path)]))


def test_a_reward_that_fails_is_shown_with_its_row(settings: Make, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def fails(prompt, answer, row): return 1 / 0\n"
        "def nan(prompt, answer, row): return float('nan')\n"
        "def parts(prompt, answer, row): return {'reward': len(answer), 'short': len(answer) < 2}\n"
    )
    mine = f"{tmp_path / 'mine.py'}:"
    with pytest.raises(RunConfigError, match=r"failed with ZeroDivisionError.*'prompt'"):
        tune(settings("grpo", tuning__reward=f"{mine}fails"))
    with pytest.raises(RunConfigError, match=r"returned {'reward': nan}"):
        tune(settings("grpo", tuning__reward=f"{mine}nan"), overwrite=True)
    tune(settings("grpo", tuning__reward=f"{mine}fails", tuning__reward_errors="zero"), overwrite=True)
    last = read_metrics(tmp_path / "run" / "metrics.jsonl", "rollout")[-1]
    assert (last["reward"], last["reward_failed"], last["no_signal"], last["equal_groups"]) == (0, 1, True, 1)
    tune(settings("grpo", tuning__reward=f"{mine}parts", training__steps=1), overwrite=True)
    last = read_metrics(tmp_path / "run" / "metrics.jsonl", "rollout")[-1]
    assert last["reward"] > 0
    assert 0 <= last["short"] <= 1


@pytest.mark.parametrize(
    ("name", "answer", "expected"),
    [
        ("number", " 72 ", 1), ("number", "72.0", 1), ("number", "It is 72", 0), ("number", "1,072", 0),
        ("gsm8k-strict", "7\n#### 72", 1), ("gsm8k-strict", "72", 0), ("gsm8k-strict", "#### 7\n#### 72", 1),
        ("gsm8k-flexible", "so 48+24 = 72.", 1), ("gsm8k-flexible", "72 or 73", 0), ("gsm8k-flexible", "none", 0),
        ("think-answer", "<think>a</think> <answer>72</answer>", 1), ("think-answer", "<answer>72</answer>", 0),
        ("think-answer", "<think>a</think><answer>x</answer>", 0),
    ],
)  # fmt: skip
def test_rewards(name: str, answer: str, expected: float) -> None:
    found = REWARDS[name]("?", answer, {"answer": "48+24=72\n#### 72"})
    assert (found if isinstance(found, float) else found["reward"]) == expected  # type: ignore[index]
