"""The work of one cell: train a model as `bytemill lm train` does, and score it, in a process of its own.

`cell_job` collects what a job needs: the settings of its run, texts to score on, and hashes of what its result depends
on. `main` is the program of the process, which `runner` starts.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from bytemill.data import TokenShards
from bytemill.errors import BytemillError, CheckpointError, OutputError, RunConfigError, TrainingDivergedError
from bytemill.experiment.documents import StoredText
from bytemill.experiment.inputs import allowance, train_shards, validation_shards
from bytemill.experiment.results import check_result, read_scores, write_scores
from bytemill.experiment.scoring import score_documents
from bytemill.experiment.statistics import unigram_bits
from bytemill.lm.device import pick_precision
from bytemill.lm.evaluate import evaluate_hellaswag, read_items
from bytemill.lm.generation.text_generation import sample_text
from bytemill.lm.training.config import resolve
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.saved_model import find_saved_model, load_trained
from bytemill.lm.training.trainer import train
from bytemill.system.atomic_files import write_json
from bytemill.system.records import read_json_object

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bytemill.experiment.inputs import Allowance, Arm, StudyInputs
    from bytemill.experiment.study import Cell

_BATCH_SIZE = 16
"""Windows or items per batch of the scoring."""
_SAMPLE_TOKENS = 60
_COUNTED_IDS = 1 << 24
"""Ids of the training text that are counted at a time."""
_VALIDATION_WINDOWS = 64
_FAILED, _INTERRUPTED = 1, 130
_LOCK_SECONDS = 10
"""How long the process of a killed study may keep its run locked."""


@dataclass(frozen=True)
class Job:
    """Everything that the result of a cell depends on, in values that JSON supports."""

    name: str
    folder: str
    """Folder of the cell, with the run and the result."""
    settings: dict[str, Any]
    """Settings of the run, with flat keys."""
    texts: dict[str, str]
    """Folders of the texts to score on, by domain."""
    context_bytes: int
    facts: dict[str, Any]
    """What the result repeats: names, budget, number of parameters."""
    training_inputs: str
    """Hash of all that determines the trained model."""
    inputs: str
    """Hash of all that determines the result."""
    hellaswag: str = ""
    prompts: Sequence[str] = ()

    @property
    def run_folder(self) -> Path:
        """Folder of the run."""
        return Path(self.folder) / "run"

    @property
    def result_path(self) -> Path:
        """File of the result."""
        return Path(self.folder) / "result.json"

    def result(self) -> dict[str, Any] | None:
        """Return the result of an earlier call of `perform` with the same inputs; None if there is none."""
        try:
            result = read_json_object(self.result_path, RunConfigError, "")
            if check_result(result, self.result_path)["inputs"] != self.inputs:
                return None
            for domain in self.texts:
                read_scores(Path(self.folder), domain, result)
        except (FileNotFoundError, KeyError, RunConfigError):  # what is damaged is scored again
            return None
        return result


def cell_job(study_inputs: StudyInputs, cell: Cell, rate: float) -> Job:
    """Return the work of a cell with a learning rate; text is encoded where that has not been done."""
    study, tokenizer = study_inputs.study, study_inputs.tokenizers[cell.tokenizer]
    shards, n_bytes = train_shards(study_inputs, cell.tokenizer, cell.seed, cell.text)
    (arm,) = (
        arm
        for arm in study_inputs.arms(study_inputs.rates)
        if (arm.tokenizer, arm.model, arm.text) == (cell.tokenizer, cell.model, cell.text)
    )
    allowed = _allowance(study_inputs, cell, arm, (len(TokenShards(shards)) - 1, n_bytes))
    is_trial = cell.trial_rate is not None
    texts = {"tuning": study_inputs.tuning_text} if is_trial else study_inputs.domains
    validation = {} if is_trial else validation_shards(study_inputs, cell.tokenizer)
    folder = study_inputs.folder / "cells" / cell.name
    every = max(1, -(-allowed.n_steps // study.n_checkpoints))
    settings: dict[str, Any] = {
        **study_inputs.model_settings(cell.tokenizer, cell.model),
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
        **({"text": cell.text} if cell.text else {}),
        "seed": cell.seed,
        "learning_rate": rate,
        "is_trial": is_trial,
        **asdict(allowed),
        "parameters": arm.parameters,
        "n_ids": tokenizer.n_vocab,
        "context_bytes": study_inputs.context_bytes,
    }
    hellaswag = str(study_inputs.base / study.hellaswag) if study.hellaswag and not is_trial else ""
    # Without the places of files and what only the log depends on.
    trained = [
        {key: value for key, value in settings.items() if not key.startswith(("run.", "data."))},
        tokenizer.fingerprint,
        study_inputs.arm_texts[cell.text].sha256,
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
    budget, allowed = study_inputs.study.budget, arm.allowance
    if budget.equal == "bytes":
        n_tokens, n_bytes = encoded
        density, batch_size = n_bytes / n_tokens, study_inputs.batch_size
        allowed = allowance("bytes", budget.amount, arm.shape, batch_size, density, n_tokens=n_tokens)
    if cell.trial_rate is None:
        return allowed
    n_steps = max(1, int(allowed.n_steps * study_inputs.study.learning_rate.share))
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


def perform(job: Job, on_record: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """Train and score the model of a cell; an interrupted run resumes.

    Args:
        job: The cell.
        on_record: Called with each record of the training log.

    Returns:
        The result, which is also in the folder of the cell.

    Raises:
        BytemillError: Training failed.
    """
    _remove_other_run(job)
    if not _is_trained(job):
        train(resolve([("the study", job.settings)]), on_record=on_record)
    trained = load_trained(job.run_folder, job.settings.get("training.device", "auto"))
    model, tokenizer, unigram = trained.model, trained.tokenizer, unigram_bits(_training_counts(job))
    options: dict[str, Any] = {
        "batch_size": _BATCH_SIZE,
        "dtype": pick_precision(trained.config.training.precision, model.lm_head.weight.device),
    }
    scores = {
        domain: score_documents(
            model, tokenizer, StoredText(Path(folder)), job.context_bytes, unigram, **options
        )
        for domain, folder in job.texts.items()
    }
    for domain, score in scores.items():
        if not np.isfinite(score.bits).all():
            raise TrainingDivergedError(
                f"{job.name}: the loss on {domain} is not finite", hint="lower learning_rate"
            )
        write_scores(Path(job.folder), domain, score.bits, score.n_bytes, score.unigram_bits)
    result = {
        "cell": job.name,
        **job.facts,
        "bits_per_byte": {domain: score.bits_per_byte for domain, score in scores.items()},
        "unigram_bits_per_byte": {domain: score.unigram_bits_per_byte for domain, score in scores.items()},
        "n_scored_bytes": {domain: int(score.n_bytes.sum()) for domain, score in scores.items()},
        "n_scored_tokens": {domain: score.n_tokens for domain, score in scores.items()},
        "context": {domain: asdict(score.context) for domain, score in scores.items()},
        "classes": _last_validation(job).get("classes", {}),
        "inputs": job.inputs,
    }
    if job.prompts:
        texts = (
            sample_text(trained.model, trained.tokenizer, prompt, _SAMPLE_TOKENS) for prompt in job.prompts
        )
        result["samples"] = [
            {"prompt": prompt, "text": text} for prompt, text in zip(job.prompts, texts, strict=True)
        ]
    if job.hellaswag:
        own = evaluate_hellaswag(model, tokenizer, read_items(job.hellaswag), **options)
        result["hellaswag"] = {
            "acc": own.accuracy["sum"],
            "acc_norm": own.accuracy["characters"],
            "n_items": own.n_items,
            "n_unaligned": own.n_unaligned,
        }
    write_json(job.result_path, result)
    return result


def _remove_other_run(job: Job) -> None:
    """Remove the run of a cell that was to be trained otherwise; one that is only scored otherwise is kept."""
    mark = Path(job.folder) / "inputs.json"
    try:
        is_same = json.loads(mark.read_text(encoding="utf-8")) == job.training_inputs
    except (OSError, ValueError):
        is_same = False
    if not is_same:
        shutil.rmtree(job.folder, ignore_errors=True)
        Path(job.folder).mkdir(parents=True)
        write_json(mark, job.training_inputs)


def _is_trained(job: Job) -> bool:
    """Return True if the run has its last checkpoint and, where it is validated, its last validation.

    A run that was killed after its last checkpoint still lacks its last validation.
    """
    n_steps = job.settings["training.steps"]
    try:
        if find_saved_model(job.run_folder).step != n_steps:
            return False
        return not job.settings["data.validation"] or _last_validation(job).get("step") == n_steps
    except (CheckpointError, RunConfigError):
        return False


def _last_validation(job: Job) -> dict[str, Any]:
    return (read_metrics(RunFolder(job.run_folder).metrics, "validation") or [{}])[-1]


def _training_counts(job: Job) -> NDArray[np.int64]:
    """Return how often the model was trained on each id."""
    shards, counts = TokenShards(job.settings["data.train"]), np.zeros(job.facts["n_ids"], np.int64)
    for start in range(0, job.facts["n_tokens"], _COUNTED_IDS):
        ids = shards[start : min(start + _COUNTED_IDS, job.facts["n_tokens"])]
        counts += np.bincount(ids, minlength=len(counts))
    return counts


def main() -> int:
    """Perform the job in the first line of standard input, and return the exit code."""
    # Only records may go to the pipe; what libraries print goes to standard error.
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = Job(**json.loads(sys.stdin.readline()))
    Thread(target=_exit_with_the_study, daemon=True).start()
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            perform(job, lambda record: _send(pipe, record))
        except KeyboardInterrupt:
            return _INTERRUPTED
        except BaseException as error:
            is_locked = isinstance(error, OutputError) and "another process is training" in str(error)
            if is_locked and time.monotonic() <= deadline:
                time.sleep(0.2)
                continue
            is_known = isinstance(error, BytemillError)
            _send(
                pipe,
                {"kind": "error", "message": f"{'' if is_known else f'{type(error).__name__}: '}{error}"},
            )
            return _FAILED
        else:
            return 0


def _send(pipe: TextIO, record: dict[str, Any]) -> None:
    pipe.write(json.dumps(record) + "\n")
    pipe.flush()


def _exit_with_the_study() -> None:
    """End this process when its standard input is closed: the study was killed."""
    os.read(0, 1)  # not through `sys.stdin`, whose lock would be held when the interpreter ends
    os._exit(_FAILED)
