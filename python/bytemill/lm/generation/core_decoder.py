"""The core's decoder: logits after one token at a time, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import ModuleList

from bytemill._core import TokenDecoder
from bytemill.lm.device import are_cores_shared
from bytemill.lm.model import (
    Dropout,
    Embedding,
    FeedForward,
    KVCache,
    LayerNorm,
    Linear,
    MultiHeadSelfAttention,
    RMSNorm,
    RotaryEmbedding,
    SwiGLU,
    TransformerBlock,
    TransformerLM,
)
from bytemill.lm.model_config import FEED_FORWARDS, NORMS
from bytemill.lm.quantization import QuantizedEmbedding, QuantizedLinear, QuantizedWeight, quantized_weights

if TYPE_CHECKING:
    from torch import Tensor

_PARTS = frozenset(
    {
        *(TransformerLM, TransformerBlock, MultiHeadSelfAttention, RotaryEmbedding, SwiGLU, FeedForward),
        *(Embedding, Linear, RMSNorm, LayerNorm, Dropout, ModuleList),
    }
)
"""The modules that decoders compute; a subclass may compute something else."""


_QUANTIZED = frozenset({QuantizedLinear, QuantizedEmbedding, QuantizedWeight})


def has_known_parts(model: TransformerLM, known: frozenset[type[Any]] = _PARTS) -> bool:
    """Return True if a decoder can compute the model: it consists of modules and options that decoders know."""
    config = model.config
    mixers = (layer.part for layer in config.layers)
    parts = (*mixers, FEED_FORWARDS[config.feed_forward], NORMS[config.norm])
    has_known_modules = {type(module) for module in model.modules()} <= known
    is_known = config.norm_position in {"pre", "post"} and config.residual == "sequential"
    return (
        has_known_modules
        and is_known
        and all(part.in_core for part in parts)
        and not config.unknown_options({"mixer"})
    )


class CoreDecoder:
    """Computes the logits after one token as `TransformerLM.forward` does, and adds to the same cache.

    Weights are used in place, so that a change of their numbers is seen; the tensors must not be replaced.

    Args:
        model: A model that `supports` accepts.
        cache: Its cache, for one sequence without padding.
    """

    def __init__(self, model: TransformerLM, cache: KVCache) -> None:
        config = model.config
        self._context_length = config.context_length
        self._cache = cache
        blocks: list[Any] = list(model.layers)
        rope = blocks[0].attn.rope
        sinusoids = model.sinusoids if config.position == "sinusoidal" else None
        learned = model.position_embeddings.weight if config.position == "learned" else None
        final: Any = model.ln_final if config.has_final_norm else None
        weights: dict[str, Any] = {
            "embedding": _weight(model.token_embeddings),
            "positions": sinusoids if learned is None else learned,
            "rotations": None if rope is None else rope.rotations,
            "final.weight": None if final is None else final.weight,
            "final.bias": getattr(final, "bias", None),
            "head": _weight(model.lm_head),
        }
        self._decoder = TokenDecoder(
            {
                "vocab_size": config.vocab_size,
                "d_model": config.d_model,
                "d_head": config.d_head,
                "n_heads": config.num_heads,
                "n_kv_heads": config.n_kv_heads,
                "norm_first": config.norm_position == "pre",
                "centred": config.norm == "layer",
                "eps": config.norm_eps,
                "activation": config.feed_forward,
                "soft_cap": config.logit_soft_cap,
            },
            _arrays(weights),
            [_arrays(_block_weights(block)) for block in blocks],
            [(layer.keys[0].numpy(), layer.values[0].numpy()) for layer in cache.layers],
            torch.get_num_threads(),
        )

    @staticmethod
    def supports(model: TransformerLM, cache: KVCache) -> bool:
        """Return True for one sequence, and a model of known parts, in float32 or quantized, on the CPU."""
        if not has_known_parts(model, _PARTS | _QUANTIZED):
            return False
        tensors = [*model.parameters(), *(layer.keys for layer in cache.layers)]
        codes = [tensor for each in quantized_weights(model).values() for tensor in (each.codes, each.scales)]
        blocks: list[Any] = list(model.layers)
        return (
            cache.batch_size == 1
            and cache.n_padding is None
            and all(layer.keys.numel() > 0 for layer in cache.layers)
            and all(block.attn.rope is blocks[0].attn.rope for block in blocks)
            and all(tensor.dtype == torch.float32 for tensor in tensors)
            and all(tensor.device.type == "cpu" and tensor.is_contiguous() for tensor in (*tensors, *codes))
        )

    def logits_after(self, token_id: int) -> Tensor:
        """Return the logits after the next token, (vocab_size,).

        Raises:
            ValueError: The context is full.
        """
        position = self._cache.n_positions
        if position >= self._context_length:
            raise ValueError(
                f"{position + 1} positions exceed the context length of {self._context_length} tokens"
            )
        logits = self._decoder.next_logits(token_id, position, alone=are_cores_shared())
        self._cache.advance_to(position + 1)
        return torch.from_numpy(logits)  # pyright: ignore[reportUnknownMemberType]


def _weight(module: Any) -> Tensor | QuantizedWeight | None:
    if isinstance(module, QuantizedLinear | QuantizedEmbedding):
        return module.quantized
    return getattr(module, "weight", None)


def _block_weights(block: TransformerBlock) -> dict[str, Tensor | QuantizedWeight | None]:
    attention, ffn = block.attn, block.ffn
    modules: dict[str, Any] = {
        "ln1": block.ln1,
        "ln2": block.ln2,
        "q": attention.q_proj,
        "k": attention.k_proj,
        "v": attention.v_proj,
        "output": attention.output_proj,
        "w1": ffn.w1,
        "w2": ffn.w2,
        "w3": getattr(ffn, "w3", None),
    }
    weights: dict[str, Tensor | QuantizedWeight | None] = {}
    for name, module in modules.items():
        weights[f"{name}.weight"] = _weight(module)
        weights[f"{name}.bias"] = getattr(module, "bias", None)
    if attention.has_qk_norm:
        weights |= {"q_norm": attention.q_norm.weight, "k_norm": attention.k_norm.weight}
    return weights


def _arrays(tensors: dict[str, Tensor | QuantizedWeight | None]) -> dict[str, Any]:
    return {name: None if tensor is None else _array(tensor) for name, tensor in tensors.items()}


def _array(weight: Tensor | QuantizedWeight) -> Any:
    if isinstance(weight, QuantizedWeight):
        return weight.codes.numpy(), weight.scales.numpy().view(np.uint16)
    return weight.detach().numpy()
