"""Train a language model: the loop, from the settings to the last checkpoint.

Read `_train` from top to bottom. The loss and gradients of a step and the evaluation follow below it, the other steps
are in `preparation` and `save_and_resume`; `run` holds the state between two steps.
"""

from __future__ import annotations

import io
import math
from collections import deque
from contextlib import closing, nullcontext
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.profiler import record_function

from bytemill.errors import NotFiniteError, TrainingDivergedError
from bytemill.lm.batches import MarkedDocuments, PackedBatches, key_of, spread_starts
from bytemill.lm.device import DeviceNumbers, autocast, memory_errors, shared_cores
from bytemill.lm.evaluate import (
    LossByClass,
    TextScore,
    evaluate_conversations,
    evaluate_windows,
    mean_score,
)
from bytemill.lm.feed_forwards.loads import take_loads
from bytemill.lm.generation.decoding import generate
from bytemill.lm.generation.text_generation import ids_without_token, prompt_ids
from bytemill.lm.hellaswag import evaluate_hellaswag
from bytemill.lm.optim import clip_gradients
from bytemill.lm.planning import flops_per_token
from bytemill.lm.processes import (
    join_processes,
    stop_signals,
    whole_model,
)
from bytemill.lm.tensors import local
from bytemill.lm.training.data import UNNAMED, divide_batch, n_sequences, pass_sizes, sequences_at
from bytemill.lm.training.distillation import distilled_losses
from bytemill.lm.training.exchange import exchanged, in_parallel
from bytemill.lm.training.metrics_log import OnRecord, Recorder
from bytemill.lm.training.preparation import MEMORY_HINT, peak_rate, prepare
from bytemill.lm.training.run import (
    Speed,
    describe_groups,
    is_checkpoint_due,
    is_due,
    is_validation_due,
    keep_zeros,
    set_rates,
)
from bytemill.lm.training.save_and_resume import finish_saving, open_run, save_if_due
from bytemill.system.atomic_files import write_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm.processes import LossFunction
    from bytemill.lm.training.config import Resolved
    from bytemill.lm.training.run import Accumulated, Run, Task
    from bytemill.lm.training.run_folder import RunFolder

PHASES = ("data", "forward", "backward", "optimizer")
"""Parts of a step that torch's profiler sees under these names; see `step_profile`."""


def train(
    resolved: Resolved,
    *,
    overwrite: bool = False,
    on_record: OnRecord | None = None,
    task: Task | None = None,
) -> RunFolder:
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
        task: What a run that tunes learns from; see `lm.tuning.tune`.

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
        run = prepare(resolved, processes, overwrite=overwrite, task=task)
        with closing(run.reader), run.check:
            return _train(run, resolved, overwrite=overwrite, on_record=on_record)


def _train(run: Run, resolved: Resolved, *, overwrite: bool, on_record: OnRecord | None) -> RunFolder:
    config = run.config
    peak, peak_source = peak_rate(run)
    run.model.train()
    with (
        open_run(run, resolved, overwrite=overwrite) as log,
        closing(Recorder(log, run, on_record)) as record,
        stop_signals(run.processes) as stop,
        shared_cores(run.device),
    ):
        record.show("start", run.step, **_summary(run), peak_source=peak_source)
        accumulate = _accumulation(run, record)
        if config.training.keep_zeros:  # also of a resumed run, whose other weights are hardly ever zero
            run.zeros = [
                (each, (local(each.detach()) != 0).to(each.dtype)) for each in run.model.block_matrices()
            ]
        speed = _speed(run, peak)
        evaluate_if_due(run, record)  # the run may have been stopped between a checkpoint and its evaluation
        unread: deque[StepInFlight] = deque()
        while run.step < config.training.steps:
            speed.start()
            set_rates(run.optimizer, run.step, config)
            unread.append(take_step(run, accumulate))
            run.step += 1
            # On a GPU, the numbers of a step are read while the next one runs, so that the GPU never waits.
            n_left = 1 if unread[-1].is_updated and not _is_anything_due(run) else 0
            n_finished = max(0, len(unread) - n_left)
            speed.stop(sum(finish_step(run, unread.popleft(), record) for _ in range(n_finished)))
            if is_due(run, config.run.log_every) and run.recent.n_steps:
                record(
                    "step",
                    run.step,
                    **run.recent.take(),
                    **_progress(run),
                    **speed.take(run.reader.take_seconds(), _tokens_left(run)),
                )
                if text := speed.slowdown():
                    record.show("notice", run.step, text=text)
            run.check.raise_damage()
            must_stop = stop.requested_anywhere()
            if must_stop and unread:
                finish_step(run, unread.popleft(), record)
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
    )


