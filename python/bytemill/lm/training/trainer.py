"""Train a language model: the loop, from the settings to the last checkpoint.

Read `_train` from top to bottom. What it calls is, in the same order, in `preparation`, `save_and_resume`,
`evaluation` and `step`; `run` holds the state between two steps.
"""

from __future__ import annotations

import math
from contextlib import closing
from typing import TYPE_CHECKING, Any

from bytemill.errors import TrainingDivergedError
from bytemill.lm.cpu_threads import shared_cores
from bytemill.lm.device import memory_errors
from bytemill.lm.optim import clip_gradients
from bytemill.lm.planning import flops_per_token
from bytemill.lm.processes import join_processes, stop_signals
from bytemill.lm.training.batch_reader import n_sequences
from bytemill.lm.training.evaluation import evaluate_if_due
from bytemill.lm.training.log_records import OnRecord, Recorder, Speed
from bytemill.lm.training.optimization import describe_groups, set_rates
from bytemill.lm.training.preparation import MEMORY_HINT, peak_rate, prepare
from bytemill.lm.training.run import is_due
from bytemill.lm.training.save_and_resume import finish_saving, open_run, save_if_due
from bytemill.lm.training.step import accumulate_gradients, loss_function, save_bad_batch

if TYPE_CHECKING:
    from bytemill.lm.training.config import Resolved
    from bytemill.lm.training.run import Run
    from bytemill.lm.training.run_folder import RunFolder


def train(resolved: Resolved, *, overwrite: bool = False, on_record: OnRecord | None = None) -> RunFolder:
    """Train a model, or resume the run in `run.folder` from its newest checkpoint.

    A resumed run gives the same weights and metrics as an uninterrupted one, on the CPU bit for bit. The first
    SIGINT or SIGTERM saves a checkpoint after the current step. The global generators of Python, NumPy and torch are
    seeded.

    In a process started by `torchrun`, the processes train together: each takes its share of the batch, and the first
    one alone writes and reports. A signal to any of them stops all after the same step.

    Args:
        resolved: Settings of the run.
        overwrite: Delete the checkpoints in the folder and start over.
        on_record: Called with every record of `metrics.jsonl`, and with records of the kinds start, checkpoint and
            end, which are not stored.

    Returns:
        The folder of the run.

    Raises:
        RunConfigError: A setting is missing, or does not fit the data or the device.
        ShardError: A shard folder is missing, damaged or too small, or of another tokenizer. Shards are compared with
            their manifests while training begins; no checkpoint is published before they are found intact.
        CheckpointError: The folder holds a run with other settings, data or tokenizer.
        OutputError: The folder holds other files, is in use, or cannot be written.
        NotEnoughMemoryError: The model or a batch does not fit into memory.
        ProcessFailedError: The connection to another process was lost, or it did not answer.
        TrainingDivergedError: The loss or gradient was not finite in `training.max_bad_steps` consecutive steps.
        KeyboardInterrupt: On SIGINT and SIGTERM, after saving.
    """
    training = resolved.config.training
    with (
        memory_errors(MEMORY_HINT),
        join_processes(training.device, training.process_timeout) as processes,
    ):
        run = prepare(resolved, processes, overwrite=overwrite)
        with closing(run.reader), run.check:
            return _train(run, resolved, overwrite=overwrite, on_record=on_record)


