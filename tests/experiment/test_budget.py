"""Budgets: whole steps that stay within what is equal, vocabularies padded alike, models of equal size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import RunConfigError
from bytemill.experiment.inputs import allowance, padded_sizes, with_equal_parameters
from bytemill.lm import preset
from bytemill.lm.planning import flops_per_token, n_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.experiment.inputs import Allowance

SHAPE = preset("tiny", vocab_size=1024)


@given(st.floats(1.0, 8.0), st.integers(1, 64), st.floats(1e6, 1e9))
def test_every_rule_stays_within_one_step_of_its_amount(
    bytes_per_token: float, batch_size: int, amount: float
):
    per_step = batch_size * SHAPE.context_length
    flops = flops_per_token(SHAPE)
    rules: tuple[tuple[Literal["bytes", "tokens", "flops"], float, Callable[[Allowance], float]], ...] = (
        ("bytes", amount, lambda own: own.n_tokens * bytes_per_token),
        ("tokens", amount, lambda own: own.n_tokens),
        ("flops", amount * flops, lambda own: own.n_tokens * flops),
    )
    for rule, given_amount, spent in rules:
        own = allowance(rule, given_amount, SHAPE, batch_size, bytes_per_token)
        one_step = spent(own) / own.n_steps
        assert own.n_tokens == own.n_steps * per_step
        assert given_amount - one_step <= spent(own) <= given_amount * (1 + 1e-9)
        assert own.flops == pytest.approx(own.n_tokens * flops)
    timed = allowance("time", 100, SHAPE, batch_size, bytes_per_token, tokens_per_second=amount)
    assert timed.n_tokens <= 100 * amount < timed.n_tokens + per_step


def test_a_budget_below_one_step_is_an_error():
    with pytest.raises(RunConfigError, match="fewer than the 256 of one step"):
        allowance("tokens", 255, SHAPE.replace(context_length=64), 4, 4.0)
    with pytest.raises(RunConfigError, match="of one step"):
        allowance("time", 10, SHAPE, 4, 4.0)


def test_vocabularies_are_padded_to_a_multiple_or_alike():
    assert padded_sizes({"a": 50257, "b": 64}, "multiple") == {"a": 50304, "b": 64}
    assert padded_sizes({"a": 50257, "b": 64}, "alike") == {"a": 50304, "b": 50304}


def test_equal_parameters_lower_the_feed_forward_width_alone():
    shapes = {
        name: preset("tinystories", vocab_size=size) for name, size in (("a", 2048), ("b", 4096), ("c", 5000))
    }
    equal = with_equal_parameters(shapes)
    assert equal["a"] == shapes["a"]
    for name, shape in equal.items():
        assert (
            abs(n_parameters(shape) - n_parameters(shapes["a"])) <= 8 * 3 * shape.d_model * shape.num_layers
        )
        assert shape.replace(d_ff=shapes[name].d_ff) == shapes[name]
    with pytest.raises(RunConfigError, match="no feed-forward width"):
        with_equal_parameters({"a": shapes["a"], "b": preset("tinystories", vocab_size=50_000)})
