"""Check the settings against data and device, find initial weights, and build what a run needs."""

from __future__ import annotations

import os
import shlex
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from bytemill.data.manifest import MANIFEST_NAME, shard_hashes
from bytemill.data.verification import BackgroundCheck
from bytemill.errors import CheckpointError, NotEnoughMemoryError, OutputError, RunConfigError
from bytemill.lm.batches import MarkedDocuments
from bytemill.lm.device import matmul_rate, pick_precision, total_memory
from bytemill.lm.generation.text_generation import prompt_ids
from bytemill.lm.hellaswag import read_items
from bytemill.lm.kernels.choice import choose_kernels
from bytemill.lm.loss import token_byte_counts
from bytemill.lm.model import TransformerLM
from bytemill.lm.planning import DEVICES, find_device, is_slice, largest_batch, training_memory
from bytemill.lm.processes import allow_compiled_shapes, compile_blocks, shard_model
from bytemill.lm.strategies import STRATEGIES
from bytemill.lm.training.data import (
    BatchReader,
    bos_id_of,
    check_division,
    data_folders,
    divide_batch,
    document_mask,
    n_pass_sizes,
    open_batches,
    require_data,
    separator_of,
    validation_set,
)
from bytemill.lm.training.distillation import find_teacher, load_teacher
from bytemill.lm.training.metrics_log import check_trackers
from bytemill.lm.training.run import LossScale, Run, WeightAverage, make_optimizer
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.save_and_resume import seed_generators
from bytemill.lm.training.saved_model import find_saved_model
from bytemill.storage import is_url
from bytemill.storage.input_check import check_folder_is_no_input
from bytemill.system.paths import cache_folder
from bytemill.system.units import format_bytes
from bytemill.tokenizer import open_tokenizer

if TYPE_CHECKING:
    from bytemill.lm.batches import Documents
    from bytemill.lm.model_config import ModelConfig
    from bytemill.lm.parallel.base import DataParallel
    from bytemill.lm.planning import Precision
    from bytemill.lm.processes import Processes
    from bytemill.lm.strategies import Strategy
    from bytemill.lm.training.config import Layer, Resolved, TrainConfig, TrainingConfig
    from bytemill.lm.training.run import Task
    from bytemill.lm.training.saved_model import SavedModel
    from bytemill.tokenizer.tokenizer import Tokenizer


MEMORY_HINT = (
    "lower --training.batch-size, --model.context-length or --model.num-layers, or add "
    "--training.activation-checkpointing full"
)


