"""Train a language model: the loop, from the settings to the last checkpoint.

Read `_train` from top to bottom; the functions it calls follow in the same order.
"""

from __future__ import annotations

import math
import shlex
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch

from bytemill.errors import (
    CheckpointError,
    NotEnoughMemoryError,
    OutputError,
    RunConfigError,
    TrainingDivergedError,
)
from bytemill.lm.batches import JoinedShards, ShardBatches, spread_starts
from bytemill.lm.checkpoint import load_optimizer_state
from bytemill.lm.device import (
    autocast,
    matmul_rate,
    memory_errors,
    pick_device,
    pick_precision,
    total_memory,
)
from bytemill.lm.evaluate.text import evaluate_windows
from bytemill.lm.generation.generate import generate
from bytemill.lm.generation.text_generation import prompt_ids
from bytemill.lm.loss import token_byte_counts
from bytemill.lm.model import TransformerLM
from bytemill.lm.optim import clip_gradients
from bytemill.lm.permutation import key_of
from bytemill.lm.planning import flops_per_token, largest_batch, training_memory
from bytemill.lm.training.data_folders import data_folders
from bytemill.lm.training.interruption import stop_signals
from bytemill.lm.training.log_records import OnRecord, Recorder, Speed
from bytemill.lm.training.metrics_log import MetricsLog
from bytemill.lm.training.optimization import make_optimizer, rate_share
from bytemill.lm.training.run_folder import RunFolder, check_resumable
from bytemill.lm.training.run_state import generators_state, restore_generators
from bytemill.shards.manifest import shard_hashes
from bytemill.system.units import format_bytes
from bytemill.tokenizer.open_tokenizer import open_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch.optim import Optimizer

    from bytemill.lm.training.config import Resolved, TrainConfig
    from bytemill.lm.training.run_checkpoint import ShardHashes
    from bytemill.tokenizer.tokenizer import Tokenizer


_MEMORY_HINT = "lower --training.batch-size, --model.context-length or --model.num-layers"


def train(resolved: Resolved, *, overwrite: bool = False, on_record: OnRecord | None = None) -> RunFolder:
    """Train a model, or resume the run in `run.folder` from its newest checkpoint.

    A resumed run gives the same weights and metrics as an uninterrupted one, on the CPU bit for bit. The first
    SIGINT or SIGTERM saves a checkpoint after the current step. torch's global generator is seeded.

    Args:
        resolved: Settings of the run.
        overwrite: Delete the checkpoints in the folder and start over.
        on_record: Called with every record of `metrics.jsonl`, and with records of the kinds start, checkpoint and
            end, which are not stored.

    Returns:
        The folder of the run.

    Raises:
        RunConfigError: A setting is missing, or does not fit the data or the device.
        ShardError: A shard folder is missing, damaged or too small, or of another tokenizer.
        CheckpointError: The folder holds a run with other settings, data or tokenizer.
        OutputError: The folder holds other files, is in use, or cannot be written.
        NotEnoughMemoryError: The model or a batch does not fit into memory.
        TrainingDivergedError: The loss or gradient was not finite in `training.max_bad_steps` consecutive steps.
        KeyboardInterrupt: On SIGINT and SIGTERM, after saving.
    """
    with memory_errors(_MEMORY_HINT):
        run = _prepare(resolved, overwrite=overwrite)
        return _train(run, resolved, overwrite=overwrite, on_record=on_record)


