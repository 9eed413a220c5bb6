"""Parameters, FLOPs, memory and days of training; rates of devices."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from bytemill.errors import RunConfigError
from bytemill.lm import PRESETS, ModelConfig, TransformerLM, preset
from bytemill.lm.loss import cross_entropy
from bytemill.lm.optim import SGD, AdamW, Muon, muon_groups
from bytemill.lm.planning import (
    DEVICES,
    TrainingMemory,
    compute_optimal_tokens,
    find_device,
    flops_per_token,
    forward_flops,
    largest_batch,
    n_parameters,
    parameters_by_part,
    plan,
    plan_for,
    process_memory,
    step_flops,
    training_days,
    training_memory,
)
from bytemill.lm.training.config import TrainingConfig
from bytemill.lm.training.preparation import peak_rate
from bytemill.lm.training.run import WeightAverage
from tests.lm.conftest import sizes

if TYPE_CHECKING:
    from torch import Tensor

    from bytemill.lm.planning import Precision


SMALL: dict[str, Any] = sizes(50, 16, 24, 2, 4, 40)
VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm": "layer", "position": "learned", "feed_forward": "gelu", "tied_embeddings": True, "bias": True},
    {"position": "sinusoidal", "feed_forward": "relu", "norm_position": "post"},
    {"position": "none", "bias": True, "attention": {"num_kv_heads": 2, "sliding_window": 5}},
    {"norm": "layer", "norm_position": "post", "attention": {"num_kv_heads": 1}},
    {"mixer": ["window:5", "full:nope"], "attention": {"qk_norm": True}},
    {
        "logit_soft_cap": 15.0,
        "attention": {"head_dim": 10, "num_kv_heads": 2, "qkv_bias": True, "qk_norm": True},
    },
    {
        "position": "none",
        "norm": "layer",
        "norm_bias": False,
        "bias": True,
        "attention": {"head_dim": 8, "qk_norm": True},
    },
    {"norm": "layer", "residual": "parallel", "embedding_scale": 4.0},
    {"norm_position": "output", "attention": {"qk_norm": True, "qk_norm_over": "all", "num_kv_heads": 2}},
    {"norm_position": "sandwich", "attention": {"scale": 0.3}, "feed_forward": "geglu"},
    {"feed_forward": "clamped_swiglu"},
    {"feed_forward": "gelu_exact", "rope": {"fraction": 0.34, "scaling": "llama3", "factor": 2.0}},
    {"feed_forward": "relu2", "initialization": "gpt2", "rope": {"scaling": "linear", "factor": 2.0}},
]


@pytest.fixture(params=VARIANTS, ids=str)
def config(request: pytest.FixtureRequest) -> ModelConfig:
    return ModelConfig(**SMALL, **request.param)


def ids(config: ModelConfig, batch_size: int, n_tokens: int = 16) -> Tensor:
    return torch.randint(config.vocab_size, (batch_size, n_tokens))


def parts_of_module(model: TransformerLM) -> dict[str, int]:
    """Count the parameters in the state dict; a tensor with two names counts once."""
    counts = dict.fromkeys(parameters_by_part(model.config), 0)
    for name, parameter in model.named_parameters():
        part = (
            "token embeddings"
            if name.startswith("token_embeddings")
            else "position embeddings"
            if name.startswith("position_embeddings")
            else "attention"
            if ".attn." in name
            else "feed-forward"
            if ".ffn." in name
            else "output layer"
            if name.startswith("lm_head")
            else "norms"
        )
        counts[part] += parameter.numel()
    return counts


def test_parameters_are_those_of_the_module(config: ModelConfig) -> None:
    model = TransformerLM(config, device="meta")
    assert parameters_by_part(config) == parts_of_module(model)
    assert n_parameters(config) == model.n_parameters()


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_of_presets_are_those_of_the_module(name: str) -> None:
    assert parameters_by_part(preset(name)) == parts_of_module(TransformerLM(preset(name), device="meta"))


def test_parameters_without_embeddings() -> None:
    model = TransformerLM(ModelConfig(**SMALL, position="learned"))
    assert model.n_parameters() - model.n_parameters(non_embedding=True) == 50 * 24 + 16 * 24


@pytest.mark.parametrize("n_tokens", [16, 11])
def test_flops_are_those_that_torch_counts(config: ModelConfig, n_tokens: int) -> None:
    model, batch = TransformerLM(config), ids(config, 3, n_tokens)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(batch)
    assert counter.get_total_flops() == sum(forward_flops(config, 3, n_tokens).values())
    with FlopCounterMode(display=False) as counter:
        # linear_cross_entropy adds products in place, which the counter does not see.
        cross_entropy(model(batch), batch).backward()
    assert counter.get_total_flops() == sum(step_flops(config, 3, n_tokens).values())
    assert flops_per_token(config, n_tokens) == sum(step_flops(config, 1, n_tokens).values()) / n_tokens


@pytest.mark.skipif(
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu not in flop_registry,
    reason="platform: this torch does not count its attention on the CPU",
)
def test_flops_of_fused_attention_are_equal() -> None:
    config = ModelConfig(**SMALL)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        TransformerLM(config).use_kernels("torch")(ids(config, 2))
    assert counter.get_total_flops() == sum(forward_flops(config, 2).values())


def test_flops_of_gpt2_are_those_that_torch_counts() -> None:
    config = preset("gpt2")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        TransformerLM(config, device="meta")(torch.zeros(1, 1024, dtype=torch.long, device="meta"))
    assert counter.get_total_flops() == sum(forward_flops(config).values())


def kept_bytes(model: TransformerLM, batch: Tensor) -> int:
    """Return the bytes of all storages that autograd saves between forward and backward, except the weights."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}
    alive: list[Tensor] = []  # keep references, so that no address is reused

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model.loss(batch, batch)
    node: Any = loss.grad_fn  # linear_cross_entropy stores gradients instead of saved tensors
    return sum(kept.values()) + sum(gradient.nbytes for gradient in node.gradients)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_activations_are_the_tensors_that_autograd_saves(
    config: ModelConfig, batch_size: int, precision: Precision
) -> None:
    batch = ids(config, batch_size)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        kept = kept_bytes(TransformerLM(config).use_kernels("auto"), batch)
    assert kept == training_memory(config, precision=precision).activations(batch_size)


