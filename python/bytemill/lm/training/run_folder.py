"""Run folder: settings, metrics, tokenizer, checkpoints; and its copy in an object store."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from bytemill.errors import BytemillError, CheckpointError, CheckpointFormatError, OutputError, StorageError
from bytemill.formats.huggingface.exchange import sidecar_files
from bytemill.formats.huggingface.sidecars import CONFIG, MAP, TEMPLATE
from bytemill.lm.training.config import (
    Resolved,
    TrainConfig,
    config_to_toml,
    differences,
    origins_in,
    recorded_paths,
)
from bytemill.lm.training.run_checkpoint import (
    RunCheckpoint,
    ShardHashes,
    changed_shard,
    read_checkpoint,
    remove_checkpoint,
    step_of,
)
from bytemill.storage import StoreFolder, split_url, url_of
from bytemill.system.atomic_files import make_folder, output_error, output_errors, write_text
from bytemill.system.locks import try_lock
from bytemill.system.paths import cache_folder, relative_name
from bytemill.system.records import Count, Record, Strict, Text, parse_json_object, parse_record

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Self

    from bytemill.storage.store import Version
    from bytemill.tokenizer.tokenizer import Tokenizer


RUN_NAME = "run.json"
_FORMAT = 1
_Inside = Annotated[str, Strict(check=relative_name)]
_COPIES = ("config.toml", "tokenizer.json", CONFIG, MAP, TEMPLATE, "metrics.jsonl")


@dataclass(frozen=True, kw_only=True)
class _StoredCheckpoint(Record):
    """The content of `run.json`."""

    format: Count
    step: Count
    folder: _Inside
    """Folder of the checkpoint in the store."""
    files: dict[_Inside, tuple[Count, Text | None]]
    """Name in the folder -> size and sha256."""


class StoredRun:
    """The copy of a run folder in an object store.

    Args:
        url: URL of the run.
        path: The run folder on this machine.
    """

    def __init__(self, url: str, path: Path) -> None:
        self.url = url
        self._path = path
        self._store = StoreFolder(url)
        self._version: Version | None = None
        """Version of `run.json` that this process has read or written."""
        self._stored_step = -1
        """Step of the checkpoint in the store."""
        self._wanted: Path | None = None
        self._failed: Path | None = None
        """Checkpoint that could not be uploaded, for which there is another attempt with the next one or at the end."""
        self._error: BytemillError | None = None
        self._change = threading.Condition()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def fetch(self) -> None:
        """Copy the newest checkpoint to the run folder, unless that has a newer one, with settings and metrics.

        Raises:
            CheckpointError: `run.json` is damaged.
            StorageError: The store cannot be read, or a file has another content.
            OutputError: The run folder cannot be written.
        """
        known = self._read()
        self._stored_step = -1 if known is None else known.step
        newest = max((step_of(path) for path in self._checkpoints().glob("step_*")), default=-1)
        if known is None or known.step <= newest:
            return
        name = f"step_{known.step:08d}"
        temporary = self._checkpoints() / f".{name}.tmp"
        with output_errors(temporary):
            shutil.rmtree(temporary, ignore_errors=True)
        for file, (_, sha256) in known.files.items():
            make_folder((temporary / file).parent)
            self._store.download(f"{known.folder}/{file}", temporary / file, sha256)
        for name_of_copy in _COPIES:
            if self._store.size(name_of_copy) is not None:
                self._store.download(name_of_copy, self._path / name_of_copy)
        with output_errors(temporary):
            temporary.rename(self._checkpoints() / name)

    def forget(self) -> None:
        """Take note of the version in the store without fetching it: this run replaces it."""
        self._read()

    def push_newer(self, checkpoint: Path) -> None:
        """Upload a checkpoint that an earlier process has not uploaded."""
        if step_of(checkpoint) > self._stored_step:
            self.push(checkpoint)

    def push(self, checkpoint: Path) -> None:
        """Upload a published checkpoint in the background; a newer one replaces one that still waits."""
        with self._change:
            self._wanted = checkpoint
            self._change.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="upload checkpoints", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Wait until the last checkpoint and the metrics are uploaded.

        Raises:
            OutputError: Another machine trains this run.
            StorageError: They could not be uploaded; the run folder has them.
        """
        with self._change:
            self._is_closing = True
            self._change.notify_all()
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(0.1)
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.close()
        except BytemillError as failure:
            if not isinstance(error[1], BaseException):
                raise
            error[1].add_note(str(failure))  # what ended the training is more important

    def _checkpoints(self) -> Path:
        return self._path / "checkpoints"

    def _read(self) -> _StoredCheckpoint | None:
        found = self._store.get(RUN_NAME)
        if found is None:
            self._version = None
            return None
        self._version = found.version
        name, hint = f"{self.url}/{RUN_NAME}", "use another --run.folder, or replace the run with --overwrite"
        document = parse_json_object(found.data, name, CheckpointError, hint)
        if document.get("format", _FORMAT) != _FORMAT:
            raise CheckpointFormatError(
                f"{name} has the format {document['format']!r:.80}, but this version of bytemill reads {_FORMAT}",
                hint="use the version of bytemill that wrote it, or use another --run.folder",
            )
        return parse_record(_StoredCheckpoint, document, name, CheckpointError, hint)

    def _work(self) -> None:
        failed_before: Path | None = None
        while True:
            with self._change:
                while self._wanted is None and not self._is_closing:
                    self._change.wait()
                checkpoint, self._wanted = self._wanted or self._failed, None
                is_last, self._failed = self._is_closing, None
            try:
                if checkpoint is not None:
                    self._upload(checkpoint)
                if checkpoint is not None or is_last:
                    self._copy()
                self._error = None
            except FileNotFoundError:  # removed in favour of a newer one
                pass
            except BytemillError as error:
                self._error, self._failed = _with_folder(error, self._path), checkpoint
            is_hopeless = self._failed is not None and self._failed == failed_before
            failed_before = self._failed
            if isinstance(self._error, OutputError) or (is_last and (self._failed is None or is_hopeless)):
                return

    def _copy(self) -> None:
        for name in _COPIES:
            path = self._path / name
            if path.exists():
                self._store.put(name, path.read_bytes())

    def _upload(self, checkpoint: Path) -> None:
        try:
            hashes = read_checkpoint(checkpoint).files
        except CheckpointError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # removed in favour of a newer one
                return
            raise
        folder = f"checkpoints/{checkpoint.name}.{os.urandom(6).hex()}"
        paths = [path for path in sorted(checkpoint.rglob("*")) if path.is_file()]
        files: dict[str, list[Any]] = {}
        for path in paths:
            name = path.relative_to(checkpoint).as_posix()
            self._store.upload(f"{folder}/{name}", path)
            files[name] = [path.stat().st_size, hashes.get(name)]
        stored = {"format": _FORMAT, "step": step_of(checkpoint), "folder": folder, "files": files}
        data = json.dumps(stored, indent=2).encode()
        if not self._store.replace(RUN_NAME, data, self._version):
            self._store.delete(f"{folder}/{name}" for name in files)
            raise self._taken()
        found = self._store.get(RUN_NAME)
        if found is None or found.data != data:
            raise self._taken()
        self._version, self._stored_step = found.version, step_of(checkpoint)

        def is_old(name: str) -> bool:
            return name.startswith("checkpoints/") and not name.startswith(folder)

        self._store.delete(filter(is_old, self._store.list()))

    def _taken(self) -> OutputError:
        return OutputError(
            f"another process has written the run {self.url}",
            hint="use another --run.folder, or replace the run with --overwrite",
        )


