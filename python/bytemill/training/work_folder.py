"""Folder for the files of one counting: removed when it finishes, kept with its checkpoint when it is interrupted."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from bytemill.corpus.documents import CorpusCounts, Position
from bytemill.errors import OutputError
from bytemill.system.atomic_files import make_folder, output_error, write_json
from bytemill.system.locks import HeldLock, try_lock

if TYPE_CHECKING:
    from types import TracebackType

_PREFIX = "bytemill-counting-"
_LOCK = "lock"
_JOURNAL = "journal.json"
_VERSION = 2


@dataclass(frozen=True)
class Journal:
    """A checkpoint of counting."""

    position: Position
    state: str
    """State of the core's counter, as JSON."""


def has_checkpoint(path: Path) -> bool:
    """Check whether a work folder holds a checkpoint."""
    return (path / _JOURNAL).is_file()


class WorkFolder:
    """A folder that is created and locked when it is first needed.

    As a context manager it removes the folder at the end, unless the block fails and there is a checkpoint: then the
    journal and its files remain.

    Args:
        path: The folder; None for a new one in the system's temporary folder, where folders of killed processes are
            removed first.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._folder: Path | None = None
        self._lock: HeldLock | None = None
        self._is_kept = False
        self.notes: list[str] = []

    @property
    def can_resume(self) -> bool:
        """True if a later run can find the folder."""
        return self._path is not None

    def open(self) -> Path:
        """Create and lock the folder if necessary, and return it. Raises `OutputError`."""
        if self._folder is None:
            if self._path is None:
                import tempfile

                _remove_leftovers()
                try:
                    path = Path(tempfile.mkdtemp(prefix=_PREFIX))
                except OSError as error:
                    raise output_error(error, Path(tempfile.gettempdir(), f"{_PREFIX}…")) from error
            else:
                path = self._path
            self._lock = _locked(path)
            self._folder = path
        return self._folder

    def journal(self, settings: dict[str, Any]) -> Journal | None:
        """Return the checkpoint of an interrupted run with the same settings.

        A checkpoint of other settings is useless and removed, with a note.
        """
        if self._path is None or not self._path.is_dir():
            return None
        folder = self.open()
        if not (folder / _JOURNAL).exists():
            self._sweep(set())
            return None
        document = _read_json(folder / _JOURNAL)
        if (
            document is None
            or document.get("version") != _VERSION
            or document.get("sha256") != _digest(document)
        ):
            self.drop_journal(f"{_JOURNAL} is damaged")
            return None
        known, wanted = document.get("settings"), json.loads(json.dumps(settings))
        if known != wanted:
            what = _difference(known, wanted)
            self.notes.append(
                f"discarded the checkpoint of a run with different {what}; counting starts from the beginning"
            )
            self._sweep(set())
            return None
        try:
            position = document["position"]
            counts = CorpusCounts(**position["counts"])
            journal = Journal(Position(position["source"], position["state"], counts), document["state"])
        except (KeyError, TypeError):
            self._sweep(set())
            return None
        self._is_kept = True
        return journal

    def keep(self, settings: dict[str, Any], position: Position, state: str) -> None:
        """Replace the journal, then remove files that it does not need. Raises `OutputError`."""
        folder = self.open()
        document = {"version": _VERSION, "settings": settings, "position": asdict(position), "state": state}
        write_json(folder / _JOURNAL, {**document, "sha256": _digest(document)})
        self._is_kept = True
        self._sweep(_files_of(state))

    def drop_journal(self, why: str) -> None:
        """Remove an unusable checkpoint, with a note."""
        self.notes.append(f"discarded an unusable checkpoint ({why}); counting starts from the beginning")
        self._sweep(set())
        self._is_kept = False

    def remove_leftovers(self) -> None:
        """Remove the folder of a run that was killed when it had saved its counts. Raises `OutputError`."""
        if self._path is not None and self._path.is_dir():
            self.open()
            self.remove()

    def remove(self) -> None:
        """Remove the folder and its files."""
        if self._folder is not None:
            self._is_kept = False
            self._sweep(set())
            folder = self._folder
            self._close()
            with contextlib.suppress(OSError):  # it may contain files of the user
                folder.rmdir()

    def _sweep(self, needed: set[str]) -> None:
        if self._folder is None:
            return
        kept = needed | {_LOCK} | ({_JOURNAL} if self._is_kept else set[str]())
        for file in self._folder.iterdir():
            if file.name not in kept and is_checkpoint_name(file.name):
                with contextlib.suppress(OSError):
                    file.unlink()

    def _close(self) -> None:
        self._folder = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._folder is None:
            return
        if error is None or not self._is_kept:
            self.remove()
            return
        document = _read_json(self._folder / _JOURNAL)
        self._sweep(_files_of(document["state"]) if document else set())
        self._close()


def _locked(folder: Path) -> HeldLock:
    for _ in range(100):
        make_folder(folder)
        try:
            lock = try_lock(folder / _LOCK)
        except FileNotFoundError:
            continue  # another run has just removed the folder
        except OSError as error:
            raise output_error(error, folder) from error
        if lock is None:
            raise OutputError(
                f"another process is counting in {folder}",
                hint="wait until it has finished, or choose another output",
            )
        return lock
    raise OutputError(f"{folder} keeps being removed by another process", hint="choose another output")


def is_checkpoint_name(name: str) -> bool:
    """Return True if a file of this name in a work folder belongs to a checkpoint."""
    return name == _JOURNAL or name.startswith((f".{_JOURNAL}.", "run-", "part-", "open-"))


def _remove_leftovers() -> None:
    """Remove this user's temporary folders that no process has locked."""
    import tempfile

    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, AttributeError):  # Windows has no user ids
            if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not (folder / _LOCK).exists():
                continue
            lock = try_lock(folder / _LOCK)
            if lock is None:
                continue
            with lock:
                for file in folder.iterdir():
                    if is_checkpoint_name(file.name):
                        file.unlink()
            folder.rmdir()


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", document) if isinstance(document, dict) else None


def _digest(document: dict[str, Any]) -> str:
    content = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _files_of(state: str) -> set[str]:
    """Return the names of the files in a state of the core."""
    document = json.loads(state)
    files = [*document["runs"], *([document["open"]] if document["open"] else [])]
    return {file["name"] for file in files}


def _difference(known: Any, wanted: dict[str, Any]) -> str:
    if not isinstance(known, dict):
        return "settings"
    previous = cast("dict[str, Any]", known)
    names = [name for name in wanted if previous.get(name) != wanted[name]]
    return " and ".join(name.replace("_", " ") for name in names) or "settings"
