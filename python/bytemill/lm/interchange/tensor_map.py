"""Names and layouts of tensors in other formats, and their conversion in both directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from bytemill.lm.model import TransformerLM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bytemill.lm.model_config import ModelConfig

Layout = Literal["gpt2", "nanogpt", "llama", "gguf-gpt2", "gguf-llama", "gguf-qwen"]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Entry:
    """A tensor of another format, and the tensors of this package that it holds."""

    theirs: str
    ours: tuple[str, ...]
    """Several tensors are stacked along their first dimension."""
    is_transposed: bool = False
    """Stored as (d_in, d_out)."""
    d_head: int | None = None
    """Width of the heads whose rows are stored as two halves. The rotary embedding of the other format rotates row i
    with row i + d_head / 2, this package's row 2i with row 2i + 1."""

    def shape(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """Return the shape in the other format, for this package's `shapes`."""
        own = [shapes[name] for name in self.ours]
        stacked = (sum(shape[0] for shape in own), *own[0][1:])
        return stacked[::-1] if self.is_transposed else stacked

    def to_ours(self, tensor: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """Split the other format's tensor into tensors of `shapes`, in float32."""
        tensor = (tensor.T if self.is_transposed else tensor).float()
        parts: Sequence[Tensor] = torch.split(tensor, [shapes[name][0] for name in self.ours])
        if self.d_head is not None:
            order = torch.arange(self.d_head).view(2, -1).T.reshape(-1)
            parts = [_reordered(part, order) for part in parts]
        return {name: part.contiguous() for name, part in zip(self.ours, parts, strict=True)}

    def to_theirs(self, state: Mapping[str, Tensor]) -> Tensor:
        """Return the other format's tensor."""
        parts = [state[name].detach() for name in self.ours]
        if self.d_head is not None:
            order = torch.arange(self.d_head).view(-1, 2).T.reshape(-1)
            parts = [_reordered(part, order) for part in parts]
        tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
        return (tensor.T if self.is_transposed else tensor).contiguous()


def entries(layout: Layout, config: ModelConfig) -> list[Entry]:
    """Return an entry for each tensor of a model in another format."""
    shapes = tensor_shapes(config)
    is_gpt2 = layout in ("gpt2", "nanogpt", "gguf-gpt2")
    names = _GPT2 if is_gpt2 else _LLAMA
    if layout.startswith("gguf"):
        names = {**_GGUF, "w1": "ffn_up"} if is_gpt2 else _GGUF
    qkv = [(name, (f"attn.{name}",)) for name in ("q_proj", "k_proj", "v_proj")]
    if is_gpt2:
        qkv = [("qkv", tuple(ours for _, (ours,) in qkv))]
    halves = config.d_head if layout in ("llama", "gguf-qwen") and config.position == "rotary" else None
    result: list[Entry] = []

    def add(theirs: str, ours: tuple[str, ...]) -> None:
        for kind in ("weight", "bias"):
            own = tuple(f"{name}.{kind}" for name in ours)
            if own[0] in shapes:
                is_matrix = len(shapes[own[0]]) == 2 and own[0].startswith("layers")
                is_rotated = ours[0].rpartition(".")[2] in ("q_proj", "k_proj", "q_norm", "k_norm")
                result.append(
                    Entry(
                        f"{theirs}.{kind}",
                        own,
                        is_transposed=layout == "gpt2" and is_matrix,
                        d_head=halves if is_rotated else None,
                    )
                )

    for ours in ("token_embeddings", "position_embeddings"):
        add(names[ours], (ours,))
    for number in range(config.num_layers):
        block = names["layers"].format(number)
        parts = [(name, (f"{folder}.{name}" if folder else name,)) for folder, name in _PARTS]
        for name, ours in [*qkv, *parts]:
            add(f"{block}.{names[name]}", tuple(f"layers.{number}.{own}" for own in ours))
    add(names["ln_final"], ("ln_final",))
    if not config.tied_embeddings:
        add(names["lm_head"], ("lm_head",))
    return result


def tensor_shapes(config: ModelConfig) -> Shapes:
    """Return the shape of each tensor of a model; tied tensors are listed once, under their first name."""
    model = TransformerLM(config, device="meta")
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _reordered(rows: Tensor, order: Tensor) -> Tensor:
    """Reorder the rows of each head."""
    return rows.view(-1, len(order), *rows.shape[1:])[:, order].reshape(rows.shape)


_PARTS = (
    *(("attn", name) for name in ("q_norm", "k_norm", "output_proj")),
    *(("", name) for name in ("ln1", "ln2")),
    *(("ffn", name) for name in ("w1", "w2", "w3")),
)
# Names without the prefix "transformer." of GPT-2 or "model." of Llama. Absent: the architecture has no such tensor.
_GPT2 = {
    "token_embeddings": "wte",
    "position_embeddings": "wpe",
    "layers": "h.{}",
    "ln_final": "ln_f",
    "lm_head": "lm_head",
    "qkv": "attn.c_attn",
    "q_norm": "",
    "k_norm": "",
    "output_proj": "attn.c_proj",
    "ln1": "ln_1",
    "ln2": "ln_2",
    "w1": "mlp.c_fc",
    "w2": "mlp.c_proj",
    "w3": "",
}
_LLAMA = {
    "token_embeddings": "embed_tokens",
    "position_embeddings": "",
    "layers": "layers.{}",
    "ln_final": "norm",
    "lm_head": "lm_head",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "output_proj": "self_attn.o_proj",
    "ln1": "input_layernorm",
    "ln2": "post_attention_layernorm",
    "w1": "mlp.gate_proj",
    "w2": "mlp.down_proj",
    "w3": "mlp.up_proj",
}
_GGUF = {
    "token_embeddings": "token_embd",
    "position_embeddings": "position_embd",
    "layers": "blk.{}",
    "ln_final": "output_norm",
    "lm_head": "output",
    "qkv": "attn_qkv",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "output_proj": "attn_output",
    "ln1": "attn_norm",
    "ln2": "ffn_norm",
    "w1": "ffn_gate",
    "w2": "ffn_down",
    "w3": "ffn_up",
}
