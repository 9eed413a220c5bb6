"""A mixture of experts computes what its definition says, and what transformers computes with the same weights."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# Attributes of torch's modules have no types.

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bytemill.errors import ModelConfigError
from bytemill.lm import KVCache, ModelConfig, TransformerLM
from bytemill.lm.feed_forwards.experts import MixtureOfExperts, balance_loss, route
from bytemill.lm.feed_forwards.loads import imbalance, take_loads
from bytemill.lm.model_config import FEED_FORWARDS, MoeConfig
from bytemill.lm.planning import (
    forward_flops,
    n_active_parameters,
    n_parameters,
    parameters_by_part,
    training_memory,
)
from bytemill.lm.processes import Processes
from bytemill.lm.training.metrics_log import MEASURED, read_metrics
from bytemill.lm.training.saved_model import load_trained
from bytemill.lm.training.trainer import train
from tests.lm.conftest import sizes
from tests.lm.test_planning import kept_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

SMALL = sizes(50, 16, 24, 2, 4, 20)


def mixture(seed: int = 0, bias: bool = False, **options: Any) -> MixtureOfExperts:
    """A mixture with random biases."""
    torch.manual_seed(seed)
    layer = MixtureOfExperts(ModelConfig(**SMALL, feed_forward="moe", moe=MoeConfig(**options), bias=bias))
    for parameter in layer.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return layer


def token_by_token(layer: MixtureOfExperts, x: Tensor) -> Tensor:
    """The definition: for each token, choose experts, and add up their weighted results."""
    options, rows = layer.options, []
    for token in x.reshape(-1, x.shape[-1]):
        logits = layer.router.weight @ token
        if layer.router.bias is not None:
            logits = logits + layer.router.bias
        scores = (
            logits.exp() / logits.exp().sum() if options.scores == "softmax" else 1 / (1 + (-logits).exp())
        )
        biases = layer.router_bias if options.balance == "bias" else torch.zeros(options.experts)
        chosen = sorted(range(options.experts), key=lambda e: -(scores[e] + biases[e]).item())[
            : options.top_k
        ]
        total = sum(scores[e] for e in chosen) if options.normalized else 1.0
        row = sum(options.scale * scores[e] / total * layer.experts[e](token[None])[0] for e in chosen)
        rows.append(row + layer.shared(token[None])[0] if options.shared else row)
    return torch.stack(rows).view(x.shape)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_sorted_rows_give_what_a_loop_over_tokens_gives(data: st.DataObject) -> None:
    experts = data.draw(st.integers(1, 7), "experts")
    layer = mixture(
        data.draw(st.integers(0, 99), "seed"),
        data.draw(st.booleans(), "bias"),
        experts=experts,
        top_k=data.draw(st.integers(1, experts), "top_k"),
        shared=data.draw(st.integers(0, 2), "shared"),
        scores=data.draw(st.sampled_from(["softmax", "sigmoid"]), "scores"),
        normalized=data.draw(st.booleans(), "normalized"),
        scale=data.draw(st.sampled_from([1.0, 2.5]), "scale"),
        balance=data.draw(st.sampled_from(["loss", "bias", "none"]), "balance"),
        expert=data.draw(st.sampled_from(sorted(set(FEED_FORWARDS) - {"moe"})), "expert"),
    ).double()
    x = torch.randn(data.draw(st.integers(1, 2)), data.draw(st.integers(1, 9)), 24, dtype=torch.float64)
    x.requires_grad_()
    actual, expected = layer(x), token_by_token(layer, x)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)
    seed = torch.randn_like(x)
    own = [x, *(p for p in layer.parameters() if p.requires_grad)]
    ours, theirs = (
        torch.autograd.grad((y * seed).sum(), own, allow_unused=True, materialize_grads=True)
        for y in (actual, expected)
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def test_a_token_does_not_depend_on_the_other_tokens_of_the_batch() -> None:
    layer = mixture(experts=5, top_k=2).eval()
    x = torch.randn(3, 8, 24)
    torch.testing.assert_close(layer(x)[1, 3:4], layer(x[1, 3:4]))


ORACLES: dict[str, tuple[dict[str, Any], str, str, dict[str, Any]]] = {
    "mixtral": (
        {"experts": 5, "top_k": 2}, "mixtral.modeling_mixtral.MixtralSparseMoeBlock", "Mixtral",
        {"num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 20},
    ),
    "qwen3-moe": (
        {"experts": 6, "top_k": 3, "normalized": False}, "qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
        "Qwen3Moe",
        {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "norm_topk_prob": False},
    ),
    "deepseek-v3": (
        {"experts": 6, "top_k": 2, "shared": 2, "scores": "sigmoid", "balance": "bias", "scale": 2.5},
        "deepseek_v3.modeling_deepseek_v3.DeepseekV3MoE", "DeepseekV3",
        {
            "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "n_shared_experts": 2,
            "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
        },
    ),
    "gpt-oss": (
        {"experts": 5, "top_k": 2, "expert": "clamped_swiglu"}, "gpt_oss.modeling_gpt_oss.GptOssMLP", "GptOss",
        {"num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 20},
    ),
}  # fmt: skip
"""Options here; class and configuration of transformers."""


@pytest.mark.parametrize("name", ORACLES)
def test_a_mixture_computes_what_the_module_of_transformers_does(transformers: Any, name: str) -> None:
    options, path, family, values = ORACLES[name]
    layer = mixture(bias=name == "gpt-oss", **options)
    module, _, kind = path.rpartition(".")
    configuration = getattr(transformers, f"{family}Config")(hidden_size=24, **values)
    configuration._experts_implementation = "eager"
    other = getattr(import_module(f"transformers.models.{module}"), kind)(configuration).eval()
    is_oss = name == "gpt-oss"
    own, theirs = layer.experts, other.experts
    router = other.router if is_oss else other.gate
    with torch.no_grad():
        router.weight.copy_(layer.router.weight)
        for number, expert in enumerate(own):
            if is_oss:
                theirs.gate_up_proj[number, :, ::2] = expert.w1.weight.T
                theirs.gate_up_proj[number, :, 1::2] = expert.w3.weight.T
                theirs.gate_up_proj_bias[number, ::2] = expert.w1.bias
                theirs.gate_up_proj_bias[number, 1::2] = expert.w3.bias
                theirs.down_proj[number] = expert.w2.weight.T
                theirs.down_proj_bias[number] = expert.w2.bias
            else:
                theirs.gate_up_proj[number] = torch.cat([expert.w1.weight, expert.w3.weight])
                theirs.down_proj[number] = expert.w2.weight
        if is_oss:
            router.bias.copy_(layer.router.bias)
        if options.get("shared"):
            router.e_score_correction_bias.copy_(layer.router_bias)
            for name_, ours in (("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")):
                getattr(other.shared_experts, name_).weight.copy_(getattr(layer.shared, ours).weight)
        x = torch.randn(2, 11, 24)
        expected = other(x)
        expected = expected[0] if isinstance(expected, tuple) else expected
        torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-5)


def test_the_balance_loss_is_that_of_transformers_over_the_number_of_experts_per_token(
    transformers: Any,
) -> None:
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    logits = torch.randn(40, 6)
    scores, _, chosen = route(logits, MoeConfig(experts=6, top_k=2))
    ours = balance_loss(scores, chosen.flatten().bincount(minlength=6))
    torch.testing.assert_close(2 * ours, load_balancing_loss_func((logits,), 6, 2))
    even = balance_loss(torch.full((8, 4), 0.25), torch.full((4,), 2))
    assert math.isclose(float(even), 1.0)


def test_the_loss_of_training_has_the_balance_of_every_layer_and_that_of_evaluation_has_not() -> None:
    config = ModelConfig(**SMALL, feed_forward="moe", moe=MoeConfig(balance_weight=0.5))
    model = TransformerLM(config, seed=0)
    ids = torch.randint(50, (2, 16))
    total, cross_entropy = model.losses(ids, ids)
    extra = sum(0.5 * layer.ffn.balance for layer in model.layers)
    torch.testing.assert_close(total, cross_entropy + extra)
    assert extra.item() >= 1.0
    model.eval()
    torch.testing.assert_close(*model.losses(ids, ids))


def test_activation_checkpointing_counts_every_token_once() -> None:
    ids = torch.randint(50, (2, 16))
    counts: list[list[list[int]]] = []
    for name in ("none", "full", "selective"):
        model = TransformerLM(ModelConfig(**SMALL, feed_forward="moe"), seed=0)
        model.checkpoint_activations(name)
        model.loss(ids, ids).backward()
        counts.append(take_loads(model, Processes()))
        assert take_loads(model, Processes()) == []
    assert counts[0] == counts[1] == counts[2]
    assert all(sum(own) == 2 * ids.numel() for own in counts[0])


def test_a_bias_moves_tokens_from_busy_experts_to_idle_ones() -> None:
    options = MoeConfig(experts=4, top_k=1, scores="sigmoid", balance="bias", bias_rate=0.02)
    torch.manual_seed(0)
    model = MixtureOfExperts(ModelConfig(**SMALL, feed_forward="moe", moe=options))
    x = torch.randn(1, 256, 24) + 1
    loads: list[float] = []
    for _ in range(60):
        model(x)
        model.extra_loss()
        loads.append(imbalance(take_loads(model, Processes())))
    assert loads[0] > 1.5
    assert max(loads[-5:]) < 1.25
    assert not model.router_bias.requires_grad


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"shared": 2, "balance": "bias", "experts": 5, "expert": "gelu", "normalized": False}],
)
def test_a_mixture_counts_its_parameters_flops_and_bytes(bias: bool, options: dict[str, Any]) -> None:
    config = ModelConfig(**SMALL, feed_forward="moe", moe=MoeConfig(**options), bias=bias)
    model = TransformerLM(config, seed=0)
    assert n_parameters(config) == model.n_parameters()
    feed_forward = sum(p.numel() for layer in model.layers for p in layer.ffn.parameters())
    assert parameters_by_part(config)["feed-forward"] == feed_forward
    unused = (config.moe.experts - config.moe.top_k) * (2 if options else 3) * 20 * 24
    assert n_active_parameters(config) == n_parameters(config) - 2 * unused
    from torch.utils.flop_counter import FlopCounterMode

    ids = torch.randint(50, (3, 16))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(ids)
    assert counter.get_total_flops() == sum(forward_flops(config, 3).values())
    planned = training_memory(config).activations(3)
    kept = kept_bytes(TransformerLM(config).use_kernels("auto").eval(), ids)
    assert kept == planned


def test_a_trained_mixture_records_its_loads_and_resumes_as_if_it_had_not_stopped(
    settings: Callable[..., Any], tmp_path: Path
) -> None:
    options = {
        "model__feed_forward": "moe", "model__moe__experts": 4, "model__moe__balance": "bias",
        "schedule__name": "constant", "run__log_every": 2, "run__checkpoint_every": 2,
    }  # fmt: skip
    whole = train(settings(**options, training__steps=6, run__folder=str(tmp_path / "whole")))
    train(settings(**options, training__steps=4))
    again = train(settings(**options, training__steps=6))
    records, resumed = (
        [
            {name: value for name, value in record.items() if name not in MEASURED}
            for record in read_metrics(folder.path / "metrics.jsonl", "step")
        ]
        for folder in (whole, again)
    )
    assert records == resumed
    n_positions = 2 * 4 * 16
    assert [[sum(own) for own in record["expert_tokens"]] for record in records] == [
        [2 * n_positions] * 2
    ] * 3
    assert all(1 <= record["expert_imbalance"] <= 4 for record in records)
    first, second = (load_trained(folder.path, "cpu").model for folder in (whole, again))
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
    assert float(first.layers[0].ffn.router_bias.abs().max()) > 0


def test_what_a_mixture_does_not_support_is_refused_by_name() -> None:
    with pytest.raises(ModelConfigError, match=r"moe\.top_k 9 is above moe\.experts 8"):
        ModelConfig(**SMALL, feed_forward="moe", moe={"top_k": 9})
    with pytest.raises(ModelConfigError, match="moe is set, but feed_forward is 'swiglu'"):
        ModelConfig(**SMALL, moe={"experts": 4})


def test_generation_with_the_cache_gives_the_logits_of_the_whole_text() -> None:
    model = TransformerLM(ModelConfig(**SMALL, feed_forward="moe"), seed=0).eval()
    ids = torch.randint(50, (2, 12))
    cache = KVCache(model.config, 2)
    with torch.no_grad():
        steps = [model(ids[:, i : i + 1], cache) for i in range(12)]
        torch.testing.assert_close(torch.cat(steps, 1), model(ids))
