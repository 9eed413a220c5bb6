"""The mixers of transformers with the same weights: each output, and its largest difference."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch

from bytemill.lm import ModelConfig
from bytemill.lm.mixers.delta import GatedDelta
from bytemill.lm.mixers.mamba import Mamba2
from bytemill.lm.mixers.mla import LatentAttention
from bytemill.lm.model import causal_mask
from tests.lm.conftest import sizes

SMALL: dict[str, Any] = sizes(50, 96, 32, 2, 4, 40)


def config_of(**changes: Any) -> ModelConfig:
    return ModelConfig(**SMALL, **changes)


def randomized(module: Any) -> Any:
    """Give each parameter random numbers."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator) + (parameter.ndim == 1))
    return module.double().eval()


def x_of(batch: int = 2, n_tokens: int = 96) -> torch.Tensor:
    return torch.randn(batch, n_tokens, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def copy(pairs: dict[Any, torch.Tensor]) -> None:
    with torch.no_grad():
        for own, other in pairs.items():
            own.copy_(other)


def latent_attention(q_rank: int | None) -> float:
    theirs: Any = import_module("transformers.models.deepseek_v3.modeling_deepseek_v3")

    config = theirs.DeepseekV3Config(
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=q_rank,
        kv_lora_rank=12,
        qk_rope_head_dim=6,
        qk_nope_head_dim=8,
        v_head_dim=8,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        attn_implementation="eager",
    )
    other = randomized(theirs.DeepseekV3Attention(config, 0))
    own = config_of(mixer="mla", mla={"q_rank": q_rank, "kv_rank": 12, "rope_dim": 6}, norm_eps=1e-6)
    ours = LatentAttention.of(own).double()
    kv = other.kv_b_proj.weight.view(4, 16, 12)
    pairs: dict[Any, torch.Tensor] = {
        ours.kv_down.weight: other.kv_a_proj_with_mqa.weight,
        ours.kv_norm.weight: other.kv_a_layernorm.weight,
        ours.k_up.weight: kv[:, :8].reshape(32, 12),
        ours.v_up.weight: kv[:, 8:].reshape(32, 12),
        ours.output_proj.weight: other.o_proj.weight,
        ours.q_proj.weight: (other.q_proj if q_rank is None else other.q_b_proj).weight,
    }
    if q_rank is not None:
        pairs |= {
            ours.q_down.weight: other.q_a_proj.weight,
            ours.q_norm.weight: other.q_a_layernorm.weight,
        }
    copy(pairs)
    x = x_of()
    # In float32, as the tables of `RotaryEmbedding` are.
    cos, sin = theirs.DeepseekV3RotaryEmbedding(config)(x.float(), torch.arange(96)[None])
    mask = torch.zeros(96, 96, dtype=x.dtype).masked_fill(~causal_mask(96, 96), -torch.inf)[None, None]
    expected = other(x, position_embeddings=(cos, sin), attention_mask=mask)[0]
    return float((ours(x) - expected).abs().max() / expected.abs().max())


def gated_delta(n_value_heads: int) -> float:
    theirs: Any = import_module("transformers.models.qwen3_next.modeling_qwen3_next")

    config = theirs.Qwen3NextConfig(
        hidden_size=32,
        linear_num_value_heads=n_value_heads,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=6,
        linear_conv_kernel_dim=4,
        rms_norm_eps=1e-5,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
    )
    other = randomized(theirs.Qwen3NextGatedDeltaNet(config, 0))
    own = config_of(
        mixer="delta",
        delta={"key_heads": 2, "value_heads": n_value_heads, "key_dim": 8, "value_dim": 6, "chunk": 16},
    )
    ours = GatedDelta.of(own).double()
    shared = n_value_heads // 2
    q, k, v, gate = other.in_proj_qkvz.weight.view(2, -1, 32).split([8, 8, 6 * shared, 6 * shared], dim=1)
    beta, decay = other.in_proj_ba.weight.view(2, -1, 32).split([shared, shared], dim=1)
    copy(
        {
            ours.q_proj.weight: q.reshape(-1, 32),
            ours.k_proj.weight: k.reshape(-1, 32),
            ours.v_proj.weight: v.reshape(-1, 32),
            ours.gate_proj.weight: gate.reshape(-1, 32),
            ours.beta_proj.weight: beta.reshape(-1, 32),
            ours.decay_proj.weight: decay.reshape(-1, 32),
            ours.convolution.weight: other.conv1d.weight.permute(2, 1, 0).flip(0),
            ours.log_rate: other.A_log,
            ours.step_bias: other.dt_bias,
            ours.norm.weight: other.norm.weight,
            ours.output_proj.weight: other.out_proj.weight,
        }
    )
    # Its recurrence is float32.
    expected = other.float()(x_of().float())
    return float((ours.float()(x_of().float()) - expected).abs().max() / expected.abs().max())


def mamba2(groups: int) -> float:
    theirs: Any = import_module("transformers.models.mamba2.modeling_mamba2")

    config = theirs.Mamba2Config(
        hidden_size=32,
        num_heads=8,
        head_dim=8,
        expand=2,
        state_size=6,
        n_groups=groups,
        conv_kernel=4,
        chunk_size=16,
        num_hidden_layers=1,
    )
    other = randomized(theirs.Mamba2Mixer(config, 0))
    own = config_of(mixer="mamba", mamba={"head_dim": 8, "state": 6, "groups": groups, "chunk": 24})
    ours = Mamba2.of(own).double()
    copy(
        {
            ours.in_proj.weight: other.in_proj.weight,
            ours.convolution.weight: other.conv1d.weight.permute(2, 1, 0).flip(0),
            ours.convolution.bias: other.conv1d.bias,
            ours.log_rate: other.A_log,
            ours.step_bias: other.dt_bias,
            ours.skip: other.D,
            ours.norm.weight: other.norm.weight,
            ours.output_proj.weight: other.out_proj.weight,
        }
    )
    expected = other.float()(x_of().float())
    return float((ours.float()(x_of().float()) - expected).abs().max() / expected.abs().max())


ORACLES: dict[str, tuple[Any, Any, float]] = {
    "latent attention, queries of full rank: DeepseekV3Attention": (latent_attention, None, 1e-6),
    "latent attention, compressed queries: DeepseekV3Attention": (latent_attention, 10, 1e-6),
    "gated delta rule: Qwen3NextGatedDeltaNet": (gated_delta, 2, 1e-5),
    "gated delta rule, shared keys: Qwen3NextGatedDeltaNet": (gated_delta, 6, 1e-5),
    "Mamba-2: Mamba2Mixer": (mamba2, 1, 1e-5),
    "Mamba-2, four groups: Mamba2Mixer": (mamba2, 4, 1e-5),
}


@pytest.mark.filterwarnings("ignore")  # of transformers, about kernels of GPUs
@pytest.mark.parametrize("name", ORACLES)
def test_outputs_are_those_of_transformers(name: str, record_property: Any):
    pytest.importorskip("transformers")
    measure, argument, bound = ORACLES[name]
    difference = measure(argument)
    record_property("largest difference by largest output", difference)
    print(f"{name}: {difference:.1e}")
    assert difference < bound
