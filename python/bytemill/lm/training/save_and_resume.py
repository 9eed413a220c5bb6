"""Save the state of a run in a checkpoint, and resume from it."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from bytemill.errors import CheckpointError
from bytemill.lm.checkpoint import load_optimizer_state, weights_bytes
from bytemill.lm.training.distributed import shard_state, whole_state, whole_weights
from bytemill.lm.training.loss_scale import LossScale
from bytemill.lm.training.metrics_log import MetricsLog
from bytemill.lm.training.run import RecentSteps
from bytemill.lm.training.run_folder import check_resumable
from bytemill.lm.training.run_state import generators_state, restore_generators, seed_generators
from bytemill.lm.training.spikes import SpikeDetector

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from bytemill.lm.training.config import Resolved
    from bytemill.lm.training.run import Run


@contextmanager
def open_run(run: Run, resolved: Resolved, *, overwrite: bool) -> Generator[MetricsLog | None]:
    """Lock the folder, resume or start the run, and open the metrics log; only the first process writes."""
    if not run.processes.is_first:
        run.processes.wait()
        _resume(run)
        yield None
        return
    with run.folder.locked():
        if overwrite:
            run.folder.clear()
        run.processes.wait()
        _resume(run)
        run.folder.prepare(resolved, run.tokenizer)
        with closing(MetricsLog(run.folder.metrics, after_step=run.step or None)) as log:
            yield log


def _resume(run: Run) -> None:
    """Restore the state of the newest checkpoint, if there is one."""
    found = run.folder.load_newest()
    if found is None:
        return
    checkpoint = found.checkpoint
    check_resumable(checkpoint, run.config, run.tokenizer.fingerprint, run.shards)
    state = checkpoint.trainer_state()
    try:
        if run.average:
            checkpoint.load_weights(run.model, average=True)
            run.average.restart(state["n_average_updates"])
        checkpoint.load_weights(run.model)
        load_optimizer_state(run.optimizer, shard_state(run.optimizer, state["optimizer"]))
        run.batches.load_state_dict(state["batches"])
        run.step, run.n_tokens, run.n_bad = checkpoint.step, state["n_tokens"], state["n_bad"]
        run.recent = RecentSteps(**state["recent"])
        run.spikes = SpikeDetector(**state["spikes"])
        if run.scale is not None:
            run.scale = LossScale(**state["loss_scale"])
        generators = state["generators"]
        if run.processes.rank < len(generators):
            restore_generators(generators[run.processes.rank], run.device)
        else:
            seed_generators(run.config.training.seed, run.processes.rank, run.step)
    except KeyError as error:
        raise CheckpointError(f"{checkpoint.path} lacks {error}") from error
    run.refused, run.saved = found.refused, checkpoint.path


def save_run(run: Run) -> Path:
    """Write the checkpoint that `open_run` reads, for any number of processes and any strategy."""
    weights, optimizer = whole_state(run.model, run.optimizer, run.processes)
    state: dict[str, Any] = {
        "optimizer": optimizer,
        "n_tokens": run.n_tokens,
        "n_bad": run.n_bad,
        "recent": vars(run.recent),
        "spikes": vars(run.spikes),
        "loss_scale": vars(run.scale) if run.scale else None,
        "n_average_updates": run.average.n_updates if run.average else 0,
        "batches": run.batches.state_dict(),
        "generators": run.processes.gather(generators_state(run.device)),
    }
    average = _average_bytes(run)
    run.saved = run.folder.checkpoint_path(run.step)
    if run.processes.is_first:
        run.folder.save(
            run.step,
            weights,
            state,
            average=average,
            config=run.config,
            fingerprint=run.tokenizer.fingerprint,
            shards=run.shards,
        )
    run.processes.wait()  # for the checkpoint to exist
    return run.saved


def _average_bytes(run: Run) -> bytes | None:
    """Serialize the average of the weights; None in all but the first process, or if there is none."""
    if run.average is None:
        return None
    with run.average.in_model():
        weights = whole_weights(run.model, run.processes)
        return weights_bytes(weights) if run.processes.is_first else None
