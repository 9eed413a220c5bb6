"""Parameters, FLOPs, memory and training time of a model, computed from its shape without building it.

FLOPs are those of matrix products, 2 m n p for (m × n) times (n × p). Everything else (norms, softmax, activations, the
optimizer) grows with the width instead of its square and is ignored, as in `torch.utils.flop_counter`. Attention counts
in full, although kernels may skip its masked half.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from bytemill.errors import ModelConfigError, RunConfigError
from bytemill.lm.model_config import FEED_FORWARDS, NORMS, Numbers
from bytemill.lm.optimizers import OPTIMIZERS, OptimizerName
from bytemill.lm.strategies import DIVIDED_BY_FSDP, STRATEGIES, StrategyName

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig, Part


_COUNTED = frozenset(
    {
        *("attention.qk_norm_over", "attention.scale", "attention.soft_cap", "attention.sinks", "residual"),
        *("embedding_scale", "rope.beta_fast", "rope.beta_slow", "rope.truncate", "rope.magnitude"),
        *("rope.short_divisors", "rope.long_divisors", "rope.window_theta", "multi_token_weight"),
    }
)
"""Options that are counted here, and that export or the core's decoder do not know."""


def check_known(config: ModelConfig) -> None:
    """Raise ModelConfigError if an option of the model is unknown here, so that its numbers would be wrong."""
    parts = [*(layer.part for layer in config.layers), FEED_FORWARDS[config.feed_forward]]
    known = {option for part in parts for option in part.options}
    unknown = config.unknown_options(also_known={"mixer", *_COUNTED, *known})
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
    feed_forward = FEED_FORWARDS[config.feed_forward]
    n_norms = config.n_block_norms * n_layers + config.has_final_norm
    return {
        "token embeddings": config.vocab_size * d,
        "position embeddings": config.context_length * d if config.position == "learned" else 0,
        "attention": sum(
            layer.part.matrices(layer.config) + layer.part.vectors(layer.config) for layer in config.layers
        ),
        "feed-forward": n_layers * (feed_forward.matrices(config) + feed_forward.vectors(config)),
        "norms": n_norms * NORMS[config.norm].vectors(config),
        "output layer": 0 if config.tied_embeddings else config.vocab_size * d,
        **({} if config.multi_token_weight is None else {"multi-token head": _head_parameters(config)}),
    }


def _head_parameters(config: ModelConfig) -> int:
    """Return the number of parameters of the multi-token head: a projection of two inputs, a block, and three norms."""
    d, own = config.d_model, config.layers[-1].config
    block = sum(part.matrices(own) + part.vectors(own) for part in _block_parts(own))
    norms = (3 + config.n_block_norms) * NORMS[config.norm].vectors(config)
    return 2 * d * d + (d if config.bias else 0) + block + norms


def _block_parts(config: ModelConfig) -> tuple[Part, Part]:
    """Return the parts of a block with these settings."""
    return config.layers[0].part, FEED_FORWARDS[config.feed_forward]


def block_matrices(config: ModelConfig) -> tuple[int, int]:
    """Return the number of weights in the matrices of all blocks: mixers, feed-forward networks."""
    check_known(config)
    mixers = sum(layer.part.matrices(layer.config) for layer in config.layers)
    return mixers, config.num_layers * FEED_FORWARDS[config.feed_forward].matrices(config)


def n_parameters(config: ModelConfig) -> int:
    """Return the total number of parameters.

    >>> from bytemill.lm import preset
    >>> f"{n_parameters(preset('gpt2-xl')):,}"
    '1,557,611,200'
    """
    return sum(parameters_by_part(config).values())


def n_active_parameters(config: ModelConfig) -> int:
    """Return the number of parameters that compute a token: of a mixture of experts, those of the chosen ones."""
    part = FEED_FORWARDS[config.feed_forward]
    return n_parameters(config) - config.num_layers * (part.matrices(config) - part.active(config))


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
    check_known(config)
    mixers = [layer.part.flops(layer.config, n_tokens) for layer in config.layers]
    feed_forwards = [FEED_FORWARDS[config.feed_forward].flops(config, n_tokens)] * config.num_layers
    blocks: Counter[str] = Counter()
    for flops in (*mixers, *feed_forwards):
        blocks.update(flops)
    return {
        **{step: batch_size * flops for step, flops in blocks.items()},
        "output layer": 2 * batch_size * n_tokens * config.d_model * config.vocab_size,
    }