def _tokens_left(run: Run) -> float:
    """Return the tokens of the steps to come; where they vary, about as many per step as so far."""
    if run.task is None:
        return _total_tokens(run) - run.n_tokens
    return run.n_tokens / run.step * (run.config.training.steps - run.step)


def _total_tokens(run: Run) -> int:
    n_positions = (
        n_sequences(run.config.training.steps, run.config.training) * run.config.model.context_length
    )
    return round(n_positions * (1 - run.batches.padding_share))


def _progress(run: Run) -> dict[str, float]:
    lr = run.optimizer.param_groups[0]["lr"]
    return {"learning_rate": lr, "n_tokens": run.n_tokens, "epoch": run.batches.epoch}


def _diverged(run: Run, step: StepInFlight) -> TrainingDivergedError:
    saved = f"the last checkpoint is {run.saved}" if run.saved else "no checkpoint was saved yet"
    return TrainingDivergedError(
        f"the loss or gradient was not finite in {run.n_bad} consecutive steps up to step {step.number + 1}; its batch "
        f"is in {save_bad_batch(run, step.number, step.end)}; {saved}",
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
        "strategy": run.config.training.strategy
        if run.processes.count > 1 or run.parallel is not None
        else None,
        "precision": "tf32"
        if run.config.training.precision == "tf32"
        else str(run.dtype).removeprefix("torch."),
        "resumed_from": str(run.saved) if run.saved else None,
        "refused": run.refused,
        "notes": run.notes,
    }


def _accumulation(run: Run, record: Recorder) -> Callable[[], Accumulated]:
    """Return the function that accumulates the gradients of a step."""
    if run.task is None:
        return partial(accumulate_gradients, run, loss_function(run))
    run.task.begin(run)
    return partial(run.task.accumulate, run, record)


def loss_function(run: Run) -> LossFunction:
    """Return the function that computes the losses of a batch; with DDP, its gradients are averaged over processes."""
    options: dict[str, Any] = {
        "z_loss": run.config.optimizer.z_loss,
        "documents": run.documents,
        "is_padded": run.batches.padding_share > 0,
    }
    compute_losses: LossFunction = partial(run.model.losses, **options)
    if run.teacher is not None:
        tuning = run.config.tuning
        options |= {"weight": tuning.teacher_weight, "temperature": tuning.teacher_temperature}
        compute_losses = partial(distilled_losses, run.model, run.teacher, **options)
    return in_parallel(run, compute_losses)


def accumulate_gradients(run: Run, compute_losses: LossFunction) -> Accumulated:
    """Accumulate the gradients of a step.

    With several processes, each computes its share of the step, and the gradients are those of the whole step. The
    device is not waited for.

    Returns:
        Of this process: the mean cross-entropy, the number of tokens, and the number of their bytes. The first and the
        last are tensors on the device.
    """
    passes = pass_sizes(run.config.training, run.processes.count, run.step)
    n_all = run.batches.n_targets(run.batches.position, sum(passes) * run.processes.count)
    total = torch.zeros((), device=run.device)
    n_bytes = torch.zeros((), dtype=torch.int64, device=run.device)
    n_tokens = 0
    for index, size in enumerate(passes):
        first = run.batches.position + run.processes.rank * size
        n_own = run.batches.n_targets(first, size)
        with record_function("data"):
            inputs, targets = run.reader.take(size, run.step)
        if not n_own:  # as windows of conversations may have; the loss needs a target, and its share is 0
            targets[:, 0] = inputs[:, 0]
        with exchanged(run, compute_losses, now=index == len(passes) - 1):
            with record_function("forward"), autocast(run.device, run.dtype):
                loss, cross_entropy = compute_losses(inputs, targets)
            # Gradients are averaged over the processes. Without padding, the divisor of equal passes is their number.
            divisor = n_all / (n_own * run.processes.count) if n_own else math.inf
            share = loss / divisor
            scaled = share if run.scale is None else share * run.scale.value
            with record_function("backward"):
                scaled.backward()  # pyright: ignore[reportUnknownMemberType]
        total += cross_entropy / divisor
        own = targets >= 0 if n_own < targets.numel() else ...
        if n_own:
            n_bytes += run.byte_counts.of(inputs[own], targets[own]).sum()
        n_tokens += n_own
    if run.scale is not None:
        run.scale.unscale(run.model.parameters())
    return total, n_tokens, n_bytes