def _train(run: Run, resolved: Resolved, *, overwrite: bool, on_record: OnRecord | None) -> RunFolder:
    config = run.config
    compute_losses = loss_function(run)
    peak, peak_source = peak_rate(run)
    run.model.train()
    with (
        open_run(run, resolved, overwrite=overwrite) as log,
        closing(Recorder(log, run, on_record)) as record,
        stop_signals(run.processes) as stop,
        shared_cores(run.device),
    ):
        record.show("start", run.step, **_summary(run), peak_source=peak_source)
        speed = _speed(run, peak)
        evaluate_if_due(run, record)  # the run may have been stopped between a checkpoint and its evaluation
        while run.step < config.training.steps:
            speed.start()
            set_rates(run.optimizer, run.step, config)
            loss, n_tokens, n_bytes = accumulate_gradients(run, compute_losses)
            norm = float(clip_gradients(run.model.parameters(), config.optimizer.clip or math.inf))
            is_finite = math.isfinite(loss) and math.isfinite(norm)
            spike = run.spikes.add(loss, norm, config.optimizer) if is_finite else None
            is_taken = is_finite and not (spike and config.optimizer.skip_spikes)
            if is_taken:
                run.optimizer.step()
                if run.average:
                    run.average.update()
            if is_finite:
                run.recent.add(loss, norm, n_bytes, n_tokens)
            run.optimizer.zero_grad(set_to_none=True)

            is_overflow = run.scale is not None and run.scale.update(is_finite=is_finite)
            run.step += 1
            run.n_tokens += n_tokens
            speed.stop(n_tokens)
            if spike:
                record("spike", run.step, **spike, skipped=not is_taken)
            if is_finite:
                run.n_bad = 0
            elif not is_overflow:
                run.n_bad += 1
                record("skipped", run.step, loss=loss, grad_norm=norm, n_consecutive=run.n_bad)
                if run.n_bad >= config.training.max_bad_steps:
                    finish_saving(run, record)
                    raise _diverged(run)

            if is_due(run, config.run.log_every) and run.recent.n_steps:
                record(
                    "step",
                    run.step,
                    **run.recent.take(),
                    **_progress(run),
                    **speed.take(run.reader.take_seconds()),
                )
                if text := speed.slowdown():
                    record.show("notice", run.step, text=text)
            run.check.raise_damage()
            must_stop = stop.requested_anywhere()
            save_if_due(run, record, now=must_stop)
            if must_stop:
                raise KeyboardInterrupt
            evaluate_if_due(run, record)
        finish_saving(run, record)
        record.show("end", run.step, folder=str(run.folder.path))
    return run.folder


def _speed(run: Run, peak: float | None) -> Speed:
    """Return the speed of all processes together."""
    return Speed(
        run.device,
        flops_per_token(run.config.model, run.config.model.context_length, backward=True),
        peak and peak * run.processes.count,
        n_tokens=run.n_tokens,
        total_tokens=_total_tokens(run),
    )


def _total_tokens(run: Run) -> int:
    n_positions = (
        n_sequences(run.config.training.steps, run.config.training) * run.config.model.context_length
    )
    return round(n_positions * (1 - run.batches.padding_share))


def _progress(run: Run) -> dict[str, float]:
    lr = run.optimizer.param_groups[0]["lr"]
    return {"learning_rate": lr, "n_tokens": run.n_tokens, "epoch": run.batches.epoch}


def _diverged(run: Run) -> TrainingDivergedError:
    saved = f"the last checkpoint is {run.saved}" if run.saved else "no checkpoint was saved yet"
    return TrainingDivergedError(
        f"the loss or gradient was not finite in {run.n_bad} consecutive steps up to step {run.step}; its batch is in "
        f"{save_bad_batch(run)}; {saved}",
        hint="train in a new folder (--run.folder NAME) with a lower --optimizer.learning-rate, or with "
        "--training.precision float32",
    )


def _summary(run: Run) -> dict[str, Any]:
    return {
        "n_parameters": run.model.n_parameters(),
        "n_steps": run.config.training.steps,
        "n_tokens": run.n_tokens,
        "total_tokens": _total_tokens(run),
        "groups": describe_groups(run.optimizer, run.model),
        "tokens_per_step": run.config.training.batch_size
        * run.config.training.accumulation
        * run.config.model.context_length,
        "n_train_tokens": len(run.batches.tokens),
        "padding_share": run.batches.padding_share,
        "device": run.device.type if run.processes.count > 1 else str(run.device),
        "n_processes": run.processes.count,
        "strategy": run.config.training.strategy if run.processes.count > 1 else None,
        "precision": "tf32"
        if run.config.training.precision == "tf32"
        else str(run.dtype).removeprefix("torch."),
        "resumed_from": str(run.saved) if run.saved else None,
        "refused": run.refused,
        "notes": run.notes,
    }
