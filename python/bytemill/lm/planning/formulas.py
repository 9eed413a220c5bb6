"""Parameters, FLOPs and memory of a model, computed from its shape without building it.

FLOPs are those of matrix products, 2 m n p for (m × n) times (n × p). Everything else (norms, softmax, activations, the
optimizer) grows with the width instead of its square and is ignored, as in `torch.utils.flop_counter`. Attention counts
in full, although kernels may skip its masked half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bytemill.errors import ModelConfigError
from bytemill.lm.model_config import FEED_FORWARD_MATRICES

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.model_config import ModelConfig


def check_known(config: ModelConfig) -> None:
    """Raise ModelConfigError if a part of the model is unknown here, so that its numbers would be wrong."""
    unknown = config.unknown_options()
    if unknown:
        raise ModelConfigError(
            f"the parameters, FLOPs and memory of {', '.join(unknown)} are unknown",
            hint="count them in bytemill.lm.planning",
        )


def parameters_by_part(config: ModelConfig) -> dict[str, int]:
    """Return the number of parameters by part; a tied output layer counts 0.

    >>> from bytemill.lm import preset
    >>> parameters_by_part(preset("gpt2-xl"))["attention"]
    491827200

    Raises:
        ModelConfigError: A part of the model is unknown.
    """
    check_known(config)
    d, n_layers = config.d_model, config.num_layers
    d_q, d_kv = config.num_heads * config.d_head, config.n_kv_heads * config.d_head
    attention, feed_forward = block_matrices(config)
    if config.bias or config.qkv_bias:
        attention += d_q + 2 * d_kv
    if config.bias:
        attention += d
        feed_forward += (FEED_FORWARD_MATRICES[config.feed_forward] - 1) * config.d_ff + d
    if config.qk_norm:
        attention += 2 * config.d_head
    norm = 2 * d if config.norm == "layer" and config.norm_bias else d
    return {
        "token embeddings": config.vocab_size * d,
        "position embeddings": config.context_length * d if config.position == "learned" else 0,
        "attention": n_layers * attention,
        "feed-forward": n_layers * feed_forward,
        "norms": (2 * n_layers + (config.norm_position == "pre")) * norm,
        "output layer": 0 if config.tied_embeddings else config.vocab_size * d,
    }


def block_matrices(config: ModelConfig) -> tuple[int, int]:
    """Return the number of weights in the matrices of a block: attention, feed-forward."""
    d, d_q, d_kv = config.d_model, config.num_heads * config.d_head, config.n_kv_heads * config.d_head
    check_known(config)
    return 2 * d * d_q + 2 * d * d_kv, FEED_FORWARD_MATRICES[config.feed_forward] * d * config.d_ff


def n_parameters(config: ModelConfig) -> int:
    """Return the total number of parameters.

    >>> from bytemill.lm import preset
    >>> f"{n_parameters(preset('gpt2-xl')):,}"
    '1,557,611,200'
    """
    return sum(parameters_by_part(config).values())


def forward_flops(config: ModelConfig, batch_size: int = 1, n_tokens: int | None = None) -> dict[str, int]:
    """Return the FLOPs of a forward pass, by part.

    Args:
        config: Shape of the model.
        batch_size: Number of sequences.
        n_tokens: Tokens per sequence; by default the context length.

    Raises:
        ModelConfigError: A part of the model is unknown.
    """
    n_tokens = config.context_length if n_tokens is None else n_tokens
    d, n_layers = config.d_model, config.num_layers
    d_q, d_kv = config.num_heads * config.d_head, config.n_kv_heads * config.d_head
    tokens = batch_size * n_tokens
    check_known(config)
    return {
        "queries, keys, values": n_layers * 2 * tokens * d * (d_q + 2 * d_kv),
        "attention scores": n_layers * 2 * tokens * n_tokens * d_q,
        "weighted values": n_layers * 2 * tokens * n_tokens * d_q,
        "attention output": n_layers * 2 * tokens * d_q * d,
        "feed-forward": n_layers * 2 * tokens * FEED_FORWARD_MATRICES[config.feed_forward] * d * config.d_ff,
        "output layer": 2 * tokens * d * config.vocab_size,
    }


def step_flops(config: ModelConfig, batch_size: int = 1, n_tokens: int | None = None) -> dict[str, int]:
    """Return the FLOPs of a training step, by part; the backward pass has two products per forward product."""
    return {part: 3 * flops for part, flops in forward_flops(config, batch_size, n_tokens).items()}


def flops_per_token(
    config: ModelConfig, context_length: int | None = None, *, backward: bool = True
) -> float:
    """Return the FLOPs per token.

    Args:
        config: Shape of the model.
        context_length: Tokens per sequence; by default the context length of the model.
        backward: Include the backward pass.

    >>> from bytemill.lm import preset
    >>> round(flops_per_token(preset("tinystories")) / 1e6)
    112
    """
    n_tokens = config.context_length if context_length is None else context_length
    flops = (step_flops if backward else forward_flops)(config, 1, n_tokens)
    return sum(flops.values()) / n_tokens


OptimizerName = Literal["adamw", "muon", "sgd"]
Precision = Literal["float32", "tf32", "bfloat16", "float16"]
CheckpointingName = Literal["none", "selective", "full"]


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
    checkpointing: CheckpointingName = "none",
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
        checkpointing: Activation checkpointing; the result is then an estimate of the peak, to about a tenth.

    Raises:
        ModelConfigError: The optimizer or a part of the model is unknown.
    """
    n_tokens = config.context_length if n_tokens is None else n_tokens
    weights = 4 * n_parameters(config)
    size = 2 if precision in ("bfloat16", "float16") else 4
    blocks = config.num_layers * _block_numbers(config).bytes(size)
    if checkpointing != "none":
        saved, again = _checkpointed_numbers(config, checkpointing)
        blocks = config.num_layers * saved.bytes(size) + again.bytes(size)
    # The embedding saves the ids, int64, for its backward pass.
    per_token = blocks + _rest_numbers(config).bytes(size) + 8
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


