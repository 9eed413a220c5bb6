"""What a study will take, before it runs: parameters, steps, FLOPs, time, disk space, passes over the text."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.experiment.inputs import StudyInputs, probe_rates
from bytemill.experiment.results import StudyFolder
from bytemill.experiment.statistics import LEARNED_SHARE, detectable_difference
from bytemill.experiment.study import cells, load_study, trials, with_text
from bytemill.lm.training.config import resolve
from bytemill.lm.training.run import rate_share

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from bytemill.experiment.inputs import Arm

TYPICAL_DEVIATIONS = (0.0002, 0.0003)
"""Standard deviation of bits per byte over seeds that has been published for models of 1B parameters. Small models vary
more; the report of a study states its own."""
_ENOUGH = 8
"""Times that d Σ η must be the wanted fall of the loss; see `Expectation`."""
_BYTES_PER_PARAMETER = 12
"""Of a checkpoint: weights and the two averages of AdamW, in float32."""


@dataclass(frozen=True)
class Expectation:
    """How far the loss of a model may fall, in bits per token.

    Logits are products of d normalized activations with d weights, each of which a step of AdamW moves by about its
    learning rate η. So until a model has learned the unigram distribution, its loss falls by about ½ d Σ η nats
    (measured: 0.3 to 0.7). To be clearly below that distribution, two small models took a d Σ η of 4 and 7 times the
    fall in nats. It is a rule of thumb.
    """

    n_steps: int
    uniform: float
    """Of the first step: log₂ of the number of ids."""
    unigram: float
    """Of the unigram distribution of the training text."""
    reach: float
    """d Σ η in bits."""

    @property
    def loss(self) -> float:
        """Expected loss, not below that of the unigram distribution."""
        return max(self.unigram, self.uniform - self.reach / 2)

    @property
    def is_enough(self) -> bool:
        """Whether the model is expected to be clearly below the unigram distribution."""
        return self.reach >= _ENOUGH * (self.uniform - (1 - LEARNED_SHARE) * self.unigram)


@dataclass(frozen=True)
class PlannedArm:
    """The models of a tokenizer, a text and a shape."""

    tokenizer: str
    model: str
    text: str
    """Name of the text that they are trained on, if texts are compared."""
    n_ids: int
    parameters: dict[str, int]
    n_steps: int
    n_tokens: int
    tokens_per_parameter: float
    n_bytes: int
    flops: float
    """Of one model, with the output layer."""
    passes: float
    """Passes over the training text."""
    seconds: float | None
    """Expected time of one model; None if speed was not measured."""
    expectation: Expectation | None
    """Of the loss at the end; None for SGD, whose steps are not bounded."""
    trial_expectation: Expectation | None
    """Of the loss at the end of a trial of the learning rate."""


@dataclass(frozen=True)
class StudyPlan:
    """What a study will take."""

    title: str
    arms: list[PlannedArm]
    n_cells: int
    n_trials: int
    flops: float
    """Of all models, trials included."""
    trial_flops: float
    seconds: float | None
    n_disk_bytes: int
    context_bytes: int
    detectable: tuple[float, float] | None
    """Smallest difference that the seeds show, for the published deviations of large models."""
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)


def plan_study(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    probe: bool = True,
    report: Callable[[str], None] = lambda _: None,
) -> StudyPlan:
    """Plan a study. Its tokenizers are trained for that, and kept for the run.

    Args:
        path: The study file.
        folder: Folder of the study; by default the file's name without its ending.
        probe: Measure the speed of each arm over 20 steps.
        report: Called with what is being done.

    Raises:
        RunConfigError: The study is wrong, or its text or budget does not suffice.
    """
    study = load_study(path)
    own = StudyFolder(Path(Path(path).stem if folder is None else folder))
    own.claim(Path(path))
    study_inputs = StudyInputs(study, own.path, Path(path).parent, report)
    is_measured = probe or study.budget.equal == "time"
    rates = probe_rates(study_inputs, report) if is_measured else study_inputs.rates or {}
    share, is_searched = study.learning_rate.share, bool(study.learning_rate.search)
    arms: list[PlannedArm] = []
    for arm in study_inputs.arms(rates):
        own, n_parameters = arm.allowance, sum(arm.parameters.values())
        rate, n_trial_steps = rates.get((arm.tokenizer, arm.model)), max(1, int(own.n_steps * share))
        arms.append(
            PlannedArm(
                arm.tokenizer,
                arm.model,
                arm.text,
                study_inputs.tokenizers[arm.tokenizer].n_vocab,
                arm.parameters,
                own.n_steps,
                own.n_tokens,
                own.n_tokens / n_parameters,
                own.n_bytes,
                own.flops,
                own.n_bytes / study_inputs.arm_texts[arm.text].n_bytes,
                own.n_tokens / rate if rate else None,
                _expectation(study_inputs, arm, own.n_steps),
                _expectation(study_inputs, arm, n_trial_steps) if is_searched else None,
            )
        )
    n_seeds = len(study.seed_list)
    n_trials = len(study.learning_rate.search) * len(study.trial_seeds)
    per_seed = sum(arm.flops for arm in arms)
    trial_flops = per_seed * share * n_trials
    seconds = [arm.seconds for arm in arms]
    low, high = (detectable_difference(deviation * 2**0.5, n_seeds) for deviation in TYPICAL_DEVIATIONS)
    return StudyPlan(
        study.title,
        arms,
        len(cells(study)),
        len(trials(study)),
        per_seed * n_seeds + trial_flops,
        trial_flops,
        None if None in seconds else sum(own or 0.0 for own in seconds) * (n_seeds + share * n_trials),
        _disk_bytes(study_inputs, arms, n_trials),
        study_inputs.context_bytes,
        None if low is None or high is None else (low, high),
        _warnings(arms, n_seeds),
    )


def _expectation(study_inputs: StudyInputs, arm: Arm, n_steps: int) -> Expectation | None:
    study = study_inputs.study
    rate = max(study.learning_rate.search, default=study.learning_rate.fixed)
    settings = study_inputs.model_settings(arm.tokenizer, arm.model)
    config = resolve([("the study", {**settings, "training.steps": n_steps})]).config
    if config.optimizer.name == "sgd":
        return None
    total = rate * sum(rate_share(step, config) for step in range(n_steps))
    uniform = math.log2(study_inputs.tokenizers[arm.tokenizer].n_vocab)
    unigram, reach = (
        study_inputs.unigram_entropy[arm.tokenizer, arm.text],
        arm.shape.d_model * total / math.log(2),
    )
    return Expectation(n_steps, uniform, unigram, reach)


def _disk_bytes(study_inputs: StudyInputs, arms: list[PlannedArm], n_trials: int) -> int:
    seeds = {*study_inputs.study.seed_list, *(study_inputs.study.trial_seeds if n_trials else [])}
    longest: dict[tuple[str, str], int] = {}
    for arm in arms:
        width, key = 2 if arm.n_ids <= 1 << 16 else 4, (arm.tokenizer, arm.text)
        longest[key] = max(longest.get(key, 0), arm.n_tokens * width)
    checkpoints = sum(sum(arm.parameters.values()) for arm in arms) * _BYTES_PER_PARAMETER
    shards = len(seeds) * sum(longest.values())
    n_models = len(study_inputs.study.seed_list) + n_trials
    texts = {
        text.folder: text.n_bytes for text in (study_inputs.train_text, *study_inputs.arm_texts.values())
    }
    return sum(texts.values()) + shards + n_models * checkpoints


def _warnings(arms: list[PlannedArm], n_seeds: int) -> list[str]:
    found = [
        f"{with_text(arm.tokenizer, arm.text)} with {arm.model} reads the text {arm.passes:.1f} times: "
        f"{'texts' if arm.text else 'tokenizers'} are compared on repeated text"
        for arm in arms
        if arm.passes > 1.005
    ]
    for arm in arms:
        for what, own in (("", arm.expectation), ("the trials of ", arm.trial_expectation)):
            if own is not None and not own.is_enough:
                share = own.n_steps / arm.n_steps
                name = f"{what}{with_text(arm.tokenizer, arm.text)} with {arm.model}"
                found.append(_untrained(name, own, arm.tokens_per_parameter * share))
                break
    if n_seeds < 2:
        found.append("one seed gives no interval, so the study can show no difference")
    return found


def _untrained(name: str, own: Expectation, tokens_per_parameter: float) -> str:
    return (
        f"{name}: {own.n_steps:,} steps and {tokens_per_parameter:.2g} tokens per parameter are few. The loss may fall "
        f"from {own.uniform:.1f} to about {own.loss:.1f} bits per token, and the unigram distribution of the text has "
        f"{own.unigram:.1f}: models that are not clearly below it get no verdict. Raise budget.amount or the learning "
        "rate, or lower training.batch_size"
    )
