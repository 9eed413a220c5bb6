"""The settings of each mixer: a table of the model's configuration. This module does not need torch."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from bytemill.errors import BytemillError, ModelConfigError
from bytemill.lm.settings import Settings

_Count = Annotated[int, Field(ge=1)]


class _MixerConfig(Settings):
    error_type: ClassVar[type[BytemillError]] = ModelConfigError

    @classmethod
    def keys(cls, table: str) -> frozenset[str]:
        """Return the names of the settings in the table of a model."""
        return frozenset(f"{table}.{name}" for name in cls.fields_by_name())


class MLAConfig(_MixerConfig):
    """Settings of multi-head latent attention: the table `mla` of a model."""

    q_rank: _Count | None = None
    """Width that queries are compressed to; by default they are not."""
    kv_rank: _Count | None = None
    """Width that keys and values are compressed to; by default 4 times that of a head."""
    rope_dim: _Count | None = None
    """Width of the part of queries and keys that is rotated; by default an even number, about half of a head."""


class LinearConfig(_MixerConfig):
    """Settings of linear attention: the table `linear` of a model."""

    chunk: _Count = 64
    """Number of tokens that are computed at once in training and for prompts; it does not change results."""


class DeltaConfig(_MixerConfig):
    """Settings of the gated delta rule: the table `delta` of a model."""

    key_heads: _Count | None = None
    """Number of heads of queries and keys; by default num_heads."""
    value_heads: _Count | None = None
    """Number of heads of values, a multiple of key_heads; by default key_heads."""
    key_dim: _Count | None = None
    """Width of a head of queries and keys; by default that of an attention head."""
    value_dim: _Count | None = None
    """Width of a head of values; by default that of an attention head."""
    convolution: _Count = 4
    """Number of tokens that the convolution of queries, keys and values sees."""
    chunk: _Count = 64
    """Number of tokens that are computed at once in training and for prompts; it does not change results."""


class MambaConfig(_MixerConfig):
    """Settings of Mamba-2: the table `mamba` of a model."""

    state: _Count = 64
    """Size of the state of each channel."""
    expand: _Count = 2
    """Inner width by d_model."""
    head_dim: _Count | None = None
    """Width of a head; by default 64, or the largest divisor of it that divides the inner width."""
    groups: _Count = 1
    """Groups of heads that share the matrices B and C."""
    convolution: _Count = 4
    """Number of tokens that the convolution sees."""
    chunk: _Count = 64
    """Number of tokens that are computed at once in training and for prompts; it does not change results."""


class HyenaConfig(_MixerConfig):
    """Settings of Hyena: the table `hyena` of a model."""

    order: Annotated[int, Field(ge=2)] = 2
    """Number of gates; between two of them is a long convolution."""
    filter_width: _Count = 64
    """Width of the network that computes the long filters."""
    filter_layers: _Count = 2
    """Number of its inner layers."""
    filter_features: Annotated[int, Field(ge=3)] = 5
    """Number of features of a position, its input; an odd number."""
    convolution: _Count = 3
    """Number of tokens that the short convolution sees."""
