"""One run of a sweep: its settings, its length in whole steps, what it costs, and its outcome."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bytemill.errors import ScalingError
from bytemill.lm.planning import flops_per_token, parameters_by_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bytemill.lm.model_config import ModelConfig
    from bytemill.scaling.sweep import Sweep


@dataclass(frozen=True, order=True)
class Chain:
    """What runs of different length share: one run with a constant learning rate, from which they branch off."""

    vocab_size: int
    depth: float
    seed: int
    learning_rate: float

    @property
    def name(self) -> str:
        """Name of its folder.

        >>> Chain(512, 1.5, 0, 0.01).name
        'v512.depth1.5.seed0.rate0.01'
        """
        return f"v{self.vocab_size}.depth{self.depth:g}.seed{self.seed}.rate{self.learning_rate:g}"


@dataclass(frozen=True, order=True)
class Point:
    """The settings of a run."""

    chain: Chain
    n_steps: int

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"{self.chain.name}.steps{self.n_steps}"


@dataclass(frozen=True)
class Outcome:
    """What a run gave."""

    point: Point
    n_tokens: int
    n_bytes: int
    """Bytes of the tokens, from the tokenizer's bytes per token on the training text."""
    parameters: dict[str, int]
    """By part: embedding, output layer, rest."""
    flops: float
    """Of training from the start, with attention and output layer."""
    loss: float | None
    """In nats per token on the validation text; None if the run diverged."""
    bits_per_byte: float | None
    unigram_bits_per_byte: float | None
    """Of the unigram distribution of the training text."""
    diverged: str = ""
    """Why there is no loss."""
    seconds: float | None = None
    """Time of training from the start; not in the ledger's lines, which depend on the settings alone."""

    @property
    def problem(self) -> str:
        """Why the run is left out of fits; empty if it is not."""
        if self.bits_per_byte is None or self.unigram_bits_per_byte is None:
            return f"diverged: {self.diverged}"
        if self.bits_per_byte >= self.unigram_bits_per_byte:
            return (
                f"{self.bits_per_byte:.3f} bits per byte are not below the {self.unigram_bits_per_byte:.3f} of the "
                "unigram distribution"
            )
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return the line of the ledger."""
        chain = asdict(self.point.chain)
        values = asdict(self)
        del values["point"], values["seconds"]
        return {**chain, "n_steps": self.point.n_steps, **values}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], seconds: float | None = None) -> Outcome:
        """Return the outcome of a line."""
        own = dict(values)
        chain = Chain(
            int(own.pop("vocab_size")),
            float(own.pop("depth")),
            int(own.pop("seed")),
            float(own.pop("learning_rate")),
        )
        return cls(Point(chain, int(own.pop("n_steps"))), **own, seconds=seconds)


class Points:
    """Make and measure the runs of a sweep.

    Args:
        sweep: The sweep.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def point(self, settings: Mapping[str, Any]) -> Point:
        """Return the run that settings describe.

        Args:
            settings: `depth`, and either `flops` or `tokens`; also `vocab_size` (the first of the sweep), `seed` (0)
                and `learning_rate` (the depth dial's).

        Raises:
            ScalingError: A setting is unknown, missing or out of range, or the run is below one step.
        """
        known = {"depth", "flops", "tokens", "vocab_size", "seed", "learning_rate"}
        if unknown := sorted(set(settings) - known):
            raise ScalingError(f"unknown setting {unknown[0]}", hint=f"choose of {', '.join(sorted(known))}")
        if "depth" not in settings or ("flops" in settings) == ("tokens" in settings):
            raise ScalingError(
                "a run needs depth, and either flops or tokens", hint="name both, and no third"
            )
        depth, sizes = float(settings["depth"]), self.sweep.vocabularies.sizes
        vocab_size = int(settings.get("vocab_size", sizes[0]))
        if vocab_size not in sizes:
            raise ScalingError(
                f"the sweep has no vocabulary of {vocab_size:,}",
                hint=f"choose of {', '.join(map(str, sizes))}, or add it to vocabularies.sizes",
            )
        if not 0 < depth < 1000:
            raise ScalingError(f"depth is {depth:g}", hint="choose a number above 0, such as 2 or 2.5")
        seed, rate = (
            int(settings.get("seed", 0)),
            float(settings.get("learning_rate", self.sweep.dial_rate(depth))),
        )
        if seed < 0 or not 0 < rate < 10:
            raise ScalingError(
                f"seed is {seed} and learning_rate {rate:g}",
                hint="a seed is at least 0, a rate between 0 and 10",
            )
        chain = Chain(vocab_size, depth, seed, rate)
        amount = float(settings.get("tokens", 0)) or float(settings["flops"]) / self.flops_per_token(chain)
        return Point(chain, self.n_steps(amount, depth))

    def n_steps(self, n_tokens: float, depth: float) -> int:
        """Return the whole steps of a number of tokens.

        Raises:
            ScalingError: They are too few for a run.
        """
        train, per_step = self.sweep.train, self.sweep.step_tokens
        if not n_tokens < 1e18:
            raise ScalingError(f"{n_tokens:g} tokens are no length of a run", hint="choose a finite number")
        n_steps = int(n_tokens // per_step * (1 + 1e-12))
        if n_steps < 1:
            raise ScalingError(
                f"depth {depth:g}: the budget is {n_tokens:,.0f} tokens, fewer than the {per_step:,} of one step",
                hint="raise the budget, or lower train.batch_size, train.context_length or the depth",
            )
        if self.start(n_steps) < train.warmup_steps:
            raise ScalingError(
                f"depth {depth:g}: of {n_steps:,} steps, {self.start(n_steps):,} are before the decay, fewer than the "
                f"{train.warmup_steps:,} of the warm-up",
                hint="raise the budget, or lower train.warmup_steps or train.batch_size",
            )
        return n_steps

    def start(self, n_steps: int) -> int:
        """Return the step at which the decay of a run begins."""
        return n_steps - max(1, round(n_steps * self.sweep.train.decay_share))

    def shape(self, chain: Chain) -> ModelConfig:
        """Return the shape of a model."""
        return self.sweep.shape(chain.depth, chain.vocab_size)

    def flops_per_token(self, chain: Chain) -> float:
        """Return the FLOPs of training per token."""
        return flops_per_token(self.shape(chain))

    def parameters(self, chain: Chain) -> dict[str, int]:
        """Return the parameters by part."""
        parts = parameters_by_part(self.shape(chain))
        own = {"embedding": parts["token embeddings"], "output layer": parts["output layer"]}
        return {**own, "rest": sum(parts.values()) - sum(own.values())}

    def flops(self, point: Point) -> float:
        """Return the FLOPs of a run from the start."""
        return self.flops_per_token(point.chain) * point.n_steps * self.sweep.step_tokens

    def spent(self, points: Iterable[Point]) -> float:
        """Return the FLOPs that runs take together: shorter ones of a chain lend their beginning to longer ones.

        It does not depend on the order in which the runs were made, except that a shorter run that is added to a chain
        later may repeat a part of its beginning, which is not counted twice.
        """
        by_chain: dict[Chain, set[int]] = {}
        for point in points:
            by_chain.setdefault(point.chain, set()).add(point.n_steps)
        total = 0.0
        for chain, lengths in by_chain.items():
            decays = sum(n - self.start(n) for n in lengths)
            n_steps = max(self.start(n) for n in lengths) + decays
            total += n_steps * self.sweep.step_tokens * self.flops_per_token(chain)
        return total

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the settings that all runs share, apart from the text."""
        shared = {
            "train": self.sweep.train.to_dict(),
            "width_per_layer": self.sweep.width_per_layer,
            "pattern": self.sweep.vocabularies.pattern,
        }
        return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()
