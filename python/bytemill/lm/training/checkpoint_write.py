"""Write the files of a checkpoint while training continues."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO

from bytemill.lm.tensor_files import write_tensors
from bytemill.lm.training.run_checkpoint import OPTIMIZER, TRAINER
from bytemill.system.atomic_files import make_folder, output_errors

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from torch import Tensor

    from bytemill.lm.training.optimizer_state import OptimizerPart


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