def step_flops(config: ModelConfig, batch_size: int = 1, n_tokens: int | None = None) -> dict[str, int]:
    """Return the FLOPs of a training step, by part; the backward pass has two products per forward product."""
    forward = forward_flops(config, batch_size, n_tokens)
    if config.multi_token_weight is not None:
        n, d, own = n_tokens or config.context_length, config.d_model, config.layers[-1].config
        block = sum(sum(part.flops(own, n - 1).values()) for part in _block_parts(own))
        products = 2 * (n - 1) * d * (2 * d + config.vocab_size)
        forward["multi-token head"] = batch_size * (block + products)
    return {part: 3 * flops for part, flops in forward.items()}


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
    layers = [layer.config for layer in config.layers]
    if checkpointing == "none":
        blocks = sum(_block_numbers(layer).bytes(size) for layer in layers)
    else:
        pairs = [_checkpointed_numbers(layer, checkpointing) for layer in layers]
        blocks = sum(saved.bytes(size) for saved, _ in pairs) + max(again.bytes(size) for _, again in pairs)
    # The embedding saves the ids, int64, for its backward pass.
    per_token = blocks + _rest_numbers(config).bytes(size) + 8
    fixed = (
        4 * config.vocab_size * config.d_model
    )  # gradient of the output layer, in float32, computed with the loss
    if size == 2:
        fixed += size * sum(block_matrices(config))
    if config.position == "learned":
        fixed += 8 * n_tokens
    if config.multi_token_weight is not None:  # about one more block, its norms and inputs, and one more loss
        norm, d = NORMS[config.norm].saved(config), config.d_model
        per_token += _block_numbers(layers[-1]).bytes(size) + Numbers(3 * norm.wide, 4 * d).bytes(size)
        fixed += 4 * config.vocab_size * d
    return TrainingMemory(
        parameters=weights,
        gradients=weights,
        optimizer=_state_bytes(config, optimizer),
        activations_fixed=fixed,
        activations_per_sequence=per_token * n_tokens,
        average=weights if average else 0,
    )


