"""Conversion to another layout and back changes nothing, and every tensor has exactly one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bytemill.lm import ModelConfig
from bytemill.lm.interchange.architectures import entries
from bytemill.lm.interchange.entries import Layout, tensor_shapes
from bytemill.lm.interchange.families.registry import FAMILIES
from tests.lm.conftest import sizes

if TYPE_CHECKING:
    from torch import Tensor


def config(layout: str, **options: Any) -> ModelConfig:
    if "gpt" in layout.removeprefix("gguf"):
        options |= {"norm": "layer", "position": "learned", "feed_forward": "gelu", "attention": {}}
    return ModelConfig(**sizes(7, 5, 8, 2, 4, 6), **options)


@given(
    layout=st.sampled_from([layout for layout in get_args(Layout) if layout not in FAMILIES]),
    tied=st.booleans(),
    bias=st.booleans(),
    qk_norm=st.booleans(),
    kv_heads=st.sampled_from([None, 1, 2]),
    head_dim=st.sampled_from([None, 4, 6]),
)
def test_the_layouts_are_bijections(
    layout: Layout, tied: bool, bias: bool, qk_norm: bool, kv_heads: int | None, head_dim: int | None
) -> None:
    shape = config(
        layout,
        tied_embeddings=tied,
        bias=bias,
        attention={"qk_norm": qk_norm, "num_kv_heads": kv_heads, "head_dim": head_dim},
    )
    shapes = tensor_shapes(shape)
    state = {name: torch.randn(own) for name, own in shapes.items()}
    found = entries(layout, shape)
    assert sorted(name for entry in found for name in entry.ours) == sorted(state)
    assert len({entry.theirs for entry in found}) == len(found)
    back: dict[str, Tensor] = {}
    for entry in found:
        tensor = entry.to_theirs(state)
        assert tuple(tensor.shape) == entry.shape(shapes)
        back |= entry.to_ours(tensor, shapes)
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize("layout", ["llama", "gguf-qwen"])
def test_rows_of_queries_and_keys_are_stored_as_halves(layout: Layout) -> None:
    shape = config(layout, attention={"head_dim": 4})
    (entry,) = (entry for entry in entries(layout, shape) if entry.ours == ("layers.1.attn.k_proj.weight",))
    rows = torch.arange(16.0)[:, None].expand(16, 8)
    first = entry.to_theirs({entry.ours[0]: rows})[:8, 0].tolist()
    assert first == [0, 2, 1, 3, 4, 6, 5, 7]
