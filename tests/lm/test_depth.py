"""A depth alone sets the shape, the learning rate, the batch and the steps of a run."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import RunConfigError
from bytemill.lm.depth import depth_settings, depth_shape
from bytemill.lm.planning import flops_per_token, n_parameters
from bytemill.lm.training.config import config_to_toml, file_layer, resolve

DEPTH = {"model.depth": 3, "model.vocab_size": 500, "model.context_length": 64}


@given(depth=st.integers(1, 40), context=st.sampled_from([64, 100, 256, 2048]), ratio=st.floats(0.5, 200))
def test_the_run_of_a_depth_has_the_tokens_of_its_parameters(depth: int, context: int, ratio: float) -> None:
    shape = depth_shape(depth).replace(context_length=context)
    found = depth_settings(shape, ratio)
    per_step = found["training.batch_size"] * found["training.accumulation"] * context
    n_tokens = ratio * n_parameters(shape)
    assert abs(found["training.steps"] * per_step - n_tokens) <= per_step
    # Within the rounding to a power of two, and to whole passes.
    wanted = 0.2920 * (n_tokens * flops_per_token(shape)) ** 0.3271
    assert 0.5 < per_step / wanted < 2 or per_step == context


def test_a_deeper_model_is_wider_and_learns_more_slowly() -> None:
    shallow, deep = (depth_settings(depth_shape(depth)) for depth in (4, 16))
    assert deep["optimizer.learning_rate"] < shallow["optimizer.learning_rate"] / 1.5
    assert deep["training.steps"] > shallow["training.steps"]
    assert depth_shape(16).d_model == 4 * depth_shape(4).d_model


def test_explicit_settings_replace_those_of_the_depth() -> None:
    resolved = resolve(
        [
            ("a file", {**DEPTH, "training.batch_size": 7, "training.tokens_per_parameter": 5}),
            ("--optimizer.learning-rate", {"optimizer.learning_rate": 0.5}),
            ("--model.d-ff", {"model.d_ff": 96}),
        ]
    )
    config = resolved.config
    assert (config.model.d_model, config.model.num_layers, config.model.d_ff) == (192, 3, 96)
    assert (config.optimizer.learning_rate, config.training.batch_size) == (0.5, 7)
    per_step = 7 * config.training.accumulation * 64
    assert abs(config.training.steps * per_step - 5 * n_parameters(config.model)) <= per_step
    assert resolved.origins["training.steps"] == resolved.origins["model.d_model"] == "depth 3"
    assert resolved.origins["training.batch_size"] == "a file"


def test_the_settings_of_a_run_do_not_change_when_they_are_read_again(tmp_path: Path) -> None:
    resolved = resolve([("a file", DEPTH)])
    (tmp_path / "config.toml").write_text(config_to_toml(resolved), encoding="utf-8")
    assert resolve([file_layer(tmp_path / "config.toml")]).config == resolved.config


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([{"model.depth": 0}], "model.depth is 0"),
        ([{"model.depth": 2.0}], "model.depth is 2.0"),
        ([{"model.depth": 2, "model.preset": "tiny"}], "two shapes"),
        ([{"model.depth": 2}, {"model.preset": "tiny"}], "choose two shapes"),
        ([{"training.tokens_per_parameter": 5}], "needs model.depth"),
        ([{"model.depth": 2, "training.tokens_per_parameter": 0}], "tokens_per_parameter is 0"),
        ([{"model.depth": 2, "training.batch_size": "x"}], "batch_size is 'x'"),
    ],
)
def test_contradictions_are_errors(layers: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(RunConfigError, match=message):
        resolve([(f"--{number}", layer) for number, layer in enumerate(layers)])
