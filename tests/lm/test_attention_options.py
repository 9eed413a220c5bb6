"""Options of attention and residual forms compute what their definitions say, in every way to run a model."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# Attributes of torch's modules have no types.

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from bytemill.errors import ModelConfigError
from bytemill.lm import KVCache, ModelConfig, TransformerLM
from bytemill.lm.attention_options import OptionalAttention
from bytemill.lm.batches import DocumentMask
from bytemill.lm.generation.core_decoder import CoreDecoder
from bytemill.lm.inspection import trace
from bytemill.lm.planning import n_parameters, training_memory
from tests.lm.conftest import sizes
from tests.lm.test_planning import kept_bytes

if TYPE_CHECKING:
    from torch import Tensor

OPTIONS: list[dict[str, Any]] = [
    {"scale": 0.7},
    {"soft_cap": 0.5},
    {"sinks": True},
    {"soft_cap": 2.0, "sinks": True, "scale": 1.5, "num_kv_heads": 2},
    {"qk_norm": True, "qk_norm_over": "all", "num_kv_heads": 1},
    {"sinks": True, "sliding_window": 4, "num_kv_heads": 2},
]
FORMS: list[dict[str, Any]] = [
    {"norm_position": "output"},
    {"norm_position": "sandwich"},
    {"residual": "parallel"},
    {"embedding_scale": 4.0, "tied_embeddings": True},
    {"feed_forward": "geglu"},
    {"feed_forward": "clamped_swiglu"},
]


def config(**options: Any) -> ModelConfig:
    return ModelConfig(**sizes(50, 24, 24, 2, 4, 40), **options)


def model_of(own: ModelConfig) -> TransformerLM:
    """A model with random biases, norms and sinks."""
    model = TransformerLM(own, seed=0)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data += 0.5 * torch.randn(parameter.shape, generator=generator)
    return model


def one_by_one(layer: OptionalAttention, x: Tensor) -> Tensor:
    """The definition for (n_tokens, d_model), head by head and query by query, without positions."""
    q, k, v = (p(x) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    if layer.has_qk_norm:
        q, k = (
            t / (t.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight
            for t, norm in ((q, layer.q_norm), (k, layer.k_norm))
        )
    q, k, v = (t.view(len(x), -1, layer.d_head) for t in (q, k, v))
    rows = torch.zeros_like(q)
    for head in range(layer.n_heads):
        own = head // (layer.n_heads // layer.n_kv_heads)
        for query in range(len(x)):
            first = 0 if layer.window is None else max(0, query - layer.window + 1)
            scores = k[first : query + 1, own] @ q[query, head]
            scores = scores * (1 / math.sqrt(layer.d_head) if layer.scale is None else layer.scale)
            if layer.soft_cap is not None:
                scores = layer.soft_cap * torch.tanh(scores / layer.soft_cap)
            total = scores.exp().sum() + (0 if layer.sinks is None else layer.sinks[head].exp())
            rows[query, head] = (scores.exp() / total) @ v[first : query + 1, own]
    return layer.output_proj(rows.flatten(1))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_attention_computes_its_definition(options: dict[str, Any]) -> None:
    model = model_of(config(attention=options, position="none")).double()
    layer = model.layers[0].attn
    assert isinstance(layer, OptionalAttention)
    x = torch.randn(2, 11, 24, dtype=torch.float64)
    expected = torch.stack([one_by_one(layer, row) for row in x])
    torch.testing.assert_close(layer(x), expected, rtol=1e-9, atol=1e-9)
    model.use_kernels("auto")
    torch.testing.assert_close(layer(x), expected, rtol=1e-6, atol=1e-6)


def block_by_definition(model: TransformerLM, x: Tensor) -> Tensor:
    own = model.config
    for b in model.layers:
        if own.residual == "parallel":
            x = x + b.attn(b.ln1(x)) + b.ffn(b.ln2(x))
        elif own.norm_position == "output":
            x = x + b.ln1(b.attn(x))
            x = x + b.ln2(b.ffn(x))
        elif own.norm_position == "sandwich":
            x = x + b.ln1_out(b.attn(b.ln1(x)))
            x = x + b.ln2_out(b.ffn(b.ln2(x)))
        else:
            x = x + b.attn(b.ln1(x))
            x = x + b.ffn(b.ln2(x))
    return model.lm_head(model.ln_final(x))


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_a_residual_form_computes_its_definition(options: dict[str, Any]) -> None:
    model = model_of(config(**options)).double()
    ids = torch.randint(50, (2, 12))
    x = model.token_embeddings.weight[ids] * (options.get("embedding_scale") or 1)
    torch.testing.assert_close(model(ids), block_by_definition(model, x))


ALL = [*({"attention": options} for options in OPTIONS), *FORMS]


@pytest.mark.parametrize("options", ALL, ids=str)
def test_a_model_gives_the_same_logits_with_a_cache_with_padding_and_with_other_kernels(
    options: dict[str, Any],
) -> None:
    own = config(**options)
    model = model_of(own).eval()
    assert not CoreDecoder.supports(model, KVCache(own, 1))
    ids = torch.randint(50, (2, 12))
    with torch.no_grad():
        expected = model(ids)
        cache = KVCache(own, 2, n_padding=torch.tensor([0, 3]))
        padded = torch.stack([ids[0], torch.cat((torch.zeros(3, dtype=ids.dtype), ids[1, :9]))])
        parts = [model(part, cache) for part in padded.split([5, 3, 1, 1, 2], dim=1)]
        actual = torch.cat(parts, dim=1)
        torch.testing.assert_close(actual[0], expected[0], rtol=0, atol=2e-5)
        torch.testing.assert_close(actual[1, 3:], expected[1, :9], rtol=0, atol=2e-5)
        for kernels in ("auto", "torch"):
            torch.testing.assert_close(model.use_kernels(kernels)(ids), expected, rtol=0, atol=2e-5)
    shown = trace(model, ids[0].tolist())
    assert shown.lens_ids[-1, :, 0].tolist() == expected[0].argmax(-1).tolist()
    sums = shown.attention[0].sum(-1)
    assert (
        bool((sums < 1).all())
        if options.get("attention", {}).get("sinks")
        else torch.allclose(sums, sums[:1] * 0 + 1)
    )


@pytest.mark.parametrize("options", ALL, ids=str)
def test_tokens_attend_to_their_own_document_alone(options: dict[str, Any]) -> None:
    model = model_of(config(**options, dropout=0.0)).eval()
    documents = DocumentMask(7, reset_positions=True)
    ids = torch.tensor([[1, 2, 3, 7, 4, 5, 6, 7, 8, 9]])
    with torch.no_grad():
        together = model.logits(model.hidden(ids, documents=documents))
        torch.testing.assert_close(together[:, 4:8], model(ids[:, 4:8]), rtol=0, atol=2e-5)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_training_is_planned(options: dict[str, Any], precision: Any) -> None:
    own = config(attention={name: value for name, value in options.items() if name != "sliding_window"})
    ids = torch.randint(50, (3, 24))
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        kept = kept_bytes(TransformerLM(own).use_kernels("auto"), ids)
    saves_mask = options.get("sinks") or "soft_cap" in options
    planned = training_memory(own, precision=precision).activations(3)
    assert kept == planned + (2 * 24 * 24 if saves_mask else 0)
    assert n_parameters(own) == TransformerLM(own, device="meta").n_parameters()


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ModelConfigError, match=r"attention\.qk_norm_over is 'all', but attention\.qk_norm"):
        config(attention={"qk_norm_over": "all"})
    with pytest.raises(ModelConfigError, match="residual is 'parallel', but norm_position is 'post'"):
        config(residual="parallel", norm_position="post")
