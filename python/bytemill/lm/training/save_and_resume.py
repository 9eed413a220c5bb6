"""Save a run and resume it: its weights, optimizer, position in the data and random generators."""

from __future__ import annotations

import json
import random
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from bytemill.errors import BytemillError, CheckpointError, OutputError
from bytemill.lm.batches import key_of
from bytemill.lm.checkpoint import distinct
from bytemill.lm.device import synchronise
from bytemill.lm.processes import whole_weights
from bytemill.lm.tensors import is_sharded, whole
from bytemill.lm.training.metrics_log import MetricsLog
from bytemill.lm.training.run import (
    LossScale,
    RecentSteps,
    SpikeDetector,
    is_checkpoint_due,
    rate_change,
    saves_in_background,
)
from bytemill.lm.training.run_checkpoint import (
    AVERAGE,
    WEIGHTS,
    CheckpointContents,
    CheckpointWrite,
    optimizer_part,
    publish_checkpoint,
    read_checkpoint,
    remove_checkpoint,
)
from bytemill.lm.training.run_folder import Loaded, check_resumable

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from torch import Tensor

    from bytemill.lm.training.config import Resolved, TrainConfig
    from bytemill.lm.training.metrics_log import Recorder
    from bytemill.lm.training.run import Run


def seed_generators(seed: int, rank: int, step: int = 0) -> None:
    """Seed the global generators of Python, NumPy and torch for a process that starts or joins a run at `step`.

    torch's draw dropout. Checkpoints hold the states of all, so that equal runs have equal files.
    """
    own = seed if rank == step == 0 else key_of(seed, rank, step) >> 1
    torch.manual_seed(own)  # pyright: ignore[reportUnknownMemberType]
    random.seed(own)
    np.random.seed(own % (1 << 32))


def generators_state(device: torch.device | None = None) -> dict[str, Any]:
    """Return the states of the global generators of Python, NumPy and torch, on the CPU and on `device`, for JSON."""
    kind, keys, *rest = cast("tuple[Any, ...]", np.random.get_state(legacy=True))
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [kind, keys.tolist(), *rest],
        "torch": _to_text(torch.get_rng_state()),
    }
    if device is not None and device.type == "cuda":
        state["cuda"] = _to_text(torch.cuda.get_rng_state(device))
    if torch.backends.mps.is_available():
        state["mps"] = _to_text(torch.mps.get_rng_state())
    return state


