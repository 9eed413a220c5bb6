"""Options of the shape agree with transformers' models, whose weights are random here, and with formulas in NumPy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from bytemill.lm import KVCache, ModelConfig, TransformerLM, preset
from bytemill.lm.model import RotaryEmbedding
from bytemill.lm.rotary_scaling import llama3_frequencies, rotary_frequencies
from tests.lm.conftest import sizes

if TYPE_CHECKING:
    from torch import Tensor

SMALL: dict[str, Any] = sizes(50, 64, 24, 2, 4, 40)
LLAMA: dict[str, Any] = {
    "vocab_size": 50, "max_position_embeddings": 64, "hidden_size": 24, "intermediate_size": 40,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}  # fmt: skip
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def adjacent(rows: Tensor, d_head: int, d_rotary: int | None = None) -> Tensor:
    """Reorder the rows of each head: transformers rotates row i with row i + d_rotary / 2, this package neighbours."""
    d_rotary = d_rotary or d_head
    order = torch.arange(d_rotary).view(2, -1).T.reshape(-1)
    order = torch.cat((order, torch.arange(d_rotary, d_head)))
    return rows.view(-1, d_head, *rows.shape[1:])[:, order].reshape(rows.shape)


def randomized(model: Any) -> Any:
    """Replace all weights by random ones: biases are 0 and norms 1 in a new model."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        center = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        parameter.data = center + 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def llama_weights(state: dict[str, Tensor], d_head: int) -> dict[str, Tensor]:
    """Return the weights of a model of the Llama family under this package's names."""
    names = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3", "o_proj": "output_proj"}
    names |= {"model.embed_tokens": "token_embeddings", "model.norm": "ln_final", "model.layers": "layers"}
    names |= {"input_layernorm": "ln1", "post_attention_layernorm": "ln2", "self_attn": "attn", "mlp": "ffn"}
    rotated = ("q_proj", "k_proj", "q_norm", "k_norm")
    return {
        renamed(name, names): adjacent(value, d_head) if any(part in name for part in rotated) else value
        for name, value in state.items()
    }


def renamed(name: str, names: dict[str, str]) -> str:
    """Replace each part of a name that `names` has."""
    for theirs, ours in names.items():
        name = name.replace(theirs, ours)
    return name


def assert_equal_logits(model: TransformerLM, other: Any) -> None:
    ids = torch.randint(50, (2, 60), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = other(ids).logits
        for kernels in ("scratch", "auto"):
            torch.testing.assert_close(model.use_kernels(kernels)(ids), expected, rtol=1e-5, atol=1e-5)
        cache = KVCache(model.config, 2)
        parts = [model(part, cache) for part in ids.split([40, 1, 19], dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "theirs", "ours"),
    [
        (
            "Llama",
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 1e4,
                    "original_max_position_embeddings": 16,
                    **LLAMA3,
                },
                "head_dim": 10,
            },
            {
                "rope": {"scaling": "llama3", "factor": 8.0, "original_context": 16},
                "attention": {"head_dim": 10},
            },
        ),
        (
            "Llama",
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}},
            {"rope": {"scaling": "linear", "factor": 3.0, "theta": 500.0}},
        ),
        ("Qwen2", {}, {"attention": {"qkv_bias": True}}),
        ("Qwen3", {"head_dim": 8}, {"attention": {"qk_norm": True, "head_dim": 8}}),
    ],
    ids=["llama3 frequencies", "linear frequencies", "q, k, v biases", "qk-norm and head width"],
)
def test_logits_are_those_of_transformers(
    transformers: Any, family: str, theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    config = getattr(transformers, f"{family}Config")(**LLAMA | theirs)
    other = randomized(getattr(transformers, f"{family}ForCausalLM")(config))
    model = TransformerLM(ModelConfig(**SMALL, **ours).replace(attention={"num_kv_heads": 2})).eval()
    model.load_state_dict(llama_weights(other.state_dict(), model.config.d_head))
    assert_equal_logits(model, other)


def test_partial_rotation_and_exact_gelu_are_those_of_gpt_neox(transformers: Any) -> None:
    config = transformers.GPTNeoXConfig(
        vocab_size=50,
        max_position_embeddings=64,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        use_parallel_residual=False,
        hidden_act="gelu",
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    )
    other = randomized(transformers.GPTNeoXForCausalLM(config))
    options = {"norm": "layer", "feed_forward": "gelu_exact", "bias": True, "rope": {"fraction": 0.5}}
    model = TransformerLM(ModelConfig(**SMALL | {"d_model": 32}, **options)).eval()
    names = {"gpt_neox.layers": "layers", "input_layernorm": "ln1", "post_attention_layernorm": "ln2"}
    names |= {"attention.dense.": "attn.output_proj.", "mlp.dense_h_to_4h": "ffn.w1"}
    names |= {"mlp.dense_4h_to_h": "ffn.w2", "gpt_neox.embed_in": "token_embeddings", "embed_out": "lm_head"}
    names |= {"gpt_neox.final_layer_norm": "ln_final"}
    weights = {renamed(name, names): value for name, value in other.state_dict().items()}
    fused = [name for name in weights if "query_key_value" in name]
    for name, value in [(name, weights.pop(name)) for name in fused]:
        rows = value.view(4, 3, 8, *value.shape[1:]).transpose(0, 1).reshape(3, 32, *value.shape[1:])
        for letter, one in zip("qkv", rows, strict=True):
            own = name.replace("attention.query_key_value", f"attn.{letter}_proj")
            weights[own] = one if letter == "v" else adjacent(one, 8, 4)
    model.load_state_dict(weights)
    assert_equal_logits(model, other)


def test_llama_3_frequencies_are_those_of_the_formula() -> None:
    theirs = []
    for frequency in 500_000.0 ** (-np.arange(0, 128, 2) / 128):
        wavelength = 2 * math.pi / frequency
        if wavelength < 8192 / 4:
            theirs.append(frequency)
        elif wavelength > 8192 / 1:
            theirs.append(frequency / 8)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            theirs.append((1 - smooth) * frequency / 8 + smooth * frequency)
    ours = llama3_frequencies(rotary_frequencies(500_000.0, 128), 8.0, 1.0, 4.0, 8192)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-6)


