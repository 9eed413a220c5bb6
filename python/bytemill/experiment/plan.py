"""What a study will take, before it runs: parameters, steps, FLOPs, time, disk space, passes over the text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.experiment.grid import cells, trials
from bytemill.experiment.prepare import Materials
from bytemill.experiment.probe import probe_rates
from bytemill.experiment.results import StudyFolder
from bytemill.experiment.statistics import detectable_difference
from bytemill.experiment.study import load_study

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

TYPICAL_DEVIATIONS = (0.0002, 0.0003)
"""Standard deviation of bits per byte over seeds that has been published for models of 1B parameters. Small models vary
more; the report of a study states its own."""
_BYTES_PER_PARAMETER = 12
"""Of a checkpoint: weights and the two averages of AdamW, in float32."""


@dataclass(frozen=True)
class PlannedArm:
    """The models of a tokenizer and a shape."""

    tokenizer: str
    model: str
    n_ids: int
    parameters: dict[str, int]
    n_steps: int
    n_tokens: int
    n_bytes: int
    flops: float
    """Of one model, with the output layer."""
    passes: float
    """Passes over the training text."""
    seconds: float | None
    """Expected time of one model; None if speed was not measured."""


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
    segment_bytes: int
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
    materials = Materials(study, own.path, Path(path).parent, report)
    rates = probe_rates(materials, report) if probe or study.budget.equal == "time" else materials.rates or {}
    n_text = materials.train_text.n_bytes
    arms = [
        PlannedArm(
            arm.tokenizer,
            arm.model,
            materials.tokenizers[arm.tokenizer].n_vocab,
            arm.parameters,
            arm.allowance.n_steps,
            arm.allowance.n_tokens,
            arm.allowance.n_bytes,
            arm.allowance.flops,
            arm.allowance.n_bytes / n_text,
            arm.allowance.n_tokens / rate if (rate := rates.get((arm.tokenizer, arm.model))) else None,
        )
        for arm in materials.arms(rates)
    ]
    n_seeds, share = len(study.seed_list), study.learning_rate.share
    n_rates = len(study.learning_rate.search)
    per_seed = sum(arm.flops for arm in arms)
    trial_flops = per_seed * share * n_rates
    seconds = [arm.seconds for arm in arms]
    weight = n_seeds + share * n_rates
    low, high = (detectable_difference(deviation * 2**0.5, n_seeds) for deviation in TYPICAL_DEVIATIONS)
    return StudyPlan(
        study.title,
        arms,
        len(cells(study)),
        len(trials(study)),
        per_seed * n_seeds + trial_flops,
        trial_flops,
        None if None in seconds else sum(own or 0.0 for own in seconds) * weight,
        _disk_bytes(materials, arms, n_seeds, n_rates),
        materials.segment_bytes,
        None if low is None or high is None else (low, high),
        _warnings(arms, n_seeds),
    )


def _disk_bytes(materials: Materials, arms: list[PlannedArm], n_seeds: int, n_rates: int) -> int:
    per_tokenizer: dict[str, int] = {}
    for arm in arms:
        width = 2 if arm.n_ids <= 1 << 16 else 4
        per_tokenizer[arm.tokenizer] = max(per_tokenizer.get(arm.tokenizer, 0), arm.n_tokens * width)
    checkpoints = sum(sum(arm.parameters.values()) for arm in arms) * _BYTES_PER_PARAMETER
    shards = n_seeds * sum(per_tokenizer.values())
    return materials.train_text.n_bytes + shards + (n_seeds + n_rates) * checkpoints


def _warnings(arms: list[PlannedArm], n_seeds: int) -> list[str]:
    found = [
        f"{arm.tokenizer} with {arm.model} reads the text {arm.passes:.1f} times: tokenizers are compared on repeated "
        "text"
        for arm in arms
        if arm.passes > 1.005
    ]
    if n_seeds < 2:
        found.append("one seed gives no interval, so the study can show no difference")
    return found
