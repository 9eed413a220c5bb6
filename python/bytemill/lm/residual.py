"""How a block adds attention and the feed-forward network to the residual stream, beside the two forms of the textbook.

Each form is a function of the block, the stream and the block's attention, `mix`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Mix = Callable[[Tensor], Tensor]
    Form = Callable[[Any, Tensor, Mix], Tensor]


def normed_outputs(block: Any, x: Tensor, mix: Mix) -> Tensor:
    """Normalize what is added, and not what is read: x + norm(f(x)) (OLMo 2, Team OLMo 2024)."""
    x = x + block.dropout(block.ln1(mix(x)))
    return x + block.dropout(block.ln2(block.ffn(x)))


def sandwich(block: Any, x: Tensor, mix: Mix) -> Tensor:
    """Normalize what is read and what is added: x + norm(f(norm(x))) (Ding et al. 2021, Gemma 2)."""
    x = x + block.dropout(block.ln1_out(mix(block.ln1(x))))
    return x + block.dropout(block.ln2_out(block.ffn(block.ln2(x))))


def parallel(block: Any, x: Tensor, mix: Mix) -> Tensor:
    """Let both read the same stream: x + f(norm₁(x)) + g(norm₂(x)) (Wang & Komatsuzaki 2021, GPT-NeoX)."""
    return x + block.dropout(mix(block.ln1(x))) + block.dropout(block.ffn(block.ln2(x)))


FORMS: dict[str, Form] = {"output": normed_outputs, "sandwich": sandwich, "parallel": parallel}
"""By `ModelConfig.norm_position`, and "parallel" by `ModelConfig.residual`."""
