"""The job of a cell: settings of its run, texts to score on, and hashes of what its result depends on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.data import TokenShards
from bytemill.experiment.budget import allowance
from bytemill.experiment.encoded_text import train_shards, validation_shards
from bytemill.experiment.job import Job

if TYPE_CHECKING:
    from bytemill.experiment.budget import Allowance
    from bytemill.experiment.grid import Cell
    from bytemill.experiment.prepare import Arm, StudyInputs

_VALIDATION_WINDOWS = 64


def cell_job(study_inputs: StudyInputs, cell: Cell, rate: float) -> Job:
    """Return the work of a cell with a learning rate; text is encoded where that has not been done."""
    study, shape = study_inputs.study, study_inputs.shapes[cell.tokenizer, cell.model]
    shards, n_bytes = train_shards(study_inputs, cell.tokenizer, cell.seed)
    (arm,) = (
        arm
        for arm in study_inputs.arms(study_inputs.rates)
        if (arm.tokenizer, arm.model) == (cell.tokenizer, cell.model)
    )
    allowed = _allowance(study_inputs, cell, arm, (len(TokenShards(shards)) - 1, n_bytes))
    is_trial = cell.trial_rate is not None
    texts = {"tuning": study_inputs.tuning_text} if is_trial else study_inputs.domains
    validation = {} if is_trial else validation_shards(study_inputs, cell.tokenizer)
    folder = study_inputs.folder / "cells" / cell.name
    every = max(1, -(-allowed.n_steps // study.n_checkpoints))
    settings: dict[str, Any] = {
        "training.batch_size": 32,
        **{f"model.{name}": value for name, value in shape.to_dict().items()},
        **study.train_settings(),
        "data.tokenizer": str(study_inputs.tokenizer_path(cell.tokenizer)),
        "data.train": str(shards),
        "data.validation": [f"{domain}={path}" for domain, path in validation.items()],
        "data.order": "sequential",
        "optimizer.learning_rate": rate,
        "training.steps": allowed.n_steps,
        "training.seed": cell.seed,
        "run.folder": str(folder / "run"),
        "run.log_every": max(1, allowed.n_steps // 100),
        "run.validate_every": every,
        "run.validation_windows": _VALIDATION_WINDOWS,
        "run.checkpoint_every": every,
        "run.keep_checkpoints": 1,
    }
    facts: dict[str, Any] = {
        "tokenizer": cell.tokenizer,
        "model": cell.model,
        "seed": cell.seed,
        "learning_rate": rate,
        "is_trial": is_trial,
        "n_steps": allowed.n_steps,
        "n_tokens": allowed.n_tokens,
        "n_bytes": allowed.n_bytes,
        "flops": allowed.flops,
        "parameters": arm.parameters,
        "n_ids": study_inputs.tokenizers[cell.tokenizer].n_vocab,
        "context_bytes": study_inputs.context_bytes,
    }
    hellaswag = str(study_inputs.base / study.hellaswag) if study.hellaswag and not is_trial else ""
    # Without the places of files and what only the log depends on.
    trained = [
        {key: value for key, value in settings.items() if not key.startswith(("run.", "data."))},
        study_inputs.tokenizers[cell.tokenizer].fingerprint,
        study_inputs.train_text.sha256,
        n_bytes,
    ]
    scored = [
        facts,
        {domain: text.sha256 for domain, text in texts.items()},
        hashlib.sha256(Path(hellaswag).read_bytes()).hexdigest() if hellaswag else "",
        study.prompts,
    ]
    return Job(
        cell.name,
        str(folder),
        settings,
        {domain: str(text.folder) for domain, text in texts.items()},
        study_inputs.context_bytes,
        facts,
        training_inputs=_hash(trained),
        inputs=_hash([trained, scored]),
        hellaswag=hellaswag,
        prompts=() if is_trial else study.prompts,
    )


def _allowance(study_inputs: StudyInputs, cell: Cell, arm: Arm, encoded: tuple[int, int]) -> Allowance:
    """Return what the model is trained on, for the numbers of tokens and bytes of its shards."""
    study, allowed = study_inputs.study, arm.allowance
    if study.budget.equal == "bytes":
        n_tokens, n_bytes = encoded
        allowed = allowance(
            "bytes",
            study.budget.amount,
            arm.shape,
            study_inputs.batch_size,
            n_bytes / n_tokens,
            n_tokens=n_tokens,
        )
    if cell.trial_rate is None:
        return allowed
    n_steps = max(1, int(allowed.n_steps * study.learning_rate.share))
    share = n_steps / allowed.n_steps
    return replace(
        allowed,
        n_steps=n_steps,
        n_tokens=round(allowed.n_tokens * share),
        n_bytes=round(allowed.n_bytes * share),
        flops=allowed.flops * share,
    )


def _hash(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
