"""A folder in an object store, by the package obstore, and several requests at a time."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import queue
import re
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from bytemill.errors import MissingExtraError, StorageError
from bytemill.storage.credentials import missing_credentials, profile_options, require_credentials
from bytemill.storage.location import SCHEMES, without_secrets
from bytemill.system.atomic_files import AtomicFile
from bytemill.system.extras import install_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from obstore import ObjectMeta, UpdateVersion

_T = TypeVar("_T")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_PART_BYTES = 8 << 20
"""Parts of an upload, unless the file is so large that it would have too many."""
_MAX_PARTS = 9_000
"""S3 refuses more than 10,000."""
_REQUESTS_AT_ONCE = 4
_READ_BYTES = 8 << 20
_DELETED_AT_ONCE = 1000
"""S3 refuses more."""
_POLL_SECONDS = 0.1


Version: TypeAlias = "tuple[str | None, str | None]"
"""ETag and version of an object: S3 and Azure compare the one, Google Cloud Storage the other."""


@dataclass(frozen=True)
class StoredObject:
    """A small object and its version."""

    data: bytes
    version: Version
    """Changes when the object does."""
    modified: datetime


class StoreFolder:
    """A folder in an object store. Names are relative to it, with slashes.

    Requests are repeated after time-outs and errors of the server, with growing pauses, for up to three minutes. Access
    is granted by the store's usual environment variables, files and services. Ctrl-C ends a request at once. A
    `StoreFolder` can be pickled; what unpickles it brings its own access.

    Args:
        url: URL without a slash at its end (`url_of`).

    Raises:
        StorageError: The URL or the environment does not describe a store. Raised by every method too.
        MissingExtraError: The package obstore is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._store = _connect(url)

    def __reduce__(self) -> tuple[type[StoreFolder], tuple[str]]:
        return StoreFolder, (self.url,)

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> StoreFolder:
        """Return a folder in this one."""
        return StoreFolder(f"{self.url}/{name}")

    @property
    def is_writable(self) -> bool:
        """Whether the store can be written and its objects listed, other than a web server."""
        return self.url.partition("://")[0] in SCHEMES

    def require_writable(self) -> None:
        """Raise StorageError for a web server, which can only be read."""
        if not self.is_writable:
            raise StorageError(
                f"{self.url} cannot be written: it is on a web server", hint="write to s3://, gs:// or az://"
            )

    def upload(self, name: str, path: Path) -> None:
        """Write a file of this machine to an object, in parts if it is large. It appears when it is complete."""
        import obstore

        n_bytes = path.stat().st_size
        part = _part_bytes(n_bytes)
        with path.open("rb") as file:

            def put() -> object:
                file.seek(0)  # this may be the second time
                return obstore.put(
                    self._store,
                    name,
                    file,
                    use_multipart=n_bytes > part,
                    chunk_size=part,
                    max_concurrency=_REQUESTS_AT_ONCE,
                )

            # Who publishes a manifest may remove the upload, or the object; then its readers miss it.
            with contextlib.suppress(FileNotFoundError):
                self._request(name, put)
        if (found := self.size(name)) not in (None, n_bytes):
            raise StorageError(
                f"{self.url}/{name} has {found} bytes after {n_bytes:,} were written", hint="try again"
            )

    def put(self, name: str, data: bytes) -> None:
        """Write an object, in place of the one of this name."""
        import obstore

        self._request(name, lambda: obstore.put(self._store, name, data, use_multipart=False))

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one of this name; of several writers at once the first wins.

        Returns:
            Whether this call wrote it, or one with the same data was there.
        """
        import obstore

        try:
            self._request(
                name, lambda: obstore.put(self._store, name, data, mode="create", use_multipart=False)
            )
        except FileExistsError:
            # After a lost answer, the repeated request meets its own object.
            found = self.get(name)
            return found is not None and found.data == data
        return True

    def replace(self, name: str, data: bytes, version: Version | None) -> bool:
        """Write an object in place of one version of it, or of none.

        Returns:
            Whether this call wrote it. If not, another writer has replaced that version.
        """
        import obstore

        if version is None:
            return self.create(name, data)
        mode: UpdateVersion = {}
        if version[0] is not None:
            mode["e_tag"] = version[0]
        if version[1] is not None:
            mode["version"] = version[1]
        try:
            self._request(name, lambda: obstore.put(self._store, name, data, mode=mode, use_multipart=False))
        except FileExistsError:
            found = self.get(name)
            return found is not None and found.data == data
        return True

    def get(self, name: str) -> StoredObject | None:
        """Read a small object, or return None if there is none."""
        import obstore

        def read() -> StoredObject:
            result = obstore.get(self._store, name)
            meta = result.meta
            version = (meta.get("e_tag"), meta.get("version"))
            return StoredObject(bytes(result.bytes()), version, meta["last_modified"])

        try:
            return self._request(name, read)
        except FileNotFoundError:
            return None

    def read(self, name: str, start: int, n_bytes: int) -> bytes:
        """Read a range of an object."""
        import obstore

        if n_bytes == 0:
            return b""
        with self._present(name):
            data = bytes(
                self._request(name, lambda: obstore.get_range(self._store, name, start=start, length=n_bytes))
            )
        if len(data) != n_bytes:
            raise StorageError(
                f"{self.url}/{name} ends at byte {start + len(data):,}, before {start + n_bytes:,}"
            )
        return data

    def download(self, name: str, path: Path, sha256: str | None = None) -> None:
        """Read an object to a file of this machine, which appears when it is complete.

        Args:
            name: Name of the object.
            path: The file.
            sha256: What the content must have.

        Raises:
            OutputError: The file cannot be written.
            StorageError: There is no such object, or its content is another one.
        """
        digest = hashlib.sha256()
        with AtomicFile(path) as file:
            for data in self.blocks(name):
                digest.update(data)
                file.write(data)
            if sha256 is not None and digest.hexdigest() != sha256:
                raise StorageError(
                    f"{self.url}/{name} has sha256 {digest.hexdigest()}, not {sha256}",
                    hint="the object is damaged: restore it, or write it again",
                )

    def sha256(self, name: str) -> str:
        """Read an object and return its sha256, in hexadecimal."""
        digest = hashlib.sha256()
        for data in self.blocks(name):
            digest.update(data)
        return digest.hexdigest()

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield an object in blocks of a few megabytes; the next ones are read at the same time."""
        with self._present(name):
            n_bytes = self.size(name)
            if n_bytes is None:
                raise FileNotFoundError
        blocks = [
            (name, start, min(_READ_BYTES, n_bytes - start)) for start in range(0, n_bytes, _READ_BYTES)
        ]
        with RequestPool(self._read_block, _REQUESTS_AT_ONCE) as pool:
            yield from pool.in_order(blocks, _REQUESTS_AT_ONCE)

    def _read_block(self, block: tuple[str, int, int]) -> bytes:
        return self.read(*block)

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes, or None if there is none."""
        meta = self._meta(name)
        return None if meta is None else int(meta["size"])

    def version(self, name: str) -> str | None:
        """Return what changes when an object does, or None if there is none."""
        meta = self._meta(name)
        return None if meta is None else f"{meta['e_tag']} {meta['size']} {meta['last_modified']}"

    def _meta(self, name: str) -> ObjectMeta | None:
        import obstore

        try:
            return self._request(name, lambda: obstore.head(self._store, name))
        except FileNotFoundError:
            return None

    def list(self, folder: str | None = None) -> dict[str, int]:
        """Return the names and sizes of all objects in this folder or in one within it, at any depth."""
        return {name: int(meta["size"]) for name, meta in self._list(folder).items()}

    def times(self) -> dict[str, datetime]:
        """Return when each object in this folder was written, at any depth, by name."""
        return {name: meta["last_modified"] for name, meta in self._list(None).items()}

    def _list(self, folder: str | None) -> dict[str, ObjectMeta]:
        import obstore

        def read() -> dict[str, ObjectMeta]:
            groups: Any = obstore.list(self._store, folder, chunk_size=1000)  # pyright: ignore[reportUnknownMemberType]
            return {str(each["path"]): each for group in groups for each in group}

        try:
            return self._request(folder or "", read)
        except FileNotFoundError:
            return {}

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are not there are no error."""
        import obstore

        for batch in _batched(names, _DELETED_AT_ONCE):
            try:
                self._request(batch[0], functools.partial(obstore.delete, self._store, batch))
            except FileNotFoundError:  # some servers tell that one is not there
                for name in batch:
                    with contextlib.suppress(FileNotFoundError):
                        self._request(name, functools.partial(obstore.delete, self._store, name))

    @contextlib.contextmanager
    def _present(self, name: str) -> Generator[None]:
        try:
            yield
        except FileNotFoundError:
            raise StorageError(f"there is no {self.url}/{name}", hint="check the URL") from None

    def _request(self, name: str, request: Callable[[], _T], n_more: int = 5) -> _T:
        """Make a request.

        Raises:
            FileExistsError: A condition of a write does not hold.
            FileNotFoundError: There is no such object.
            StorageError: Anything else.
        """
        from obstore import exceptions

        # Neither the error nor its cause is shown: they contain the request.
        try:
            return _interruptible(request)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise FileExistsError from None
        except FileNotFoundError as error:
            if not _names_no_bucket(error):
                raise FileNotFoundError from None
            failure = self._no_bucket()
        except (exceptions.UnauthenticatedError, exceptions.PermissionDeniedError) as error:
            failure = self._failure(name, error, "check that the credentials are valid and allow it")
        except (exceptions.BaseError, OSError) as error:
            # obstore does not repeat a request whose answer breaks off.
            if n_more and "body error" in str(error):
                return self._request(name, request, n_more - 1)
            if "(code: NoSuchKey)" in str(error):
                raise FileNotFoundError from None
            failure = (
                self._no_bucket()
                if _names_no_bucket(error)
                else self._failure(
                    name, error, "check the connection, the credentials and the region, and try again"
                )
            )
        raise failure from None

    def _no_bucket(self) -> StorageError:
        return StorageError(f"there is no bucket for {self.url}", hint="check the URL, or make the bucket")

    def _failure(self, name: str, error: Exception, hint: str) -> StorageError:
        return missing_credentials(self.url, error) or StorageError(
            f"cannot access {self.url}/{name}: {_reason(error)}", hint=hint
        )


