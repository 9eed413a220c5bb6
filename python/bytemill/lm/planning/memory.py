"""Memory of training: parameters, gradients, optimizer state, activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bytemill.lm.planning.parameters import block_matrices, n_parameters

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig

OptimizerName = Literal["adamw", "muon", "sgd"]
Precision = Literal["float32", "tf32", "bfloat16", "float16"]


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes by purpose; only activations grow with the batch: total = fixed + activations_per_sequence · batch."""

    parameters: int
    gradients: int
    optimizer: int
    activations_fixed: int
    activations_per_sequence: int
    average: int = 0
    """The moving average of the weights."""

    @property
    def fixed(self) -> int:
        """Bytes independent of the batch size."""
        return self.parameters + self.gradients + self.optimizer + self.average + self.activations_fixed

    def activations(self, batch_size: int) -> int:
        """Bytes that the forward pass saves for the backward pass."""
        return self.activations_fixed + self.activations_per_sequence * batch_size

    def total(self, batch_size: int) -> int:
        """Total bytes."""
        return self.fixed + self.activations_per_sequence * batch_size


def training_memory(
    config: ModelConfig,
    n_tokens: int | None = None,
    optimizer: OptimizerName = "adamw",
    precision: Precision = "float32",
    *,
    average: bool = False,
) -> TrainingMemory:
    """Compute the memory of training.

    Without dropout, the result equals the tensors that `TransformerLM.loss` saves with kernels auto, without compiling
    (tested one by one). Temporary memory of an operation, and unused memory of the allocator, come on top.

    Args:
        config: Shape of the model.
        n_tokens: Tokens per sequence; by default the context length.
        optimizer: Optimizer whose state is counted.
        precision: In half precision, inputs and results of matrix products have 2 bytes, all else 4. The copies of the
            blocks' matrices that products read are kept until the backward pass.
        average: Keep a moving average of the weights.
    """
    n_tokens = config.context_length if n_tokens is None else n_tokens
    weights = 4 * n_parameters(config)
    wide, narrow = activation_numbers(config)
    size = 2 if precision in ("bfloat16", "float16") else 4
    # The embedding saves the ids, int64, for its backward pass.
    per_token = 4 * wide + size * narrow + 8
    fixed = size * config.vocab_size * config.d_model  # gradient of the output layer, computed with the loss
    if size == 2:
        fixed += size * config.num_layers * sum(block_matrices(config))
    if config.position == "learned":
        fixed += 8 * n_tokens
    return TrainingMemory(
        parameters=weights,
        gradients=weights,
        optimizer=_state_bytes(config, optimizer),
        activations_fixed=fixed,
        activations_per_sequence=per_token * n_tokens,
        average=weights if average else 0,
    )


def activation_numbers(config: ModelConfig) -> tuple[int, int]:
    """Return the numbers saved per token: those always in float32, and those of matrix products.

    A block saves in float32 the inputs of its two norms, their 1 (RMSNorm) or 2 (LayerNorm) statistics, and a
    log Σ exp per head. For its products it saves the results of the norms, queries, keys, values, the result of the
    heads, and of the feed-forward network gate, inner and product (SwiGLU), or inner and its activation.
    QK-norm saves its inputs and a statistic per head.
    """
    d, pre = config.d_model, config.norm_position == "pre"
    per_norm = 1 if config.norm == "rms" else 2
    wide = 2 * d + 2 * per_norm + config.num_heads
    d_q, d_kv = config.num_heads * config.d_head, config.n_kv_heads * config.d_head
    narrow = 2 * d + 2 * d_q + 2 * d_kv + (3 if config.feed_forward == "swiglu" else 2) * config.d_ff
    if config.qk_norm:
        wide += config.num_heads + config.n_kv_heads
        narrow += d_q + d_kv
    # The input of the last norm; the loss saves the gradient of its input, a result of products, instead of that input.
    return config.num_layers * wide + (d + per_norm if pre else 0), config.num_layers * narrow + d


def largest_batch(memory: TrainingMemory, available: int) -> int:
    """Return the largest batch size that fits into `available` bytes; 0 if not even one sequence fits."""
    return max(0, (available - memory.fixed) // memory.activations_per_sequence)


def _state_bytes(config: ModelConfig, optimizer: OptimizerName) -> int:
    """AdamW keeps two float32 numbers per parameter, Muon one per parameter of the blocks' matrices, SGD none."""
    if optimizer == "sgd":
        return 0
    n = n_parameters(config)
    if optimizer == "adamw":
        return 8 * n
    return 8 * n - 4 * config.num_layers * sum(block_matrices(config))
