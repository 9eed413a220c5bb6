"""The checkpoint of a run: a folder with the weights, the trainer's state and a manifest of both.

    model.safetensors                    weights
    average.safetensors                  with optimizer.ema_decay their moving average, which generation then uses
    optimizer/process_00000.safetensors  moments of the optimizer, as many files as processes have written some
    trainer.json                         step counts of the optimizer, random generators, position in the data
    checkpoint.json                      format, step, settings, fingerprint, shard hashes, sha256 of the other files

The folder is written under a temporary name and then renamed, so it is complete whenever it is visible.

The state of an optimizer as named tensors, of which each process writes and reads its part.

The files are those of torch's distributed checkpoints in safetensors format: the header of each file holds the position
of its parts in the whole tensors, and `torch.distributed.checkpoint.HuggingFaceStorageReader` reads them. They are
written and read here, because importing that package takes seconds, its default format unpickles its metadata, and its
asynchronous writer needs a process group.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, cast

import torch
from torch import Tensor

from bytemill.errors import CheckpointError, CheckpointFormatError
from bytemill.lm.checkpoint import TensorFile, load_weights, open_tensors, sha256_of, write_tensors
from bytemill.lm.optim.base import StepByGroup
from bytemill.lm.tensors import first_row, is_sharded, joined, local
from bytemill.lm.training.config import TrainConfig, config_from_dict
from bytemill.system.atomic_files import make_folder, output_errors, sync_folder
from bytemill.system.paths import relative_name

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from pathlib import Path

    from torch.nn import Module
    from torch.optim import Optimizer


_SHARDING, _OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"
_OTHER_SHAPES = "bytemill_other_shapes"


@dataclass
class OptimizerPart:
    """What one process saves of the optimizer's state. A moment is named after its parameter: `ln1.weight.m`."""

    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    offsets: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """Position of each tensor in the whole one."""
    numbers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Name of a parameter -> what is no tensor, such as its number of steps."""
    other_shapes: list[str] = field(default_factory=list[str])
    """Tensors that do not have the shape of their parameter, such as the factors of a preconditioner."""

    def metadata(self) -> dict[str, str]:
        """Return the offsets and `other_shapes` as metadata of a safetensors file."""
        offsets = {name: {_OFFSETS: offset} for name, offset in self.offsets.items()}
        return {_SHARDING: json.dumps(offsets), _OTHER_SHAPES: json.dumps(self.other_shapes)}


def optimizer_part(
    model: Module, optimizer: Optimizer, *, is_first: bool, keep: Callable[[Tensor], Tensor]
) -> OptimizerPart:
    """Return the part of the optimizer's state that this process saves.

    Args:
        model: The model, for the names of its parameters.
        optimizer: The optimizer.
        is_first: Whether this is the first process, which saves the tensors that all processes hold.
        keep: Called with each tensor, to copy it.

    Raises:
        CheckpointError: The optimizer keeps something that could not be read again: names it.
    """
    part = OptimizerPart()
    is_saved = is_first or _divides_state(optimizer)
    for name, parameter in model.named_parameters():
        for moment, value in optimizer.state.get(parameter, {}).items():
            if not isinstance(value, Tensor):
                if value is not None and not isinstance(value, bool | int | float | str):
                    raise _cannot_be_saved(optimizer, name, moment, f"a {type(value).__name__}")
                part.numbers.setdefault(name, {})[moment] = value
                continue
            if value.ndim and value.shape == parameter.shape:
                if is_sharded(value) != is_sharded(parameter):
                    raise _cannot_be_saved(
                        optimizer, name, moment, "a tensor not divided as its parameter is"
                    )
            elif is_sharded(value):
                raise _cannot_be_saved(optimizer, name, moment, "a divided tensor of another shape")
            elif value.ndim and is_saved:
                part.other_shapes.append(f"{name}.{moment}")
            if is_sharded(value) and local(value).numel():
                part.tensors[f"{name}.{moment}"] = keep(local(value))
                part.offsets[f"{name}.{moment}"] = [first_row(value), *[0] * (value.ndim - 1)]
            elif is_saved and not is_sharded(value):
                part.tensors[f"{name}.{moment}"] = keep(value)
                part.offsets[f"{name}.{moment}"] = [0] * value.ndim
    return part


def _divides_state(optimizer: Optimizer) -> bool:
    """Return True if each process keeps, and saves, the state of some parameters alone."""
    return isinstance(optimizer, StepByGroup) and optimizer.divides_state


def _cannot_be_saved(optimizer: Optimizer, name: str, moment: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"a checkpoint cannot hold the state of {type(optimizer).__name__}: {moment} of {name} is {what}",
        hint="keep numbers, tensors of the parameter's shape that are divided as it is, or tensors that every process "
        "holds as a whole",
    )


def load_optimizer_part(
    model: Module, optimizer: Optimizer, files: Iterable[Path], numbers: Mapping[str, Mapping[str, Any]]
) -> None:
    """Load the state that any number of processes has saved, whole or what belongs to this process's parameters.

    Raises:
        CheckpointError: The files are damaged, or belong to another model.
    """
    parameters = dict(model.named_parameters())
    others = {
        name
        for name, parameter in parameters.items()
        if isinstance(optimizer, StepByGroup) and not optimizer.owns(parameter)
    }
    states: dict[str, dict[str, Any]] = {
        name: dict(own) for name, own in numbers.items() if name not in others
    }
    with open_parts(files) as parts:
        for key in parts.names:
            name, _, moment = key.rpartition(".")
            parameter = parameters.get(name)
            fits = parameter is not None and parts.shape(key) in (tuple(parameter.shape), ())
            if parameter is None or not (fits or key in parts.other_shapes):
                shape = "is not there" if parameter is None else f"has shape {tuple(parameter.shape)}"
                raise CheckpointError(
                    f"the checkpoint's optimizer holds {moment} of shape {parts.shape(key)} for {name}, which {shape}"
                )
            if name not in others:
                states.setdefault(name, {})[moment] = _read_like(parameter, parts, key)
    order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    indices = {id(parameter): index for index, parameter in enumerate(order)}
    if unknown := states.keys() - parameters.keys():
        raise CheckpointError(f"the checkpoint's optimizer holds {min(unknown)}, which is not in the model")
    own_groups = optimizer.state_dict()["param_groups"]
    by_index = {indices[id(parameters[name])]: state for name, state in states.items()}
    optimizer.load_state_dict({"state": by_index, "param_groups": own_groups})


def _read_like(parameter: Tensor, parts: Parts, key: str) -> Tensor:
    """Read the part of a moment that belongs to `parameter`, or all of one that is not divided."""
    shape = parts.shape(key)
    if shape == ():
        return parts.scalar(key)
    if key in parts.other_shapes or not is_sharded(parameter):
        return parts.rows(key, 0, shape[0])
    start = first_row(parameter)
    rows = parts.rows(key, start, start + local(parameter).shape[0])
    return joined(rows.to(parameter.device), parameter)


class _Part(NamedTuple):
    file: TensorFile
    first: int
    """First row of the whole tensor."""
    shape: tuple[int, ...]


class Parts:
    """Tensors whose rows are spread over several safetensors files."""

    def __init__(self, files: Iterable[TensorFile]) -> None:
        self._parts: dict[str, list[_Part]] = {}
        self.other_shapes: set[str] = set()
        """Tensors that do not have the shape of their parameter."""
        for file in files:
            self.other_shapes.update(json.loads(file.metadata.get(_OTHER_SHAPES, "[]")))
            sharding = json.loads(file.metadata[_SHARDING])
            for name in file.names:
                first = (sharding[name][_OFFSETS] or [0])[0]
                self._parts.setdefault(name, []).append(_Part(file, first, file.shape(name)))

    @property
    def names(self) -> list[str]:
        """Names of all tensors."""
        return list(self._parts)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of the whole tensor."""
        first = self._parts[name][0]
        if not first.shape:
            return ()
        n_rows = max(part.first + part.shape[0] for part in self._parts[name])
        return (n_rows, *first.shape[1:])

    def scalar(self, name: str) -> Tensor:
        """Return a copy of a tensor without dimensions."""
        return self._parts[name][0].file.tensor(name).clone()

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return a copy of the rows from `start` to `stop`. Raises CheckpointError if some are in no file."""
        parts = self._parts[name]
        dtype = parts[0].file.dtype(name)
        rows = torch.empty((stop - start, *parts[0].shape[1:]), dtype=dtype)
        n_found = 0
        for file, first, shape in parts:
            low, high = max(start, first), min(stop, first + shape[0])
            if low < high:
                rows[low - start : high - start] = file.rows(name, low - first, high - first)
                n_found += high - low
        if n_found != stop - start:
            raise CheckpointError(f"the checkpoint holds {n_found} of the rows {start} to {stop} of {name}")
        return rows


@contextmanager
def open_parts(paths: Iterable[Path]) -> Generator[Parts]:
    """Open the files of `OptimizerPart`s. Raises CheckpointError if they are damaged."""
    with ExitStack() as stack:
        files = [stack.enter_context(open_tensors(path)) for path in paths]
        try:
            parts = Parts(files)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise CheckpointError(
                f"the optimizer's files lack the positions of their tensors: {error!r}"
            ) from error
        yield parts


WEIGHTS, AVERAGE, OPTIMIZER = "model.safetensors", "average.safetensors", "optimizer"
TRAINER, MANIFEST = "trainer.json", "checkpoint.json"
_NAME = re.compile(r"step_(\d{8,})(?:\.[0-9a-f]{12})?")
"""In a copy of a run in an object store the names have the tag of the upload."""
FORMAT = 1
"""Version of the layout above."""
FolderHashes = list[tuple[str, dict[str, str]]]
"""For each shard folder its path and the sha256 of each shard file."""
ShardHashes = dict[Literal["training", "validation"], FolderHashes]


@dataclass(frozen=True)
class RunCheckpoint:
    """A checkpoint folder with its manifest; the other files are read on demand."""

    path: Path
    step: int
    config: TrainConfig
    fingerprint: str
    shards: ShardHashes
    files: dict[str, str]
    """Path inside the folder -> sha256."""
    bos_id: int | None = None
    """Id of the special token at the start of every training document."""
    separator: int | None = None
    """Id of the token between documents in the training data, if there was one."""
    initial: str | None = None
    """sha256 of the weights that the run began with, if it did not begin with random ones."""

    @property
    def weights_sha256(self) -> str:
        """sha256 of the moving average of the weights, if the run kept one, else of the weights."""
        return self.files[AVERAGE if self.has_average else WEIGHTS]

    @property
    def has_average(self) -> bool:
        """Whether the run kept a moving average of the weights."""
        return AVERAGE in self.files

    def load_weights(self, model: Module, *, average: bool = False) -> None:
        """Load the weights, or their moving average, into `model`.

        Raises:
            CheckpointError: They are missing, damaged or of another model.
        """
        if average and not self.has_average:
            raise CheckpointError(
                f"{self.path} has no moving average of the weights",
                hint="train with --optimizer.ema-decay, or use the weights themselves",
            )
        load_weights(model, self.path / (AVERAGE if average else WEIGHTS))

    def trainer_state(self) -> dict[str, Any]:
        """Return the state of the trainer. Raises CheckpointError if it is damaged."""
        path = self.path / TRAINER
        try:
            return cast("dict[str, Any]", json.loads(path.read_bytes()))
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
        except ValueError as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error

    def load_optimizer(
        self, model: Module, optimizer: Optimizer, numbers: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Load what this process needs of the optimizer's state.

        Args:
            model: Model that the optimizer trains.
            optimizer: Optimizer of the same kind as the saved one.
            numbers: Entry "optimizer" of the trainer's state.

        Raises:
            CheckpointError: The state is damaged or of another model.
        """
        paths = [self.path / name for name in self.files if name.startswith(f"{OPTIMIZER}/")]
        load_optimizer_part(model, optimizer, paths, numbers)

    def verify(self, *, weights_only: bool) -> None:
        """Raise CheckpointError if a file is missing or damaged."""
        weights = [WEIGHTS, AVERAGE] if self.has_average else [WEIGHTS]
        for name in weights if weights_only else dict.fromkeys([WEIGHTS, TRAINER, *self.files]):
            path = self.path / name
            if sha256_of(path) != self.files.get(name):
                raise CheckpointError(f"{path} is damaged: its sha256 differs from the one in {MANIFEST}")


