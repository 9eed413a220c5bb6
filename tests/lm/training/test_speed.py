"""The speed of training, and the note when it falls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bytemill.lm.training import run
from bytemill.lm.training.run import Speed

if TYPE_CHECKING:
    import pytest


def test_a_fall_below_half_of_the_fastest_rate_is_said_once_until_it_has_recovered(
    monkeypatch: pytest.MonkeyPatch,
):
    now = [0.0]
    monkeypatch.setattr(run.time, "perf_counter", lambda: now[0])
    speed = Speed(torch.device("cpu"), 1.0, None, n_tokens=0, total_tokens=10_000)

    def note_at(rate: float, n_tokens: int = 2000) -> str | None:
        speed.start()
        now[0] += n_tokens / rate
        speed.stop(n_tokens)
        speed.take(0.0)
        return speed.slowdown()

    notes = [note_at(rate) for rate in (900, 1000, 510, 490, 300, 700, 480, 760, 100)]
    assert [note is not None for note in notes] == [
        False,
        False,
        False,
        True,
        False,
        False,
        False,
        False,
        True,
    ]
    assert notes[3] == "the device has slowed down: 490 tokens/s, 49% of the fastest so far"
    note_at(1000)
    assert note_at(100, n_tokens=50) is None  # half a second says little
    monkeypatch.setattr(run, "are_cores_shared", lambda: True)
    note_at(1000)
    assert note_at(250) == "other programs use the cores: 250 tokens/s, 25% of the fastest so far"