def _train(run: _Run, resolved: Resolved, *, overwrite: bool, on_record: OnRecord | None) -> RunFolder:
    config = run.config
    compute_loss = _loss_function(run)
    speed = _speed(run)
    run.model.train()
    with run.folder.locked(), _open(run, resolved, overwrite=overwrite) as log, stop_signals() as stop:
        record = Recorder(log, config, on_record)
        record.show("start", run.step, **_summary(run))
        _evaluate(run, record)  # the run may have been stopped between a checkpoint and its evaluation
        while run.step < config.training.steps:
            speed.start()
            for group in run.optimizer.param_groups:
                group["lr"] = group["peak_lr"] * rate_share(run.step, config)

            loss, n_tokens, n_bytes = _accumulate_gradients(run, compute_loss)
            norm = float(clip_gradients(run.model.parameters(), config.optimizer.clip or math.inf))
            is_finite = math.isfinite(loss) and math.isfinite(norm)
            if is_finite:
                run.optimizer.step()
                run.recent.add(loss, norm, n_bytes, n_tokens)
            run.optimizer.zero_grad(set_to_none=True)

            run.step += 1
            run.n_tokens += n_tokens
            speed.stop(n_tokens)
            if is_finite:
                run.n_bad = 0
            else:
                run.n_bad += 1
                record("skipped", run.step, loss=loss, grad_norm=norm, n_consecutive=run.n_bad)
                if run.n_bad >= config.training.max_bad_steps:
                    raise _diverged(run)

            if _is_due(run, config.run.log_every) and run.recent.n_steps:
                record("step", run.step, **run.recent.take(), **_progress(run), **speed.take())
            if _is_checkpoint_due(run) or stop.requested:
                record.show("checkpoint", run.step, path=str(_save(run)))
            if stop.requested:
                raise KeyboardInterrupt
            _evaluate(run, record)
        record.show("end", run.step, folder=str(run.folder.path))
    return run.folder


@dataclass
class _Recent:
    """Sums over the steps since the last record."""

    loss: float = 0.0
    norm: float = 0.0
    n_bytes: int = 0
    n_tokens: int = 0
    n_steps: int = 0

    def add(self, loss: float, norm: float, n_bytes: int, n_tokens: int) -> None:
        self.loss += loss
        self.norm += norm
        self.n_bytes += n_bytes
        self.n_tokens += n_tokens
        self.n_steps += 1

    def take(self) -> dict[str, float | None]:
        """Return the means and reset; unlike in validation, bits per byte include the loss of special tokens."""
        loss = self.loss / self.n_steps
        bits = loss * self.n_tokens / math.log(2) / self.n_bytes if self.n_bytes else None
        means: dict[str, float | None] = {
            "loss": loss,
            "bits_per_byte": bits,
            "grad_norm": self.norm / self.n_steps,
        }
        self.__init__()
        return means


@dataclass
class _Run:
    """State of a run between two steps."""

    config: TrainConfig
    folder: RunFolder
    tokenizer: Tokenizer
    byte_counts: torch.Tensor
    """(vocab_size,) on the device: bytes of each token, 0 for special tokens."""
    device: torch.device
    dtype: torch.dtype
    batches: ShardBatches
    validation: JoinedShards | None
    model: TransformerLM
    optimizer: Optimizer
    shards: ShardHashes
    """sha256 of the training and validation shards."""
    step: int = 0
    """Number of completed steps."""
    n_tokens: int = 0
    """Number of tokens trained on."""
    n_bad: int = 0
    """Number of consecutive steps, up to this one, whose loss or gradient was not finite."""
    recent: _Recent = field(default_factory=_Recent)
    refused: list[str] = field(default_factory=list[str])
    """Newer checkpoints that are damaged, one message each."""
    saved: Path | None = None
    """The newest checkpoint."""