def step_of(path: Path) -> int:
    """Return the step of a checkpoint folder, or -1 for another name."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else -1


def publish_checkpoint(
    temporary: Path,
    path: Path,
    files: Mapping[str, str],
    *,
    step: int,
    config: TrainConfig,
    fingerprint: str,
    shards: ShardHashes,
    bos_id: int | None,
    separator: int | None,
    initial: str | None,
) -> None:
    """Add the manifest to a folder of complete files, and give the folder its final name.

    Args:
        temporary: The folder.
        path: Its final name; a folder of that name is replaced.
        files: Path inside the folder -> sha256.
        step: Number of completed steps.
        config: Settings of the run.
        fingerprint: Fingerprint of the tokenizer.
        shards: Hashes of the data.
        bos_id: Id of the special token at the start of every training document.
        separator: Id of the token between documents in the training data.
        initial: sha256 of the weights that the run began with.

    Raises:
        OutputError: The manifest cannot be written, or the folder cannot be renamed.
    """
    document = {
        "format": FORMAT,
        "step": step,
        "fingerprint": fingerprint,
        "shards": shards,
        "bos_id": bos_id,
        "separator": separator,
        "initial": initial,
        "files": dict(files),
        "config": config.to_dict(),
    }
    manifest = {**document, "sha256": _digest(document)}
    with output_errors(path / MANIFEST):
        with (temporary / MANIFEST).open("wb") as file:
            file.write(json.dumps(manifest, indent=2).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        for folder in {(temporary / name).parent for name in files}:
            sync_folder(folder)
    with output_errors(path):
        remove_checkpoint(path)
        temporary.rename(path)
        sync_folder(path.parent)


def read_checkpoint(path: Path) -> RunCheckpoint:
    """Read the manifest of a checkpoint folder.

    Raises:
        CheckpointFormatError: The folder has another format.
        CheckpointError: The manifest is missing or damaged.
    """
    file = path / MANIFEST
    try:
        document = json.loads(file.read_bytes())
        found = document.get("format")
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror or error}") from error
    except (ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error
    if found != FORMAT:
        raise CheckpointFormatError(
            f"{path} has the checkpoint format {found}, but this version of bytemill reads format {FORMAT}",
            hint="use the version of bytemill that wrote it, start over with --overwrite, or use another --run.folder",
        )
    try:
        is_intact = document.pop("sha256", None) == _digest(document)
        checkpoint = RunCheckpoint(
            path=path,
            step=int(document["step"]),
            config=config_from_dict(document["config"]),
            fingerprint=str(document["fingerprint"]),
            shards={
                role: [(str(folder), dict(hashes)) for folder, hashes in document["shards"][role]]
                for role in ("training", "validation")
            },
            files={relative_name(name): str(sha256) for name, sha256 in dict(document["files"]).items()},
            bos_id=document.get("bos_id"),  # missing in the first runs, like the next ones
            separator=document.get("separator"),
            initial=document.get("initial"),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error
    if not is_intact:
        raise CheckpointError(f"{file} is damaged: its sha256 does not match its content")
    return checkpoint


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint folder if it exists; it is renamed first, so that it is never visible half removed."""
    if not path.exists():
        return
    doomed = path if path.name.startswith(".") else path.rename(path.with_name(f".{path.name}.old.tmp"))
    shutil.rmtree(doomed, ignore_errors=True)