def restore_generators(state: Mapping[str, Any], device: torch.device | None = None) -> None:
    """Restore the result of `generators_state`; the state of another kind of device is ignored."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(_from_text(state["torch"]))
    if "cuda" in state and device is not None and device.type == "cuda":
        torch.cuda.set_rng_state(_from_text(state["cuda"]), device)
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(_from_text(state["mps"]))


def _to_text(state: torch.Tensor) -> str:
    return state.numpy().tobytes().hex()


def _from_text(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)


@contextmanager
def open_run(run: Run, resolved: Resolved, *, overwrite: bool) -> Generator[MetricsLog | None]:
    """Lock the folder, resume or start the run, and open the metrics log; only the first process writes the log.

    At the end, a checkpoint that is still being written is completed.
    """
    if not run.processes.is_first:
        run.processes.wait()
        _resume(run)
        try:
            yield None
        finally:
            _end_writing(run)
        return
    with run.folder.locked(), run.folder.stored or nullcontext() as stored:
        if overwrite:
            run.folder.clear()
        run.processes.wait()
        before = _resume(run)
        run.folder.prepare(resolved, run.tokenizer, before)
        if stored is not None and run.saved is not None:
            stored.push_newer(run.saved)
        with closing(MetricsLog(run.folder.metrics, after_step=run.step or None)) as log:
            try:
                yield log
            finally:
                _end_writing(run)


def _resume(run: Run) -> TrainConfig | None:
    """Restore the state of the newest intact checkpoint, if there is one, and return its settings.

    The first process verifies the files.
    """
    found = run.folder.load_newest() if run.processes.is_first else None
    chosen = run.processes.share((found.checkpoint.path, found.refused) if found else None)
    if chosen is None:
        return None
    found = found or Loaded(read_checkpoint(chosen[0]), chosen[1])
    checkpoint = found.checkpoint
    check_resumable(checkpoint, run.config, run.tokenizer.fingerprint, run.shards)
    state = checkpoint.trainer_state()
    try:
        if run.average:
            checkpoint.load_weights(run.model, average=True)
            run.average.restart(state["n_average_updates"])
        checkpoint.load_weights(run.model)
        checkpoint.load_optimizer(run.model, run.optimizer, state["optimizer"])
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
    run.refused, run.saved, run.initial = found.refused, checkpoint.path, checkpoint.initial
    peak = run.optimizer.param_groups[0]["peak_lr"]
    if note := rate_change(checkpoint.config, run.config, run.step, peak):
        run.notes.append(note)
    return checkpoint.config


def save_if_due(run: Run, record: Recorder, *, now: bool) -> None:
    """Publish the checkpoint that has been written meanwhile, and start to write the next one if it is due.

    Args:
        run: The run.
        record: Shows each published checkpoint.
        now: Save now, due or not, and return when the checkpoint is published.

    Raises:
        OutputError: A checkpoint could not be written; in all processes.
    """
    if run.writing and not run.processes.any(not run.writing.is_written):
        finish_saving(run, record)
    if now or is_checkpoint_due(run):
        finish_saving(run, record)
        run.writing = CheckpointWrite(
            run.folder.checkpoint_path(run.step),
            run.step,
            _contents(run),
            in_background=saves_in_background(run),
        )
    if now or not saves_in_background(run):
        finish_saving(run, record)


def finish_saving(run: Run, record: Recorder | None = None) -> None:
    """Wait for the checkpoint that is being written, publish it and remove old ones.

    Raises:
        OutputError: It could not be written; in all processes. Nothing of it remains.
        ShardError: The run has read damaged shards; the same holds.
    """
    if run.writing is None:
        return
    writing, run.writing = run.writing, None
    if record and run.check.is_running:
        record.show("notice", writing.step, text="the checkpoint waits until all shards are verified")
    damage, written = run.check.wait(), writing.wait()
    parts = run.processes.gather(damage or written)
    error = run.processes.share(_publish(run, writing, parts) if run.processes.is_first else None)
    if error is not None:
        raise error
    run.saved = writing.path
    if record:
        record.show("checkpoint", writing.step, path=str(run.saved))


def _publish(
    run: Run, writing: CheckpointWrite, parts: list[dict[str, str] | BaseException]
) -> BaseException | None:
    """Publish the files of all processes, or remove them if there was an error, which is returned."""
    errors = [part for part in parts if isinstance(part, BaseException)]
    files = {name: sha256 for part in parts if isinstance(part, dict) for name, sha256 in part.items()}
    if not errors:
        try:
            publish_checkpoint(
                writing.temporary,
                writing.path,
                files,
                step=writing.step,
                config=run.config,
                fingerprint=run.tokenizer.fingerprint,
                shards=run.shards,
                bos_id=run.bos_id,
                separator=run.separator,
                initial=run.initial,
            )
        except OutputError as error:
            errors.append(error)
    if errors:
        remove_checkpoint(writing.temporary)
        return errors[0]
    options = run.config.run
    if run.folder.stored is not None:
        run.folder.stored.push(writing.path)
    run.folder.remove_old(writing.step, keep=options.keep_checkpoints, keep_every=options.keep_every)
    return None


def _end_writing(run: Run) -> None:
    """Complete the checkpoint that is being written when an error ends the run.

    With several processes it is not published, since the others may be gone.
    """
    if run.writing is None:
        return
    if run.processes.count > 1:
        run.writing.wait()
        return
    with suppress(BytemillError):  # the error that ends the run is reported
        finish_saving(run)


def _contents(run: Run) -> CheckpointContents:
    """Return what this process writes, copied if it is written while training continues; all must call this."""
    is_first, in_background = run.processes.is_first, saves_in_background(run)

    def keep(tensor: Tensor) -> Tensor:
        if not in_background:
            return tensor
        if tensor.device.type != "cuda":
            return tensor.to("cpu", copy=True)
        # To pinned memory, which torch keeps for the next checkpoint, ten times as fast.
        return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)

    def keep_whole(parameter: Tensor) -> Tensor | None:
        if is_sharded(parameter):
            gathered = whole(parameter)
            return gathered.cpu() if is_first else None
        return keep(parameter) if is_first else None

    weights = whole_weights(run.model, keep_whole)
    optimizer = optimizer_part(run.model, run.optimizer, is_first=is_first, keep=keep)
    numbers = [optimizer.numbers]
    if run.optimizer.divides_state:
        numbers = run.processes.gather(optimizer.numbers)
    generators = run.processes.gather(generators_state(run.device))
    trainer: dict[str, Any] = {
        "optimizer": {name: own for each in numbers for name, own in each.items()},
        "n_tokens": run.n_tokens,
        "n_bad": run.n_bad,
        "recent": vars(run.recent),
        "spikes": vars(run.spikes),
        "loss_scale": vars(run.scale) if run.scale else None,
        "n_average_updates": run.average.n_updates if run.average else 0,
        "batches": run.batches.state_dict(),
        "generators": generators,
    }
    files = {WEIGHTS: distinct(weights)} if is_first else {}
    if run.average:
        synchronise(run.device)
        with run.average.in_model():
            average = whole_weights(
                run.model, keep_whole if in_background else lambda each: _copied(keep_whole(each))
            )
            synchronise(run.device)
        if is_first:
            files[AVERAGE] = distinct(average)
    synchronise(run.device)
    return CheckpointContents(
        run.processes.rank,
        files,
        optimizer,
        json.dumps(trainer).encode() if is_first else None,
    )


def _copied(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.clone()