def test_state_of_the_optimizers(config: ModelConfig) -> None:
    model = TransformerLM(config)
    batch = ids(config, 1)
    model.loss(batch, batch).backward()
    optimizers: dict[Any, torch.optim.Optimizer] = {
        "adamw": AdamW(model.parameters()),
        "muon": Muon(muon_groups(model)),
        "sgd": SGD(model.parameters()),
    }
    for name, optimizer in optimizers.items():
        optimizer.step()
        states = [value for state in optimizer.state.values() for value in state.values()]
        n_bytes = sum(value.nbytes for value in states if isinstance(value, torch.Tensor))
        assert n_bytes == training_memory(config, optimizer=name).optimizer
    average = sum(tensor.nbytes for tensor in WeightAverage(model, 0.9).tensors)
    without, memory = training_memory(config), training_memory(config, average=True)
    assert memory.average == average == memory.total(3) - without.total(3)


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    memory = training_memory(preset("gpt2-xl"))
    most = largest_batch(memory, 80 * 10**9)
    assert memory.total(most) <= 80 * 10**9 < memory.total(most + 1)
    assert largest_batch(memory, 10**9) == 0


def test_a_plan() -> None:
    config = preset("gpt2-xl")
    found = plan(config, batch_size=4, available_bytes=80 * 10**9, flops_per_second=495e12, utilization=0.5)
    assert found.training_tokens == found.compute_optimal_tokens == 20 * n_parameters(config)
    assert found.days == pytest.approx(
        flops_per_token(config) * found.training_tokens / (495e12 * 0.5) / 86_400
    )
    as_dict = found.to_dict()
    assert as_dict["parameters"]["total"] == 1_557_611_200
    assert as_dict["memory_bytes"]["total"] == found.memory.total(4)
    assert found.fits == (found.largest_batch is not None and found.largest_batch >= 4)
    assert plan(config).fits is None
    assert compute_optimal_tokens(config) == 31_152_224_000


def test_plans_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="the context length is 128"):
        plan(preset("tiny"), n_tokens=129)
    with pytest.raises(ValueError, match="the utilization 0"):
        training_days(preset("tiny"), 1, 1e12, 0)