def changed_shard(before: FolderHashes, after: FolderHashes) -> str | None:
    """Return a description of the first shard that differs, or None.

    >>> changed_shard([("a", {"s.npy": "1"})], [("b", {"s.npy": "2"})])
    'b/s.npy has other content'
    """
    if len(before) != len(after):
        return f"the number of shard folders was {len(before)} and is {len(after)}"
    for (_, old), (folder, new) in zip(before, after, strict=True):
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                state = (
                    "is new" if name not in old else "is missing" if name not in new else "has other content"
                )
                return f"{folder}/{name} {state}"
    return None


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass
class CheckpointContents:
    """What one process writes. Nothing else may change the tensors meanwhile."""

    rank: int
    weights: Mapping[str, Mapping[str, Tensor]]
    """File name -> whole tensors; empty in all processes but the first."""
    optimizer: OptimizerPart
    trainer: bytes | None
    """Content of `trainer.json`; None in all processes but the first."""


class CheckpointWrite:
    """A checkpoint that this process writes under a temporary name.

    Args:
        path: Final path of the folder.
        step: Step of the checkpoint.
        contents: What to write.
        in_background: Write in a thread; otherwise the files are complete when this returns.
    """

    def __init__(self, path: Path, step: int, contents: CheckpointContents, *, in_background: bool) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.tmp")
        self.step = step
        self._files: Future[dict[str, str]] = Future()
        if in_background:
            executor = ThreadPoolExecutor(1, "checkpoint")
            self._files = executor.submit(self._write, contents)
            executor.shutdown(wait=False)
        else:
            try:
                self._files.set_result(self._write(contents))
            except Exception as error:
                self._files.set_exception(error)

    @property
    def is_written(self) -> bool:
        """Whether the files of this process are complete, or an error has ended the writing."""
        return self._files.done()

    def wait(self) -> dict[str, str] | BaseException:
        """Wait for the files, and return the sha256 of each, or the error that has ended the writing."""
        return self._files.exception() or self._files.result()

    def _write(self, contents: CheckpointContents) -> dict[str, str]:
        make_folder(self.temporary)
        files: dict[str, str] = {}
        for name, tensors in contents.weights.items():
            with self._open(name) as file:
                files[name] = write_tensors(file, tensors)
        if contents.optimizer.tensors:
            make_folder(self.temporary / OPTIMIZER)
            name = f"{OPTIMIZER}/process_{contents.rank:05d}.safetensors"
            with self._open(name) as file:
                files[name] = write_tensors(file, contents.optimizer.tensors, contents.optimizer.metadata())
        if contents.trainer is not None:
            with self._open(TRAINER) as file:
                file.write(contents.trainer)
            files[TRAINER] = sha256(contents.trainer).hexdigest()
        return files

    @contextmanager
    def _open(self, name: str) -> Generator[BinaryIO]:
        """Open a file for writing, and sync it at the end. Errors name its final path."""
        with output_errors(self.path / name), (self.temporary / name).open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
