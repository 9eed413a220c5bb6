"""The checkpoint of a run: a folder with the weights, the trainer's state and a manifest of both.

    model.safetensors    weights
    average.safetensors  with optimizer.ema_decay their moving average, which generation and evaluation then use
    trainer.pt           optimizer, random generators, position in the data
    checkpoint.json      step, settings, fingerprint, shard hashes, and the sha256 of the other files

The folder is written under a temporary name and then renamed, so it is complete whenever it is visible.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from bytemill.errors import CheckpointError
from bytemill.lm.checkpoint import load_weights, parse_state, state_bytes, weights_bytes
from bytemill.lm.training.config import TrainConfig, config_from_dict
from bytemill.system.atomic_files import make_folder, output_error, sync_folder, write_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor
    from torch.nn import Module

WEIGHTS, AVERAGE = "model.safetensors", "average.safetensors"
TRAINER, MANIFEST = "trainer.pt", "checkpoint.json"
FolderHashes = list[tuple[str, dict[str, str]]]
"""For each shard folder its path and the sha256 of each shard file."""
ShardHashes = dict[Literal["training", "validation"], FolderHashes]


@dataclass(frozen=True)
class RunCheckpoint:
    """A checkpoint folder with its manifest; the other files are read and verified on demand."""

    path: Path
    step: int
    config: TrainConfig
    fingerprint: str
    shards: ShardHashes
    files: dict[str, str]
    """File name -> sha256."""

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
        name = AVERAGE if average else WEIGHTS
        load_weights(model, self._read(name), str(self.path / name))

    def trainer_state(self) -> dict[str, Any]:
        """Return the state of the trainer. Raises CheckpointError if it is damaged."""
        return parse_state(self._read(TRAINER), str(self.path / TRAINER))

    def verify(self, *, weights_only: bool) -> None:
        """Raise CheckpointError if a file is missing or damaged."""
        averages = [AVERAGE] if self.has_average else []
        for name in [WEIGHTS, *averages, *([] if weights_only else [TRAINER])]:
            self._read(name)

    def _read(self, name: str) -> bytes:
        path = self.path / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
        if hashlib.sha256(data).hexdigest() != self.files.get(name):
            raise CheckpointError(f"{path} is damaged: its sha256 differs from the one in {MANIFEST}")
        return data


def write_checkpoint(
    path: Path,
    weights: Mapping[str, Tensor],
    trainer_state: Mapping[str, Any],
    *,
    average: bytes | None = None,
    step: int,
    config: TrainConfig,
    fingerprint: str,
    shards: ShardHashes,
) -> None:
    """Write a checkpoint folder, atomically. Raises OutputError if it cannot be written."""
    temporary = path.with_name(f".{path.name}.tmp")
    remove_checkpoint(temporary)
    make_folder(temporary)
    contents = {WEIGHTS: weights_bytes(weights), TRAINER: state_bytes(trainer_state)}
    if average is not None:
        contents[AVERAGE] = average
    for name, data in contents.items():
        write_bytes(temporary / name, data)
    document = {
        "step": step,
        "fingerprint": fingerprint,
        "shards": shards,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
        "config": config.to_dict(),
    }
    manifest = {**document, "sha256": _digest(document)}
    write_bytes(temporary / MANIFEST, json.dumps(manifest, indent=2).encode() + b"\n")
    try:
        remove_checkpoint(path)
        temporary.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        raise output_error(error, path) from error


def read_checkpoint(path: Path) -> RunCheckpoint:
    """Read the manifest of a checkpoint folder. Raises CheckpointError if it is missing or damaged."""
    file = path / MANIFEST
    try:
        document = cast("dict[str, Any]", json.loads(file.read_bytes()))
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
            files=document["files"],
        )
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror or error}") from error
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
