"""The profile of a training step: its parts add up, and what is counted equals what is planned."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import RunConfigError
from bytemill.lm import ModelConfig
from bytemill.lm.planning import step_flops
from bytemill.lm.training.config import Resolved
from bytemill.lm.training.launch import profile_on_devices
from bytemill.lm.training.step_profile import (
    StepProfile,
    by_part,
    counted_flops,
    merged,
    overlap,
    profile_step,
)
from bytemill.lm.training.trainer import PHASES
from tests.lm.test_planning import SMALL, VARIANTS

Settings = Callable[..., Resolved]
INTERVALS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda pair: (pair[0], pair[0] + pair[1]))
)


@pytest.mark.parametrize("variant", VARIANTS)
def test_counted_flops_are_those_of_the_plan(variant: dict[str, Any]) -> None:
    config = ModelConfig(**{**SMALL, **variant})
    assert counted_flops(config) == {**by_part(step_flops(config)), "other": 0}


@given(left=INTERVALS, right=INTERVALS)
def test_overlap_of_unions_is_the_time_in_both(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    inside = [
        {moment for start, end in intervals for moment in range(start, end)} for intervals in (left, right)
    ]
    assert merged(left) == merged(merged(left))
    assert sum(end - start for start, end in merged(left)) == len(inside[0])
    assert overlap(merged(left), merged(right)) * 1e6 == pytest.approx(len(inside[0] & inside[1]))


def test_a_profile_accounts_for_the_whole_step(settings: Settings, tmp_path: Path) -> None:
    resolved = settings(optimizer__ema_decay=0.9)
    trace = tmp_path / "step.json"
    profile = profile_step(resolved, n_steps=2, n_warmup=1, trace=trace)
    assert not (tmp_path / "run").exists()
    assert list(profile.phases) == [*PHASES, "other"]
    assert sum(profile.phases.values()) == pytest.approx(profile.seconds)
    assert all(profile.phases[phase] > 0 for phase in PHASES)
    assert profile.communication is None
    training = resolved.config.training
    assert (
        profile.tokens_per_step
        == training.batch_size * training.accumulation * resolved.config.model.context_length
    )
    # What a step keeps is exactly what is planned; what it saves differs by what the kernels keep.
    for part in ("parameters", "gradients", "optimizer", "average"):
        assert profile.memory[part] == profile.planned_memory[part]
    assert profile.memory["saved for the backward pass"]
    assert profile.flops == {**profile.planned_flops, "other": 0}
    assert sum(profile.phase_flops.values()) == sum(profile.planned_flops.values())
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert sum(event["name"] == "step" for event in events if event.get("ph") == "X") == 2


def test_checkpointing_saves_less(settings: Settings) -> None:
    saved = [
        profile_step(settings(training__activation_checkpointing=name), n_steps=1, n_warmup=1).memory[
            "saved for the backward pass"
        ]
        for name in ("none", "full", "selective")
    ]
    assert saved[2] is None
    assert saved[1] is not None
    assert saved[0] is not None
    assert saved[1] < saved[0] / 2


def test_a_finished_run_is_profiled_as_it_was_and_not_changed(settings: Settings, tmp_path: Path) -> None:
    from bytemill.lm.training.trainer import train

    resolved = settings(training__steps=2, run__checkpoint_every=2)
    train(resolved)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    profile_step(resolved, n_steps=1, n_warmup=1)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before


def test_settings_that_cannot_be_trained_are_errors(settings: Settings) -> None:
    with pytest.raises(RunConfigError, match="divided evenly"):
        profile_on_devices(settings(training__batch_size=3), 2)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["bucketed", "fully_sharded", "ddp"])
def test_messages_are_hidden_or_exposed(settings: Settings, strategy: str) -> None:
    resolved = settings(training__strategy=strategy, training__bucket_mb=0.01)
    profile = profile_on_devices(resolved, 2, n_steps=2, n_warmup=1)
    assert profile is not None
    assert StepProfile.from_dict(json.loads(json.dumps(profile.to_dict()))) == profile
    sent = profile.communication
    assert sent is not None
    assert sent.n_messages >= 1
    assert 0 <= sent.exposed_seconds <= sent.seconds
    halves = strategy == "fully_sharded"
    parameters = profile.memory["parameters"]
    assert parameters is not None
    assert parameters / profile.planned_memory["parameters"] == pytest.approx(0.5 if halves else 1, abs=0.05)
