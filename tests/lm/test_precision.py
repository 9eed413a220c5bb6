"""Mixed precision: the type of every matrix product, of what stays float32, and the scale of float16's loss."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bytemill.errors import RunConfigError
from bytemill.lm.device import autocast, pick_precision
from bytemill.lm.model import ModelConfig, TransformerLM
from bytemill.lm.training.run import LossScale
from bytemill.lm.training.trainer import train
from tests.lm.conftest import sizes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm.model_config import KernelName
    from bytemill.lm.training.config import Resolved

SIZES: dict[str, Any] = sizes(96, 16, 32, 2, 4, 48)
GPT2: dict[str, Any] = {
    "norm": "layer", "position": "learned", "feed_forward": "gelu", "bias": True, "tied_embeddings": True,
}  # fmt: skip
LLAMA: dict[str, Any] = {"attention": {"num_kv_heads": 2}}
NANOCHAT: dict[str, Any] = {
    "feed_forward": "relu2",
    "logit_soft_cap": 15.0,
    "attention": {"head_dim": 16, "qk_norm": True},
}
SHAPES = {"gpt2": GPT2, "llama": LLAMA, "nanochat": NANOCHAT}
PRODUCTS = {
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "mkldnn::_linear_pointwise",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
}


class Products(TorchDispatchMode):
    """Count the matrix products by the type of their inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.types: Counter[torch.dtype] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split(".")[0]
        if name in PRODUCTS:
            inputs = args[1:3] if name in {"aten::addmm", "aten::baddbmm"} else args[:2]
            self.types.update(tensor.dtype for tensor in inputs)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kernels", ["scratch", "torch", "auto"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_product_is_narrow_and_the_rest_wide(
    shape: dict[str, Any], kernels: KernelName, dtype: torch.dtype
) -> None:
    model = TransformerLM(ModelConfig(**SIZES, **shape), seed=0).use_kernels(kernels)
    streams: list[torch.dtype] = []
    for layer in model.layers:
        cast("Any", layer).ln2.register_forward_pre_hook(lambda _, inputs: streams.append(inputs[0].dtype))
    ids = torch.randint(96, (2, 17), generator=torch.Generator().manual_seed(0))
    with Products() as products:
        with autocast(torch.device("cpu"), dtype):
            loss = model.loss(ids[:, :-1], ids[:, 1:])
        loss.backward()
    assert set(products.types) == {dtype}
    # A block has 4 products of attention's projections, 2 or 3 of the feed-forward network, and attention itself,
    # which is one operation in torch's kernel; the backward pass has two for each. Each product has two inputs.
    n_linear = 7 if shape is LLAMA else 6
    assert products.types[dtype] >= 2 * (3 * (2 * n_linear + 1) + 2 * 2)
    assert loss.dtype == torch.float32
    assert set(streams) == {torch.float32}  # the residual stream
    assert all(p.dtype == torch.float32 and p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("kernels", ["scratch", "torch", "auto"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_bfloat16_gradients_are_within_2_percent_of_float32(
    shape: dict[str, Any], kernels: KernelName
) -> None:
    # An input rounds to 8 bits, by at most 2⁻⁹ = 0.2 % of itself; the errors of a few layers add up.
    model = TransformerLM(ModelConfig(**SIZES, **shape), seed=0).use_kernels(kernels)
    ids = torch.randint(96, (2, 17), generator=torch.Generator().manual_seed(0))
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for dtype in (torch.float32, torch.bfloat16):
        with autocast(torch.device("cpu"), dtype):
            loss = model.loss(ids[:, :-1], ids[:, 1:])
        gradients = torch.autograd.grad(loss, tuple(model.parameters()))
        found.append((loss.detach(), torch.cat([gradient.flatten() for gradient in gradients])))
    (loss, gradient), (narrow_loss, narrow_gradient) = found
    assert abs(float(narrow_loss - loss)) < 2e-3
    assert float((narrow_gradient - gradient).norm() / gradient.norm()) < 0.02


def test_the_scale_halves_on_overflow_and_doubles_after_finite_steps() -> None:
    scale = LossScale(4.0, growth_steps=2)
    assert scale.update(is_finite=False)
    assert scale.value == 2
    assert [scale.update(is_finite=True) for _ in range(3)] == [False] * 3
    assert (scale.value, scale.n_finite) == (4, 1)
    for _ in range(2):
        assert scale.update(is_finite=False)
    assert not scale.update(is_finite=False)  # no smaller scale: the loss itself is not finite
    assert scale.value == 1


def test_gradients_are_divided_by_the_scale() -> None:
    weight = torch.ones(3, requires_grad=True)
    scale = LossScale(8.0)
    (scale.value * weight.sum()).backward()
    scale.unscale([weight, torch.ones(1)])
    assert weight.grad is not None
    assert weight.grad.tolist() == [1, 1, 1]


def losses(resolved: Resolved) -> list[float]:
    found: list[float] = []
    train(
        resolved, on_record=lambda record: found.append(record["loss"]) if record["kind"] == "step" else None
    )
    return found


def test_float16_trains_like_float32(settings: Callable[..., Resolved], tmp_path: Path) -> None:
    common: dict[str, Any] = {"run.log_every": 1, "training.steps": 6}
    wide = losses(settings(**common, **{"run.folder": str(tmp_path / "wide")}))
    half = {**common, "training.precision": "float16"}
    narrow = losses(settings(**half, **{"run.folder": str(tmp_path / "narrow")}))
    assert len(wide) == len(narrow) == 6
    assert all(math.isclose(a, b, rel_tol=1e-2) for a, b in zip(wide, narrow, strict=True))


def test_tf32_needs_cuda() -> None:
    with pytest.raises(RunConfigError, match="tf32 needs a CUDA device"):
        pick_precision("tf32", torch.device("cpu"))
