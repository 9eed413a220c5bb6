"""torch.compile calls the kernels without breaking the graph."""

import pytest
import torch
from torch import Tensor

from bytemill.lm.kernels.triton import causal_attention, normalized


@pytest.mark.slow
def test_the_compiler_keeps_one_graph(device: str) -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(1, 20, 2, 16, generator=random).to(device).requires_grad_()
    weight = torch.randn(16, generator=random).to(device).requires_grad_()
    leaves = [x, weight]

    def compute(x: Tensor, weight: Tensor) -> Tensor:
        heads = normalized(x, weight, None, 1e-5, centred=False).transpose(1, 2)
        return causal_attention(heads, heads[:, :1], heads[:, :1] * 2, window=7).square().sum()

    compiled = torch.compile(compute, fullgraph=True, backend="aot_eager")
    want, got = compute(*leaves), compiled(*leaves)
    assert torch.equal(got, want)
    for a, b in zip(torch.autograd.grad(got, leaves), torch.autograd.grad(want, leaves), strict=True):
        torch.testing.assert_close(a, b)
