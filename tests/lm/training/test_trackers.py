"""Trackers: what they receive, that they resume the same run, and that their failures do not stop training."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from bytemill.errors import MissingExtraError
from bytemill.lm.training.trainer import train

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.training.config import Resolved

    Settings = Callable[..., Resolved]


class FakeTracker:
    """Stands for a run of wandb and for the module trackio."""

    def __init__(self) -> None:
        self.started: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.n_finished = 0
        self.fails_at = -1

    def init(self, **options: Any) -> FakeTracker:
        self.started.append(options)
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        if step == self.fails_at:
            raise ConnectionError("no network")
        self.logged.append((step, values))

    def finish(self) -> None:
        self.n_finished += 1


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTracker:
    tracker = FakeTracker()
    for name in ("wandb", "trackio"):
        module = SimpleNamespace(init=tracker.init, log=tracker.log, finish=tracker.finish)
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    return tracker


@pytest.mark.parametrize(("name", "identity"), [("wandb", "id"), ("trackio", "name")])
def test_a_tracker_gets_the_numbers_and_a_resumed_run_continues_its_run(
    settings: Settings, fake: FakeTracker, name: str, identity: str
):
    always = {f"run__{name}": "stories", "run__log_every": 2, "run__checkpoint_every": 4}
    train(settings(**always, training__steps=4, schedule__name="constant"))
    assert [step for step, values in fake.logged if "train/loss" in values] == [2, 4]
    assert "validation/bits_per_byte" in fake.logged[-1][1]
    train(settings(**always, training__steps=6, schedule__name="constant"))
    assert [step for step, values in fake.logged if "train/loss" in values] == [2, 4, 6]
    first, second = fake.started
    assert first["project"] == "stories"
    assert first["config"]["training"]["steps"] == 4
    assert first[identity] == second[identity]
    assert second["resume"] == "allow"
    assert fake.n_finished == 2
    train(settings(**always, training__steps=2), overwrite=True)
    assert fake.started[-1][identity] != first[identity]


def test_a_tracker_that_fails_is_dropped_with_one_notice(settings: Settings, fake: FakeTracker):
    fake.fails_at = 4
    records: list[dict[str, Any]] = []
    train(
        settings(run__wandb="stories", run__trackio="stories", run__log_every=2, training__steps=8),
        on_record=records.append,
    )
    notices = [record["text"] for record in records if record["kind"] == "notice"]
    assert notices == [
        f"run.{name} is off from here on: ConnectionError: no network" for name in ("wandb", "trackio")
    ]
    assert {step for step, _ in fake.logged} == {2}
    assert records[-1]["kind"] == "end"


def test_a_missing_package_is_named_before_anything_is_read(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    resolved = settings(run__wandb="stories", data__train="no such folder")
    with pytest.raises(MissingExtraError) as raised:
        train(resolved)
    assert raised.value.hint == "install it with: pip install wandb"


def test_tensorboard_hides_the_steps_that_a_resumed_run_repeats(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    writers: list[FakeWriter] = []

    class FakeWriter:
        def __init__(self, folder: str, purge_step: int | None) -> None:
            self.folder, self.purge_step, self.scalars = folder, purge_step, list[tuple[str, int]]()
            writers.append(self)

        def add_scalar(self, name: str, _: float, step: int) -> None:
            self.scalars.append((name, step))

        def flush(self) -> None: ...

        def close(self) -> None: ...

    module: Any = SimpleNamespace(SummaryWriter=FakeWriter)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setitem(sys.modules, "tensorboard", module)
    for steps in (4, 6):
        train(settings(run__tensorboard=True, training__steps=steps, schedule__name="constant"))
    first, second = writers
    assert first.folder.endswith("tensorboard")
    assert first.purge_step is None
    assert second.purge_step == 5
    assert ("train/loss", 6) in second.scalars
