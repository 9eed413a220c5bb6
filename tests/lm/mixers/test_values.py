"""Value embeddings: their definition, where the ids come from, and which optimizer trains them."""

import math
from typing import Any

import pytest
import torch

from bytemill.errors import ModelConfigError
from bytemill.lm import ModelConfig, TransformerLM
from bytemill.lm.inspection import trace
from bytemill.lm.mixers.values import ValueAttention
from bytemill.lm.model import Embedding
from bytemill.lm.optim import muon_groups
from bytemill.lm.quantization import quantize_model
from tests.lm.mixers.conftest import SHAPES, SMALL, model_of


def textbook(layer: Any, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The definition, token by token and head by head, without a window and positions."""
    heads: list[list[torch.Tensor]] = []
    n_groups = layer.n_heads // layer.n_kv_heads
    q, k, v = (
        each(x).unflatten(-1, (-1, layer.d_head)) for each in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    extra = layer.value_embedding.weight[ids].unflatten(-1, (-1, layer.d_head))
    gates = 2 * torch.sigmoid(x[:, :32] @ layer.value_gate.weight.T)
    for t in range(len(x)):
        heads.append([])
        for head in range(layer.n_heads):
            kv = head // n_groups
            scores = torch.stack([q[t, head] @ k[s, kv] / math.sqrt(layer.d_head) for s in range(t + 1)])
            values = torch.stack([v[s, kv] + gates[s, kv] * extra[s, kv] for s in range(t + 1)])
            heads[-1].append(scores.softmax(0) @ values)
    return layer.output_proj(torch.stack([torch.cat(own) for own in heads]))


@pytest.mark.parametrize("kernels", ["scratch", "torch", "auto"])
def test_the_result_is_that_of_the_definition(kernels: Any):
    config = ModelConfig(**{**SMALL, "mixer": "values", "position": "none", "attention": {"num_kv_heads": 2}})
    model = TransformerLM(config, seed=1).use_kernels(kernels)
    layer: Any = model.layers[0].attn
    torch.nn.init.normal_(layer.value_gate.weight)
    x, ids = torch.randn(12, config.d_model), torch.randint(50, (12,))
    torch.testing.assert_close(layer(x, ids=ids), textbook(layer, x, ids), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="need the ids"):
        layer(x)


def test_a_new_gate_is_one():
    model = TransformerLM(ModelConfig(**SMALL, **SHAPES["values"]), seed=1)
    layer: Any = model.layers[0].attn
    assert isinstance(layer, ValueAttention)
    assert not layer.value_gate.weight.any()


@pytest.mark.parametrize("options", [{}, {"norm_position": "sandwich"}, {"residual": "parallel"}])
def test_all_forms_of_blocks_and_the_multi_token_head_get_the_ids(options: dict[str, Any]):
    config = ModelConfig(**SMALL, **SHAPES["values"], multi_token_weight=0.5, **options)
    model = TransformerLM(config, seed=1)
    ids = torch.randint(50, (2, 20))
    expected = model.loss(ids, ids.roll(-1, 1))
    expected.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and bool(gradient.any()) for gradient in gradients)
    model.zero_grad()
    model.checkpoint_activations("full")
    again = model.loss(ids, ids.roll(-1, 1))
    assert torch.equal(again, expected)
    again.backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_embeddings_are_no_matrices_of_the_blocks():
    model = model_of("values")
    tables = {id(each.weight) for each in model.layers.modules() if isinstance(each, Embedding)}
    assert len(tables) == 2
    assert not tables & {id(each) for each in model.block_matrices()}
    algorithm = {id(each): group["algorithm"] for group in muon_groups(model) for each in group["params"]}
    assert {algorithm[each] for each in tables} == {"adamw"}


def test_they_are_quantized_and_shown():
    model = model_of("values")
    assert len(trace(model, [1, 2, 3]).attention) == 2
    small = model_of("values")
    with pytest.raises(ModelConfigError, match="rows of 24 weights"):
        quantize_model(small, 8)
    wide = {**SMALL, "d_model": 32, "d_ff": 64, "attention": {"head_dim": 16, "num_kv_heads": 2}}
    model = TransformerLM(ModelConfig(**{**SHAPES["values"], **wide}), seed=0).eval()
    ids = torch.randint(50, (2, 10))
    expected = model(ids)
    torch.testing.assert_close(quantize_model(model, 8)(ids), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("mixer", ["values:0", "values:5:6", "values:x"])
def test_wrong_arguments_are_refused(mixer: str):
    with pytest.raises(ModelConfigError, match="mixer is"):
        ModelConfig(**SMALL, mixer=mixer)  # pyright: ignore[reportArgumentType]
