"""What the optimizers share, parameter groups, gradient clipping, and the simplest optimizer, SGD."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bytemill.lm.tensors import is_sharded, l2_norm, local, split, sum_over_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bytemill.lm.model import TransformerLM
    from bytemill.lm.optimizers import OptimizerConfig
    from bytemill.lm.processes import Processes


def _unwrapped(method: Any) -> Any:
    """Return torch's method without the wrapper that keeps torch.compile from tracing it.

    The wrapper imports the compiler at its first call, which takes 2–6 seconds. It only matters inside a compiled
    function, and here only the loss is compiled.
    """
    return getattr(method, "__wrapped__", method)


_load_state_dict = _unwrapped(Optimizer.load_state_dict)


class StepByGroup(Optimizer):
    """Optimizer that updates one parameter group after the other, with moments of their own type."""

    add_param_group = _unwrapped(Optimizer.add_param_group)
    zero_grad = _unwrapped(Optimizer.zero_grad)
    state_dict = _unwrapped(Optimizer.state_dict)

    def step_group(self, group: dict[str, Any]) -> None:
        """Update the parameters of a group that have a gradient."""
        raise NotImplementedError

    can_skip = False
    """Whether `step_if_finite` is supported."""
    divides_state = False
    """Each process keeps the state of some parameters alone."""

    def owns(self, parameter: Tensor) -> bool:  # noqa: ARG002 - for those that divide their state
        """Return True if this process keeps the state of a parameter."""
        return True

    def n_moments(self, group: dict[str, Any]) -> int:  # noqa: ARG002 - for those whose groups differ
        """Return the numbers of state per weight of a group, for its division among processes."""
        return 2

    def step_if_finite(self, norm: Tensor) -> None:
        """Update all parameters if the gradient norm, a scalar on the device, is finite; forget the gradients.

        The decision is the device's, so this program does not wait for it. It counts the step in any case; if the norm
        was not finite, it calls `forget_step` once it knows.
        """
        raise NotImplementedError

    def forget_step(self) -> None:
        """Take back the count of a step that the device has skipped."""
        raise NotImplementedError

    def begin_step(self, step: int) -> None:
        """Change what depends on the number of the step (from 0), except for the learning rate; by default nothing."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update all parameters.

        Args:
            closure: Computes the loss and the gradients before the update.

        Returns:
            The result of `closure`, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.step_group(group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state, bit for bit."""
        _load_state_dict(self, state_dict)
        # torch casts moments to the type of their weights, so that moments of bfloat16 weights would lose 16 bits.
        saved = [index for group in state_dict["param_groups"] for index in group["params"]]
        own = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in zip(saved, own, strict=True):
            for name, value in state_dict["state"].get(index, {}).items():
                if isinstance(value, Tensor):
                    self.state[parameter][name] = value.detach().to(parameter.device, copy=True)


def check_not_negative(**settings: float) -> None:
    """Raise ValueError if a setting is negative or NaN."""
    for name, value in settings.items():
        if not value >= 0:
            raise ValueError(f"{name} is {value}; it must be at least 0")


def check_below_one(**settings: float) -> None:
    """Raise ValueError if a setting is not in 0 ≤ value < 1."""
    for name, value in settings.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 0 and below 1")


def parameter_groups(model: TransformerLM, weight_decay: float = 0.1) -> list[dict[str, Any]]:
    """Return two groups for AdamW: matrices with weight decay, and vectors (norms, biases) without."""
    matrices, vectors = _by_dimension(list(model.parameters()))
    return _not_empty(
        {"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}
    )


def muon_groups(
    model: TransformerLM,
    lr: float = 0.02,
    adamw_lr: float = 3e-4,
    weight_decay: float = 0.1,
    algorithm: str = "muon",
) -> list[dict[str, Any]]:
    """Return groups for Muon: matrices of the blocks with Muon; embeddings, output layer and vectors with AdamW.

    Rows of an embedding are looked up, not multiplied, so making the matrix orthogonal has no purpose.

    Args:
        model: The model.
        lr: Learning rate of Muon.
        adamw_lr: Learning rate of AdamW.
        weight_decay: Weight decay; vectors do not decay.
        algorithm: Name of another optimizer for the matrices, such as "soap".
    """
    inner = {id(parameter) for parameter in model.block_matrices()}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in inner]
    outer, vectors = _by_dimension(rest)
    matrices = [parameter for parameter in model.parameters() if id(parameter) in inner]
    return _not_empty(
        {"params": matrices, "algorithm": algorithm, "lr": lr, "weight_decay": weight_decay},
        {"params": outer, "algorithm": "adamw", "lr": adamw_lr, "weight_decay": weight_decay},
        {"params": vectors, "algorithm": "adamw", "lr": adamw_lr, "weight_decay": 0.0},
    )


def _by_dimension(parameters: list[Any]) -> tuple[list[Tensor], list[Tensor]]:
    return [p for p in parameters if p.ndim >= 2], [p for p in parameters if p.ndim < 2]


def _not_empty(*groups: dict[str, Any]) -> list[dict[str, Any]]:
    return [group for group in groups if group["params"]]


def with_algorithms(params: list[Any], algorithm: str) -> list[dict[str, Any]]:
    """Return groups unchanged, and divide parameters into matrices, with the algorithm, and others, with AdamW.

    Raises:
        ValueError: A group has another algorithm, or one for matrices contains another parameter.
    """
    groups: list[dict[str, Any]] = params
    if params and not isinstance(params[0], dict):
        matrices = [p for p in params if p.ndim == 2]
        others = [p for p in params if p.ndim != 2]
        groups = _not_empty(
            {"params": matrices, "algorithm": algorithm}, {"params": others, "algorithm": "adamw"}
        )
    for group in groups:
        own = list(group["params"])
        wrong = [p for p in own if group.get("algorithm", algorithm) == algorithm and p.ndim != 2]
        if wrong:
            raise ValueError(
                f"{algorithm} is for matrices, but a group has a parameter of shape {tuple(wrong[0].shape)}"
            )
        if group.get("algorithm", algorithm) not in (algorithm, "adamw"):
            raise ValueError(f"algorithm is {group['algorithm']!r}: choose {algorithm!r} or 'adamw'")
    return groups


def decay_weights(weights: Tensor, update: Tensor, decay: float, *, cautious: bool) -> None:
    """Multiply weights by 1 − decay, in place.

    Args:
        weights: The weights.
        update: What is subtracted from them in this step.
        decay: Learning rate times weight decay.
        cautious: Decay only weights of the sign of their update, which the update makes smaller too (Chen et al. 2025,
            "Cautious Weight Decay").
    """
    if decay and cautious:
        weights.sub_(weights * (weights * update >= 0), alpha=decay)
    elif decay:
        weights.mul_(1 - decay)


# Numbers per block and CPU thread. An update reads and writes five tensors several times; 2¹⁵ numbers of five float32
# tensors are 640 kB, which fits in the cache of a core. Below this size torch uses no further thread.
_BLOCK = 2**15


def blocks(tensors: Sequence[tuple[Tensor, ...]]) -> Iterator[list[list[Tensor]]]:
    """Yield lists of tensors to update together: all parameters, all gradients, and so on.

    On the CPU, blocks fit in cache; on other devices all tensors form one block, since launching operations is slow.

    Args:
        tensors: For each parameter a tuple of tensors of equal shape: the parameter, its gradient, its moments.
    """
    n_numbers = _BLOCK * torch.get_num_threads()
    other_devices: dict[object, list[tuple[Tensor, ...]]] = {}
    for row in tensors:
        if row[0].device.type == "cpu" and all(tensor.is_contiguous() for tensor in row):
            for parts in zip(*(split(tensor.view(-1), n_numbers) for tensor in row), strict=True):
                yield [[part] for part in parts]
        else:
            other_devices.setdefault((row[0].device, row[0].dtype), []).append(row)
    for rows in other_devices.values():
        yield [list(column) for column in zip(*rows, strict=True)]


# torch._foreach_… have no public names; torch's own optimizers use them.


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor] | Tensor, max_norm: float, eps: float = 1e-6) -> Tensor:
    """Scale all gradients by max_norm / (norm + eps), in place, if their common ℓ2 norm exceeds `max_norm`.

    Sharded gradients have the norm of the whole model; all processes must call this.

    Args:
        parameters: Parameters; those without a gradient are ignored.
        max_norm: Maximum norm.
        eps: Term added to the norm.

    Returns:
        The norm before clipping, a scalar; it is not finite if a gradient is not.
    """
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    shards = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not shards:
        return torch.zeros(())
    gradients = [local(shard) for shard in shards]
    if gradients[0].device.type == "cuda":
        norms = list(torch._foreach_norm(gradients, 2, dtype=torch.float32))
    else:
        norms = [l2_norm(gradient) for gradient in gradients]
    norm = l2_norm(torch.stack([each.to(norms[0].device) for each in norms]))
    if is_sharded(shards[0]):
        norm = sum_over_shards(norm.square(), shards[0]).sqrt()
    if norm.device.type == "cpu":
        if norm > max_norm:
            torch._foreach_mul_(gradients, (max_norm / (norm + eps)).item())
    else:  # no synchronization with the device
        scale = torch.where(norm > max_norm, max_norm / (norm + eps), 1.0)
        torch._foreach_mul_(gradients, scale)
    return norm


class SGD(StepByGroup):
    """Stochastic gradient descent: θ ← θ − α / √(t + 1) · g at step t = 0, 1, …

    Args:
        params: Parameters, or parameter groups.
        lr: Learning rate α.
        decay: Divide the learning rate by √(t + 1).
    """

    def __init__(
        self, params: Iterable[Tensor] | Iterable[dict[str, Any]], lr: float = 1e-3, *, decay: bool = True
    ) -> None:
        check_not_negative(lr=lr)
        super().__init__(params, {"lr": lr, "decay": decay})

    def step_group(self, group: dict[str, Any]) -> None:
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            t: int = state.get("t", 0)
            rate = group["lr"] / math.sqrt(t + 1) if group["decay"] else group["lr"]
            local(parameter).sub_(local(parameter.grad), alpha=rate)
            state["t"] = t + 1


def make_sgd(model: TransformerLM, options: OptimizerConfig, _processes: Processes) -> SGD:
    """Build the optimizer of a run over all weights; the schedule alone changes the learning rate."""
    return SGD(model.parameters(), options.learning_rate, decay=False)