def _with_folder(error: BytemillError, path: Path) -> BytemillError:
    if isinstance(error, StorageError):
        return StorageError(
            f"the checkpoint was not uploaded: {error}",
            hint=f"it is in {path}; run the same command again to upload it",
        )
    return error


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
            self._save_tokenizer(tokenizer)

    def _save_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Write the tokenizer with its chat template and its names of special tokens, and no names of its own.

        Shards of conversations were made with these names, so `lm chat` must not find others.
        """
        tokenizer.save(self.tokenizer)
        spec = tokenizer.to_spec()
        files = sidecar_files(spec)
        if spec.metadata is None or spec.metadata.config is None:
            del files[CONFIG]
        with output_errors(self.path):
            for name in {CONFIG, MAP, TEMPLATE} - files.keys():  # of another tokenizer with the same ids
                (self.path / name).unlink(missing_ok=True)
        for name, text in files.items():
            write_text(self.path / name, text)

    def _with_first_origins(self, resolved: Resolved, before: TrainConfig | None) -> Resolved:
        """Replace the run's own `config.toml` as an origin by the one that it names, unless the value was edited."""
        if before is None or not self.config.exists():
            return resolved
        first = origins_in(self.config.read_text(encoding="utf-8", errors="replace"))
        old, new = before.to_flat(), resolved.config.to_flat()

        def origin_of(key: str, origin: str) -> str:
            is_own = Path(origin) == self.config or (
                self.stored is not None and origin == f"{self.stored.url}/{self.config.name}"
            )
            return first.get(key, origin) if is_own and new[key] == old[key] else origin

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