def test_half_precision_halves_the_inputs_of_products_and_keeps_copies_of_weights() -> None:
    config = preset("gpt2-xl")
    full, half = training_memory(config), training_memory(config, precision="bfloat16")
    assert half.optimizer == full.optimizer
    assert 0.5 < half.activations_per_sequence / full.activations_per_sequence < 0.75
    assert half.activations_fixed > 2 * 48 * 12 * 1600**2
    assert training_memory(config, precision="tf32") == full


def test_float32_is_planned_at_its_own_rate() -> None:
    rates = [
        plan_for(preset("gpt2"), device="a100", precision=precision).flops_per_second
        for precision in ("float32", "tf32", "bfloat16", "float16")
    ]
    assert rates == [19.5e12, 156e12, 312e12, 312e12]


@pytest.mark.parametrize("shape", VARIANTS[:2], ids=str)
def test_activations_at_the_width_of_gpt2_are_those_that_autograd_saves(shape: dict[str, Any]) -> None:
    config = ModelConfig(**sizes(1000, 128, 768, 2, 12, 3072), **shape)
    model = TransformerLM(config).use_kernels("auto")
    with torch.autocast("cpu", torch.bfloat16):
        kept = kept_bytes(model, ids(config, 1, 128))
    assert kept == training_memory(config, precision="bfloat16").activations(1)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", None),
        ("NVIDIA A40", "a40"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", "h100-nvl"),
        ("NVIDIA GH200 480GB", "h100"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", None),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L40", None),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla V100-PCIE-16GB", None),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("AMD Instinct MI300X", None),
    ],
)
def test_names_find_their_device(name: str, key: str | None):
    assert find_device(name) == key


@pytest.mark.parametrize(
    ("name", "share", "source"),
    [
        ("NVIDIA A100-SXM4-40GB", 1, "the peak of NVIDIA A100-SXM4-40GB"),
        (
            "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
            14 / 108,
            "the peak of 14 of the 108 multiprocessors of NVIDIA A100",
        ),
        ("NVIDIA L40S MIG 1g.5gb", None, "unknown for NVIDIA L40S MIG 1g.5gb, a part of a GPU"),
        ("NVIDIA Nothing", None, "unknown for NVIDIA Nothing in bfloat16"),
    ],
)
def test_the_peak_of_a_mig_slice_is_its_share(
    monkeypatch: pytest.MonkeyPatch, name: str, share: float | None, source: str
):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    properties = SimpleNamespace(multi_processor_count=14)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    config = SimpleNamespace(training=TrainingConfig())
    run: Any = SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16, config=config)
    rate, said = peak_rate(run)
    assert rate == (None if share is None else pytest.approx(312e12 * share))
    assert said.startswith(source)


def test_rates_grow_as_precision_falls():
    for rates in DEVICES.values():
        known = [rate for rate in (rates.float32, rates.tf32, rates.bfloat16) if rate]
        assert known == sorted(known)
        assert rates.bfloat16 in (None, rates.float16)


def test_a_precision_that_a_device_lacks_is_an_error():
    assert plan_for(preset("tiny"), device="T4", precision="float16").days
    with pytest.raises(RunConfigError, match="v100 has no products in bfloat16"):
        plan_for(preset("tiny"), device="v100", precision="bfloat16")


def test_a_process_holds_what_its_strategy_leaves_it() -> None:
    config = preset("llama-1b")
    alone = training_memory(config, average=True)
    block = sum(p.numel() for p in TransformerLM(config, device="meta").layers[0].parameters())

    def of(strategy: Any, n: int = 8) -> TrainingMemory:
        return process_memory(config, alone, strategy, n)

    assert of("ddp") == of("naive") == of("bucketed") == alone
    assert of("sharded_optimizer") == replace(alone, optimizer=alone.optimizer // 8)
    assert of("fully_sharded") == of("fsdp")
    assert of("fsdp") == replace(
        alone,
        parameters=alone.parameters // 8 + 2 * 4 * block,
        gradients=alone.gradients // 8,
        optimizer=alone.optimizer // 8,
        average=alone.average // 8,
    )
    assert of("fsdp", 1) == of("sharded_optimizer", 1) == alone
    assert of("offload", 1) == of("offload") == replace(alone, optimizer=0)
    planned = plan(config, strategy="fsdp", n_processes=8, flops_per_second=1e15)
    assert planned.days == pytest.approx(plan(config, flops_per_second=8e15).days)
