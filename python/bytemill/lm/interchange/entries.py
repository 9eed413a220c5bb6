"""Tensors of other programs, and the tensors of this package that they hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from bytemill.lm.model import TransformerLM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bytemill.lm.model_config import ModelConfig


Layout = Literal[
    "gpt2", "nanogpt", "llama", "gguf-gpt2", "gguf-llama", "gguf-qwen",
    "gemma2", "gemma3_text", "phi3", "olmo2", "olmo3", "gpt_neox", "smollm3", "mixtral", "qwen3_moe", "gpt_oss",
]  # fmt: skip
Shapes = dict[str, tuple[int, ...]]
ROTATED = frozenset({"q_proj", "k_proj", "q_norm", "k_norm"})
"""Modules whose rows the rotary embedding pairs."""


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
    with row i + d_rotary / 2, this package's row 2i with row 2i + 1."""
    d_rotary: int | None = None
    """Rows of a head that are rotated, from its start; by default all."""
    is_offset: bool = False
    """Stored as the difference from 1. In float32, this rounds by up to 6e-8; bfloat16 comes back as it was."""

    def shape(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """Return the shape in the other format, for this package's `shapes`."""
        own = [shapes[name] for name in self.ours]
        stacked = (sum(shape[0] for shape in own), *own[0][1:])
        return stacked[::-1] if self.is_transposed else stacked

    def to_ours(self, tensor: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """Split the other format's tensor into tensors of `shapes`, in float32."""
        tensor = (tensor.T if self.is_transposed else tensor).float()
        parts = [self._ordered(name, part, to_theirs=False) for name, part in self._split(tensor, shapes)]
        parts = [part + 1 if self.is_offset else part for part in parts]
        return {name: part.contiguous() for name, part in zip(self.ours, parts, strict=True)}

    def to_theirs(self, state: Mapping[str, Tensor]) -> Tensor:
        """Return the other format's tensor."""
        parts = [self._ordered(name, state[name].detach(), to_theirs=True) for name in self.ours]
        tensor = self._join(parts)
        tensor = tensor - 1 if self.is_offset else tensor
        return (tensor.T if self.is_transposed else tensor).contiguous()

    def _split(self, tensor: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, Tensor]]:
        parts: Sequence[Tensor] = torch.split(tensor, [shapes[name][0] for name in self.ours])
        return list(zip(self.ours, parts, strict=True))

    def _join(self, parts: list[Tensor]) -> Tensor:
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _ordered(self, name: str, rows: Tensor, *, to_theirs: bool) -> Tensor:
        """Reorder the rows of each head, if they are rotated."""
        if self.d_head is None or name.split(".")[-2] not in ROTATED:
            return rows
        n = self.d_head if self.d_rotary is None else self.d_rotary
        pairs = torch.arange(n).view((-1, 2) if to_theirs else (2, -1)).T.reshape(-1)
        order = torch.cat((pairs, torch.arange(n, self.d_head)))
        return rows.view(-1, self.d_head, *rows.shape[1:])[:, order].reshape(rows.shape)


@dataclass(frozen=True)
class HeadsEntry(Entry):
    """A tensor in which the rows of a head's query, key and value follow each other, head by head (GPT-NeoX)."""

    def _split(self, tensor: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, Tensor]]:
        assert self.d_head is not None  # noqa: S101
        heads = tensor.view(-1, len(self.ours), self.d_head, *tensor.shape[1:]).unbind(1)
        return [(name, head.reshape(shapes[name])) for name, head in zip(self.ours, heads, strict=True)]

    def _join(self, parts: list[Tensor]) -> Tensor:
        heads = [part.view(-1, self.d_head or 1, *part.shape[1:]) for part in parts]
        return torch.stack(heads, dim=1).flatten(0, 2)


@dataclass(frozen=True)
class ExpertsEntry(Entry):
    """A tensor with a matrix (d_in, d_out), or a bias, of each expert (gpt-oss)."""

    n_alternating: int = 1
    """Matrices of an expert whose columns alternate."""

    def shape(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        d_out, *d_in = shapes[self.ours[0]]
        return (len(self.ours) // self.n_alternating, *d_in, d_out * self.n_alternating)

    def _split(self, tensor: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, Tensor]]:  # noqa: ARG002
        parts = [
            expert[..., number :: self.n_alternating].T
            if expert.ndim == 2
            else expert[number :: self.n_alternating]
            for expert in tensor
            for number in range(self.n_alternating)
        ]
        return list(zip(self.ours, parts, strict=True))

    def _join(self, parts: list[Tensor]) -> Tensor:
        columns = [part.T if part.ndim == 2 else part for part in parts]
        n = self.n_alternating
        experts = [torch.stack(columns[i : i + n], dim=-1).flatten(-2) for i in range(0, len(columns), n)]
        return torch.stack(experts)


def tensor_shapes(config: ModelConfig) -> Shapes:
    """Return the shape of each tensor of a model; tied tensors are listed once, under their first name."""
    model = TransformerLM(config, device="meta")
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def named_entries(
    config: ModelConfig,
    names: Mapping[str, str],
    *,
    types: Mapping[str, type[Entry]] | None = None,
    has_offsets: bool = False,
) -> list[Entry]:
    """Return an entry for each tensor of a model in a format that names modules as this package nests them.

    Args:
        config: Shape of the model.
        names: Module here, or tensor, -> module or tensor there. `{0}` stands for the number of the layer, `{1}` for
            that of the expert. Tensors of one name there are stacked in the order of this package.
        types: Last word of a module's or a tensor's name there -> class of its entries.
        has_offsets: Weights of norms are stored as differences from 1.
    """
    shapes = tensor_shapes(config)
    grouped: dict[str, list[str]] = {}
    for own in shapes:
        numbers = re.findall(r"\.(\d+)(?=\.)", own)
        pattern = own
        for index, number in enumerate(numbers):
            pattern = pattern.replace(f".{number}.", f".{{{index}}}.", 1)
        stem, _, kind = pattern.rpartition(".")
        theirs = names[pattern] if pattern in names else f"{names[stem]}.{kind}"
        grouped.setdefault(theirs.format(*numbers), []).append(own)
    is_rotary = config.position == "rotary"
    result: list[Entry] = []
    for theirs, ours in grouped.items():
        words = theirs.split(".")
        kind = next((types[word] for word in reversed(words) if types and word in types), Entry)
        is_norm = ours[0].rpartition(".")[0].rpartition(".")[2].startswith(("ln", "q_norm", "k_norm"))
        options: dict[str, Any] = (
            {} if kind is not ExpertsEntry else {"n_alternating": len(ours) // config.moe.experts}
        )
        result.append(
            kind(
                theirs,
                tuple(ours),
                d_head=config.d_head if is_rotary or kind is HeadsEntry else None,
                d_rotary=config.d_rotary if is_rotary else 0,
                is_offset=has_offsets and is_norm,
                **options,
            )
        )
    return result
