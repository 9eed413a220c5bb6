"""Parameters, memory, FLOPs and training time of a model, computed from its configuration."""

from bytemill.lm.planning.formulas import (
    TrainingMemory,
    flops_per_token,
    forward_flops,
    largest_batch,
    n_parameters,
    parameters_by_part,
    step_flops,
    training_memory,
)
from bytemill.lm.planning.training_plan import (
    TOKENS_PER_PARAMETER,
    Plan,
    compute_optimal_tokens,
    plan,
    training_days,
)

__all__ = [
    "TOKENS_PER_PARAMETER",
    "Plan",
    "TrainingMemory",
    "compute_optimal_tokens",
    "flops_per_token",
    "forward_flops",
    "largest_batch",
    "n_parameters",
    "parameters_by_part",
    "plan",
    "step_flops",
    "training_days",
    "training_memory",
]