def prepare(resolved: Resolved, processes: Processes, *, overwrite: bool, task: Task | None = None) -> Run:
    """Check the settings against data and device, and build model and optimizer."""
    config = resolved.config
    check_trackers(config.run)
    if not config.data.tokenizer:
        raise RunConfigError("data.tokenizer is not set", hint="add --data.tokenizer tokenizer.json")
    if not config.data.train and task is None:
        encode = f"bytemill data encode {shlex.quote(config.data.tokenizer)} TEXT -o DIR"
        raise RunConfigError("data.train is not set", hint=f"add --data.train DIR, made with: {encode}")
    folder = RunFolder(config.run.folder)
    if folder.stored is not None:
        if processes.local_rank == 0:
            folder.stored.forget() if overwrite else folder.stored.fetch()
        processes.wait()
    starts = overwrite or not folder.checkpoint_files()
    if not starts:
        require_data(config)
    tokenizer = open_tokenizer(config.data.tokenizer)
    if config.model.vocab_size < tokenizer.n_vocab:
        raise RunConfigError(
            f"model.vocab_size is {config.model.vocab_size:,}, but the tokenizer has {tokenizer.n_vocab:,} ids",
            hint=f"leave model.vocab_size out, or set it to {tokenizer.n_vocab} or more",
        )
    initial = find_initial_weights(config, tokenizer) if config.training.init_from and starts else None
    teacher = find_teacher(config, tokenizer)
    check_division(config.training, processes.count)
    device = processes.device(config.training.device)
    dtype = pick_precision(config.training.precision, device)
    is_compiled = device.type == "cuda" if config.training.compile is None else config.training.compile
    strategy = own_strategy(config.training, processes)
    if strategy is not None and not strategy.compiles:
        if config.training.compile:
            raise RunConfigError(
                f"strategy {config.training.strategy} cannot train compiled blocks",
                hint="choose --training.no-compile or --training.strategy fsdp",
            )
        is_compiled = False
    kernels = choose_kernels(config.training.kernels, device, compiled=is_compiled)
    is_sharded = processes.count > 1 and config.training.strategy == "fsdp"
    if is_sharded and is_compiled and config.training.activation_checkpointing == "selective":
        raise RunConfigError(
            "selective activation checkpointing of compiled blocks does not work with strategy fsdp",
            hint="choose --training.activation-checkpointing full, --training.strategy ddp or --training.no-compile",
        )
    has_formula = device.type == "cpu" and config.training.kernels == "auto" and not is_compiled
    if has_formula and config.training.strategy not in {"fsdp", "fully_sharded"}:
        _check_memory(config, dtype, processes)
    train_folders, validation_folders = data_folders(config.data)
    if starts:
        data = [*train_folders, *(path for folders in validation_folders.values() for path in folders)]
        manifests = [path / MANIFEST_NAME for path in data]
        check_folder_is_no_input(config.run.folder, files=[*manifests, config.training.init_from])
    if task is None:
        batches = open_batches(train_folders, config, tokenizer, processes)
        bos_id, separator = bos_id_of(batches.tokens, tokenizer), separator_of(batches.tokens)
    else:
        before = initial or find_saved_model(folder.path)
        bos_id, separator = before.bos_id, before.separator
        batches = task.open_batches(config, tokenizer, processes, bos_id)
    if config.run.sample_every:
        prompt_ids(tokenizer, config.run.sample_prompt, bos_id)  # raises now instead of at the first sample
    documents: Documents | None = None
    if config.training.document_mask and task is None:
        documents = (
            MarkedDocuments(config.training.reset_positions)
            if batches.tokens.has_masks
            else document_mask(config, batches.tokens, tokenizer, "training.document_mask")
        )
    validation = {
        name: validation_set(folders, train_folders, tokenizer, config)
        for name, folders in validation_folders.items()
    }
    hellaswag = read_items(config.run.hellaswag) if config.run.hellaswag else []
    seed_generators(config.training.seed, processes.rank)
    model = TransformerLM(config.model, seed=config.training.seed).use_kernels(kernels)
    model.narrow_residual = config.training.residual_precision == "half"
    if initial is not None:
        load_initial_weights(model, initial)
    if is_sharded:
        shard_model(model, processes, device, dtype)
    model = model.to(device)
    parallel: DataParallel | None = None
    if strategy is not None:
        parallel = strategy.load().of_model(model, bucket_mb=config.training.bucket_mb, dtype=dtype)
    model.checkpoint_activations(config.training.activation_checkpointing)
    if is_compiled:
        # By default torch keeps compiled code in the system's temporary folder, which a restart may empty.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder("compiled")))
        allow_compiled_shapes(n_pass_sizes(config.training, processes.count))
        compile_blocks(model) if is_sharded else model.compile_blocks()
    if task is not None:
        train_folders = [Path(name) for name, _ in task.data_hashes() if Path(name).is_dir()]
    all_folders = [*train_folders, *chain.from_iterable(validation_folders.values())]
    run = Run(
        config=config,
        processes=processes,
        folder=folder,
        tokenizer=tokenizer,
        byte_counts=token_byte_counts(tokenizer).padded(config.model.vocab_size, device),
        device=device,
        dtype=dtype,
        batches=batches,
        reader=BatchReader(
            batches,
            config.training,
            processes.count,
            device,
            prefetch=device.type == "cuda" if config.data.prefetch is None else config.data.prefetch,
            documents=documents,
        ),
        validation=validation,
        hellaswag=hellaswag[: config.run.hellaswag_items or None],
        model=model,
        optimizer=make_optimizer(model, config, processes, parallel),
        parallel=parallel,
        average=WeightAverage(model, config.optimizer.ema_decay) if config.optimizer.ema_decay else None,
        bos_id=bos_id,
        separator=separator,
        initial=None if initial is None else initial.weights_sha256,
        task=task,
        teacher=None if teacher is None else load_teacher(teacher, device, kernels),
        documents=documents,
        scale=LossScale() if dtype == torch.float16 else None,
        shards={
            "training": [
                *(
                    [(str(folder), shard_hashes(folder)) for folder in train_folders]
                    if task is None
                    else task.data_hashes()
                ),
                *([] if teacher is None else [(config.tuning.teacher, {"weights": teacher.weights_sha256})]),
            ],
            "validation": [
                (str(folder), shard_hashes(folder))
                for folders in validation_folders.values()
                for folder in folders
            ],
        },
        # What is in an object store is compared when it is copied to this machine.
        check=BackgroundCheck(
            [folder for folder in all_folders if processes.local_rank == 0 and not is_url(folder)]
        ),
    )
    if processes.is_first and not overwrite and folder.holds_other_files():
        raise OutputError(
            f"{folder.path} holds files that are not those of a run",
            hint="use another folder: --run.folder NAME",
        )
    return run