def process_memory(
    config: ModelConfig, memory: TrainingMemory, strategy: StrategyName, n_processes: int
) -> TrainingMemory:
    """Return the memory of each of several processes, on its device.

    Where weights are divided, those of two blocks are whole besides, in float32. A process may exceed its share of an
    optimizer that is divided by whole parameters by the state of the largest one.

    Args:
        config: Shape of the model.
        memory: That of one process that trains alone on a batch of the same size.
        strategy: Setting `training.strategy`.
        n_processes: Number of processes.
    """
    own = STRATEGIES.get(strategy)  # pyright: ignore[reportCallIssue, reportArgumentType]
    divided = own.divides if own is not None else DIVIDED_BY_FSDP if strategy == "fsdp" else ()
    parts: dict[str, int] = dict.fromkeys(() if own is None else own.keeps_on_host, 0)
    if n_processes > 1:
        parts |= {name: -(-getattr(memory, name) // n_processes) for name in divided}
        if "parameters" in divided:
            parts["parameters"] = min(memory.parameters, parts["parameters"] + 8 * _largest_block(config))
    return replace(memory, **parts)


def _largest_block(config: ModelConfig) -> int:
    """Return the number of parameters of the largest block."""
    norms = config.n_block_norms * NORMS[config.norm].vectors(config)
    blocks = (_block_parts(layer.config) for layer in config.layers)
    return norms + max(
        sum(part.matrices(config) + part.vectors(config) for part in parts) for parts in blocks
    )


def _block_numbers(config: ModelConfig) -> Numbers:
    """Return what a block saves: what its parts save, and the results of its norms, which its products read."""
    mixer, feed_forward = (part.saved(config) for part in _block_parts(config))
    norm, d = NORMS[config.norm].saved(config), config.d_model
    wide, narrow = mixer.wide + feed_forward.wide, mixer.narrow + feed_forward.narrow + 2 * d
    n_inputs = 0 if config.norm_position == "output" else 2
    n_outputs = config.n_block_norms - n_inputs  # norms that read the result of a product
    wide += n_inputs * norm.wide + n_outputs * (norm.wide - d)
    narrow += n_inputs * norm.narrow + n_outputs * (norm.narrow + d)
    return Numbers(wide - d if config.residual == "parallel" else wide, narrow)


def _checkpointed_numbers(config: ModelConfig, checkpointing: CheckpointingName) -> tuple[Numbers, Numbers]:
    """Return what a block saves until it is computed again, and what is added then, for one block at a time.

    It saves its input, and with "selective" the results of its products and of attention.
    """
    block, d = _block_numbers(config), config.d_model
    if checkpointing == "full":
        return Numbers(d, 0), Numbers(block.wide - d, block.narrow)
    (mixer, mixer_again), (ffn, ffn_again) = (part.saved_selectively(config) for part in _block_parts(config))
    saved = Numbers(d + mixer.wide + ffn.wide, mixer.narrow + ffn.narrow + 2 * d)
    return saved, Numbers(block.wide - saved.wide, block.narrow - mixer_again - ffn_again)


def _rest_numbers(config: ModelConfig) -> Numbers:
    """Return what is saved beside the blocks.

    This is the input of the last norm; the loss saves the gradient of its input, a result of products, instead of it.
    """
    norm = NORMS[config.norm].saved(config) if config.has_final_norm else Numbers(0, 0)
    return Numbers(norm.wide, norm.narrow + config.d_model)


def largest_batch(memory: TrainingMemory, available: int) -> int:
    """Return the largest batch size that fits into `available` bytes; 0 if not even one sequence fits."""
    return max(0, (available - memory.fixed) // memory.activations_per_sequence)


def _state_bytes(config: ModelConfig, optimizer: OptimizerName) -> int:
    if optimizer not in OPTIMIZERS:
        raise ModelConfigError(
            f"the state of the optimizer {optimizer!r} is unknown, so its memory cannot be planned",
            hint=f"choose {', '.join(OPTIMIZERS)}",
        )
    n_matrices = sum(block_matrices(config))
    return OPTIMIZERS[optimizer].state_bytes(config, n_parameters(config), n_matrices)


_T = 1e12


@dataclass(frozen=True)
class PeakRates:
    """Dense FLOPs per second by precision; None where the device has no such products."""

    float32: float
    tf32: float | None
    float16: float
    bfloat16: float | None
    name: str
    """Regular expression of torch's names of the device."""
    n_multiprocessors: int | None = None
    """Of a device that can be divided into MIG slices."""

    def rate(self, precision: Precision) -> float | None:
        """Return the peak in a precision, or None."""
        return {
            "float32": self.float32,
            "tf32": self.tf32,
            "float16": self.float16,
            "bfloat16": self.bfloat16,
        }[precision]


DEVICES: dict[str, PeakRates] = {
    "v100": PeakRates(15.7 * _T, None, 125 * _T, None, r"V100-SXM2"),
    "t4": PeakRates(8.1 * _T, None, 65 * _T, None, r"T4"),
    "a10": PeakRates(31.2 * _T, 62.5 * _T, 125 * _T, 125 * _T, r"A10"),
    "a30": PeakRates(10.3 * _T, 82 * _T, 165 * _T, 165 * _T, r"A30", 56),
    "a40": PeakRates(37.4 * _T, 74.8 * _T, 149.7 * _T, 149.7 * _T, r"A40"),
    "a100": PeakRates(19.5 * _T, 156 * _T, 312 * _T, 312 * _T, r"A100", 108),
    "h100": PeakRates(67 * _T, 494.7 * _T, 989.4 * _T, 989.4 * _T, r"H100(?! (?:PCIe|NVL))|GH200", 132),
    "h100-pcie": PeakRates(51 * _T, 378 * _T, 756 * _T, 756 * _T, r"H100 PCIe", 114),
    "h100-nvl": PeakRates(60 * _T, 417.5 * _T, 835.5 * _T, 835.5 * _T, r"H100 NVL|H200 NVL", 132),
    "h200": PeakRates(67 * _T, 494.7 * _T, 989.4 * _T, 989.4 * _T, r"H200(?! NVL)", 132),
    "b200": PeakRates(75 * _T, 1125 * _T, 2250 * _T, 2250 * _T, r"B200", 148),
    "l4": PeakRates(30.3 * _T, 60 * _T, 121 * _T, 121 * _T, r"L4"),
    "l40s": PeakRates(91.6 * _T, 183 * _T, 362 * _T, 362 * _T, r"L40S"),
    "rtx3090": PeakRates(35.6 * _T, 35.6 * _T, 71 * _T, 71 * _T, r"RTX 3090(?! Ti)"),
    "rtx4090": PeakRates(82.6 * _T, 82.6 * _T, 165.2 * _T, 165.2 * _T, r"RTX 4090(?! D)"),
    "rtx5090": PeakRates(104.8 * _T, 104.8 * _T, 209.5 * _T, 209.5 * _T, r"RTX 5090(?! D)"),
}
"""Names in `lm plan --device`. GeForce cards sum products in float32, at half their rate with sums in float16."""


def find_device(name: str) -> str | None:
    """Return the key in `DEVICES` of a name that torch gives to a device; None if it is unknown.

    >>> find_device("NVIDIA A100-SXM4-80GB"), find_device("NVIDIA H100 PCIe"), find_device("NVIDIA A10G")
    ('a100', 'h100-pcie', None)
    """
    for key, rates in DEVICES.items():
        if re.search(rf"\b(?:{rates.name})(?![0-9A-Za-z])", name):
            return key
    return None


def is_slice(name: str) -> bool:
    """Return whether a name that torch gives to a device is that of a MIG slice, a part of a GPU.

    >>> is_slice("NVIDIA A100-SXM4-40GB MIG 1g.5gb"), is_slice("NVIDIA A100-SXM4-40GB")
    (True, False)
    """
    return re.search(r"\bMIG\b", name) is not None


# Approximately minimizes the loss for given FLOPs (Hoffmann et al. 2022, "Chinchilla").
TOKENS_PER_PARAMETER = 20


@dataclass(frozen=True)
class Plan:
    """Result of `plan`."""

    config: ModelConfig
    batch_size: int
    n_tokens: int
    """Tokens per sequence."""
    optimizer: OptimizerName
    precision: Precision
    checkpointing: CheckpointingName
    strategy: StrategyName
    n_processes: int
    parameters: dict[str, int]
    """By part."""
    memory: TrainingMemory
    """Of one process."""
    forward_flops: dict[str, int]
    """By part, for the batch."""
    step_flops: dict[str, int]
    available_bytes: int | None
    largest_batch: int | None
    """Largest batch size that fits; None if the available memory is unknown."""
    training_tokens: int
    """Number of training tokens; by default the compute-optimal number."""
    compute_optimal_tokens: int
    flops_per_second: float | None
    """Peak of the device."""
    utilization: float
    days: float | None
    """Training time; None if the device is unknown."""

    @property
    def fits(self) -> bool | None:
        """Whether the batch fits into the available memory; None if that is unknown."""
        if self.available_bytes is None:
            return None
        return self.memory.total(self.batch_size) <= self.available_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, with plain numbers."""
        memory = self.memory
        return {
            "config": self.config.to_dict(),
            "batch_size": self.batch_size,
            "sequence_tokens": self.n_tokens,
            "optimizer": self.optimizer,
            "precision": self.precision,
            "activation_checkpointing": self.checkpointing,
            "strategy": self.strategy,
            "processes": self.n_processes,
            "parameters": {
                **self.parameters,
                "total": sum(self.parameters.values()),
                "active": n_active_parameters(self.config),
            },
            "memory_bytes": {
                "parameters": memory.parameters,
                "gradients": memory.gradients,
                "optimizer": memory.optimizer,
                "average": memory.average,
                "activations": memory.activations(self.batch_size),
                "activations_fixed": memory.activations_fixed,
                "activations_per_sequence": memory.activations_per_sequence,
                "total": memory.total(self.batch_size),
                "available": self.available_bytes,
            },
            "largest_batch": self.largest_batch,
            "fits": self.fits,
            "forward_flops": {**self.forward_flops, "total": sum(self.forward_flops.values())},
            "step_flops": {**self.step_flops, "total": sum(self.step_flops.values())},
            "training_tokens": self.training_tokens,
            "compute_optimal_tokens": self.compute_optimal_tokens,
            "flops_per_second": self.flops_per_second,
            "utilization": self.utilization,
            "days": self.days,
        }


def plan(
    config: ModelConfig,
    *,
    batch_size: int = 1,
    n_tokens: int | None = None,
    optimizer: OptimizerName = "adamw",
    precision: Precision = "float32",
    average: bool = False,
    checkpointing: CheckpointingName = "none",
    strategy: StrategyName = "ddp",
    n_processes: int = 1,
    available_bytes: int | None = None,
    flops_per_second: float | None = None,
    utilization: float = 0.4,
    training_tokens: int | None = None,
) -> Plan:
    """Compute what training a model takes.

    Args:
        config: Shape of the model.
        batch_size: Sequences per batch.
        n_tokens: Tokens per sequence; by default the context length.
        optimizer: Optimizer whose state is counted.
        precision: Precision of matrix products.
        average: Keep a moving average of the weights.
        checkpointing: Activation checkpointing.
        strategy: Setting `training.strategy`.
        n_processes: Number of processes, each with a batch and a device of its own; the memory is that of one.
        available_bytes: Memory of the device.
        flops_per_second: Peak of a device; see `DEVICES`.
        utilization: Share of the peak that training reaches.
        training_tokens: Number of training tokens; by default the compute-optimal number.

    Raises:
        ValueError: An argument is out of range.
    """
    n_tokens = config.context_length if n_tokens is None else n_tokens
    if batch_size < 1 or not 1 <= n_tokens <= config.context_length:
        raise ValueError(
            f"a batch of {batch_size} sequences of {n_tokens} tokens is not possible: both must be at least 1, and the "
            f"context length is {config.context_length}"
        )
    memory = training_memory(
        config, n_tokens, optimizer, precision, average=average, checkpointing=checkpointing
    )
    memory = process_memory(config, memory, strategy, n_processes)
    optimal = compute_optimal_tokens(config)
    training_tokens = optimal if training_tokens is None else training_tokens
    days = (
        None
        if flops_per_second is None
        else training_days(config, training_tokens, n_processes * flops_per_second, utilization, n_tokens)
    )
    return Plan(
        config=config,
        batch_size=batch_size,
        n_tokens=n_tokens,
        optimizer=optimizer,
        precision=precision,
        checkpointing=checkpointing,
        strategy=strategy,
        n_processes=n_processes,
        parameters=parameters_by_part(config),
        memory=memory,
        forward_flops=forward_flops(config, batch_size, n_tokens),
        step_flops=step_flops(config, batch_size, n_tokens),
        available_bytes=available_bytes,
        largest_batch=None if available_bytes is None else largest_batch(memory, available_bytes),
        training_tokens=training_tokens,
        compute_optimal_tokens=optimal,
        flops_per_second=flops_per_second,
        utilization=utilization,
        days=days,
    )


def compute_optimal_tokens(config: ModelConfig) -> int:
    """Return the compute-optimal number of training tokens, 20 per parameter (Hoffmann et al. 2022)."""
    return TOKENS_PER_PARAMETER * n_parameters(config)


def training_days(
    config: ModelConfig,
    training_tokens: int,
    flops_per_second: float,
    utilization: float = 0.4,
    n_tokens: int | None = None,
) -> float:
    """Compute the training time in days.

    Args:
        config: Shape of the model.
        training_tokens: Number of training tokens.
        flops_per_second: Peak of the device.
        utilization: Share of the peak that training reaches.
        n_tokens: Tokens per sequence; by default the context length.

    Raises:
        ValueError: The rate or the utilization is out of range.
    """
    if not flops_per_second > 0 or not 0 < utilization <= 1:
        raise ValueError(
            f"the rate is {flops_per_second} FLOP/s and the utilization {utilization}; the rate must be above 0, the "
            "utilization above 0 and at most 1"
        )
    n_tokens = config.context_length if n_tokens is None else n_tokens
    flops = sum(step_flops(config, 1, n_tokens).values()) / n_tokens * training_tokens
    return flops / (flops_per_second * utilization) / 86_400


_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def plan_for(
    config: ModelConfig,
    *,
    memory: str | None = None,
    device: str | None = None,
    precision: Precision = "float32",
    **rest: Any,
) -> Plan:
    """Plan a model.

    Args:
        config: Shape of the model.
        memory: Memory of the device, such as "80GB".
        device: Name of a device in `DEVICES`, or its FLOPs per second.
        precision: Precision of matrix products; see `Precision`.
        rest: Further arguments of `planning.plan`.

    Raises:
        RunConfigError: A size or a device is unknown, or a number is out of range.
    """
    try:
        return plan(
            config,
            available_bytes=None if memory is None else parse_bytes(memory),
            flops_per_second=None if device is None else _flops_per_second(device, precision),
            precision=precision,
            **rest,
        )
    except ValueError as error:
        if isinstance(error, RunConfigError):
            raise
        raise RunConfigError(str(error)) from error


def parse_bytes(size: str) -> int:
    """Parse a size: 80GB is 80 · 10⁹ bytes, 80GiB is 80 · 2³⁰.

    >>> parse_bytes("80GB"), parse_bytes("1.5 GiB")
    (80000000000, 1610612736)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", size.strip().lower())
    if match is None:
        raise RunConfigError(f"{size!r} is not a size", hint="write a size such as 80GB or 24GiB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2]])


def _flops_per_second(device: str, precision: Precision) -> float:
    if device.lower() in DEVICES:
        rate = DEVICES[device.lower()].rate(precision)
        if rate is None:
            raise RunConfigError(
                f"{device} has no products in {precision}", hint="choose --precision float16 or float32"
            )
        return rate
    try:
        return float(device)
    except ValueError as error:
        raise RunConfigError(
            f"unknown device {device!r}",
            hint=f"choose one of {', '.join(DEVICES)}, or write its FLOPs per second, such as 312e12",
        ) from error
