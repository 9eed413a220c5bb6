"""The ledger: nothing is paid twice, the budget holds, branches equal whole runs, kills leave no trace."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from bytemill.errors import OutputError, ScalingError
from bytemill.scaling.ledger import Ledger
from bytemill.scaling.points import Chain, Point
from bytemill.system.locks import try_lock

from .conftest import InThisProcess, write_sweep

if TYPE_CHECKING:
    from pathlib import Path


def test_the_same_settings_are_trained_once(
    sweep_file: Path, tmp_path: Path, executor: InThisProcess
) -> None:
    ledger = Ledger(tmp_path / "out", sweep=sweep_file)
    settings = {"depth": 1, "tokens": 640}
    point = ledger.points.point(settings)
    assert ledger.cost([point]) == ledger.points.flops(point)
    ledger.run([point], execute=executor)
    (line,) = ledger.file.read_text().splitlines()
    first = ledger.loss(settings)
    assert first.bits_per_byte == json.loads(line)["bits_per_byte"]
    assert first.seconds is not None
    assert first.seconds > 0
    assert (first.n_tokens, first.flops) == (640, ledger.spent_flops)
    again = Ledger(tmp_path / "out")
    assert again.cost([point]) == 0
    again.run([point], execute=executor)
    assert executor.performed == [("v270.depth1.seed0.rate" + f"{point.chain.learning_rate:g}", [20])]
    assert again.loss(settings) == first


def test_lengths_of_a_chain_share_their_beginning(sweep_file: Path, tmp_path: Path) -> None:
    together, alone = Ledger(tmp_path / "a", sweep=sweep_file), Ledger(tmp_path / "b", sweep=sweep_file)
    points = [together.points.point({"depth": 1, "tokens": 32 * n}) for n in (10, 20, 30)]
    together.run(points, execute=InThisProcess())
    # Alone, the longest comes first, so that the others branch from the start instead of the trunk's checkpoints.
    for point in reversed(points):
        alone.run([point], execute=InThisProcess())
    assert together.file.read_bytes() == alone.file.read_bytes()
    # 24 steps of the trunk and decays of 2, 4 and 6 steps, instead of 60.
    per_step = 32 * together.points.flops_per_token(points[0].chain)
    assert together.spent_flops == pytest.approx(36 * per_step)
    bits = [outcome.bits_per_byte or 0 for outcome in together.outcomes]
    assert bits[0] > bits[2]


def test_what_exceeds_the_budget_is_refused_before_any_work(sweep_file: Path, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "out", budget_flops=1e8, sweep=sweep_file)
    with pytest.raises(ScalingError, match=r"would cost .* and 1e\+08 of 1e\+08 are left"):
        ledger.loss({"depth": 2, "flops": 2e8})
    assert not ledger.file.exists()
    assert not (tmp_path / "out" / "text").exists()


def test_one_process_at_a_time_uses_a_ledger(sweep_file: Path, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "out", sweep=sweep_file)
    lock = try_lock(tmp_path / "out" / "ledger.lock")
    assert lock is not None
    with lock, pytest.raises(OutputError, match="another process is using the ledger"):
        ledger.loss({"depth": 1, "tokens": 640})


def test_other_text_or_training_needs_another_folder(
    sweep_file: Path, tmp_path: Path, executor: InThisProcess
) -> None:
    ledger = Ledger(tmp_path / "out", sweep=sweep_file)
    ledger.run([ledger.points.point({"depth": 1, "tokens": 640})], execute=executor)
    more = {"depth": 1, "tokens": 1280}
    changed = write_sweep(tmp_path, ("batch_size = 2", "batch_size = 4"))
    with pytest.raises(ScalingError, match="runs with other settings of training"):
        Ledger(tmp_path / "out", sweep=changed)
    write_sweep(tmp_path)
    (tmp_path / "train.txt").write_text("Another text. " * 2000)
    with pytest.raises(ScalingError, match="other training text"):
        Ledger(tmp_path / "out", sweep=sweep_file).loss(more)


def test_a_run_that_diverges_is_recorded_and_named(
    sweep_file: Path, tmp_path: Path, executor: InThisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bytemill.errors import TrainingDivergedError
    from bytemill.scaling import chain_job

    def fail(*_: object, **__: object) -> None:
        raise TrainingDivergedError("the loss is not finite", hint="")

    monkeypatch.setattr(chain_job, "train", fail)
    ledger = Ledger(tmp_path / "out", sweep=sweep_file)
    assert ledger.run([ledger.points.point({"depth": 1, "tokens": 640})], execute=executor) == {}
    (outcome,) = Ledger(tmp_path / "out").outcomes
    assert ledger.file.read_text().count("diverged") == 1
    assert outcome.bits_per_byte is None
    assert outcome.problem == "diverged: the loss is not finite"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 1, "tokens": 31}, "fewer than the 32 of one step"),
        ({"depth": 1, "tokens": 64}, "fewer than the 2 of the warm-up"),
        ({"depth": 1}, "needs depth, and either flops or tokens"),
        ({"depth": 1, "tokens": 640, "flops": 1e9}, "needs depth, and either flops or tokens"),
        ({"depth": 1, "tokens": 640, "width": 3}, "unknown setting width"),
        ({"depth": -1, "tokens": 640}, "depth is -1"),
        ({"depth": 1, "tokens": 640, "vocab_size": 999}, "no vocabulary of 999"),
        ({"depth": 1, "tokens": 640, "learning_rate": 0}, "learning_rate 0"),
        ({"depth": 1, "tokens": float("inf")}, "inf tokens"),
    ],
)
def test_settings_that_are_no_run_are_refused(
    sweep_file: Path, tmp_path: Path, settings: dict[str, float], message: str
) -> None:
    with pytest.raises(ScalingError, match=message) as raised:
        Ledger(tmp_path / "out", sweep=sweep_file).loss(settings)
    assert raised.value.hint


def test_folders_and_lines_that_are_no_ledger_are_refused(sweep_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ScalingError, match="is no ledger"):
        Ledger(tmp_path / "none")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other").write_text("x")
    with pytest.raises(OutputError, match="not of a sweep"):
        Ledger(tmp_path / "full", sweep=sweep_file)
    ledger = Ledger(tmp_path / "out", sweep=sweep_file)
    ledger.file.write_text('{"depth": 1}\n')
    with pytest.raises(ScalingError, match=r"ledger\.jsonl:1"):
        Ledger(tmp_path / "out")


def test_the_cost_of_chains_does_not_depend_on_their_order(sweep_file: Path, tmp_path: Path) -> None:
    points = Ledger(tmp_path / "out", sweep=sweep_file).points
    some = [Point(Chain(270, depth, 0, 0.01), n) for depth in (1.0, 2.0) for n in (10, 35, 20)]
    shuffled = random.Random(0).sample(some, len(some))
    assert points.spent(some) == pytest.approx(points.spent(shuffled))
    assert points.spent(some) < sum(points.flops(point) for point in some)
    assert points.spent([*some, *some]) == points.spent(some)


@pytest.mark.slow
def test_several_processes_give_the_ledger_of_one(sweep_file: Path, tmp_path: Path) -> None:
    one, two = (Ledger(tmp_path / name, sweep=sweep_file) for name in ("one", "two"))
    points = [one.points.point({"depth": depth, "tokens": n}) for depth in (1, 2, 3) for n in (640, 960)]
    one.run(points, execute=InThisProcess())
    assert two.run(points, n_jobs=2) == {}
    assert one.file.read_bytes() == two.file.read_bytes()
