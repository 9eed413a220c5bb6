"""The strategies of data parallelism train like one process, and send what they say."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import RankServer


def test_strategies_train_like_one_process(rank_server: "RankServer"):
    rank_server.check(2, "strategies_train_like_one_process", n_steps=2)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4])
def test_strategies_train_like_one_process_for_50_steps(rank_server: "RankServer", n: int):
    rank_server.check(n, "strategies_train_like_one_process", n_steps=50)


def test_strategies_send_what_they_say(rank_server: "RankServer"):
    rank_server.check(2, "strategies_send_what_they_say")