@dataclass(frozen=True)
class StepInFlight:
    """A step whose numbers may still be computed by the device."""

    number: int
    """Steps before it."""
    end: int
    """Position in the data after it."""
    n_tokens: int
    """Tokens of this process."""
    numbers: DeviceNumbers
    """Mean cross-entropy of this process, bytes of its tokens, and the gradient norm."""
    is_updated: bool
    """The weights are updated already, unless the norm is not finite; otherwise `finish_step` updates them."""


def take_step(run: Run, accumulate: Callable[[], Accumulated]) -> StepInFlight:
    """Compute the gradients of a step, and update the weights if that needs no decision of this program."""
    options, optimizer = run.config.optimizer, run.optimizer
    loss, n_tokens, n_bytes = accumulate()
    if run.config.model.feed_forward == "moe":
        run.recent.add_loads(take_loads(run.model, run.processes))
    with record_function("optimizer"):
        norm = clip_gradients(run.model.parameters(), options.clip or math.inf)
    numbers = DeviceNumbers([loss, n_bytes, norm], run.device)
    is_updated = optimizer.can_skip and run.scale is None and run.average is None and not options.skip_spikes
    if is_updated:
        # With several processes, a loss that is not finite in one of them makes the common gradient so.
        with record_function("optimizer"):
            optimizer.step_if_finite(norm if run.processes.count > 1 else norm + 0 * loss)
            keep_zeros(run)
    return StepInFlight(run.step, run.batches.position, n_tokens, numbers, is_updated)


def finish_step(run: Run, step: StepInFlight, record: Recorder) -> int:
    """Read the numbers of a step, decide on its update where that is left, and record what is unusual.

    Returns:
        The tokens of all processes.

    Raises:
        TrainingDivergedError: Too many steps in a row were not finite.
    """
    options, number = run.config.optimizer, step.number + 1
    loss, n_bytes, norm = step.numbers.read()
    loss, n_tokens, n_bytes = run.processes.sum([loss, step.n_tokens, n_bytes])
    loss, n_tokens, n_bytes = loss / run.processes.count, int(n_tokens), int(n_bytes)
    is_finite = math.isfinite(loss) and math.isfinite(norm)
    spike = run.spikes.add(loss, norm, options) if is_finite else None
    is_taken = is_finite and not (spike and options.skip_spikes)
    if step.is_updated:
        if not (math.isfinite(norm) and (is_finite or run.processes.count > 1)):
            run.optimizer.forget_step()
    elif is_taken:
        with record_function("optimizer"):
            run.optimizer.step()
            keep_zeros(run)
            if run.average:
                run.average.update()
    if not step.is_updated:
        run.optimizer.zero_grad(set_to_none=True)
    is_overflow = run.scale is not None and run.scale.update(is_finite=is_finite)
    run.n_tokens += n_tokens
    if spike:
        record("spike", number, **spike, skipped=not is_taken)
    if is_finite:
        run.recent.add(loss, norm, n_bytes, n_tokens)
        run.n_bad = 0
    elif not is_overflow:
        run.n_bad += 1
        record("skipped", number, loss=loss, grad_norm=norm, n_consecutive=run.n_bad)
        if run.n_bad >= run.config.training.max_bad_steps:
            finish_saving(run, record)
            raise _diverged(run, step)
    return n_tokens


def _is_anything_due(run: Run) -> bool:
    """Return True if records, a checkpoint or an evaluation follow this step, which need its numbers."""
    options = run.config.run
    return is_checkpoint_due(run) or any(
        is_due(run, every) for every in (options.log_every, options.sample_every, options.hellaswag_every)
    )


def save_bad_batch(run: Run, number: int, end: int) -> Path:
    """Write the sequences of a step, of all processes, as an .npz file in the run folder.

    All processes must call this; the first one writes.

    The file holds `step`, `inputs` and `targets` of shape (n_sequences, context_length), `sequences` (their numbers in
    the order of the run) and `offsets` (of their first ids in the training data).

    Args:
        run: The run.
        number: Steps before the step.
        end: Position in the data after it.

    Raises:
        OutputError: The file cannot be written.
    """
    path = run.folder.path / f"bad_batch_step_{number + 1:08d}.npz"
    if run.processes.is_first:
        write_bytes(path, _sequences(run, number, end))
    run.processes.wait()  # for the file to exist
    return path


def _sequences(run: Run, number: int, end: int) -> bytes:
    n = sequences_at(number, run.config.training)
    first = end - n
    windows = run.batches.windows(first, n).numpy()
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        step=np.array(number + 1),
        inputs=windows[:, :-1],
        targets=windows[:, 1:],
        sequences=np.arange(first, first + n),
        offsets=np.array(run.batches.starts(first, n)),
    )
    return buffer.getvalue()


