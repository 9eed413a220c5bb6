"""The optimizers by name: their settings, the code that builds each, and the memory of its state.

An optimizer is a module of `optim/` and an entry of `OPTIMIZERS`. Importing this module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from bytemill.lm.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.model_config import ModelConfig

OptimizerName = Literal["adamw", "muon", "soap", "sgd"]
NotNegative = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Settings):
    """Settings of the optimizer."""

    name: OptimizerName = "adamw"
    """Optimizer; muon and soap train the matrices of the blocks with Muon or SOAP, and all other weights with AdamW."""
    learning_rate: Rate = 1e-3
    """Peak learning rate; the schedule scales it."""
    muon_learning_rate: Rate = 0.02
    """Peak learning rate of the matrices under Muon."""
    muon_method: Literal["newton_schulz", "polar_express"] = "newton_schulz"
    """Iteration that makes Muon's updates orthogonal."""
    muon_momentum: BelowOne = 0.95
    """Momentum of Muon."""
    muon_momentum_warmup: NotNegative = 0
    """Steps in which Muon's momentum rises from 0.85 to its value; Muon's reference runs take 300."""
    muon_nesterov: bool = True
    """Use Nesterov momentum in Muon."""
    muon_scaling: Literal["original", "match_adamw"] = "original"
    """Factor of Muon's learning rate: √max(1, rows / columns), or 0.2 √max(rows, columns), which fits AdamW's rates."""
    muon_variance_beta: BelowOne = 0.0
    """Decay rate of the variances by which Muon balances the rows of its updates; nanochat uses 0.95. 0: no balance."""
    soap_learning_rate: Rate = 3e-3
    """Peak learning rate of the matrices under SOAP."""
    soap_beta: BelowOne = 0.95
    """Decay rate of SOAP's preconditioners."""
    soap_every: Annotated[int, Field(ge=1)] = 10
    """Steps between changes of SOAP's basis."""
    cautious_decay: bool = False
    """Decay only the weights that the step's update makes smaller too."""
    weight_decay: Rate = 0.1
    """Weight decay of matrices and embeddings; biases and norms do not decay."""
    beta1: BelowOne = 0.9
    """Decay rate of the mean gradient."""
    beta2: BelowOne = 0.95
    """Decay rate of the mean squared gradient."""
    eps: Rate = 1e-8
    """Term added to the root of the mean squared gradient."""
    clip: Rate = 1.0
    """Maximum gradient norm; larger gradients are scaled down to it. 0: no clipping."""
    z_loss: Rate = 0.0
    """Weight of the mean of log² Z in the training loss, where Z normalizes softmax; PaLM uses 1e-4."""
    ema_decay: BelowOne = 0.0
    """Decay of the moving average of the weights, used for all evaluation, samples and generation. 0: no average."""
    spike_norm: Rate = 10.0
    """Record a spike if the gradient norm exceeds its running median by this factor. 0: never."""
    spike_loss: Rate = 2.0
    """Record a spike if the loss exceeds its running median by this factor. 0: never."""
    skip_spikes: bool = False
    """Leave the weights unchanged at a spike."""


@dataclass(frozen=True)
class OptimizerEntry:
    """Where an optimizer is, and what it keeps."""

    code: str
    """`module:function` of (model, options, processes), which returns a `optim.base.StepByGroup`."""
    state_bytes: Callable[[ModelConfig, int, int], int]
    """Bytes of its state: (shape of the model, parameters, those of them in the matrices of the blocks) -> bytes."""

    def make(self, *arguments: Any) -> Any:
        """Call the function that `code` names."""
        module, _, name = self.code.partition(":")
        return getattr(import_module(module), name)(*arguments)


def _soap_bytes(*arguments: Any) -> int:
    return import_module("bytemill.lm.optim.soap").state_bytes(*arguments)


OPTIMIZERS: dict[OptimizerName, OptimizerEntry] = {
    # Two float32 numbers per parameter.
    "adamw": OptimizerEntry("bytemill.lm.optim.adamw:make_adamw", lambda _config, n, _matrices: 8 * n),
    # One per parameter of the blocks' matrices, and AdamW's for the others.
    "muon": OptimizerEntry(
        "bytemill.lm.optim.muon:make_muon", lambda _config, n, matrices: 8 * n - 4 * matrices
    ),
    "soap": OptimizerEntry("bytemill.lm.optim.soap:make_soap", _soap_bytes),
    "sgd": OptimizerEntry("bytemill.lm.optim.base:make_sgd", lambda _config, _n, _matrices: 0),
}
