"""Activation checkpointing: the gradients of the model itself, from less memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from bytemill.lm.kernels.choice import choose_kernels
from bytemill.lm.model import ModelConfig, TransformerLM
from bytemill.lm.planning import training_memory
from tests.lm.conftest import sizes

if TYPE_CHECKING:
    from torch import Tensor

    from bytemill.lm.model_config import KernelName
    from bytemill.lm.planning import CheckpointingName

SMALL: dict[str, Any] = sizes(50, 16, 24, 3, 4, 40)
LARGER: dict[str, Any] = sizes(256, 128, 128, 4, 4, 344)
SHAPES: list[dict[str, Any]] = [
    {},
    {"bias": True, "attention": {"num_kv_heads": 2, "sliding_window": 5, "qk_norm": True}},
    {"norm": "layer", "feed_forward": "gelu", "position": "learned", "bias": True},
    {"norm_position": "post", "feed_forward": "relu2", "attention": {"head_dim": 8}},
]


def gradients(
    config: ModelConfig, kernels: KernelName, name: CheckpointingName, dtype: torch.dtype | None = None
) -> list[Tensor]:
    model = TransformerLM(config, seed=1).use_kernels(kernels)
    model.checkpoint_activations(name)
    ids = torch.randint(50, (2, 17), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(2)
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        loss = model.loss(ids[:, :-1], ids[:, 1:])
    return [loss.detach(), *torch.autograd.grad(loss, tuple(model.parameters()))]


@pytest.mark.parametrize(
    ("kernels", "shape", "dtype"),
    [
        *(("auto", shape, dtype) for shape in SHAPES for dtype in (None, torch.bfloat16)),
        *((kernels, shape, None) for shape in SHAPES[1:3] for kernels in ("torch", "scratch")),
    ],
    ids=str,
)
def test_gradients_are_those_without_checkpointing_bit_for_bit(
    kernels: KernelName, shape: dict[str, Any], dtype: torch.dtype | None
):
    config = ModelConfig(**SMALL, **shape)
    expected = gradients(config, kernels, "none", dtype)
    for name in ("selective", "full"):
        assert all(map(torch.equal, gradients(config, kernels, name, dtype), expected))


@pytest.mark.parametrize("name", ["selective", "full"])
def test_dropout_drops_the_same_numbers_when_a_block_is_computed_again(name: CheckpointingName):
    config = ModelConfig(**SMALL, dropout=0.3)
    assert all(map(torch.equal, gradients(config, "auto", name), gradients(config, "auto", "none")))


def peak_bytes(model: TransformerLM, batch: Tensor, dtype: torch.dtype | None) -> int:
    """Return the most memory that torch allocates at once in a second step, beyond weights and gradients."""
    for is_measured in (False, True):
        with profile(activities=[ProfilerActivity.CPU], profile_memory=is_measured) as measured:
            with torch.autocast("cpu", dtype, enabled=dtype is not None):
                loss = model.loss(batch, batch)
            loss.backward()
    profiler: Any = measured.profiler
    events = profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    current = peak = 0
    for _, n_bytes in changes:
        current += n_bytes
        peak = max(peak, current)
    return peak


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # of older torch
@pytest.mark.parametrize(("shape", "dtype"), [(SHAPES[0], None), (SHAPES[2], torch.bfloat16)], ids=str)
def test_the_planned_memory_is_what_torch_allocates(shape: dict[str, Any], dtype: torch.dtype | None):
    config = ModelConfig(**LARGER, **shape)
    batch = torch.randint(256, (8, 128))
    temporary = 0
    for name in ("none", "selective", "full"):
        model = TransformerLM(config, seed=1).use_kernels("auto")
        model.checkpoint_activations(name)
        peak = peak_bytes(model, batch, dtype)
        planned = training_memory(
            config, precision="float32" if dtype is None else "bfloat16", checkpointing=name
        ).activations(8)
        if name == "none":
            temporary = peak - planned  # of operations; the plan does not count it
        assert 0.9 * planned <= peak <= 1.1 * planned + temporary


def test_checkpointing_is_for_training_alone():
    model = TransformerLM(ModelConfig(**SMALL), seed=1)
    ids = torch.randint(50, (1, 16))
    expected = model(ids)
    model.checkpoint_activations("full")
    assert torch.equal(model.eval()(ids), expected)
    assert model(ids).grad_fn is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("name", ["none", "selective", "full"])
@pytest.mark.parametrize(
    ("kernels", "backend"),
    [  # the first has all of the compiler but the generation of code, for which one choice of kernels is enough
        *((kernels, "aot_eager_decomp_partition") for kernels in ("auto", "torch", "scratch")),
        ("scratch", "inductor"),
    ],
)
def test_compiled_blocks_have_nearly_the_same_gradients(
    name: CheckpointingName, kernels: KernelName, backend: str
):
    config = ModelConfig(**SMALL)
    device = torch.device("cpu")
    torch._dynamo.reset()
    results: list[list[Tensor]] = []
    ids = torch.randint(50, (2, 17), generator=torch.Generator().manual_seed(1))
    for is_compiled in (False, True):
        model = TransformerLM(config, seed=1).use_kernels(
            choose_kernels(kernels, device, compiled=is_compiled)
        )
        if is_compiled:
            model.checkpoint_activations(name)
            model.compile_blocks(backend=backend)
        loss = model.loss(ids[:, :-1], ids[:, 1:])
        results.append([loss.detach(), *torch.autograd.grad(loss, tuple(model.parameters()))])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)