def _prepare(resolved: Resolved, *, overwrite: bool) -> _Run:
    """Check the settings against data and device, and build model and optimizer."""
    config = resolved.config
    if not config.data.tokenizer:
        raise RunConfigError("data.tokenizer is not set", hint="add --data.tokenizer tokenizer.json")
    if not config.data.train:
        encode = f"bytemill data encode {shlex.quote(config.data.tokenizer)} TEXT -o DIR"
        raise RunConfigError("data.train is not set", hint=f"add --data.train DIR, made with: {encode}")
    folder = RunFolder(config.run.folder)
    tokenizer = open_tokenizer(config.data.tokenizer)
    if config.model.vocab_size < tokenizer.n_vocab:
        raise RunConfigError(
            f"model.vocab_size is {config.model.vocab_size:,}, but the tokenizer has {tokenizer.n_vocab:,} ids",
            hint=f"leave model.vocab_size out, or set it to {tokenizer.n_vocab} or more",
        )
    if config.run.sample_every:
        prompt_ids(tokenizer, config.run.sample_prompt)  # raises now instead of at the first sample
    device = pick_device(config.training.device)
    dtype = pick_precision(config.training.precision, device)
    if (
        device.type == "cpu" and dtype == torch.float32 and not config.training.compile
    ):  # the case of the formulas
        _check_memory(config)
    length, fingerprint = config.model.context_length, tokenizer.fingerprint
    train_folders, validation_folders = data_folders(config.data)
    batches = ShardBatches(train_folders, length, seed=config.training.seed, fingerprint=fingerprint)
    validation = JoinedShards(validation_folders, fingerprint) if validation_folders else None
    if validation is not None and len(validation) <= length:
        names = " ".join(shlex.quote(str(path)) for path in train_folders)
        raise RunConfigError(
            f"the validation shards in {', '.join(map(str, validation_folders))} hold {len(validation):,} tokens, too "
            f"few for a window of {length:,} and its targets",
            hint=f"validate on more text, or train without validation: --data.train {names}"
            + (" and no --data.validation" if config.data.validation else ""),
        )
    torch.manual_seed(config.training.seed)  # pyright: ignore[reportUnknownMemberType]
    model = TransformerLM(config.model, seed=config.training.seed).to(device)
    byte_counts = torch.zeros(config.model.vocab_size, dtype=torch.int64)
    byte_counts[: tokenizer.n_vocab] = token_byte_counts(tokenizer)
    run = _Run(
        config=config,
        folder=folder,
        tokenizer=tokenizer,
        byte_counts=byte_counts.to(device),
        device=device,
        dtype=dtype,
        batches=batches,
        validation=validation,
        model=model,
        optimizer=make_optimizer(model, config),
        shards={
            "training": [(str(folder), shard_hashes(folder)) for folder in train_folders],
            "validation": [(str(folder), shard_hashes(folder)) for folder in validation_folders],
        },
    )
    if not overwrite and folder.holds_other_files():
        raise OutputError(
            f"{folder.path} holds files that are not those of a run",
            hint="use another folder: --run.folder NAME",
        )
    return run


def _check_memory(config: TrainConfig) -> None:
    """Raise NotEnoughMemoryError if a step cannot fit into the memory of the machine.

    Without this check the system may kill the process, with no error message.
    """
    available = total_memory()
    needed = training_memory(config.model, optimizer=config.optimizer.name)
    n_sequences, length = config.training.batch_size, config.model.context_length
    if available is not None and needed.total(n_sequences) > available:
        largest = largest_batch(needed, available)
        raise NotEnoughMemoryError(
            f"a step on {n_sequences:,} sequences of {length:,} tokens needs at least "
            f"{format_bytes(needed.total(n_sequences))}, but the machine has {format_bytes(available)} of memory",
            hint=_MEMORY_HINT + (f"; the largest batch that may fit is {largest:,}" if largest else ""),
        )


def _open(run: _Run, resolved: Resolved, *, overwrite: bool) -> closing[MetricsLog]:
    """Resume or start the run in its locked folder, and open the metrics log."""
    if overwrite:
        run.folder.clear()
    _resume(run)
    run.folder.prepare(resolved, run.tokenizer)
    return closing(MetricsLog(run.folder.metrics, after_step=run.step or None))


def _resume(run: _Run) -> None:
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
        run.recent = _Recent(**state["recent"])
        restore_generators(state["generators"])
    except KeyError as error:
        raise CheckpointError(f"{checkpoint.path} lacks {error}") from error
    run.refused, run.saved = found.refused, checkpoint.path


def _loss_function(run: _Run) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    if not run.config.training.compile:
        return run.model.loss
    return cast("Callable[[torch.Tensor, torch.Tensor], torch.Tensor]", torch.compile(run.model.loss))


def _speed(run: _Run) -> Speed:
    per_token = flops_per_token(run.config.model, run.config.model.context_length, backward=True)
    return Speed(run.device, per_token, matmul_rate(run.device, run.dtype))


