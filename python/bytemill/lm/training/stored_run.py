"""A run folder in an object store: its checkpoints are uploaded while training continues, and fetched to resume.

`run.json` names the newest checkpoint and the sha256 of its files, which have the tag of their upload in their names.
It is written last, and only in place of the version that was read or written before: of two machines that train the
same run, the second one fails. Settings, tokenizer and metrics are copies for people and other programs.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from bytemill.errors import BytemillError, CheckpointError, CheckpointFormatError, OutputError, StorageError
from bytemill.lm.training.run_checkpoint import read_checkpoint, step_of
from bytemill.storage import StoreFolder
from bytemill.system.atomic_files import make_folder, output_errors
from bytemill.system.paths import relative_name
from bytemill.system.records import Count, Record, Strict, Text, parse_json_object, parse_record

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from bytemill.storage.store import Version

RUN_NAME = "run.json"
_FORMAT = 1
_Inside = Annotated[str, Strict(check=relative_name)]
_COPIES = ("config.toml", "tokenizer.json", "tokenizer_config.json", "metrics.jsonl")


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