def test_pairs_of_frequency_zero_are_unchanged() -> None:
    rope = RotaryEmbedding(10.0, 6, 9, frequencies=torch.tensor([0.5, 0.0, 0.0], dtype=torch.float64))
    x = torch.randn(2, 9, 6)
    assert torch.equal(rope(x)[..., 2:], x[..., 2:])
    assert not torch.equal(rope(x)[..., :2], x[..., :2])


@pytest.mark.parametrize("kernels", ["scratch", "auto"])
def test_a_soft_cap_bounds_the_logits_and_has_the_gradient_of_the_formula(kernels: Any) -> None:
    model = TransformerLM(ModelConfig(**SMALL, logit_soft_cap=0.7), seed=1).use_kernels(kernels)
    ids, targets = torch.randint(50, (2, 2, 20), generator=torch.Generator().manual_seed(1))
    logits = model.lm_head(model.hidden(ids)).detach().double().numpy()
    capped = 0.7 * np.tanh(logits / 0.7)
    np.testing.assert_allclose(model(ids).detach().numpy(), capped, rtol=1e-5, atol=1e-5)
    assert np.abs(capped).max() < 0.7 < np.abs(logits).max()

    shares = np.exp(capped) / np.exp(capped).sum(-1, keepdims=True)
    chosen = np.eye(50)[targets.numpy()]
    expected = -np.log((shares * chosen).sum(-1)).mean()
    loss = model.loss(ids, targets)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    d_logits = (shares - chosen) / targets.numel() * (1 - np.tanh(logits / 0.7) ** 2)
    hidden = model.hidden(ids).detach().double().numpy()
    d_weight = d_logits.reshape(-1, 50).T @ hidden.reshape(-1, 24)
    (gradient,) = torch.autograd.grad(loss, model.lm_head.weight)
    np.testing.assert_allclose(gradient.numpy(), d_weight, rtol=1e-4, atol=1e-6)


def test_biases_are_where_the_settings_say() -> None:
    def biased(**options: Any) -> set[str]:
        names = TransformerLM(ModelConfig(**SMALL, norm="layer", **options), device="meta").state_dict()
        return {
            name.removeprefix("layers.0.") for name in names if ".bias" in name and "layers.1" not in name
        }

    norms = {"ln1.bias", "ln2.bias", "ln_final.bias"}
    qkv = {"attn.q_proj.bias", "attn.k_proj.bias", "attn.v_proj.bias"}
    assert biased() == norms
    assert biased(norm_bias=False) == set()
    assert biased(norm_bias=False, attention={"qkv_bias": True}) == qkv
    rest = {"attn.output_proj.bias", "ffn.w1.bias", "ffn.w2.bias", "ffn.w3.bias"}
    assert biased(bias=True) == norms | qkv | rest


@pytest.fixture(scope="module")
def new_gpt2() -> TransformerLM:
    return TransformerLM(preset("gpt2", vocab_size=1000, context_length=256), seed=0).eval()


def test_gpt2_starts_with_the_deviations_of_gpt2(new_gpt2: TransformerLM) -> None:
    for name, parameter in new_gpt2.named_parameters():
        if parameter.ndim == 1:
            is_one = name.endswith("weight")
            assert parameter.eq(1 if is_one else 0).all(), name
        else:
            is_output = "output_proj" in name or "w2" in name
            expected = 0.02 / math.sqrt(24) if is_output else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.01), name
            # Not truncated: of 100,000 normal numbers and more, some exceed four deviations.
            assert parameter.abs().max() > 4 * expected, name


def test_the_residual_stream_of_a_new_gpt2_has_a_deviation_of_0_29(new_gpt2: TransformerLM) -> None:
    ids = torch.randint(1000, (1, 256), generator=torch.Generator().manual_seed(1))
    streams: list[Tensor] = []
    new_gpt2.layers[-1].register_forward_hook(lambda *arguments: streams.append(arguments[2]))
    with torch.no_grad():
        new_gpt2(ids)
    assert streams[0].std().item() == pytest.approx(0.29, abs=0.01)


def test_the_textbook_initialization_is_the_default() -> None:
    assert ModelConfig(**SMALL).initialization == "textbook"
    assert TransformerLM(ModelConfig(**SMALL)).token_embeddings.weight.std() > 0.5
