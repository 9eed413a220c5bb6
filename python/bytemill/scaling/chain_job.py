"""The work of one process of a sweep: runs of several lengths from one beginning.

The trunk trains with a constant learning rate after its warm-up. Where the decay of a run begins, the run branches off
the trunk and its rate falls to 0 (warm-up, stable, decay: Hu et al. 2024). The result is that of a run of its own, to
the last bit, because the schedule does not depend on the length before the decay begins.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import CheckpointError, ScalingError, TrainingDivergedError
from bytemill.experiment.documents import StoredText
from bytemill.experiment.job import serve
from bytemill.experiment.scoring import score_documents
from bytemill.experiment.statistics import unigram_bits
from bytemill.lm.device import pick_precision
from bytemill.lm.training.branches import branch
from bytemill.lm.training.config import resolve
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.run_checkpoint import read_checkpoint, step_of
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.saved_model import load_trained
from bytemill.lm.training.trainer import train
from bytemill.shards import TokenShards
from bytemill.system.atomic_files import make_folder, write_json
from bytemill.system.records import read_json_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.training.run_checkpoint import RunCheckpoint

PROGRAM = "import sys; from bytemill.scaling.chain_job import main; sys.exit(main())"
_BATCH_SIZE = 16
"""Windows per batch of the scoring."""
_CHECKPOINT_EVERY = 1000


@dataclass(frozen=True)
class ChainJob:
    """The runs of a chain, in values that JSON supports."""

    name: str
    folder: str
    settings: dict[str, Any]
    """Settings of the trunk, with flat keys, without its length."""
    lengths: list[tuple[int, int]]
    """Steps of each run, and the step at which its decay begins; in ascending order."""
    texts: list[str]
    """Folders of the texts to score on."""
    context_bytes: int
    n_ids: int

    def to_json(self) -> str:
        """Return the job as one line, for its process."""
        return json.dumps(asdict(self))

    def result_path(self, n_steps: int) -> Path:
        """Return the file with the result of a run."""
        return Path(self.folder) / f"steps{n_steps}.json"

    def known(self, n_steps: int) -> dict[str, Any] | None:
        """Return the result of a run; None if it is not finished, or its file is damaged."""
        try:
            found = read_json_object(self.result_path(n_steps), ScalingError, "")
        except (FileNotFoundError, ScalingError):
            return None
        return found if found.get("n_steps") == n_steps and "bits_per_byte" in found else None

    def result(self) -> dict[str, Any] | None:
        """Return the results of all runs; None if one is missing."""
        known = [self.known(n_steps) for n_steps, _ in self.lengths]
        return None if None in known else {"runs": known}


def perform(job: ChainJob, on_record: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
    """Train and score the runs of a chain; what is finished is kept, and an interrupted run resumes.

    Args:
        job: The chain.
        on_record: Called with the records of training, and with one of the kind "run" for each finished run.
    """
    make_folder(job.folder)
    for n_steps, start in job.lengths:
        found = job.known(n_steps)
        if found is None:
            found = _outcome(job, n_steps, start, on_record)
            write_json(job.result_path(n_steps), found)
        on_record({"kind": "run", **found})
        shutil.rmtree(Path(job.folder) / f"steps{n_steps}", ignore_errors=True)


def _outcome(
    job: ChainJob, n_steps: int, start: int, on_record: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Train and score a run. A run that diverges has no loss, which is an outcome too."""
    folder = Path(job.folder) / f"steps{n_steps}"
    try:
        seconds = _train(job, folder, n_steps, start, on_record)
        return {"n_steps": n_steps, **_score(job, folder, n_steps), "seconds": seconds}
    except TrainingDivergedError as error:
        lost = dict.fromkeys(("loss", "bits_per_byte", "unigram_bits_per_byte", "seconds"))
        return {"n_steps": n_steps, **lost, "diverged": str(error)}


