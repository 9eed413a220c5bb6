"""Save the state of a run in a checkpoint, and resume from it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from bytemill.errors import CheckpointError
from bytemill.lm.checkpoint import load_optimizer_state
from bytemill.lm.training.metrics_log import MetricsLog
from bytemill.lm.training.run import RecentSteps
from bytemill.lm.training.run_folder import check_resumable
from bytemill.lm.training.run_state import generators_state, restore_generators

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.lm.training.config import Resolved
    from bytemill.lm.training.run import Run


def open_run(run: Run, resolved: Resolved, *, overwrite: bool) -> closing[MetricsLog]:
    """Resume or start the run in its locked folder, and open the metrics log."""
    if overwrite:
        run.folder.clear()
    _resume(run)
    run.folder.prepare(resolved, run.tokenizer)
    return closing(MetricsLog(run.folder.metrics, after_step=run.step or None))


def _resume(run: Run) -> None:
    """Restore the state of the newest checkpoint, if there is one."""
    found = run.folder.load_newest()
    if found is None:
        return
    checkpoint = found.checkpoint
    check_resumable(checkpoint, run.config, run.tokenizer.fingerprint, run.shards)
    state = checkpoint.trainer_state()
    try:
        checkpoint.load_weights(run.model)
        load_optimizer_state(run.optimizer, state["optimizer"])
        run.batches.load_state_dict(state["batches"])
        run.step, run.n_tokens, run.n_bad = checkpoint.step, state["n_tokens"], state["n_bad"]
        run.recent = RecentSteps(**state["recent"])
        restore_generators(state["generators"])
    except KeyError as error:
        raise CheckpointError(f"{checkpoint.path} lacks {error}") from error
    run.refused, run.saved = found.refused, checkpoint.path


def save_run(run: Run) -> Path:
    """Write the checkpoint that `resume` reads."""
    state: dict[str, Any] = {
        "optimizer": run.optimizer.state_dict(),
        "n_tokens": run.n_tokens,
        "n_bad": run.n_bad,
        "recent": vars(run.recent),
        "batches": run.batches.state_dict(),
        "generators": generators_state(),
    }
    run.saved = run.folder.save(
        run.step,
        run.model,
        state,
        config=run.config,
        fingerprint=run.tokenizer.fingerprint,
        shards=run.shards,
    )
    return run.saved
