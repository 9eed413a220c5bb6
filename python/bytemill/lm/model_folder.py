"""A model folder: weights without a run, as `bytemill lm import` writes it.

    model.safetensors   weights
    model.json          format, shape of the model, source, the tokenizer's fingerprint, the id of the token that
                        begins texts, sha256 of the weights
    tokenizer.json      the tokenizer, if there is one; beside it what transformers' files say of it

`model.json` is written last, so a folder that has it is complete.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch

from bytemill.errors import CheckpointError, OutputError
from bytemill.formats.files import SIDECAR_FILES
from bytemill.lm.checkpoint import open_tensors, sha256_of, write_tensors
from bytemill.lm.model_config import ModelConfig
from bytemill.storage import StoreFolder, local_output, shown, url_of
from bytemill.system.atomic_files import AtomicFile, make_folder, output_errors, write_json
from bytemill.system.locks import LOCK_NAME, lock_output

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from torch import Tensor
    from torch.nn import Module

    from bytemill.tokenizer.tokenizer import Tokenizer

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

    def load_weights(self, model: Module) -> None:
        """Load the weights into a float32 model of the same shape, one tensor at a time.

        Raises:
            CheckpointError: They are damaged or of another model.
        """
        path = self.path / WEIGHTS
        if sha256_of(path) != self.sha256:
            raise CheckpointError(f"{path} is damaged: its sha256 differs from the one in {DESCRIPTION}")
        parameters = dict(model.named_parameters())
        with open_tensors(path) as file, torch.no_grad():
            found = {name: file.shape(name) for name in file.names}
            if found != {name: tuple(parameter.shape) for name, parameter in parameters.items()}:
                raise CheckpointError(f"{path} does not hold the model that {DESCRIPTION} describes")
            for name, parameter in parameters.items():
                parameter.copy_(file.tensor(name))


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
    progress: Callable[[int, int], None] | None = None,
) -> ModelFolder:
    """Write a model folder, or to the URL of one.

    Args:
        path: The folder.
        model: Shape of the model.
        weights: Its weights by name, in float32.
        tokenizer: Its tokenizer.
        source: What the weights were imported from.
        bos_id: Id of the token that begins every text.
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
        write_json(local / DESCRIPTION, {**document, "bos_id": bos_id, "model": model.to_dict()})
    return ModelFolder(path, model, source, fingerprint, digest, bos_id)
