"""A folder for what counting puts on disk: for one run at a time, removed at its end, kept for who goes on with it."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from bytemill.corpus.documents import CorpusCounts, Position
from bytemill.errors import OutputError
from bytemill.system.atomic_files import make_folder, output_error, write_json
from bytemill.system.file_lock import HeldLock, try_lock

if TYPE_CHECKING:
    from types import TracebackType

_PREFIX = "bytemill-counting-"
_LOCK = "lock"
_JOURNAL = "journal.json"
_VERSION = 1


@dataclass(frozen=True)
class Journal:
    """How far a counting has come."""

    position: Position
    state: str
    """What the core needs to go on, as JSON."""


class WorkFolder:
    """Made when it is needed first.

    `path` None is a folder of its own in the system's folder for temporary files, from which what killed runs have
    left is removed. As a context manager it removes the folder in the end, unless the block fails and a journal is
    kept: then the journal and its files stay.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._folder: Path | None = None
        self._lock: HeldLock | None = None
        self._is_kept = False
        self.notes: list[str] = []

    @property
    def can_resume(self) -> bool:
        """True where a later run finds the folder."""
        return self._path is not None

    def open(self) -> Path:
        """The folder, made and locked. Raises `OutputError`."""
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
        """The journal of an interrupted run with the same settings; what is there of another is removed, with a note.

        To start afresh is no loss but of time: what was counted cannot be of use for other inputs or settings.
        """
        if self._path is None or not self._path.is_dir():
            return None
        folder = self.open()
        document = _read_json(folder / _JOURNAL)
        if document is None or document.get("version") != _VERSION:
            self._sweep(set())
            return None
        known, wanted = document.get("settings"), json.loads(json.dumps(settings))
        if known != wanted:
            what = _difference(known, wanted)
            self.notes.append(
                f"a counting of other {what} was interrupted here; it is dropped, and this one starts afresh"
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
        """Replaces the journal, then removes the files that the new one does not need. Raises `OutputError`."""
        folder = self.open()
        document = {"version": _VERSION, "settings": settings, "position": asdict(position), "state": state}
        write_json(folder / _JOURNAL, document)
        self._is_kept = True
        self._sweep(_files_of(state))

    def drop_journal(self, why: str) -> None:
        """Removes a journal that turned out to be of no use."""
        self.notes.append(f"the interrupted counting cannot be gone on with ({why}); this one starts afresh")
        self._sweep(set())
        self._is_kept = False

    def remove(self) -> None:
        """Removes the folder with all that is in it."""
        if self._folder is not None:
            self._is_kept = False
            self._sweep(set())
            folder = self._folder
            self._close()
            with contextlib.suppress(OSError):  # somebody may have put a file of their own there
                folder.rmdir()

    def _sweep(self, needed: set[str]) -> None:
        if self._folder is None:
            return
        kept = needed | {_LOCK} | ({_JOURNAL} if self._is_kept else set[str]())
        for file in self._folder.iterdir():
            if file.name not in kept and _is_ours(file.name):
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
            continue  # the run before has just removed the folder
        except OSError as error:
            raise output_error(error, folder) from error
        if lock is None:
            raise OutputError(
                f"another run counts in {folder}",
                hint="wait for it to end, or give another name for the result",
            )
        return lock
    raise OutputError(f"{folder} is removed again and again", hint="give another name for the result")


def _is_ours(name: str) -> bool:
    return name == _JOURNAL or name.startswith((f".{_JOURNAL}.", "run-", "part-", "open-"))


def _remove_leftovers() -> None:
    """Removes the temporary folders of this user's runs that were killed: whose lock nobody holds."""
    import tempfile

    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, AttributeError):  # Windows knows no numbers of users
            if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not (folder / _LOCK).exists():
                continue
            lock = try_lock(folder / _LOCK)
            if lock is None:
                continue
            with lock:
                for file in folder.iterdir():
                    if _is_ours(file.name):
                        file.unlink()
            folder.rmdir()


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", document) if isinstance(document, dict) else None


def _files_of(state: str) -> set[str]:
    """The files that a state of the core names."""
    document = json.loads(state)
    files = [*document["runs"], *([document["open"]] if document["open"] else [])]
    return {file["name"] for file in files}


def _difference(known: Any, wanted: dict[str, Any]) -> str:
    if not isinstance(known, dict):
        return "settings"
    given = cast("dict[str, Any]", known)
    names = [name for name in wanted if given.get(name) != wanted[name]]
    return " and ".join(name.replace("_", " ") for name in names) or "settings"
