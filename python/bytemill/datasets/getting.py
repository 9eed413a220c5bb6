"""Get a data set by name: from the disk, from a user-supplied file, or by download."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.datasets.catalogue import DATASETS, Dataset
from bytemill.datasets.download import (
    DownloadProgress,
    download_from_hub,
    download_url,
    file_sha256,
    find_on_hub,
)
from bytemill.errors import CorpusError, DownloadError
from bytemill.storage.input_check import check_file_is_no_input
from bytemill.system.atomic_files import AtomicFile, make_folder
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable


def available() -> list[Dataset]:
    """Return the data sets of the catalogue."""
    return list(DATASETS.values())


def find(name: str, output: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the local file of a data set, or None if it is not on this machine.

    Args:
        name: Name of the data set.
        output: File or folder to look for it. None looks in the caches of bytemill and `huggingface_hub`.

    Raises:
        CorpusError: There is no data set of this name.
    """
    dataset = _lookup(name)
    path = _local_path(dataset, output)
    if path.exists():
        return path
    return None if output is not None or isinstance(dataset.source, str) else find_on_hub(dataset.source)


def get(
    name: str,
    output: str | os.PathLike[str] | None = None,
    *,
    from_file: str | os.PathLike[str] | None = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Callable[[DownloadProgress], None] | None = None,
) -> Path:
    """Return the path of a data set, and download it if it is not on this machine.

    Every download is checked against the published size and sha256.

    Args:
        name: Name of the data set.
        output: File, or folder for it. None leaves the file in the cache of `huggingface_hub`, or in
            `$BYTEMILL_CACHE/datasets` if it comes from another host.
        from_file: Check and copy this file instead of downloading.
        verify: Compute the checksum of a file that exists already, rather than check its size only.
        overwrite: Replace a file that exists already.
        progress: Called with the progress.

    Raises:
        CorpusError: There is no data set of this name, or `from_file` cannot be read.
        DownloadError: The download fails, or a file is not the published one.
        OutputError: The file cannot be written, or is `from_file`.
    """
    dataset, show = _lookup(name), progress or _show_nothing
    found = None if overwrite else find(name, output)
    if found is not None:
        _check(found, dataset, show, with_sha256=verify)
        return found
    target = _local_path(dataset, output)
    if from_file is not None:
        check_file_is_no_input(target, [from_file])
        _check(Path(from_file), dataset, show, with_sha256=True)
        return _copy(Path(from_file), target)
    try:
        if isinstance(dataset.source, str):
            download_url(dataset.source, target, n_bytes=dataset.n_bytes, sha256=dataset.sha256, show=show)
            return target
        cached = download_from_hub(dataset.source, n_bytes=dataset.n_bytes, force=overwrite, show=show)
    except DownloadError as error:
        manual = f"download {dataset.url} on another machine, then: bytemill data get {name} --from-file FILE"
        raise DownloadError(
            f"{name}: {error}", hint=f"{error.hint}, or {manual}" if error.hint else manual
        ) from error
    _check(cached, dataset, show, with_sha256=True)
    if output is not None:
        return _copy(cached, target)
    target.unlink(missing_ok=True)  # with `overwrite` an older copy may exist, which `find` would prefer
    return cached


def _show_nothing(progress: DownloadProgress) -> None:
    """Ignore the progress."""


def _lookup(name: str) -> Dataset:
    dataset = DATASETS.get(name)
    if dataset is None:
        close = difflib.get_close_matches(name, DATASETS, 1)
        guess = f"did you mean {close[0]}? " if close else ""
        raise CorpusError(
            f"{name}: no data set of that name", hint=f"{guess}There are {', '.join(DATASETS)}."
        )
    return dataset


def _local_path(dataset: Dataset, output: str | os.PathLike[str] | None) -> Path:
    """Return the path of a file outside the hub's cache."""
    if output is None:
        return cache_folder("datasets") / dataset.file_name
    is_folder = Path(output).is_dir() or os.fspath(output).endswith(("/", os.sep))
    return Path(output) / dataset.file_name if is_folder else Path(output)


def _check(
    path: Path, dataset: Dataset, show: Callable[[DownloadProgress], None], *, with_sha256: bool
) -> None:
    try:
        n_bytes = path.stat().st_size
        if n_bytes != dataset.n_bytes:
            found = f"it has {n_bytes:,} bytes, not {dataset.n_bytes:,}"
        elif with_sha256 and (sha256 := file_sha256(path, show)) != dataset.sha256:
            found = f"its sha256 is {sha256}, not {dataset.sha256}"
        else:
            return
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}") from error
    raise DownloadError(
        f"{path} is not the published file of {dataset.name}: {found}",
        hint="--overwrite downloads it again; --output saves it elsewhere",
    )


def _copy(source: Path, target: Path) -> Path:
    make_folder(target.parent)
    with source.open("rb") as file, AtomicFile(target) as copy:
        while block := file.read(1 << 20):
            copy.write(block)
    return target
