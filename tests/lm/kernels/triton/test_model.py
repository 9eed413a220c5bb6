"""A model with Triton's kernels equals the textbook."""

from typing import Any

import pytest
import torch

from bytemill.lm.kernels.choice import triton_kernels
from bytemill.lm.model import ModelConfig, TransformerLM
from tests.lm.conftest import sizes


@pytest.mark.parametrize(
    "options",
    [
        {"logit_soft_cap": 5.0, "attention": {"num_kv_heads": 1, "sliding_window": 5}},
        {
            "norm": "layer",
            "feed_forward": "gelu",
            "position": "learned",
            "bias": True,
            "tied_embeddings": True,
        },
    ],
    ids=["llama", "gpt2"],
)
def test_losses_and_gradients_of_a_model_equal_the_textbook(options: dict[str, Any], device: str) -> None:
    model = TransformerLM(ModelConfig(**sizes(50, 16, 32, 1, 2, 48) | options), seed=0).to(device)
    ids = torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(0)).to(device)

    def loss_and_gradients() -> list[torch.Tensor]:
        loss = model.loss(ids[:, :-1], ids[:, 1:])
        return [loss, *torch.autograd.grad(loss, list(model.parameters()))]

    want = loss_and_gradients()
    model.use_kernels(triton_kernels())
    for a, b in zip(loss_and_gradients(), want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