def own_strategy(training: TrainingConfig, processes: Processes) -> Strategy | None:
    """Return the strategy of `lm.parallel` that a run uses, if any."""
    for name, strategy in STRATEGIES.items():
        if name == training.strategy and (processes.count > 1 or strategy.runs_alone):
            return strategy
    return None


def _check_memory(config: TrainConfig, dtype: torch.dtype, processes: Processes) -> None:
    """Raise NotEnoughMemoryError if a step cannot fit into the memory of the machine.

    Without this check the system may kill the process, with no error message.
    """
    available = total_memory()
    if available is not None and processes.local_count > 1:
        available //= processes.local_count
    precision = "float32" if dtype == torch.float32 else "bfloat16"
    needed = training_memory(
        config.model,
        optimizer=config.optimizer.name,
        precision=precision,
        average=config.optimizer.ema_decay > 0,
        checkpointing=config.training.activation_checkpointing,
    )
    _, n_sequences = divide_batch(config.training, processes.count)
    length = config.model.context_length
    if available is not None and needed.total(n_sequences) > available:
        largest = largest_batch(needed, available) * processes.count
        raise NotEnoughMemoryError(
            f"a step on {n_sequences:,} sequences of {length:,} tokens needs at least "
            f"{format_bytes(needed.total(n_sequences))}, but the machine has {format_bytes(available)} of memory"
            + (" per process" if processes.local_count > 1 else ""),
            hint=MEMORY_HINT + (f"; the largest batch that may fit is {largest:,}" if largest else ""),
        )


_PRECISIONS: dict[torch.dtype, Precision] = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}


def peak_rate(run: Run) -> tuple[float | None, str]:
    """Return the FLOPs per second of dense matrix products that this process's device can do, and their source.

    For GPUs it is the figure of the data sheet, or its share for a MIG slice; None for one that is not in
    `planning.DEVICES`. For the CPU it is the measured rate of a large product; only the first process, which reports
    it, measures.
    """
    if run.device.type == "cpu":
        rate = matmul_rate(run.device, run.dtype) if run.processes.is_first else None
        return rate, "the measured rate of matrix products"
    name = torch.cuda.get_device_name(run.device) if run.device.type == "cuda" else run.device.type
    key = find_device(name)
    precision = "tf32" if run.config.training.precision == "tf32" else _PRECISIONS[run.dtype]
    rate = DEVICES[key].rate(precision) if key else None
    if key is None or rate is None:
        return None, f"unknown for {name} in {precision}"
    if not is_slice(name):
        return rate, f"the peak of {name}"
    n_all = DEVICES[key].n_multiprocessors
    if n_all is None:
        return None, f"unknown for {name}, a part of a GPU"
    n_own = cast("Any", torch.cuda).get_device_properties(run.device).multi_processor_count
    return rate * n_own / n_all, f"the peak of {n_own} of the {n_all} multiprocessors of {name}"


MAY_DIFFER = frozenset(
    {
        "context_length",
        "dropout",
        "initialization",
        "attention.sliding_window",
        "rope.theta",
        "rope.scaling",
        "rope.factor",
        "rope.low_freq_factor",
        "rope.high_freq_factor",
        "rope.original_context",
    }
)
"""Settings of the model that may differ from those of the initial weights."""


