"""Find the weights that training, generation, evaluation and export start from.

A model folder: weights without a run, as `bytemill lm import` writes it.

    model.safetensors   weights
    model.json          format, shape of the model, source, the tokenizer's fingerprint, the id of the token that
                        begins texts, sha256 of the weights, and if they are quantized, to how many bits
    tokenizer.json      the tokenizer, if there is one; beside it what transformers' files say of it

`model.json` is written last, so a folder that has it is complete.
"""

from __future__ import annotations

import json
import shlex
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch

from bytemill.errors import CheckpointError, OutputError
from bytemill.formats.files import SIDECAR_FILES
from bytemill.lm.batches import JoinedShards
from bytemill.lm.checkpoint import open_tensors, sha256_of, write_tensors
from bytemill.lm.device import memory_errors, pick_device
from bytemill.lm.model import TransformerLM
from bytemill.lm.model_config import ModelConfig
from bytemill.lm.quantization import Bits, dequantize, empty_quantized_model, model_tensors
from bytemill.lm.training.config import TrainConfig, train_command
from bytemill.lm.training.data import document_mask
from bytemill.lm.training.run_checkpoint import MANIFEST, RunCheckpoint, read_checkpoint
from bytemill.lm.training.run_folder import RUN_NAME, RunFolder
from bytemill.storage import StoreFolder, exists, local_input, local_output, shown, url_of
from bytemill.system.atomic_files import AtomicFile, make_folder, output_errors, write_json
from bytemill.system.locks import LOCK_NAME, lock_output
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Mapping

    from torch import Tensor
    from torch.nn import Module

    from bytemill.lm.batches import DocumentMask
    from bytemill.lm.model_config import KernelName


WEIGHTS, TOKENIZER, DESCRIPTION = "model.safetensors", "tokenizer.json", "model.json"
FORMAT = 1
"""Version of the layout above."""