def _accumulate_gradients(
    run: _Run, compute_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> tuple[float, int, int]:
    """Accumulate the gradients of a step, and return the mean loss and the number of tokens and of their bytes."""
    n_batches = run.config.training.accumulation
    loss = torch.zeros((), device=run.device)
    n_bytes = torch.zeros((), dtype=torch.int64, device=run.device)
    n_tokens = 0
    for _ in range(n_batches):
        inputs, targets = run.batches.take(run.config.training.batch_size, run.device)
        with autocast(run.device, run.dtype):
            share = compute_loss(inputs, targets) / n_batches
        share.backward()  # pyright: ignore[reportUnknownMemberType]
        loss += share.detach()
        n_bytes += run.byte_counts[targets].sum()
        n_tokens += targets.numel()
    return float(loss), n_tokens, int(n_bytes)


def _is_due(run: _Run, every: int) -> bool:
    """Return True every `every` steps and after the last step; never if `every` is 0."""
    return every > 0 and (run.step % every == 0 or run.step == run.config.training.steps)


def _is_checkpoint_due(run: _Run) -> bool:
    is_last = run.step == run.config.training.steps
    return is_last or _is_due(run, run.config.run.checkpoint_every) or _is_validation_due(run)


def _is_validation_due(run: _Run) -> bool:
    return run.validation is not None and _is_due(run, run.config.run.validate_every)


def _evaluate(run: _Run, record: Recorder) -> None:
    """Record the validation loss and a sample, if they are due at this step and not recorded yet."""
    if run.step and _is_validation_due(run) and not record.has("validation", run.step):
        record("validation", run.step, **_validate(run))
    if run.step and _is_due(run, run.config.run.sample_every) and not record.has("sample", run.step):
        record("sample", run.step, **_sample(run))


def _progress(run: _Run) -> dict[str, float]:
    lr = run.optimizer.param_groups[0]["lr"]
    return {"learning_rate": lr, "n_tokens": run.n_tokens, "epoch": run.batches.epoch}


def _save(run: _Run) -> Path:
    """Write the checkpoint that `_resume` reads."""
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


def _validate(run: _Run) -> dict[str, Any]:
    if run.validation is None:
        return {}
    starts = spread_starts(
        len(run.validation), run.config.model.context_length, run.config.run.validation_windows
    )
    score = evaluate_windows(
        run.model,
        run.validation,
        starts,
        run.byte_counts,
        batch_size=run.config.training.batch_size,
        dtype=run.dtype,
    )
    run.model.train()
    return score.to_dict()


def _sample(run: _Run) -> dict[str, Any]:
    """Generate a sample from a generator of its own, so that training does not depend on samples."""
    prompt = run.config.run.sample_prompt
    ids = prompt_ids(run.tokenizer, prompt)
    seed = key_of(run.config.training.seed, run.step) >> 1
    new = generate(run.model, ids, run.config.run.sample_tokens, temperature=0.8, top_p=0.95, seed=seed)[0]
    run.model.train()
    known = [token for token in new if token < run.tokenizer.n_vocab]
    return {"prompt": prompt, "text": run.tokenizer.decode(known)}


def _diverged(run: _Run) -> TrainingDivergedError:
    saved = f"the last checkpoint is {run.saved}" if run.saved else "no checkpoint was saved yet"
    return TrainingDivergedError(
        f"the loss or gradient was not finite in {run.n_bad} consecutive steps up to step {run.step}; {saved}",
        hint="train in a new folder (--run.folder NAME) with a lower --optimizer.learning-rate, or with "
        "--training.precision float32",
    )


def _summary(run: _Run) -> dict[str, Any]:
    return {
        "n_parameters": run.model.n_parameters(),
        "n_steps": run.config.training.steps,
        "tokens_per_step": run.config.training.batch_size
        * run.config.training.accumulation
        * run.config.model.context_length,
        "n_train_tokens": len(run.batches.tokens),
        "device": str(run.device),
        "precision": str(run.dtype).removeprefix("torch."),
        "resumed_from": str(run.saved) if run.saved else None,
        "refused": run.refused,
    }
