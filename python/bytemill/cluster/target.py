"""Where the shards of an encoding go: a folder that all workers see, or an object store."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bytemill.cluster.stage import FolderStage, Stage, StoreStage
from bytemill.shards import complete, store_manifests
from bytemill.shards.lock import PLAN_NAME, UNITS_NAME, lock_folders
from bytemill.shards.manifest import PARTS, documents_name, new_tag, shard_name, write_manifest
from bytemill.shards.verification import file_problem
from bytemill.storage import StoreFolder, url_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence

    from bytemill.shards.complete import Request
    from bytemill.shards.manifest import Manifest, ShardInfo


class Target(Protocol):
    """The place of an encoding. It is pickled for the workers."""

    @property
    def stage(self) -> Stage:
        """Where tasks leave their results."""
        ...

    @property
    def plan(self) -> Path | str:
        """The file of the plan, or its URL."""
        ...

    def complete(self, request: Request, *, recheck: bool) -> list[Manifest] | None:
        """Return the manifests if the shards are there; raises as `complete_manifests`."""
        ...

    def restamp(self, before: Sequence[Manifest], after: Sequence[Manifest]) -> None:
        """Replace the manifests of shards that are there by others of the same shards."""
        ...

    def remove_leftovers(self, note: Callable[[str], None] | None) -> None:
        """Remove what an encoding left that was killed after its manifest, and say so."""
        ...

    def prepared(self, *, overwrite: bool) -> contextlib.AbstractContextManager[bool]:
        """Prepare the place for the block, and tell whether an interrupted run may be resumed."""
        ...

    def discard_work(self) -> None:
        """Remove the plan and the results of tasks."""
        ...

    def has_files(self, part: int, shard: dict[str, Any]) -> bool:
        """Check whether the files of a shard have their final names and sizes."""
        ...

    def damage(self, part: int, shard: ShardInfo) -> str | None:
        """Return how the files of a shard differ from what was written, or None; damaged ones are removed."""
        ...

    def add_shard(self, part: int, number: int, shard: ShardInfo, folder: Path, suffix: str) -> ShardInfo:
        """Move the files of a shard from a folder to their final names, the sidecars first."""
        ...

    def documents_path(self, part: int, folder: Path) -> Path:
        """Return where the document index of a part is written; `folder` is for temporary files."""
        ...

    def add_documents(self, part: int, path: Path) -> None:
        """Move the document index to the shards."""
        ...

    def publish(self, manifests: Sequence[Manifest], request: Request, *, overwrite: bool) -> list[Manifest]:
        """Write the manifests, and return those that are there then."""
        ...


def target_of(path: str | os.PathLike[str], parts: Sequence[str]) -> Target:
    """Return the target for a path or URL.

    Args:
        path: The output folder.
        parts: Names of the parts of a split corpus.
    """
    if (url := url_of(path)) is not None:
        store = StoreFolder(url)
        store.require_writable()
        return StoreTarget(store, tuple(parts))
    return FolderTarget(Path(path).absolute(), Path(path), tuple(parts))


@dataclass(frozen=True)
class FolderTarget:
    """A folder."""

    folder: Path
    shown: Path
    """As the caller named it, for messages."""
    part_names: tuple[str, ...]

    @property
    def stage(self) -> Stage:
        """See `Target`."""
        return FolderStage(self.folder / UNITS_NAME)

    @property
    def plan(self) -> Path:
        """See `Target`."""
        return self.shown / PLAN_NAME

    def complete(self, request: Request, *, recheck: bool) -> list[Manifest] | None:
        """See `Target`."""
        return complete.complete_manifests(self._folders(self.shown), request, recheck=recheck)

    def restamp(self, before: Sequence[Manifest], after: Sequence[Manifest]) -> None:
        """See `Target`."""
        complete.restamp(self._folders(self.shown), before, after)

    def remove_leftovers(self, note: Callable[[str], None] | None) -> None:
        """See `Target`."""
        complete.remove_all_leftovers(self.shown, self._folders(self.shown), note)

    @contextlib.contextmanager
    def prepared(self, *, overwrite: bool) -> Generator[bool]:
        """See `Target`."""
        with lock_folders(self.shown, self.part_names, overwrite=overwrite, journal=self.plan) as resumes:
            yield resumes
            self.discard_work()

    def discard_work(self) -> None:
        """See `Target`."""
        self.plan.unlink(missing_ok=True)
        self.stage.remove()

    def has_files(self, part: int, shard: dict[str, Any]) -> bool:
        """See `Target`."""
        folder = self._folders(self.folder)[part]
        try:
            return all(
                (folder / info["file"]).stat().st_size == info["n_bytes"]
                for info in (shard, *shard["sidecars"])
            )
        except OSError:
            return False

    def damage(self, part: int, shard: ShardInfo) -> str | None:
        """See `Target`."""
        folder = self._folders(self.folder)[part]
        problem = next(filter(None, (file_problem(folder, info) for info in (shard, *shard.sidecars))), None)
        if problem:
            (folder / shard.file).unlink(missing_ok=True)
        return problem

    def add_shard(self, part: int, number: int, shard: ShardInfo, folder: Path, suffix: str) -> ShardInfo:
        """See `Target`."""
        moved = _renamed(shard, shard_name(number, ""), suffix)
        final = self._folders(self.folder)[part]
        for before, after in _names(shard, moved):
            (folder / before).replace(final / after)
        return moved

    def documents_path(self, part: int, folder: Path) -> Path:  # noqa: ARG002 - it is written in its place
        """See `Target`."""
        return self._folders(self.folder)[part] / documents_name()

    def add_documents(self, part: int, path: Path) -> None:
        """See `Target`."""

    def publish(self, manifests: Sequence[Manifest], request: Request, *, overwrite: bool) -> list[Manifest]:  # noqa: ARG002 - the folder is locked
        """See `Target`."""
        for part, manifest in zip(self._folders(self.shown), manifests, strict=True):
            write_manifest(part, manifest)
        return list(manifests)

    def _folders(self, folder: Path) -> list[Path]:
        return [folder / name for name in self.part_names] if self.part_names else [folder]


@dataclass(frozen=True)
class StoreTarget:
    """A folder in an object store."""

    store: StoreFolder
    part_names: tuple[str, ...]

    @property
    def stage(self) -> Stage:
        """See `Target`."""
        return StoreStage(self.store / UNITS_NAME)

    @property
    def plan(self) -> str:
        """See `Target`."""
        return f"{self.store}/{PLAN_NAME}"

    def complete(self, request: Request, *, recheck: bool) -> list[Manifest] | None:
        """See `Target`."""
        return store_manifests.complete_in_store(self._stores(), request, recheck=recheck)

    def restamp(self, before: Sequence[Manifest], after: Sequence[Manifest]) -> None:
        """See `Target`."""
        store_manifests.restamp(self._stores(), before, after)

    def remove_leftovers(self, note: Callable[[str], None] | None) -> None:
        """See `Target`."""
        store_manifests.remove_leftovers(self.store, self._stores(), note)

    @contextlib.contextmanager
    def prepared(self, *, overwrite: bool) -> Generator[bool]:
        """See `Target`."""
        if overwrite:
            self.discard_work()
        others = [self.store] if self.part_names else [self.store / name for name in PARTS]
        with store_manifests.other_shards_replaced(others, overwrite=overwrite):
            yield True
        self.discard_work()

    def discard_work(self) -> None:
        """See `Target`."""
        self.store.delete([PLAN_NAME])
        self.stage.remove()

    def has_files(self, part: int, shard: dict[str, Any]) -> bool:
        """See `Target`."""
        store = self._stores()[part]
        return all(store.size(info["file"]) == info["n_bytes"] for info in (shard, *shard["sidecars"]))

    def damage(self, part: int, shard: ShardInfo) -> str | None:
        """See `Target`. The store keeps checksums itself."""
        store = self._stores()[part]
        infos = (shard, *shard.sidecars)
        return next((f"{info.file} is gone" for info in infos if store.size(info.file) != info.n_bytes), None)

    def add_shard(self, part: int, number: int, shard: ShardInfo, folder: Path, suffix: str) -> ShardInfo:
        """See `Target`."""
        store, moved = self._stores()[part], _renamed(shard, shard_name(number, "", new_tag()), suffix)
        for before, after in _names(shard, moved):
            store.upload(after, folder / before)
        return moved

    def documents_path(self, part: int, folder: Path) -> Path:  # noqa: ARG002 - any name will do
        """See `Target`."""
        return folder / documents_name(new_tag())

    def add_documents(self, part: int, path: Path) -> None:
        """See `Target`."""
        self._stores()[part].upload(path.name, path)

    def publish(self, manifests: Sequence[Manifest], request: Request, *, overwrite: bool) -> list[Manifest]:
        """See `Target`."""
        return [
            store_manifests.publish(store, manifest, request, overwrite=overwrite)
            for store, manifest in zip(self._stores(), manifests, strict=True)
        ]

    def _stores(self) -> list[StoreFolder]:
        return [self.store / name for name in self.part_names] if self.part_names else [self.store]


def _renamed(shard: ShardInfo, stem: str, suffix: str) -> ShardInfo:
    before = shard.file.removesuffix(suffix)
    sidecars = [replace(sidecar, file=stem + sidecar.file.removeprefix(before)) for sidecar in shard.sidecars]
    return replace(shard, file=stem + suffix, sidecars=tuple(sidecars))


def _names(before: ShardInfo, after: ShardInfo) -> list[tuple[str, str]]:
    """Return the names of the files before and after, the shard last: under its final name it is complete."""
    sidecars = zip(before.sidecars, after.sidecars, strict=True)
    return [*((old.file, new.file) for old, new in sidecars), (before.file, after.file)]