@dataclass(frozen=True)
class ModelFolder:
    """A model folder; weights and tokenizer are read on demand."""

    path: Path
    model: ModelConfig
    source: str
    """What the weights were imported from."""
    fingerprint: str | None
    """Fingerprint of the tokenizer."""
    sha256: str
    """Of the weights."""
    bos_id: int | None = None
    """Id of the special token that the tokenizer's files put before texts."""
    bits: Bits | None = None
    """Bits of the codes of quantized weights."""

    def load_weights(self, model: Module) -> None:
        """Load the weights into a model of the same shape, one tensor at a time.

        The model is a float32 one, whose weights are then those that the quantized ones stand for, or the result of
        `empty_quantized_model`.

        Raises:
            CheckpointError: They are damaged or of another model.
        """
        path = self.path / WEIGHTS
        if sha256_of(path) != self.sha256:
            raise CheckpointError(f"{path} is damaged: its sha256 differs from the one in {DESCRIPTION}")
        own = model_tensors(model)
        stored = (
            own if self.bits is None else model_tensors(empty_quantized_model(self.model, self.bits, "meta"))
        )
        with open_tensors(path) as file, torch.no_grad():
            found = {name: (file.shape(name), file.dtype(name)) for name in file.names}
            if found != {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in stored.items()}:
                raise CheckpointError(f"{path} does not hold the model that {DESCRIPTION} describes")
            for name, tensor in own.items():
                if name in stored:
                    tensor.copy_(file.tensor(name))
                else:
                    tensor.copy_(dequantize(file.tensor(f"{name}.codes"), file.tensor(f"{name}.scales")))

    def codes(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Return codes and scales of the quantized weights by the name of the matrix; empty if there are none."""
        with open_tensors(self.path / WEIGHTS) as file:
            names = [name.removesuffix(".codes") for name in file.names if name.endswith(".codes")]
            return {name: (file.tensor(f"{name}.codes"), file.tensor(f"{name}.scales")) for name in names}


def is_model_folder(path: Path) -> bool:
    """Return True if the folder has a model without a run."""
    return (path / DESCRIPTION).is_file()


def read_model_folder(path: Path) -> ModelFolder:
    """Read the description of a model folder. Raises CheckpointError if it is missing or damaged."""
    file = path / DESCRIPTION
    try:
        document = cast("dict[str, Any]", json.loads(file.read_bytes()))
        found = document.get("format")
        fingerprint = document["fingerprint"]
        folder = ModelFolder(
            path=path,
            model=ModelConfig(**document["model"]),
            source=str(document["source"]),
            fingerprint=None if fingerprint is None else str(fingerprint),
            sha256=str(document["sha256"]),
            bos_id=None if (bos_id := document.get("bos_id")) is None else int(bos_id),
            bits=_bits(document.get("bits")),
        )
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error
    if found != FORMAT:
        raise CheckpointError(
            f"{file} has the format {found}, but this version of bytemill reads format {FORMAT}"
        )
    return folder


def _bits(value: object) -> Bits | None:
    if value not in (None, 4, 8):
        raise ValueError(f"bits is {value!r}, which this version of bytemill does not read")
    return value


def files_in(path: Path) -> list[Path]:
    """Return the files of a model: those in a folder, or the file itself. Nothing for a URL."""
    return [*path.iterdir()] if path.is_dir() else [path]


def check_output(path: Path, *, overwrite: bool) -> None:
    """Check that a folder, or that of a URL, holds no files that would be mixed with new ones or replaced.

    Raises:
        OutputError: It does.
        StorageError: The store cannot be read, or not be written.
    """
    if (url := url_of(path)) is not None:
        store = StoreFolder(url)
        store.require_writable()
        is_used = not overwrite and bool(store.list())
    else:
        with output_errors(path):
            is_used = path.is_dir() and any(file.name != LOCK_NAME for file in path.iterdir())
    if is_used and not overwrite:
        raise OutputError(f"{shown(path)} is not empty", hint="use another folder, or add --overwrite")


@contextmanager
def locked_output(path: Path, *, is_file: bool = False) -> Generator[None]:
    """Hold the lock of an output folder, which is made, or of an output file; a URL has no lock.

    What was checked before must be checked again: another process may have had the lock until now.

    Raises:
        OutputError: Another process holds the lock, or the folder cannot be made.
    """
    if url_of(path) is not None:
        yield
        return
    folder = path.parent if is_file else path
    is_new = not folder.exists()
    make_folder(folder)
    try:
        with lock_output(path):
            yield
    except BaseException:
        if is_new:
            with suppress(OSError):  # it holds files
                folder.rmdir()
        raise


def write_model_folder(
    path: Path,
    model: ModelConfig,
    weights: Mapping[str, Tensor],
    tokenizer: Tokenizer | None,
    *,
    source: str,
    bos_id: int | None = None,
    bits: Bits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ModelFolder:
    """Write a model folder, or to the URL of one.

    Args:
        path: The folder.
        model: Shape of the model.
        weights: Its weights by name, in float32, or the quantized ones of `model_tensors`.
        tokenizer: Its tokenizer.
        source: What the weights were imported from.
        bos_id: Id of the token that begins every text.
        bits: Bits of the codes of quantized weights.
        progress: Called with the bytes of weights that are written, and their total.

    Raises:
        OutputError: It cannot be written.
        StorageError: The store cannot be written.
    """
    total = sum(tensor.nbytes for tensor in weights.values())
    n_written = 0

    def written(n_bytes: int) -> None:
        nonlocal n_written
        n_written += n_bytes
        if progress is not None:
            progress(n_written, total)

    with local_output(path, DESCRIPTION) as local:
        make_folder(local)
        with output_errors(local):
            for name in (DESCRIPTION, TOKENIZER, *SIDECAR_FILES):
                (local / name).unlink(missing_ok=True)
        with AtomicFile(local / WEIGHTS) as atomic:
            digest = write_tensors(atomic.file, weights, progress=written)
        if tokenizer is not None:
            tokenizer.save(local)
        fingerprint = None if tokenizer is None else tokenizer.fingerprint
        document = {"format": FORMAT, "source": source, "fingerprint": fingerprint, "sha256": digest}
        quantized = {} if bits is None else {"bits": bits}
        write_json(local / DESCRIPTION, {**document, "bos_id": bos_id, **quantized, "model": model.to_dict()})
    return ModelFolder(path, model, source, fingerprint, digest, bos_id, bits)


WeightsName = Literal["auto", "average", "trained"]


@dataclass(frozen=True)
class SavedModel:
    """Weights on disk, with what belongs to them."""

    weights: RunCheckpoint | ModelFolder
    config: TrainConfig
    """Of an imported model, only the shape of the model is meaningful."""
    step: int
    """Completed steps; 0 for an imported model."""
    path: Path
    """Checkpoint folder or model folder."""
    tokenizer_path: Path
    fingerprint: str | None
    """Fingerprint of the tokenizer; None if the model was imported without one."""
    refused: list[str] = field(default_factory=list[str])
    """Newer checkpoints that were damaged."""
    separator: int | None = None
    """Id of the token between documents in the training data, if there was one."""

    @property
    def bos_id(self) -> int | None:
        """Id of the special token at the start of every training document."""
        return self.weights.bos_id

    @property
    def imported_from(self) -> str:
        """What an imported model was imported from; empty for a trained one."""
        return "" if isinstance(self.weights, RunCheckpoint) else self.weights.source

    @property
    def bits(self) -> Bits | None:
        """Bits of the codes of quantized weights."""
        return self.weights.bits if isinstance(self.weights, ModelFolder) else None

    @property
    def weights_sha256(self) -> str:
        """sha256 of the file that `load_weights` reads by default."""
        return self.weights.weights_sha256 if isinstance(self.weights, RunCheckpoint) else self.weights.sha256

    def load_weights(self, model: Module, name: WeightsName = "auto") -> None:
        """Load the weights into `model`.

        Args:
            model: A model of the same shape.
            name: "trained", their moving "average", or "auto": the average if the run kept one.

        Raises:
            CheckpointError: The weights are missing, damaged or of another model.
        """
        if isinstance(self.weights, RunCheckpoint):
            average = self.weights.has_average if name == "auto" else name == "average"
            self.weights.load_weights(model, average=average)
        elif name == "average":
            raise CheckpointError(
                f"{self.path} is an imported model and has no moving average of the weights",
                hint="use --weights auto",
            )
        else:
            self.weights.load_weights(model)

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer. Raises CheckpointError if it is missing or another one."""
        if self.fingerprint is None:
            raise CheckpointError(
                f"{self.path} has no tokenizer", hint="import the model again with --tokenizer TOKENIZER"
            )
        if not self.tokenizer_path.exists():
            raise CheckpointError(
                f"{self.tokenizer_path} is missing", hint="restore the tokenizer of the run"
            )
        tokenizer = Tokenizer.load(self.tokenizer_path)
        if tokenizer.fingerprint != self.fingerprint:
            raise CheckpointError(
                f"{self.tokenizer_path} is not the tokenizer that the model was trained with",
                hint="restore the tokenizer of the run",
            )
        return tokenizer


def find_saved_model(path: str | os.PathLike[str]) -> SavedModel:
    """Find a trained or imported model; its weights are not loaded yet.

    Args:
        path: Run folder, of which the newest intact checkpoint is used, one of its checkpoints, or a folder made by
            `bytemill lm import` or `lm quantize`; or the URL of one in an object store.

    Raises:
        CheckpointError: There is no intact checkpoint and no imported model.
    """
    path = _local(path)
    if path.is_file():
        raise _nothing_in(path)
    if is_model_folder(path):
        folder = read_model_folder(path)
        config = TrainConfig(model=folder.model)
        return SavedModel(folder, config, 0, path, path / TOKENIZER, folder.fingerprint)
    refused: list[str] = []
    if (path / MANIFEST).exists():
        run, checkpoint = RunFolder(path.parent.parent), read_checkpoint(path)
        checkpoint.verify(weights_only=True)
    else:
        run = RunFolder(path)
        found = run.load_newest(weights_only=True)
        if found is None:
            raise _nothing_in(path)
        checkpoint, refused = found.checkpoint, found.refused
    return SavedModel(
        checkpoint,
        checkpoint.config,
        checkpoint.step,
        checkpoint.path,
        run.tokenizer,
        checkpoint.fingerprint,
        refused,
        checkpoint.separator,
    )


def _local(path: str | os.PathLike[str]) -> Path:
    """Return a folder of this machine: the path, or a copy of what a URL names."""
    url = url_of(path)
    if url is None:
        return Path(path)
    run = RunFolder(url)
    if run.stored is None or not exists(f"{url}/{RUN_NAME}"):
        return local_input(url)
    run.stored.fetch()
    return run.path


def _nothing_in(path: Path) -> CheckpointError:
    if not path.exists():
        return CheckpointError(
            f"there is no folder {path}",
            hint=f"name a run folder, or train a model: {train_command(path)}",
        )
    files = sorted(path.glob("*.gguf")) if path.is_dir() else [path]
    source = path if (path / "config.json").exists() else files[0] if len(files) == 1 else None
    if source is not None:
        output = f"{path.resolve().stem if path.is_file() else path.resolve().name}-imported"
        return CheckpointError(
            f"{path} is neither a run nor an imported model",
            hint=f"import it first: bytemill lm import {shlex.quote(str(source))} -o {shlex.quote(output)}",
        )
    return CheckpointError(
        f"there is no checkpoint in {path}",
        hint=f"name a run folder, or train a model: {train_command(path)}",
    )


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with its tokenizer and settings."""

    model: TransformerLM
    """In evaluation mode."""
    tokenizer: Tokenizer
    config: TrainConfig
    step: int
    path: Path
    """The checkpoint folder, or the folder of an imported model."""
    refused: list[str]
    """Newer checkpoints that were damaged."""
    bos_id: int | None = None
    """Id of the special token at the start of every training document, which prompts and scored texts follow."""

    def documents(self, folder: str | os.PathLike[str] | None = None) -> DocumentMask | None:
        """Return how documents were divided in training; None if tokens attend across them.

        Args:
            folder: Shards to evaluate on, which may have a separator of their own; by default it is <|endoftext|>.

        Raises:
            RunConfigError: There is no separator.
            ShardError: The shards are of another tokenizer.
        """
        if not self.config.training.document_mask:
            return None
        shards = None if folder is None else JoinedShards([folder], self.tokenizer.fingerprint)
        return document_mask(self.config, shards, self.tokenizer, "training.document_mask")


def load_trained(
    path: str | os.PathLike[str],
    device: str = "auto",
    weights: WeightsName = "auto",
    kernels: KernelName = "auto",
) -> TrainedModel:
    """Load a trained model from its weights; no optimizer state is read.

    Args:
        path: Run folder, of which the newest intact checkpoint is used, one of its checkpoints, or a folder made by
            `bytemill lm import`.
        device: Device: auto, cpu, cuda, cuda:N or mps.
        weights: "trained", their moving "average", or "auto": the average if the run kept one.
        kernels: Implementation, as in `training.kernels`.

    Raises:
        CheckpointError: There is no intact checkpoint, or not the tokenizer it was trained with.
        NotEnoughMemoryError: The model does not fit into memory.
    """
    saved = find_saved_model(path)
    tokenizer = saved.tokenizer()
    with memory_errors("close other programs, or choose another --device"):
        if saved.bits is None:
            model = TransformerLM(saved.config.model, seed=0)
        else:
            model = empty_quantized_model(saved.config.model, saved.bits)
        saved.load_weights(model, weights)
        model = model.to(pick_device(device)).eval().use_kernels(kernels)
    return TrainedModel(model, tokenizer, saved.config, saved.step, saved.path, saved.refused, saved.bos_id)
