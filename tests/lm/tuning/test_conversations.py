"""Tuning on shards of conversations: which ids count, and losses against those written out by hand."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from bytemill.data.encode import encode_conversations
from bytemill.errors import BytemillError, RunConfigError, ShardError
from bytemill.lm.batches import JoinedShards, MarkedDocuments, PackedBatches, ShardBatches, inputs_and_targets
from bytemill.lm.model import TransformerLM
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.saved_model import find_saved_model
from bytemill.lm.tuning.tune import tune
from bytemill.tokenizer.tokenizer import Tokenizer

from .test_grpo import same, weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm.training.config import Resolved

    Make = Callable[..., Resolved]

TEMPLATE = (
    "{% for m in messages %}{{ {'user': 'Q', 'assistant': 'A'}[m.role] }}{{ m.content }}<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}A{% endif %}"
)
END = 256


def chat(*turns: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[n % 2], "content": turn} for n, turn in enumerate(turns)]


CHATS = [chat("1+1", "2"), chat("2", "3", "4+4", "8"), chat("0+3", "3"), chat("1", "a"), chat("4", "44")]
PAIRS = [("1+1", "2", "7"), ("2+2", "4", "5"), ("0+4", "4", "40"), ("3+0", "3", "x")]


@pytest.fixture(scope="session")
def shards(sums: Path) -> Path:
    """Folders `chats` and `pairs` of shards; other modules import this fixture, and find them made."""
    if (sums / "pairs").exists():
        return sums
    tok = Tokenizer.load(sums / "tok.json")
    tok.chat_template = TEMPLATE
    (sums / "chats.jsonl").write_text("".join(json.dumps({"messages": each}) + "\n" for each in CHATS))
    rows = [{"chosen": chat(prompt, good), "rejected": chat(prompt, bad)} for prompt, good, bad in PAIRS]
    (sums / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("chats", "pairs"):
        encode_conversations(tok, [sums / f"{name}.jsonl"], sums / name)
    return sums


def expected(conversation: list[dict[str, str]]) -> tuple[list[int], list[bool]]:
    """The ids of a conversation and its targets, by the rule of the template."""
    ids: list[int] = []
    mask: list[bool] = []
    for message in conversation:
        said = [*message["content"].encode(), END]
        ids += [ord("Q" if message["role"] == "user" else "A"), *said]
        mask += [False, *[message["role"] == "assistant"] * len(said)]
    return ids, mask


def base_log_probs(run: Path, ids: list[int]) -> list[float]:
    """log p of each id after the first, under the weights of a run."""
    saved = find_saved_model(run)
    model = TransformerLM(saved.config.model)
    saved.load_weights(model)
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([ids[:-1]])), -1)[0]
    return [float(row[token]) for row, token in zip(rows, ids[1:], strict=True)]


def test_windows_hold_whole_conversations_with_their_targets(shards: Path) -> None:
    batches = PackedBatches([shards / "chats"], 15, None, seed=1)
    windows = batches.windows(0, batches.n_windows)
    inputs, targets = inputs_and_targets(windows, "cpu")
    starts = MarkedDocuments(windows=windows).starts(inputs)
    found = []
    for row in range(batches.n_windows):
        for start in sorted(set(starts[row].tolist())):
            own = [t for t in range(15) if starts[row, t] == start]
            found.append(([int(inputs[row, t]) for t in own], [int(targets[row, t]) for t in own]))
    wanted = [expected(conversation) for conversation in CHATS]
    for ids, mask in wanted:
        # The last id of a window is a target alone; padding may follow the last conversation.
        (match,) = [own for seen, own in found if seen[: len(ids) - 1] == ids[:-1]]
        assert [max(target, -1) for target in match[: len(ids) - 1]] == [
            token if is_target else -1 for token, is_target in zip(ids[1:], mask[1:], strict=True)
        ]
    n = sum(sum(mask) for _, mask in wanted)
    assert batches.n_targets(0, batches.n_windows) == n == int((targets >= 0).sum())
    assert batches.padding_share == pytest.approx(1 - n / (15 * batches.n_windows))


def test_windows_of_the_stream_have_the_same_targets(shards: Path) -> None:
    batches = ShardBatches([shards / "chats"], 6, sequential=True)
    ids, mask = (np.concatenate(parts) for parts in zip(*map(expected, CHATS), strict=True))
    _, targets = inputs_and_targets(batches.windows(0, batches.n_windows), "cpu")
    flat = targets.flatten().tolist()
    wanted = [int(token) if own else -1 for token, own in zip(ids[1:], mask[1:], strict=True)]
    assert [max(target, -1) for target in flat] == wanted[: len(flat)]
    assert batches.n_targets(0, batches.n_windows) == sum(t >= 0 for t in flat)


def test_the_loss_is_the_mean_over_targets_or_over_conversations(
    shards: Path, settings: Make, tmp_path: Path
) -> None:
    losses = []
    for conversation in CHATS:
        ids, mask = expected(conversation)
        found = base_log_probs(shards / "base", ids)
        losses.append([-value for value, own in zip(found, mask[1:], strict=True) if own])
    everything = [value for own in losses for value in own]
    wanted = {
        "token": sum(everything) / len(everything),
        "sequence": sum(sum(own) / len(own) for own in losses) / len(losses),
    }
    options = {"data__train": [str(shards / "chats")], "training__steps": 1, "run__log_every": 1}
    n_windows = PackedBatches([shards / "chats"], 16, None).n_windows
    for mean, size in (("token", n_windows), ("sequence", len(CHATS))):
        tune(settings("sft", tuning__loss_mean=mean, training__batch_size=size, **options), overwrite=True)
        (record,) = read_metrics(tmp_path / "run" / "metrics.jsonl", "step")
        assert record["loss"] == pytest.approx(wanted[mean], abs=1e-5)


@pytest.mark.parametrize("mean", ["token", "sequence"])
def test_sft_learns_and_repeats_itself(shards: Path, settings: Make, tmp_path: Path, mean: str) -> None:
    options: dict[str, Any] = {
        "data__train": [str(shards / "chats")],
        "tuning__loss_mean": mean,
        "training__batch_size": 2,
        "run__log_every": 1,
        "optimizer__learning_rate": 3e-3,
    }
    tune(settings("sft", training__steps=30, run__folder=str(tmp_path / "whole"), **options))
    found = [record["loss"] for record in read_metrics(tmp_path / "whole" / "metrics.jsonl", "step")]
    assert sum(found[-5:]) < 0.6 * sum(found[:5])
    for n_steps in (14, 30):
        fixed = {"schedule__decay_steps": 30, "schedule__warmup_steps": 0}
        for folder, steps in (("a", 30), ("b", n_steps)):
            tune(
                settings("sft", training__steps=steps, run__folder=str(tmp_path / folder), **options, **fixed)
            )
    assert same(tmp_path / "a", tmp_path / "b")


def test_dpo_has_the_loss_of_the_formula(shards: Path, settings: Make, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "data__train": [str(shards / "pairs")],
        "training__batch_size": 3,
        "training__accumulation": 2,
        "run__log_every": 1,
        "schedule__name": "constant",
        "schedule__warmup_steps": 0,
        "optimizer__learning_rate": 1e-3,
        "tuning__beta": 0.5,
    }
    tune(settings("dpo", training__steps=1, run__folder=str(tmp_path / "one"), **options))
    first = read_metrics(tmp_path / "one" / "metrics.jsonl", "step")[0]
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)
    # The second step sees the weights of the first, which answer otherwise than the initial ones.
    tune(settings("dpo", training__steps=2, run__folder=str(tmp_path / "one"), **options))
    second = read_metrics(tmp_path / "one" / "metrics.jsonl", "step")[1]
    step_one = find_saved_model(tmp_path / "one" / "checkpoints" / "step_00000001").path
    margins = []
    for prompt, good, bad in PAIRS:
        sums = []
        for run in (step_one, shards / "base"):
            values = []
            for answer in (good, bad):
                ids, mask = expected(chat(prompt, answer))
                found = base_log_probs(run, ids)
                values.append(sum(value for value, own in zip(found, mask[1:], strict=True) if own))
            sums.append(values[0] - values[1])
        margins.append(0.5 * (sums[0] - sums[1]))
    # Six pairs of the second epoch's order: each of the four at least once.
    losses = [math.log1p(math.exp(-margin)) for margin in margins]
    assert min(losses) - 1e-6 <= second["loss"] <= max(losses) + 1e-6
    tune(settings("dpo", training__steps=40, run__folder=str(tmp_path / "more"), **options))
    last = read_metrics(tmp_path / "more" / "metrics.jsonl", "preference")[-1]
    assert last["accuracy"] == 1
    assert last["margin"] > 0.5
    tune(settings("dpo", training__steps=17, run__folder=str(tmp_path / "parts"), **options))
    tune(settings("dpo", training__steps=40, run__folder=str(tmp_path / "parts"), **options))
    assert same(tmp_path / "more", tmp_path / "parts")
    (tmp_path / "parts" / "reference.npz").write_bytes(b"x")
    with pytest.raises(BytemillError, match="damaged"):
        tune(settings("dpo", training__steps=41, run__folder=str(tmp_path / "parts"), **options))


def test_wrong_data_are_errors_before_the_run(shards: Path, settings: Make) -> None:
    chats, texts = (str(shards / name) for name in ("chats", "shards"))
    for method, values, message in [
        ("sft", {"data__train": [chats, texts]}, "are of texts, others of conversations"),
        ("sft", {"data__train": [chats], "data__packing": "stream"}, "needs whole conversations"),
        ("sft", {"data__train": [texts], "tuning__loss_mean": "sequence"}, "not of conversations"),
        ("sft", {"data__train": [texts]}, "every token would be a target"),
        (
            "sft",
            {"data__train": [chats], "model__context_length": 6, "tuning__loss_mean": "sequence"},
            "more than the context",
        ),
        ("dpo", {"data__train": [chats]}, "does not hold pairs"),
        ("dpo", {}, "data.train is not set"),
    ]:
        with pytest.raises((RunConfigError, ShardError), match=message):
            tune(settings(method, **values))


def test_validation_counts_targets_alone(shards: Path, settings: Make, tmp_path: Path) -> None:
    chats = str(shards / "chats")
    tune(
        settings(
            "sft", data__train=[chats], data__validation=[chats], training__steps=1, run__validate_every=1
        )
    )
    (record,) = read_metrics(tmp_path / "run" / "metrics.jsonl", "validation")
    tokens = JoinedShards([shards / "chats"])
    assert record["n_tokens"] < len(tokens)
    assert math.isfinite(record["loss"])
    assert weights(tmp_path / "run")