@dataclass(frozen=True)
class _Numbers:
    """Numbers per token: those always in float32, and those of matrix products."""

    wide: int
    narrow: int

    def bytes(self, narrow_size: int) -> int:
        return 4 * self.wide + narrow_size * self.narrow


def _block_numbers(config: ModelConfig) -> _Numbers:
    """Return what a block saves.

    In float32, these are the inputs of its two norms, their 1 (RMSNorm) or 2 (LayerNorm) statistics, and a log Σ exp
    per head. For its products it saves the results of the norms, queries, keys, values, the result of the heads, and of
    the feed-forward network gate, inner and product (SwiGLU), or inner and its activation. QK-norm saves its inputs and
    a statistic per head.
    """
    d, d_q, d_kv = config.d_model, config.num_heads * config.d_head, config.n_kv_heads * config.d_head
    wide = 2 * d + 2 * _statistics(config) + config.num_heads
    narrow = 2 * d + 2 * d_q + 2 * d_kv + FEED_FORWARD_MATRICES[config.feed_forward] * config.d_ff
    if config.qk_norm:
        wide += config.num_heads + config.n_kv_heads
        narrow += d_q + d_kv
    return _Numbers(wide, narrow)


def _checkpointed_numbers(config: ModelConfig, checkpointing: CheckpointingName) -> tuple[_Numbers, _Numbers]:
    """Return what a block saves until it is computed again, and what is added then, for one block at a time.

    It saves its input, and with "selective" the results of its products and of attention.
    """
    block, d = _block_numbers(config), config.d_model
    if checkpointing == "full":
        return _Numbers(d, 0), _Numbers(block.wide - d, block.narrow)
    d_q, d_kv = config.num_heads * config.d_head, config.n_kv_heads * config.d_head
    inner = (FEED_FORWARD_MATRICES[config.feed_forward] - 1) * config.d_ff
    saved = _Numbers(d + config.num_heads, 2 * d_q + 2 * d_kv + inner + 2 * d)
    # Of these, the block itself saves values, the result of the heads, and gate and inner of the feed-forward network.
    return saved, _Numbers(block.wide - saved.wide, block.narrow - d_q - d_kv - inner)


def _rest_numbers(config: ModelConfig) -> _Numbers:
    """Return what is saved beside the blocks.

    This is the input of the last norm; the loss saves the gradient of its input, a result of products, instead of it.
    """
    wide = config.d_model + _statistics(config) if config.norm_position == "pre" else 0
    return _Numbers(wide, config.d_model)


def _statistics(config: ModelConfig) -> int:
    return 1 if config.norm == "rms" else 2


def largest_batch(memory: TrainingMemory, available: int) -> int:
    """Return the largest batch size that fits into `available` bytes; 0 if not even one sequence fits."""
    return max(0, (available - memory.fixed) // memory.activations_per_sequence)


_STATE_BYTES: dict[OptimizerName, Callable[[ModelConfig], int]] = {
    # Two float32 numbers per parameter.
    "adamw": lambda config: 8 * n_parameters(config),
    # One per parameter of the blocks' matrices, and AdamW's for the others.
    "muon": lambda config: 8 * n_parameters(config) - 4 * config.num_layers * sum(block_matrices(config)),
    "sgd": lambda _: 0,
}


def _state_bytes(config: ModelConfig, optimizer: OptimizerName) -> int:
    if optimizer not in _STATE_BYTES:
        raise ModelConfigError(
            f"the state of the optimizer {optimizer!r} is unknown, so its memory cannot be planned",
            hint=f"choose {', '.join(_STATE_BYTES)}",
        )
    return _STATE_BYTES[optimizer](config)
