"""The folder of a run: settings, metrics, tokenizer, checkpoints."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.errors import CheckpointError, OutputError
from bytemill.lm.tensor_file import read_state, write_state
from bytemill.lm.training.config import Resolved, TrainConfig, config_from_dict, differences
from bytemill.lm.training.config_file import config_to_toml
from bytemill.system.atomic_files import make_folder, output_error, remove_temporaries, write_text
from bytemill.system.file_lock import try_lock

if TYPE_CHECKING:
    import os
    from collections.abc import Generator, Mapping

    from bytemill.tokenizer.tokenizer import Tokenizer

_NAME = re.compile(r"step_(\d{8,})\.safetensors")


@dataclass(frozen=True)
class Loaded:
    """A checkpoint that was read."""

    path: Path
    state: dict[str, Any]
    config: TrainConfig
    refused: list[str]
    """Newer checkpoints that could not be used, one sentence each."""


class RunFolder:
    """Where a run writes to; `path` may not exist yet."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"
        self.tokenizer = self.path / "tokenizer.json"
        self.config = self.path / "config.toml"
        self.lock = self.path / "run.lock"

    @contextlib.contextmanager
    def claimed(self) -> Generator[None]:
        """Makes the folder, and lets no other process write to it while the block runs.

        The lock is the system's: a process that is killed holds it no longer, though the file stays. Raises
        `OutputError` where another process holds it.
        """
        make_folder(self.path)
        try:
            lock = try_lock(self.lock)
        except OSError as error:
            raise output_error(error, self.lock) from error
        if lock is None:
            raise OutputError(
                f"another process is training in {self.path}",
                hint="wait for its end, or train in another folder: --run.folder NAME",
            )
        with lock:
            yield

    def holds_other_files(self) -> bool:
        """Whether there is anything in the folder, and none of it a run's."""
        try:
            is_used = self.path.is_dir() and any(path != self.lock for path in self.path.iterdir())
        except OSError as error:
            raise output_error(error, self.path) from error
        return is_used and not self.metrics.exists() and not self.checkpoint_files()

    def prepare(self, resolved: Resolved, tokenizer: Tokenizer | None) -> None:
        """Makes the folders and writes the settings and the tokenizer. Raises `OutputError`."""
        make_folder(self.checkpoints)
        remove_temporaries(self.checkpoints, "step_*")
        write_text(self.config, config_to_toml(resolved))
        if tokenizer is not None:
            tokenizer.save(self.tokenizer)

    def checkpoint_files(self) -> list[Path]:
        """The checkpoints, the newest first."""
        try:
            found = [path for path in self.checkpoints.iterdir() if _NAME.fullmatch(path.name)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(found, key=_step_of, reverse=True)

    def save(self, step: int, state: Mapping[str, Any], keep: int) -> Path:
        """Writes a checkpoint, atomically, and then removes all but the newest `keep`. Raises `OutputError`."""
        path = self.checkpoints / f"step_{step:08d}.safetensors"
        write_state(path, state)
        for old in self.checkpoint_files()[keep:]:
            old.unlink(missing_ok=True)
        return path

    def clear(self) -> None:
        """Removes the checkpoints of an earlier run."""
        for path in self.checkpoint_files():
            path.unlink(missing_ok=True)

    def load_newest(self, config: TrainConfig | None = None, fingerprint: str | None = None) -> Loaded | None:
        """The newest checkpoint that is whole; None where there is none at all.

        One that is cut short or damaged is passed over, and the next older one taken. Raises `CheckpointError` where
        none is whole, or where the one taken is of another `config` or another tokenizer's `fingerprint`.
        """
        files, refused = self.checkpoint_files(), list[str]()
        for path in files:
            try:
                state = read_state(path)
                found = config_from_dict(state["config"])
            except (CheckpointError, KeyError, ValueError) as error:
                refused.append(str(error))
                continue
            self._check(path, state, found, config, fingerprint)
            return Loaded(path, state, found, refused)
        if refused:
            raise CheckpointError(
                f"no checkpoint in {self.checkpoints} can be used: {refused[0]}",
                hint="begin afresh with --overwrite, or in another folder",
            )
        return None

    def _check(
        self,
        path: Path,
        state: Mapping[str, Any],
        found: TrainConfig,
        config: TrainConfig | None,
        fingerprint: str | None,
    ) -> None:
        hint = "go on with what the run began with, begin afresh with --overwrite, or take another folder"
        if fingerprint is not None and state.get("fingerprint") != fingerprint:
            raise CheckpointError(
                f"{path} is of another tokenizer (fingerprint {str(state.get('fingerprint'))[:12]}…, "
                f"not {fingerprint[:12]}…)",
                hint=hint,
            )
        if config is not None and (changed := differences(found, config)):
            raise CheckpointError(f"{path} is of other settings: {'; '.join(changed)}", hint=hint)


def _step_of(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else -1
