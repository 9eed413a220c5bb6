"""A data set by name: from the cache, from a file that is here, or fetched."""

from __future__ import annotations

import difflib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bytemill.datasets.catalogue import DATASETS, Dataset
from bytemill.datasets.download import (
    DownloadProgress,
    check_space,
    download,
    file_sha256,
    show_nothing,
)
from bytemill.datasets.partial import hold_partial
from bytemill.errors import CorpusError, DownloadError
from bytemill.system.atomic_files import AtomicFile, make_folder
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable


def available() -> list[Dataset]:
    """The data sets that `get` knows, with their sizes and licences."""
    return list(DATASETS.values())


def path_of(name: str, output: str | os.PathLike[str] | None = None) -> Path:
    """Where `get` puts a data set: `output`, a file or a folder, or else the cache. Raises `CorpusError`."""
    dataset = _known(name)
    if output is None:
        return cache_folder("datasets") / dataset.file_name
    target = Path(output)
    is_folder = target.is_dir() or os.fspath(output).endswith(("/", os.sep))
    return target / dataset.file_name if is_folder else target


def get(
    name: str,
    output: str | os.PathLike[str] | None = None,
    *,
    from_file: str | os.PathLike[str] | None = None,
    base_url: str | None = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Callable[[DownloadProgress], None] | None = None,
) -> Path:
    """The path of a data set, which is fetched if it is not there yet: a file of the published size and sha256.

    It stands under its name only when both are right, so a file that is there is believed by its size; `verify`
    computes the checksum again. A download that was interrupted goes on where it ended. `from_file` takes a file that
    was fetched in another way, checks it, and copies it. `base_url` is a mirror with the same paths (default: the
    environment's `BYTEMILL_DATA_URL`, else the publisher's host). `overwrite` fetches anew what is there.

    Raises `CorpusError` for an unknown name, `DownloadError` where it cannot be had or is not what was published,
    `OutputError` where it cannot be written.
    """
    dataset, target = _known(name), path_of(name, output)
    base = _checked_base(base_url or os.environ.get("BYTEMILL_DATA_URL") or None)
    if target.exists() and not overwrite:
        _check(target, dataset, progress if verify else None, with_sha256=verify)
        return target
    if from_file is not None:
        _copy(Path(from_file), target, dataset, progress)
        return target
    url = dataset.url(base)
    try:
        download(
            url,
            target,
            n_bytes=dataset.n_bytes,
            sha256=dataset.sha256,
            replace=overwrite,
            progress=progress,
        )
    except DownloadError as error:
        elsewhere = (
            f"fetch {url} elsewhere and give it with `bytemill data get {name} --from-file FILE`; BYTEMILL_DATA_URL "
            "names a mirror"
        )
        raise DownloadError(f"{name}: {error}", hint=error.hint or elsewhere) from error
    return target


def _known(name: str) -> Dataset:
    dataset = DATASETS.get(name)
    if dataset is None:
        close = difflib.get_close_matches(name, DATASETS, 1)
        guess = f"did you mean {close[0]}? " if close else ""
        raise CorpusError(
            f"{name}: no data set of that name", hint=f"{guess}There are {', '.join(DATASETS)}."
        )
    return dataset


def _checked_base(base: str | None) -> str | None:
    if base is not None and (urlsplit(base).scheme not in ("http", "https") or not urlsplit(base).netloc):
        raise DownloadError(
            f"{base!r} is no address of a mirror",
            hint="it begins with https:// (or http://) and a host: BYTEMILL_DATA_URL, or --url",
        )
    return base


def _check(
    path: Path, dataset: Dataset, progress: Callable[[DownloadProgress], None] | None, *, with_sha256: bool
) -> None:
    """Raises `DownloadError` where a file is not the data set."""
    try:
        n_bytes = path.stat().st_size
        if n_bytes != dataset.n_bytes:
            found = f"it has {n_bytes:,} bytes, not {dataset.n_bytes:,}"
        elif (
            with_sha256 and (sha256 := file_sha256(path, n_bytes, progress or show_nothing)) != dataset.sha256
        ):
            found = f"its sha256 is {sha256}, not {dataset.sha256}"
        else:
            return
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}") from error
    raise DownloadError(
        f"{path} is not {dataset.name} as it was published: {found}",
        hint="--overwrite fetches it anew; --output puts it elsewhere",
    )


def _copy(
    source: Path, target: Path, dataset: Dataset, progress: Callable[[DownloadProgress], None] | None
) -> None:
    _check(source, dataset, progress, with_sha256=True)
    make_folder(target.parent)
    check_space(target.parent, dataset.n_bytes)
    # Not beside a process that fetches it, and what an earlier one has fetched is of no use any more.
    with hold_partial(target, lambda: None) as partial:
        with source.open("rb") as file, AtomicFile(target) as copy:
            shutil.copyfileobj(file, copy.file, 1 << 20)
        partial.start_afresh()
