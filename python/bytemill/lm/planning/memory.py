"""How much memory training takes: parameters, gradients, the optimizer's state, activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bytemill.lm.planning.parameters import n_parameters, parameters_by_part

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig

OptimizerName = Literal["adamw", "muon", "sgd"]
Precision = Literal["float32", "mixed"]


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes by purpose. Activations grow with the batch, the rest does not: total = fixed + per_sequence · batch."""

    parameters: int
    gradients: int
    optimizer: int
    activations_fixed: int
    activations_per_sequence: int

    @property
    def fixed(self) -> int:
        """Bytes that every batch size needs."""
        return self.parameters + self.gradients + self.optimizer + self.activations_fixed

    def activations(self, batch_size: int) -> int:
        """Bytes that the forward pass keeps for the backward pass."""
        return self.activations_fixed + self.activations_per_sequence * batch_size

    def total(self, batch_size: int) -> int:
        """Bytes in all."""
        return self.fixed + self.activations_per_sequence * batch_size


def training_memory(
    config: ModelConfig,
    n_tokens: int | None = None,
    optimizer: OptimizerName = "adamw",
    precision: Precision = "float32",
) -> TrainingMemory:
    """Memory of training on sequences of `n_tokens`, by default the whole context.

    What each part keeps is what ours keep without dropout and with the loss by `TransformerLM.loss`; what a test counts
    tensor by tensor. Memory that comes and goes within one operation, and what the allocator leaves unused, is extra.
    With "mixed" precision weights, gradients and state stay float32, and inputs and outputs of matrix products are
    bfloat16: an estimate.
    """
    n_tokens = config.context_length if n_tokens is None else n_tokens
    weights = 4 * n_parameters(config)
    wide, narrow = activation_numbers(config)
    size = 4 if precision == "float32" else 2
    # Ids are int64, and kept by the embedding's backward pass.
    per_token = 4 * wide + size * narrow + 8
    fixed = 4 * config.vocab_size * config.d_model  # the output layer's gradient, made with the loss
    if config.position == "learned":
        fixed += 8 * n_tokens
    return TrainingMemory(weights, weights, _state_bytes(config, optimizer), fixed, per_token * n_tokens)


def activation_numbers(config: ModelConfig) -> tuple[int, int]:
    """Numbers kept for a token: those always in float32, and those of matrix products.

    A block keeps the two inputs of its norms and their 1 (rms) or 2 (layer) numbers a row, and one log Σ exp a head;
    and for its products: the two norms' results, queries, keys, values, the heads' result, and in the feed-forward
    network gate, inner and product (SwiGLU) or inner and its activation.
    """
    d, pre = config.d_model, config.norm_position == "pre"
    per_norm = 1 if config.norm == "rms" else 2
    wide = 2 * d + 2 * per_norm + config.num_heads
    narrow = 6 * d + (3 if config.feed_forward == "swiglu" else 2) * config.d_ff
    # The last norm's input; the loss keeps the gradient of its own input instead of that input.
    final = (d + per_norm if pre else 0) + d
    return config.num_layers * wide + final, config.num_layers * narrow


def largest_batch(memory: TrainingMemory, available: int) -> int:
    """The most sequences whose training fits in so many bytes; 0 where not even one does."""
    return max(0, (available - memory.fixed) // memory.activations_per_sequence)


def _state_bytes(config: ModelConfig, optimizer: OptimizerName) -> int:
    """AdamW keeps two float32 numbers for each parameter, Muon one for those in the blocks' matrices, SGD none."""
    if optimizer == "sgd":
        return 0
    n = n_parameters(config)
    if optimizer == "adamw":
        return 8 * n
    parts = parameters_by_part(config)
    matrices = parts["attention"] + parts["feed-forward"]
    if config.bias:
        d, d_kv = config.d_model, config.n_kv_heads * config.d_head
        biases = 2 * d + 2 * d_kv + (2 if config.feed_forward == "swiglu" else 1) * config.d_ff + d
        matrices -= config.num_layers * biases
    return 8 * n - 4 * matrices