def _batched(names: Iterable[str], n: int) -> Iterator[list[str]]:
    rest = iter(names)
    while batch := list(itertools.islice(rest, n)):
        yield batch


def _part_bytes(n_bytes: int) -> int:
    """Return the size of the parts of an upload.

    >>> _part_bytes(100), _part_bytes(1 << 40), -(-(1 << 40) // _part_bytes(1 << 40))
    (8388608, 122167959, 9000)
    """
    return max(_PART_BYTES, -(-n_bytes // _MAX_PARTS))


def _names_no_bucket(error: Exception) -> bool:
    return any(code in str(error) for code in ("NoSuchBucket", "ContainerNotFound"))


def _reason(error: Exception) -> str:
    text = str(error).partition("\n\nDebug source")[0]
    if code := re.search(r"<Code>([^<]*)</Code>", text):
        message = re.search(r"<Message>([^<]*)</Message>", text)
        return without_secrets(" ".join([code[1] + ":", *message[1].split()]) if message else code[1])
    if status := re.search(r"status code: (\d+ [\w ]+)", text):
        return f"the server answers {status[1]}"
    return without_secrets(" ".join(text.rpartition(" - ")[2].split()))[:500]


@functools.lru_cache(maxsize=64)
def _connect(url: str) -> Any:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        raise MissingExtraError(
            f"{url} needs the package obstore, which is not installed", hint=install_hint("data")
        ) from error
    require_credentials(url)
    options = profile_options() if url.startswith(("s3://", "s3a://")) else {}
    try:
        # Plain HTTP only where the environment names such an address.
        return from_url(url, client_options={"allow_http": True}, **options)
    except (BaseError, ValueError, OSError) as error:
        failure = missing_credentials(url, error) or StorageError(
            f"cannot open {url}: {_reason(error)}", hint="check the URL"
        )
    raise failure


def _interruptible(request: Callable[[], _T]) -> _T:
    """Call a function that does not see signals so that Ctrl-C ends the wait for it."""
    if threading.current_thread() is not threading.main_thread():
        return request()
    result: list[_T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            result.append(request())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, name="request to a store", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL_SECONDS)
    if errors:
        raise errors[0]
    return result[0]


class RequestPool(Generic[_Item, _Result]):
    """Threads that call a function. Unlike those of `ThreadPoolExecutor` they never keep a program from ending.

    Args:
        function: The function.
        n_threads: Number of threads.
    """

    def __init__(self, function: Callable[[_Item], _Result], n_threads: int) -> None:
        self._function = function
        self._n_threads = n_threads
        self._items: queue.SimpleQueue[tuple[_Item, Future[_Result]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, item: _Item) -> Future[_Result]:
        """Call the function with an item, when a thread is free."""
        if len(self._threads) < self._n_threads:
            thread = threading.Thread(target=self._work, name="requests to a store", daemon=True)
            self._threads.append(thread)
            thread.start()
        future: Future[_Result] = Future()
        self._items.put((item, future))
        return future

    def in_order(self, items: Iterable[_Item], n_ahead: int) -> Iterator[_Result]:
        """Yield the results for items in their order, with at most `n_ahead` calls waiting or running."""
        waiting: deque[Future[Any]] = deque()
        for item in items:
            waiting.append(self.submit(item))
            if len(waiting) > n_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def close(self) -> None:
        """Start no more calls; those that run go on in the background."""
        while True:
            try:
                entry = self._items.get_nowait()
            except queue.Empty:
                break
            if entry is not None:
                entry[1].cancel()
        for _ in self._threads:
            self._items.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _work(self) -> None:
        while (entry := self._items.get()) is not None:
            item, future = entry
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._function(item))
            except BaseException as error:
                future.set_exception(error)
