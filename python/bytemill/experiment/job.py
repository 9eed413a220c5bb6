"""The work of one cell: train a model as `bytemill lm train` does, and score it."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import CheckpointError
from bytemill.experiment.documents import StoredText
from bytemill.experiment.scoring import score_documents
from bytemill.lm.device import pick_precision
from bytemill.lm.evaluate import evaluate_hellaswag, read_items
from bytemill.lm.generation.sampling import SamplingParameters
from bytemill.lm.generation.text_generation import GenerationOptions, generate_text
from bytemill.lm.loading import load_trained
from bytemill.lm.training.config import resolve
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.saved_model import find_saved_model
from bytemill.lm.training.trainer import train
from bytemill.system.atomic_files import write_bytes, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.loading import TrainedModel

_SAMPLE_TOKENS = 60


@dataclass(frozen=True)
class Job:
    """Everything that the result of a cell depends on."""

    name: str
    folder: str
    """Folder of the cell, with the run and the result."""
    settings: dict[str, Any]
    """Settings of the run, with flat keys."""
    texts: dict[str, str]
    """Folders of the texts to score on, by domain."""
    segment_bytes: int
    facts: dict[str, Any]
    """What the result repeats: names, budget, number of parameters."""
    training_inputs: str
    """Hash of all that determines the trained model."""
    inputs: str
    """Hash of all that determines the result."""
    hellaswag: str = ""
    prompts: tuple[str, ...] = ()
    batch_size: int = field(default=16)
    """Pieces or sequences per batch of the scoring."""

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
            result: dict[str, Any] = json.loads(self.result_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return result if result.get("inputs") == self.inputs else None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Job:
        """Return the job that `to_dict` has made, also after a round trip through JSON."""
        own: dict[str, Any] = {**values, "prompts": tuple(values["prompts"])}
        return cls(**own)

    def to_dict(self) -> dict[str, Any]:
        """Return the job as values that JSON supports."""
        return asdict(self)


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
    model = trained.model
    dtype = pick_precision(trained.config.training.precision, model.lm_head.weight.device)
    scores = {
        domain: score_documents(
            model,
            trained.tokenizer,
            StoredText(Path(folder)),
            job.segment_bytes,
            batch_size=job.batch_size,
            dtype=dtype,
        )
        for domain, folder in job.texts.items()
    }
    for domain, score in scores.items():
        write_bytes(Path(job.folder) / f"bits.{domain}.f64", score.bits.astype("<f8").tobytes())
        write_bytes(Path(job.folder) / f"bytes.{domain}.i64", score.n_bytes.astype("<i8").tobytes())
    result = {
        "cell": job.name,
        **job.facts,
        "bits_per_byte": {domain: score.bits_per_byte for domain, score in scores.items()},
        "n_scored_bytes": {domain: int(score.n_bytes.sum()) for domain, score in scores.items()},
        "classes": _classes(RunFolder(job.run_folder)),
        "inputs": job.inputs,
    }
    if job.prompts:
        result["samples"] = [_continued(trained, prompt) for prompt in job.prompts]
    if job.hellaswag:
        items = read_items(job.hellaswag)
        own = evaluate_hellaswag(model, trained.tokenizer, items, batch_size=job.batch_size, dtype=dtype)
        result["hellaswag"] = {
            "acc": own.accuracy["sum"],
            "acc_norm": own.accuracy["characters"],
            "n_items": own.n_items,
            "n_unaligned": own.n_unaligned,
        }
    write_json(job.result_path, result)
    return result


def _continued(trained: TrainedModel, prompt: str) -> dict[str, str]:
    options = GenerationOptions(
        max_tokens=_SAMPLE_TOKENS, sampling=SamplingParameters(temperature=0.8, top_p=0.95), seed=0
    )
    new = generate_text(trained.model, trained.tokenizer, prompt, options)
    return {"prompt": prompt, "text": "".join(own.text for own in new)}


def document_bits(folder: Path, domain: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the bits and the bytes of each document that `perform` scored in the folder of a cell."""
    return (
        np.fromfile(folder / f"bits.{domain}.f64", "<f8"),
        np.fromfile(folder / f"bytes.{domain}.i64", "<i8"),
    )


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
    try:
        return find_saved_model(job.run_folder).step == job.settings["training.steps"]
    except CheckpointError:
        return False


def _classes(run: RunFolder) -> dict[str, Any]:
    """Return the last losses by class of token; they are those of the training log's validation."""
    records = read_metrics(run.metrics, "validation")
    return records[-1]["classes"] if records else {}