def evaluate_if_due(run: Run, record: Recorder) -> None:
    """Record validation, HellaSwag and a sample, if they are due at this step and not recorded yet.

    All use the average of the weights if there is one.
    """
    due = {
        "validation": (_validate, is_validation_due(run)),
        "hellaswag": (_hellaswag, bool(run.hellaswag) and is_due(run, run.config.run.hellaswag_every)),
        "sample": (_sample, is_due(run, run.config.run.sample_every)),
    }
    missing = {
        kind: evaluate
        for kind, (evaluate, is_now) in due.items()
        if run.step and is_now and not record.has(kind, run.step)
    }
    if missing:
        with run.average.in_model() if run.average else nullcontext():
            for kind, evaluate in missing.items():
                record(kind, run.step, **evaluate(run))
        run.model.train()


def _validate(run: Run) -> dict[str, Any]:
    """Score the model on the validation windows, which the processes share.

    With several sets, loss and bits per byte are the means over the sets, and `sets` has the values of each.
    """
    model = whole_model(run.model)
    by_class = LossByClass(run.tokenizer, run.config.model.vocab_size, run.device)
    scores: dict[str, TextScore] = {}
    options: dict[str, Any] = {
        "batch_size": divide_batch(run.config.training, run.processes.count)[1],
        "dtype": run.dtype,
        "by_class": by_class,
    }
    own_share = slice(run.processes.rank, None, run.processes.count)
    for name, tokens in run.validation.items():
        length, n_windows = run.config.model.context_length, run.config.run.validation_windows
        if tokens.has_masks:
            batches = PackedBatches([part.folder for part in tokens.parts], length, None)
            numbers = range(min(n_windows, batches.n_windows))[own_share]
            documents = MarkedDocuments(run.config.training.reset_positions)
            own = evaluate_conversations(
                model,
                batches,
                numbers,
                run.byte_counts,
                documents=documents if run.config.training.document_mask else None,
                **options,
            )
        else:
            starts = spread_starts(len(tokens), length, n_windows)[own_share]
            own = evaluate_windows(model, tokens, starts, run.byte_counts, documents=run.documents, **options)
        n_tokens, nats, text_nats, n_bytes = run.processes.sum(astuple(own))
        scores[name] = TextScore(int(n_tokens), nats, text_nats, int(n_bytes))
    by_class.sums = run.processes.sum(by_class.sums)
    result = mean_score(list(scores.values()))
    if set(scores) != {UNNAMED}:
        result["sets"] = {name: score.to_dict() for name, score in scores.items()}
    return {**result, "classes": by_class.to_dict(), "frequencies": by_class.by_frequency()}


def _hellaswag(run: Run) -> dict[str, Any]:
    """Compute the accuracy on HellaSwag, None if a logit is not finite; each process scores a part of the items."""
    items = run.hellaswag[run.processes.rank :: run.processes.count]
    model = whole_model(run.model)
    n_sequences = divide_batch(run.config.training, run.processes.count)[1]
    n_correct = [0.0, 0.0]
    if items:
        try:
            score = evaluate_hellaswag(
                model, run.tokenizer, items, bos_id=run.bos_id, batch_size=n_sequences, dtype=run.dtype
            )
            n_correct = [score.accuracy[name] * len(items) for name in ("sum", "characters")]
        except NotFiniteError:
            n_correct = [math.nan, math.nan]
    acc, acc_norm = (
        round(n) / len(run.hellaswag) if math.isfinite(n) else None for n in run.processes.sum(n_correct)
    )
    return {"n_items": len(run.hellaswag), "acc": acc, "acc_norm": acc_norm}


def _sample(run: Run) -> dict[str, Any]:
    """Generate a sample from a generator of its own, so that training does not depend on samples.

    A sample that fails is recorded with its error.
    """
    model = whole_model(run.model)
    if not run.processes.is_first:
        return {}
    prompt = run.config.run.sample_prompt
    is_wide = run.config.training.precision in {"float32", "tf32"}
    try:
        new = generate(
            model,
            prompt_ids(run.tokenizer, prompt, run.bos_id),
            run.config.run.sample_tokens,
            temperature=0.8,
            top_p=0.95,
            excluded_ids=ids_without_token(run.tokenizer, run.config.model.vocab_size),
            seed=key_of(run.config.training.seed, run.step) >> 1,
            precision="float32" if is_wide else "auto",
        )[0]
        return {"prompt": prompt, "text": run.tokenizer.decode(new)}
    except Exception as error:  # whatever it is, training continues
        return {"prompt": prompt, "text": "", "error": f"{type(error).__name__}: {error}"}
