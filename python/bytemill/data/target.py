"""Where shards are written: a folder, or a folder in an object store.

One process writes to an `Output`, a locked folder of this machine; files for a store are uploaded from there while the
next ones are written. The tasks of an executor leave their results in the `stage` of the target, and move finished
shards to their final names.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bytemill.data import object_store
from bytemill.data.manifest import (
    MANIFEST_NAME,
    PARTS,
    documents_name,
    manifest_document,
    new_tag,
    read_manifest,
    shard_name,
    write_manifest,
)
from bytemill.data.object_store import Uploads, work_folder
from bytemill.data.request import require_same
from bytemill.data.stage import FolderStage, Stage, StoreStage
from bytemill.data.unfinished import (
    JOURNAL_NAME,
    OVERWRITE_HINT,
    PLAN_NAME,
    UNITS_NAME,
    held,
    lock_folder,
    lock_folders,
    read_journal,
    remove_leftovers,
    remove_partial_files,
    start_over,
)
from bytemill.data.verification import file_problem, size_problems
from bytemill.errors import ShardError
from bytemill.storage import StoreFolder, url_of
from bytemill.system.atomic_files import indented_json, write_text
from bytemill.system.units import plural

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence

    from bytemill.data.manifest import Manifest, ShardInfo
    from bytemill.data.request import Request
    from bytemill.data.settings import EncodingJob
    from bytemill.data.unfinished import Checkpoint


ShardTarget: TypeAlias = "FolderTarget | StoreTarget"
"""It is pickled for the workers of an executor."""

_TAG_NAME = "tag.txt"


def target_of(path: str | os.PathLike[str], parts: Sequence[str] = ()) -> ShardTarget:
    """Return the target for a path or URL.

    Args:
        path: The output folder.
        parts: Names of the parts of a split corpus.
    """
    if (url := url_of(path)) is not None:
        return StoreTarget(StoreFolder(url), tuple(parts))
    return FolderTarget(Path(path).absolute(), Path(path), tuple(parts))


@dataclass
class Output:
    """A locked folder of this machine to which the shards of a target are written."""

    target: ShardTarget
    overwrite: bool
    folder: Path
    parts: list[Path]
    """The folders of the parts of the corpus in it, or the folder itself."""
    resumes: bool = False
    """True if an interrupted run can be resumed."""
    tag: str = ""
    """Tag in the names of the files (`shard_name`)."""
    uploads: Uploads | None = None
    """What takes the files to the store."""

    def checkpoint(self, job: EncodingJob, note: Callable[[str], None] | None) -> Checkpoint | None:
        """Return where the encoding resumes. If files are damaged, they are removed, and it starts over."""
        checkpoint = read_journal(self.folder, job.identity) if self.resumes else None
        if checkpoint is None:
            return None
        is_uploaded = self.uploads is not None
        if problem := job.resume_problem(self.folder, checkpoint, tag=self.tag, is_uploaded=is_uploaded):
            if note is not None:
                note(
                    f"{self.folder} was damaged after the interruption, so the encoding starts over: {problem}"
                )
            for path in dict.fromkeys([self.folder, *self.parts]):
                start_over(path)
            self.tag = _write_tag(self.folder) if is_uploaded else ""
            return None
        if self.uploads is not None:
            self.uploads.resume(checkpoint)
        return checkpoint

    def publish(self, manifests: Sequence[Manifest], request: Request | None = None) -> list[Manifest]:
        """Write the manifests when all files are where they belong; see `StoreTarget.publish`."""
        if self.uploads is not None:
            for index, manifest in enumerate(manifests):
                if manifest.documents is not None:
                    self.uploads.add(index, manifest.documents)
            self.uploads.finish()
        return self.target.publish(manifests, request, overwrite=self.overwrite)


@dataclass(frozen=True)
class FolderTarget:
    """A folder."""

    folder: Path
    shown: Path
    """As the caller named it, for messages."""
    part_names: tuple[str, ...]

    @property
    def stage(self) -> Stage:
        """Where tasks leave their results."""
        return FolderStage(self.folder / UNITS_NAME)

    @property
    def plan(self) -> Path:
        """The file of the plan of the tasks."""
        return self.shown / PLAN_NAME

    def complete(self, request: Request, *, recheck: bool) -> list[Manifest] | None:
        """Return the manifests of complete shards that match a request, or None if one is missing.

        Args:
            request: The requested shards.
            recheck: Accept sources with other times, whose text the caller compares.

        Raises:
            ShardError: The shards do not match the request, a shard is missing or has the wrong size, or a manifest is
                damaged.
        """
        parts = self._folders(self.shown)
        if not all((part / MANIFEST_NAME).exists() for part in parts):
            return None
        manifests = [read_manifest(part) for part in parts]
        for part, manifest in zip(parts, manifests, strict=True):
            require_same(str(part), manifest, request, recheck=recheck)
            _require_sizes(part, size_problems(part, manifest))
        return manifests

    def restamp(self, before: Sequence[Manifest], after: Sequence[Manifest]) -> None:
        """Replace the manifests of shards that are there by others of the same shards."""
        for part, old, new in zip(self._folders(self.shown), before, after, strict=True):
            if old.to_dict() != new.to_dict():
                with held(part):
                    if read_manifest(part) == old:
                        write_manifest(part, new)

    def remove_leftovers(self, note: Callable[[str], None] | None) -> None:
        """Remove what an encoding left that was killed after its manifest, and say so."""
        parts = self._folders(self.shown)
        folders = dict.fromkeys([*parts, self.shown])
        removed = [path for folder in folders for path in remove_leftovers(folder, parts)]
        if removed and note is not None:
            note(f"removed what an encoding left that was killed at its end: {', '.join(map(str, removed))}")

    @contextlib.contextmanager
    def opened(self, *, overwrite: bool, checkpoints: bool | None = None) -> Generator[Output]:
        """Lock and prepare the folder for one process.

        Args:
            overwrite: Replace existing shards.
            checkpoints: Whether there are checkpoints, from which an interrupted run resumes. None if the run always
                starts over.

        Raises:
            OutputError: The folder cannot be written.
            ShardError: It contains other shards, or another process writes to it.
            StorageError: The store cannot be read or written.
        """
        journal, parts = self.shown / JOURNAL_NAME, self._folders(self.shown)
        with lock_folders(
            self.shown, self.part_names, overwrite=overwrite, journal=None if checkpoints is None else journal
        ) as resumes:
            yield Output(self, overwrite, self.shown, parts, resumes)
            for part in parts:
                remove_partial_files(part)
            journal.unlink(missing_ok=True)

    @contextlib.contextmanager
    def prepared(self, *, overwrite: bool) -> Generator[bool]:
        """Prepare the place for tasks, and tell whether an interrupted run may be resumed."""
        with lock_folders(self.shown, self.part_names, overwrite=overwrite, journal=self.plan) as resumes:
            yield resumes
            self.discard_work()

    def discard_work(self) -> None:
        """Remove the plan and the results of tasks."""
        self.plan.unlink(missing_ok=True)
        self.stage.remove()

    def has_files(self, part: int, shard: dict[str, Any]) -> bool:
        """Check whether the files of a shard have their final names and sizes."""
        folder = self._folders(self.folder)[part]
        try:
            return all(
                (folder / info["file"]).stat().st_size == info["n_bytes"]
                for info in (shard, *shard["sidecars"])
            )
        except OSError:
            return False

    def damage(self, part: int, shard: ShardInfo) -> str | None:
        """Return how the files of a shard differ from what was written, or None; damaged ones are removed."""
        folder = self._folders(self.folder)[part]
        problem = next(filter(None, (file_problem(folder, info) for info in (shard, *shard.sidecars))), None)
        if problem:
            (folder / shard.file).unlink(missing_ok=True)
        return problem

    def add_shard(self, part: int, number: int, shard: ShardInfo, folder: Path, suffix: str) -> ShardInfo:
        """Move the files of a shard from a folder to their final names, the sidecars first."""
        moved = _renamed(shard, shard_name(number, ""), suffix)
        final = self._folders(self.folder)[part]
        for before, after in _names(shard, moved):
            (folder / before).replace(final / after)
        return moved

    def documents_path(self, part: int, folder: Path) -> Path:  # noqa: ARG002 - it is written in its place
        """Return where the document index of a part is written; `folder` is for temporary files."""
        return self._folders(self.folder)[part] / documents_name()

    def add_documents(self, part: int, path: Path) -> None:
        """Move the document index to the shards."""

    def publish(
        self,
        manifests: Sequence[Manifest],
        request: Request | None,  # noqa: ARG002 - the folder is locked
        *,
        overwrite: bool,  # noqa: ARG002
    ) -> list[Manifest]:
        """Write the manifests, and return them."""
        for part, manifest in zip(self._folders(self.shown), manifests, strict=True):
            write_manifest(part, manifest)
        return list(manifests)

    def _folders(self, folder: Path) -> list[Path]:
        return [folder / name for name in self.part_names] or [folder]


@dataclass(frozen=True)
class StoreTarget:
    """A folder in an object store. Methods without a description are those of `FolderTarget`."""

    store: StoreFolder
    part_names: tuple[str, ...]

    @property
    def stage(self) -> Stage:
        """See `FolderTarget`."""
        return StoreStage(self.store / UNITS_NAME)

    @property
    def plan(self) -> str:
        """The URL of the plan of the tasks."""
        return f"{self.store}/{PLAN_NAME}"

    @property
    def _stores(self) -> list[StoreFolder]:
        return [self.store / name for name in self.part_names] or [self.store]

    @property
    def _others(self) -> list[StoreFolder]:
        """The folders that would be read with or instead of the result: of the other division."""
        return [self.store] if self.part_names else [self.store / name for name in PARTS]

    def complete(self, request: Request, *, recheck: bool) -> list[Manifest] | None:
        """See `FolderTarget`. Raises `StorageError` too if the store cannot be written."""
        self.store.require_writable()
        found = [object_store.stored_manifest(part) for part in self._stores]
        for part, stored in zip(self._stores, found, strict=True):
            if stored is not None:
                require_same(str(part), stored.manifest, request, recheck=recheck)
                _require_sizes(part, object_store.stored_size_problems(part, stored.manifest))
        manifests = [stored.manifest for stored in found if stored is not None]
        return manifests if len(manifests) == len(found) else None

    def restamp(self, before: Sequence[Manifest], after: Sequence[Manifest]) -> None:
        """See `FolderTarget`."""
        for part, old, new in zip(self._stores, before, after, strict=True):
            stored = object_store.stored_manifest(part) if old.to_dict() != new.to_dict() else None
            if stored is not None and stored.manifest == old:
                part.replace(MANIFEST_NAME, indented_json(manifest_document(new)), stored.version)

    def remove_leftovers(self, note: Callable[[str], None] | None) -> None:
        """See `FolderTarget`."""
        if names := object_store.leftovers(self.store, self._stores):
            self.store.delete(names)
            if note is not None:
                note(
                    f"removed {plural(len(names), 'object')} that an encoding left that was killed at its end, "
                    f"such as {self.store}/{min(names)}"
                )
        if object_store.remove_work_folder(self.store.url) and note is not None:
            note(f"removed the local copies that an encoding to {self.store} left")

    @contextlib.contextmanager
    def opened(self, *, overwrite: bool, checkpoints: bool | None = None) -> Generator[Output]:
        """See `FolderTarget`. The folder is a work folder of this machine, in which the same call resumes."""
        self.store.require_writable()
        if checkpoints is None and not overwrite and object_store.stored_manifest(self.store) is not None:
            raise ShardError(f"{self.store} already contains shards", hint=OVERWRITE_HINT)
        folder = work_folder(self.store.url)
        folder.parent.mkdir(parents=True, exist_ok=True)
        parts, journal = [folder / name for name in self.part_names] or [folder], folder / JOURNAL_NAME
        with (
            object_store.other_shards_replaced(self._others, overwrite=overwrite),
            lock_folder(
                folder,
                overwrite=overwrite or checkpoints is None,
                journal=None if checkpoints is None else journal,
            ) as resumes,
        ):
            for part in parts:
                part.mkdir(exist_ok=True)
            tag = _read_tag(folder) if resumes else None
            with Uploads(parts, self._stores, can_resume=bool(checkpoints)) as uploads:
                yield Output(
                    self, overwrite, folder, parts, tag is not None, tag or _write_tag(folder), uploads
                )
            for name in (JOURNAL_NAME, _TAG_NAME):
                (folder / name).unlink(missing_ok=True)
            for part in parts:
                for path in part.iterdir():
                    if path.is_file() and path.name.startswith(
                        (".shard_", "shard_", ".documents", "documents")
                    ):
                        path.unlink(missing_ok=True)
                if part != folder:
                    part.rmdir()
        with contextlib.suppress(OSError):  # the file of the lock may stay
            folder.rmdir()

    @contextlib.contextmanager
    def prepared(self, *, overwrite: bool) -> Generator[bool]:
        """See `FolderTarget`."""
        self.store.require_writable()
        if overwrite:
            self.discard_work()
        with object_store.other_shards_replaced(self._others, overwrite=overwrite):
            yield True
        self.discard_work()

    def discard_work(self) -> None:
        """See `FolderTarget`."""
        self.store.delete([PLAN_NAME])
        self.stage.remove()

    def has_files(self, part: int, shard: dict[str, Any]) -> bool:
        """See `FolderTarget`."""
        store = self._stores[part]
        return all(store.size(info["file"]) == info["n_bytes"] for info in (shard, *shard["sidecars"]))

    def damage(self, part: int, shard: ShardInfo) -> str | None:
        """See `FolderTarget`. The store keeps checksums itself."""
        store, infos = self._stores[part], (shard, *shard.sidecars)
        return next((f"{info.file} is gone" for info in infos if store.size(info.file) != info.n_bytes), None)

    def add_shard(self, part: int, number: int, shard: ShardInfo, folder: Path, suffix: str) -> ShardInfo:
        """See `FolderTarget`."""
        store, moved = self._stores[part], _renamed(shard, shard_name(number, "", new_tag()), suffix)
        for before, after in _names(shard, moved):
            store.upload(after, folder / before)
        return moved

    def documents_path(self, part: int, folder: Path) -> Path:  # noqa: ARG002 - any name will do
        """See `FolderTarget`."""
        return folder / documents_name(new_tag())

    def add_documents(self, part: int, path: Path) -> None:
        """See `FolderTarget`."""
        self._stores[part].upload(path.name, path)

    def publish(
        self, manifests: Sequence[Manifest], request: Request | None, *, overwrite: bool
    ) -> list[Manifest]:
        """Write the manifests, and return those that are there then: of another encoding if it was first.

        Raises:
            ShardError: Another process has written other shards in the meantime; without a request any.
            StorageError: The store cannot be written.
        """
        return [
            object_store.publish(store, manifest, request, overwrite=overwrite)
            for store, manifest in zip(self._stores, manifests, strict=True)
        ]


def _require_sizes(place: Path | StoreFolder, problems: list[str]) -> None:
    if problems:
        hint = "write them again with --overwrite (overwrite=True)"
        raise ShardError(f"the shards in {place} are damaged: {problems[0]}", hint=hint)


def _read_tag(folder: Path) -> str | None:
    path = folder / _TAG_NAME
    tag = path.read_text() if path.exists() else ""
    return tag if re.fullmatch("[0-9a-f]{12}", tag) else None


def _write_tag(folder: Path) -> str:
    tag = new_tag()
    write_text(folder / _TAG_NAME, tag)
    return tag


def _renamed(shard: ShardInfo, stem: str, suffix: str) -> ShardInfo:
    before = shard.file.removesuffix(suffix)
    sidecars = [replace(sidecar, file=stem + sidecar.file.removeprefix(before)) for sidecar in shard.sidecars]
    return replace(shard, file=stem + suffix, sidecars=tuple(sidecars))


def _names(before: ShardInfo, after: ShardInfo) -> list[tuple[str, str]]:
    """Return the names of the files before and after, the shard last: under its final name it is complete."""
    sidecars = zip(before.sidecars, after.sidecars, strict=True)
    return [*((old.file, new.file) for old, new in sidecars), (before.file, after.file)]