def _train(
    job: ChainJob, folder: Path, n_steps: int, start: int, on_record: Callable[[dict[str, Any]], None]
) -> float:
    """Train a run from the trunk, and return the seconds that it takes from the start."""
    trunk = RunFolder(Path(job.folder) / "trunk")
    changes = {
        "schedule.name": "wsd",
        "schedule.decay_steps": n_steps - start,
        "training.steps": n_steps,
        "run.folder": str(folder),
    }
    if _newest_step(trunk) < start:
        constant = {"schedule.name": "constant", "training.steps": start, "run.folder": str(trunk.path)}
        train(resolve([("the sweep", {**job.settings, **constant})]), on_record=on_record)
    beginning = _last_before(trunk, start)
    if beginning is None:
        resolved = resolve([("the sweep", {**job.settings, **changes})])
    else:
        resolved = branch(beginning, ("the sweep", job.settings), changes)
    train(resolved, on_record=on_record)
    records = [
        *read_metrics(trunk.metrics, "step"),
        *read_metrics(RunFolder(folder).metrics, "step"),
    ]
    rates = [each["tokens_per_second"] for each in records if each.get("tokens_per_second")]
    per_step = job.settings["training.batch_size"] * job.settings["model.context_length"]
    return n_steps * per_step * float(np.mean(1 / np.array(rates))) if rates else math.nan


def _newest_step(run: RunFolder) -> int:
    return max((step_of(path) for path in run.checkpoint_files()), default=-1)


def _last_before(trunk: RunFolder, step: int) -> RunCheckpoint | None:
    """Return the newest intact checkpoint of the trunk that is not after a step."""
    for path in trunk.checkpoint_files():
        if step_of(path) <= step:
            try:
                checkpoint = read_checkpoint(path)
                checkpoint.verify(weights_only=False)
            except CheckpointError:
                continue
            return checkpoint
    return None


def _score(job: ChainJob, folder: Path, n_steps: int) -> dict[str, float | str]:
    trained = load_trained(folder, job.settings.get("training.device", "auto"))
    shards = TokenShards(job.settings["data.train"])
    n_seen = min(
        len(shards), n_steps * job.settings["training.batch_size"] * job.settings["model.context_length"]
    )
    unigram = unigram_bits(np.bincount(shards[:n_seen], minlength=job.n_ids))
    device = trained.model.lm_head.weight.device
    bits, baseline, n_bytes, n_tokens = 0.0, 0.0, 0, 0
    for text in job.texts:
        own = score_documents(
            trained.model,
            trained.tokenizer,
            StoredText(Path(text)),
            job.context_bytes,
            unigram,
            batch_size=_BATCH_SIZE,
            dtype=pick_precision(trained.config.training.precision, device),
        )
        bits, baseline = bits + float(own.bits.sum()), baseline + float(own.unigram_bits.sum())
        n_bytes, n_tokens = n_bytes + int(own.n_bytes.sum()), n_tokens + own.n_tokens
    if not math.isfinite(bits):
        raise TrainingDivergedError(
            "the loss on the validation text is not finite", hint="lower the learning rate"
        )
    return {
        "loss": bits * math.log(2) / n_tokens,
        "bits_per_byte": bits / n_bytes,
        "unigram_bits_per_byte": baseline / n_bytes,
        "diverged": "",
    }


def trunk_settings(**own: Any) -> dict[str, Any]:
    """Return settings of a trunk that do not depend on the sweep, with `own` added."""
    return {
        "data.order": "sequential",
        "schedule.min_share": 0.0,
        "run.log_every": 10,
        "run.validate_every": 0,
        "run.checkpoint_every": _CHECKPOINT_EVERY,
        "run.keep_checkpoints": 1_000_000,
        **own,
    }


def main() -> int:
    """Perform the job in the first line of standard input, and return the exit code."""
    return serve(lambda values, on_record: perform(ChainJob(**values), on_record))
