"""Download well-known texts, verified by their sha256, into a cache."""

from __future__ import annotations

import difflib
import errno
import hashlib
import http.client
import importlib
import io
import os
import re
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from bytemill._core import __version__
from bytemill.datasets.catalogue import DATASETS, Dataset
from bytemill.errors import CorpusError, DownloadError
from bytemill.storage.input_check import check_file_is_no_input
from bytemill.system.atomic_files import AtomicFile, make_folder, output_error
from bytemill.system.extras import install_hint
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.datasets.catalogue import HubFile


_TIMEOUT_SECONDS = 30.0
_CHUNK_BYTES = 1 << 20
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True)
class DownloadProgress:
    """Progress of a download or of its check."""

    step: Literal["downloading", "checking"]
    done: int
    """Bytes."""
    total: int
    """Bytes."""


def download_url(
    url: str, target: Path, *, n_bytes: int, sha256: str, show: Callable[[DownloadProgress], None]
) -> None:
    """Download a file over HTTP. It appears under its name only with the expected size and checksum.

    Args:
        url: An `http` or `https` URL.
        target: Path of the file. Its folder is created.
        n_bytes: Expected size.
        sha256: Expected checksum, in hexadecimal.
        show: Called with the progress.

    Raises:
        DownloadError: The server cannot be reached, or refuses, or sends another file.
        OutputError: The file cannot be written.
    """
    make_folder(target.parent)
    digest, done = hashlib.sha256(), 0
    request = urllib.request.Request(url, headers={"User-Agent": f"bytemill/{__version__}"})  # noqa: S310
    with AtomicFile(target) as file:
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
                while done <= n_bytes and (chunk := response.read(_CHUNK_BYTES)):
                    file.write(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    show(DownloadProgress("downloading", done, n_bytes))
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            raise DownloadError(
                f"cannot download {target.name} from {urlsplit(url).netloc}: {_reason(error)}"
            ) from error
        if done != n_bytes:
            size = f"{done:,} bytes" if done < n_bytes else f"more than {n_bytes:,} bytes"
            raise DownloadError(f"{url} is not the published file: it has {size}, not {n_bytes:,}")
        if digest.hexdigest() != sha256:
            raise DownloadError(
                f"{url} is not the published file: its sha256 is {digest.hexdigest()}, not {sha256}"
            )


def find_on_hub(file: HubFile) -> Path | None:
    """Return the path of a hub file in the cache of `huggingface_hub`, or None."""
    with suppress(ImportError):
        hub = importlib.import_module("huggingface_hub")
        found = hub.try_to_load_from_cache(
            file.repository, file.path, repo_type="dataset", revision=file.revision
        )
        return Path(found) if isinstance(found, str) else None
    return None


def download_from_hub(
    file: HubFile, *, n_bytes: int, force: bool, show: Callable[[DownloadProgress], None]
) -> Path:
    """Download a file through `huggingface_hub`, which caches it and resumes interrupted downloads.

    Args:
        file: The file.
        n_bytes: Expected size, for the progress.
        force: Download the file even if it is in the cache.
        show: Called with the progress.

    Returns:
        The path in the cache of `huggingface_hub`.

    Raises:
        DownloadError: `huggingface_hub` is not installed, or the hub cannot be reached or refuses.
        OutputError: The cache cannot be written.
    """
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise DownloadError(
            "downloads from the Hugging Face hub need huggingface_hub", hint=install_hint("hub")
        ) from error
    try:
        location = {"repo_type": "dataset", "revision": file.revision}
        # Without a connection this fails at once, while `hf_hub_download` retries for 23 s.
        hub.get_hf_file_metadata(hub.hf_hub_url(file.repository, file.path, **location))
        path: str = hub.hf_hub_download(
            file.repository,
            file.path,
            **location,
            library_name="bytemill",
            library_version=__version__,
            force_download=force,
            tqdm_class=_progress_bar(n_bytes, show),
        )
    except Exception as error:  # the set of exceptions depends on the version and on its HTTP library
        if isinstance(error, OSError) and error.errno in _WRITE_ERRORS:
            raise output_error(error, hub.constants.HF_HUB_CACHE) from error
        raise DownloadError(
            f"cannot download {file.path} of {file.repository} from the hub: {_reason(error)}"
        ) from error
    return Path(path)


def file_sha256(path: Path, show: Callable[[DownloadProgress], None]) -> str:
    """Compute the sha256 of a file, in hexadecimal.

    Args:
        path: The file.
        show: Called with the progress.
    """
    digest, done, n_bytes = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            show(DownloadProgress("checking", done, n_bytes))
    return digest.hexdigest()


def _progress_bar(n_bytes: int, show: Callable[[DownloadProgress], None]) -> type:
    """Return a tqdm class that reports to `show` and draws nothing."""
    tqdm: Any = importlib.import_module("tqdm").tqdm
    done = 0

    class ProgressBar(tqdm):
        monitor_interval = 0  # starts no thread

        def __init__(self, *args: Any, **options: Any) -> None:
            options |= {"file": io.StringIO(), "disable": False}
            super().__init__(*args, **options)  # pyright: ignore[reportUnknownMemberType] (tqdm has no types)

        def display(self, *_: Any, **__: Any) -> None:
            nonlocal done  # the hub may use two bars, for bytes received and bytes written
            done = max(done, int(self.n))
            show(DownloadProgress("downloading", min(done, n_bytes), n_bytes))

    return ProgressBar


def _reason(error: BaseException) -> str:
    """Describe an error in one line, by its cause if it is a wrapper."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} ({http.client.responses.get(error.code, 'unknown status')})"
    inner = error.reason if isinstance(error, urllib.error.URLError) else error.__cause__
    if isinstance(inner, BaseException):
        return _reason(inner)
    text = (error.strerror if isinstance(error, OSError) else None) or str(inner or error)
    return re.sub(r"^\[Errno -?\d+\] ", "", text.strip().partition("\n")[0]) or type(error).__name__


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
