"""Run folder: settings, metrics, tokenizer, checkpoints."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import CheckpointError, CheckpointFormatError, OutputError
from bytemill.lm.training.config import Resolved, TrainConfig, config_to_toml, differences, origins_in
from bytemill.lm.training.config_sources import recorded_paths
from bytemill.lm.training.run_checkpoint import (
    RunCheckpoint,
    ShardHashes,
    changed_shard,
    read_checkpoint,
    remove_checkpoint,
    step_of,
)
from bytemill.lm.training.stored_run import StoredRun
from bytemill.storage import split_url, url_of
from bytemill.system.atomic_files import make_folder, output_error, write_text
from bytemill.system.locks import try_lock
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Generator

    from bytemill.tokenizer.tokenizer import Tokenizer


def _local_folder(url: str) -> Path:
    return cache_folder("runs") / hashlib.sha256(url.encode()).hexdigest()[:24] / split_url(url)[1]


@dataclass(frozen=True)
class Loaded:
    """The newest usable checkpoint."""

    checkpoint: RunCheckpoint
    refused: list[str]
    """Newer checkpoints that are damaged, one message each."""


class RunFolder:
    """Paths and files of a run folder, which may not exist yet.

    A run in an object store has a folder on this machine too, in the cache folder.

    Args:
        path: The folder, or the URL of one.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        url = url_of(path)
        self.path = Path(path) if url is None else _local_folder(url)
        self.stored = None if url is None else StoredRun(url, self.path)
        """The copy in an object store."""
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"
        self.tokenizer = self.path / "tokenizer.json"
        self.config = self.path / "config.toml"
        self.lock = self.path / "run.lock"

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Create the folder, and hold an exclusive lock on it inside the block.

        The system releases the lock of a killed process, although the lock file remains.

        Raises:
            OutputError: Another process holds the lock.
        """
        make_folder(self.path)
        try:
            lock = try_lock(self.lock)
        except OSError as error:
            raise output_error(error, self.lock) from error
        if lock is None:
            raise OutputError(
                f"another process is training in {self.path}",
                hint="wait until it ends, or use another folder: --run.folder NAME",
            )
        with lock:
            yield

    def holds_other_files(self) -> bool:
        """Return True if the folder contains files, but no run."""
        try:
            is_used = self.path.is_dir() and any(path != self.lock for path in self.path.iterdir())
        except OSError as error:
            raise output_error(error, self.path) from error
        return is_used and not self.metrics.exists() and not self.checkpoint_files()

    def prepare(
        self, resolved: Resolved, tokenizer: Tokenizer | None, before: TrainConfig | None = None
    ) -> None:
        """Create the folders, and write the settings and the tokenizer.

        Args:
            resolved: The settings, with their origins.
            tokenizer: The tokenizer.
            before: Settings of the checkpoint that the run resumes from.

        Raises:
            OutputError: A file cannot be written.
        """
        make_folder(self.checkpoints)
        for leftover in self.checkpoints.glob(".step_*.tmp"):
            remove_checkpoint(leftover)
        paths = recorded_paths(self.path if self.stored is None else None)
        write_text(self.config, config_to_toml(self._with_first_origins(resolved, before), paths))
        if tokenizer is not None:
            tokenizer.save(self.tokenizer)

    def _with_first_origins(self, resolved: Resolved, before: TrainConfig | None) -> Resolved:
        """Replace the run's own `config.toml` as an origin by the one that it names, unless the value was edited."""
        if before is None or not self.config.exists():
            return resolved
        first = origins_in(self.config.read_text(encoding="utf-8", errors="replace"))
        old, new = before.to_dict(), resolved.config.to_dict()

        def origin_of(key: str, origin: str) -> str:
            section, _, name = key.partition(".")
            is_own = Path(origin) == self.config or (
                self.stored is not None and origin == f"{self.stored.url}/{self.config.name}"
            )
            return first.get(key, origin) if is_own and new[section][name] == old[section][name] else origin

        return replace(
            resolved, origins={key: origin_of(key, origin) for key, origin in resolved.origins.items()}
        )

    def checkpoint_files(self) -> list[Path]:
        """Return the checkpoint folders, newest first."""
        try:
            found = [path for path in self.checkpoints.iterdir() if step_of(path) >= 0]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(found, key=step_of, reverse=True)

    def checkpoint_path(self, step: int) -> Path:
        """Return the folder of the checkpoint of a step."""
        return self.checkpoints / f"step_{step:08d}"

    def remove_old(self, newest: int, *, keep: int, keep_every: int) -> None:
        """Remove checkpoints that are not to be kept.

        Args:
            newest: Step of the checkpoint just saved. Later ones were damaged when the run resumed, and are removed.
            keep: Number of newest checkpoints to keep.
            keep_every: Also keep the multiples of this many steps; 0: none.
        """
        checkpoints = self.checkpoint_files()
        later = [path for path in checkpoints if step_of(path) > newest]
        for path in later:
            remove_checkpoint(path)
        for path in checkpoints[len(later) + keep :]:
            if not keep_every or step_of(path) % keep_every:
                remove_checkpoint(path)

    def clear(self) -> None:
        """Remove the checkpoints of an earlier run."""
        for path in self.checkpoint_files():
            remove_checkpoint(path)

    def load_newest(self, *, weights_only: bool = False) -> Loaded | None:
        """Return the newest intact checkpoint, or None if the folder has none.

        Damaged checkpoints are skipped in favour of older ones.

        Args:
            weights_only: Verify only the weights, which is all that generation reads.

        Raises:
            CheckpointFormatError: The newest checkpoint has another format.
            CheckpointError: All checkpoints are damaged.
        """
        refused: list[str] = []
        for path in self.checkpoint_files():
            try:
                checkpoint = read_checkpoint(path)
                checkpoint.verify(weights_only=weights_only)
            except CheckpointFormatError:
                raise
            except CheckpointError as error:
                refused.append(str(error))
                continue
            return Loaded(checkpoint, refused)
        if refused:
            raise CheckpointError(
                f"no checkpoint in {self.checkpoints} is usable: {refused[0]}",
                hint="start over with --overwrite, or use another --run.folder",
            )
        return None


def check_resumable(
    checkpoint: RunCheckpoint, config: TrainConfig, fingerprint: str, shards: ShardHashes
) -> None:
    """Raise CheckpointError if tokenizer, settings or data differ from those of the checkpoint."""
    hint = "restore the original settings and data, start over with --overwrite, or use another --run.folder"
    if checkpoint.fingerprint != fingerprint:
        raise CheckpointError(
            f"{checkpoint.path} was trained with another tokenizer (fingerprint {checkpoint.fingerprint[:12]}…, "
            f"not {fingerprint[:12]}…)",
            hint=hint,
        )
    if changed := differences(checkpoint.config, config):
        raise CheckpointError(f"{checkpoint.path} has other settings: {'; '.join(changed)}", hint=hint)
    for role, folders in shards.items():
        if shard := changed_shard(checkpoint.shards[role], folders):
            option = "--data.train" if role == "training" else "--data.validation"
            raise CheckpointError(
                f"the {role} data has changed since {checkpoint.path}: {shard}",
                hint=f"name the folder of the original shards ({option} DIR), start over with --overwrite, or "
                "use another --run.folder",
            )