def initial_layers(init_from: str, run: Path | None) -> list[Layer]:
    """Return the weakest layer of settings: the model and the tokenizer of the initial weights.

    Args:
        init_from: Setting `training.init_from`.
        run: Run folder to resume, if any. Its own settings are complete once it has a checkpoint.

    Raises:
        CheckpointError: `init_from` is neither a run nor an imported model.
    """
    if not init_from or (run is not None and RunFolder(run).checkpoint_files()):
        return []
    saved = find_saved_model(init_from)
    values = {f"model.{name}": value for name, value in saved.config.model.to_dict().items()}
    if saved.fingerprint is not None:
        values["data.tokenizer"] = str(saved.tokenizer_path)
    return [(init_from, values)]


def find_initial_weights(config: TrainConfig, tokenizer: Tokenizer) -> SavedModel:
    """Find the weights of `training.init_from`, and check that they fit the run.

    Raises:
        RunConfigError: The model has other settings, or the tokenizer has other tokens.
        CheckpointError: There are no weights.
    """
    path = config.training.init_from
    saved = find_saved_model(path)
    if saved.bits is not None:
        raise RunConfigError(
            f"{path} is quantized to {saved.bits} bits, and training needs the weights in float32",
            hint="name the run or the imported model that it was made from",
        )
    _check_model(config.model, saved.config.model, path)
    if saved.fingerprint not in (None, tokenizer.fingerprint):
        before, after = saved.tokenizer().vocab, tokenizer.vocab
        changed = next((number for number in before if after.get(number) != before[number]), None)
        if changed is not None:
            raise RunConfigError(
                f"the tokenizer is not that of {path}: id {changed} is {after.get(changed)!r} and was "
                f"{before[changed]!r}",
                hint=f"use the tokenizer of the model, also for the shards: --data.tokenizer {saved.tokenizer_path}",
            )
    return saved


def load_initial_weights(model: TransformerLM, saved: SavedModel) -> None:
    """Load the result of `find_initial_weights` into a new model.

    Learned position embeddings beyond the context length are left out.

    Raises:
        CheckpointError: The weights are missing or damaged.
    """
    own, initial = model.config, saved.config.model
    if own.position != "learned" or own.context_length == initial.context_length:
        saved.load_weights(model)
        return
    longer = TransformerLM(initial, seed=0)
    saved.load_weights(longer)
    source = dict(longer.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(source[name][: len(parameter)])


def initial_model(run: Run) -> TransformerLM:
    """Return the model that a run began with, in evaluation mode on the run's device.

    Raises:
        CheckpointError: The weights of `training.init_from` are gone, damaged or others than at the start.
    """
    path = run.config.training.init_from
    saved = find_saved_model(path)
    if run.initial not in (None, saved.weights_sha256):
        raise CheckpointError(
            f"{path} has other weights than those that the run began with",
            hint="name the checkpoint that it began with: --training.init-from RUN/checkpoints/STEP",
        )
    model = TransformerLM(run.config.model, seed=0)
    load_initial_weights(model, saved)
    return model.to(run.device).eval().use_kernels(run.model.kernels)


def _check_model(own: ModelConfig, initial: ModelConfig, path: str) -> None:
    """Raise RunConfigError if the weights of `initial` do not fit into a model of the shape `own`."""
    if own.position == "learned" and own.context_length > initial.context_length:
        raise RunConfigError(
            f"model.context_length is {own.context_length:,}, but {path} has learned positions for only "
            f"{initial.context_length:,} tokens",
            hint=f"lower --model.context-length to {initial.context_length} or less",
        )
    before, after = initial.to_flat(), own.to_flat()
    for name, value in before.items():
        if name not in MAY_DIFFER and after[name] != value:
            raise RunConfigError(
                f"model.{name} is {after[name]!r}, but {path} has {value!r}{_shapes(own, initial)}",
                hint=f"leave the sizes of the model out: {path} sets them",
            )


def _shapes(own: ModelConfig, initial: ModelConfig) -> str:
    """Return the first tensor whose shapes differ, for a message."""
    there, here = (
        {name: tuple(tensor.shape) for name, tensor in TransformerLM(one, device="meta").named_parameters()}
        for one in (initial, own)
    )
    for name, shape in there.items():
        if here.get(name) != shape:
            return f" ({name} would be {here.get(name, 'absent')}, there {shape})"
    return ""
