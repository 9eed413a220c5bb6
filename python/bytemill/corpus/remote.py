"""Files named by URLs, opened through fsspec: by the library that it names for a store, or by obstore without that."""

from __future__ import annotations

import contextlib
import glob
import importlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from bytemill.corpus.formats import library
from bytemill.errors import CorpusError, StorageError
from bytemill.storage.credentials import missing_credentials, profile_options, require_credentials
from bytemill.storage.location import SCHEMES, check_no_credentials, without_secrets, without_signature
from bytemill.system.extras import install_hint, is_checkout

if TYPE_CHECKING:
    from collections.abc import Generator

_TIMES = ("ETag", "etag", "e_tag", "LastModified", "last_modified", "mtime", "updated", "created")


@dataclass(frozen=True)
class RemoteFile:
    """A file on an fsspec file system."""

    fs: Any
    path: str
    version: str
    """Changes when the file does, as far as the file system tells: ETag, modification time."""

    def __reduce__(self) -> tuple[Any, ...]:
        # What unpickles it brings its own access: a file system of obstore would contain the keys.
        if _is_of_obstore(self.fs):
            return _file_of_obstore, (self.fs.protocol, self.path, self.version)
        return RemoteFile, (self.fs, self.path, self.version)

    def change(self, name: str) -> str | None:
        """Describe how the file has changed, as far as the file system tells, or return None."""
        if not self.version:
            return None
        with _failures(name):
            if callable(forget := getattr(self.fs, "invalidate_cache", None)):
                forget()
            now = _version(self.fs.info(self.path))
        return None if now == self.version else "the store has another version of it"

    @contextlib.contextmanager
    def open(self, name: str) -> Generator[BinaryIO]:
        """Open the raw bytes, seekable if the file system supports it."""
        with _failures(name):
            file = self.fs.open(self.path, "rb")
        with file:
            yield file


def is_url(name: str) -> bool:
    """Check whether fsspec shall open this name.

    >>> [is_url(name) for name in ("s3://bucket/a.txt", "simplecache::s3://b/a", "a.txt", "C:\\\\a.txt")]
    [True, True, False, False]
    """
    return re.match(r"[a-zA-Z][\w+.-]+(::|://)", name) is not None


def remote_files(url: str) -> tuple[list[tuple[str, int | None, RemoteFile]], bool]:
    """Resolve a URL to files.

    Returns:
        The files as (name, size in bytes, file), sorted, and whether the URL is their folder.

    Raises:
        CorpusError: There is no such file, or the file system cannot be reached.
    """
    fsspec = library("fsspec", url)
    try:
        check_no_credentials(url)
    except StorageError as error:
        raise CorpusError(str(error), hint=error.hint) from error
    with _failures(url):
        fs, path = _file_system(fsspec, url)
        is_folder = False
        if glob.has_magic(path) and not fs.exists(path):
            found = sorted(each for each in fs.glob(path) if fs.isfile(each))
        elif is_folder := fs.isdir(path):
            found = sorted(fs.find(path))
        else:
            fs.info(path)
            found = [path]
        files = [(_url_of(fs, each, url), fs.info(each)) for each in found]
    if not files:
        raise CorpusError(
            f"no file matches {without_signature(url)}", hint="check the pattern; '**' descends into folders"
        )
    # obstore leaves the bucket out of the names that it tells.
    paths = found if _is_of_obstore(fs) else [info["name"] for _, info in files]
    return [
        (name, info.get("size"), RemoteFile(fs, path, _version(info)))
        for (name, info), path in zip(files, paths, strict=True)
    ], is_folder


def _file_system(fsspec: Any, url: str) -> tuple[Any, str]:
    """Return the file system for a URL, and the path in it."""
    try:
        return fsspec.core.url_to_fs(url)
    except ImportError:
        scheme, separator, path = url.partition("://")
        if not separator or scheme not in SCHEMES:
            raise
        with contextlib.suppress(ImportError):
            require_credentials(url)
            return _obstore_system(scheme), path
        raise


def _obstore_system(scheme: str) -> Any:
    store: Any = importlib.import_module("obstore.fsspec").FsspecStore
    options = profile_options() if scheme.startswith("s3") else {}
    return store(scheme, client_options={"allow_http": True}, **options)


def _file_of_obstore(scheme: str, path: str, version: str) -> RemoteFile:
    return RemoteFile(_obstore_system(scheme), path, version)


def _is_of_obstore(fs: Any) -> bool:
    return type(fs).__module__.startswith("obstore")


def _url_of(fs: Any, path: str, url: str) -> str:
    chain, separator, _ = url.rpartition("::")
    return without_signature(chain + separator + fs.unstrip_protocol(path))


def _version(info: dict[str, Any]) -> str:
    return " ".join(str(info[key]) for key in _TIMES if info.get(key) is not None)


@contextlib.contextmanager
def _failures(name: str) -> Generator[None]:
    """Convert what file systems raise to `CorpusError`."""
    name = without_signature(name)
    try:
        yield
    except CorpusError:
        raise
    except StorageError as error:
        raise CorpusError(str(error), hint=error.hint) from error
    except FileNotFoundError as error:
        raise CorpusError(f"no such file: {name}", hint="check the URL") from error
    except ImportError as error:
        raise CorpusError(f"{name}: {_missing_library(error)}", hint=_library_hint(name)) from error
    except ValueError as error:
        raise CorpusError(
            f"cannot open {name}: {without_secrets(str(error))}", hint="check the URL"
        ) from error
    except Exception as error:  # HTTP libraries and stores have error classes of their own
        if (missing := missing_credentials(name, error)) is not None:
            raise CorpusError(str(missing), hint=missing.hint) from None
        reason = str(error).strip().partition("\n")[0]
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
        reason = without_secrets(reason) or type(error).__name__
        raise CorpusError(f"cannot read {name}: {reason}", hint=_network_hint(name)) from error


def _network_hint(name: str) -> str:
    if "hf://" in name:
        return (
            "check the connection and HF_HUB_OFFLINE, set HF_ENDPOINT to a mirror, or pass a local copy "
            "(`hf download` on another machine)"
        )
    return "check permissions and network, or pass a local copy"


def _missing_library(error: ImportError) -> str:
    return f"{error.name} is not installed" if error.name else str(error)


def _library_hint(name: str) -> str:
    """Return the command that installs what fsspec needs for the protocol of a URL."""
    protocol = name.rpartition("::")[2].partition("://")[0]
    if protocol in ("http", "https"):
        return install_hint("data")
    names = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
    package = (names | {"hf": "huggingface_hub"}).get(protocol, f"fsspec[{protocol}]")
    return f"uv pip install '{package}'" if is_checkout() else f"pip install '{package}'"
