"""Fetching one file of known size and checksum: in pieces if need be, over broken connections, whole in the end."""

from __future__ import annotations

import errno
import hashlib
import http.client
import re
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from bytemill._core import __version__
from bytemill.datasets.partial import PartialFile, hold_partial
from bytemill.errors import BytemillError, DownloadError, OutputError
from bytemill.system.atomic_files import make_folder
from bytemill.system.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_TIMEOUT = 30.0
"""Seconds without a byte."""
_MAX_FAILURES = 5
"""Failures one after the other, without a byte in between, after which it is given up."""
_LONGEST_PAUSE = 60.0
_BLOCK_BYTES = 1 << 20
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_UNREACHABLE = frozenset(
    {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL}
)


@dataclass(frozen=True)
class DownloadProgress:
    """How far a download has come."""

    step: Literal["waiting", "fetching", "checking"]
    """Waiting for another process that fetches the same file; fetching; computing the checksum."""
    done: int
    total: int
    """Bytes."""


@dataclass(frozen=True)
class _Remote:
    """What is to be fetched."""

    url: str
    n_bytes: int
    sha256: str

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc


def download(
    url: str,
    target: Path,
    *,
    n_bytes: int,
    sha256: str,
    replace: bool = False,
    progress: Callable[[DownloadProgress], None] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Fetch `url` to `target`, which appears when it has the size and the checksum, and not before.

    What has come is kept beside it as `NAME.partial`, whatever ends this process, and the next call goes on from
    there if the server can and still has the same file. Broken connections and passing troubles of the server are
    tried again a few times, with pauses that grow. Of several processes one fetches, the others wait for it. With
    `replace` a file that stands there already is replaced.

    Raises `DownloadError` where the server cannot be reached, refuses, or has another file; `OutputError` where the
    file cannot be written.
    """
    show = progress or show_nothing
    remote = _Remote(url, n_bytes, sha256)
    make_folder(target.parent)
    with hold_partial(target, lambda: show(DownloadProgress("waiting", 0, n_bytes))) as partial:
        if target.exists() and not replace:  # another process has fetched it meanwhile
            partial.start_afresh()
            return
        if partial.n_bytes > n_bytes:
            partial.start_afresh()
        has_older_part = partial.n_bytes > 0
        while True:
            _check_space(partial, n_bytes)
            _Transfer(remote, partial, show, pause).run()
            found = file_sha256(partial.path, n_bytes, show)
            if found == sha256:
                partial.commit()
                return
            partial.start_afresh()
            if not has_older_part:
                raise DownloadError(
                    f"{url} is not the file that was published: its sha256 is {found}, not {sha256}",
                    hint="try again, or another mirror; nothing of it is kept",
                )
            has_older_part = False  # what an earlier run left may have been damaged: once more, all of it


def show_nothing(progress: DownloadProgress) -> None:
    """For those who want to see no progress."""


def file_sha256(path: Path, n_bytes: int, show: Callable[[DownloadProgress], None]) -> str:
    """The sha256 of a file, in hexadecimal."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            done += len(block)
            show(DownloadProgress("checking", done, n_bytes))
    return digest.hexdigest()


def check_space(folder: Path, n_bytes: int) -> None:
    """Raises `OutputError` where so many bytes do not fit into a folder."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:  # a system that does not tell
        return
    if free < n_bytes:
        error = OutputError(
            f"{format_bytes(n_bytes)} are needed in {folder}, and {format_bytes(free)} are free",
            hint="free some space, or choose a folder on another disk (--output, or BYTEMILL_CACHE)",
        )
        error.errno = errno.ENOSPC
        raise error


def _check_space(partial: PartialFile, n_bytes: int) -> None:
    check_space(partial.target.parent, n_bytes - partial.n_bytes)


class _Transfer:
    """Fills a partial file, with as many requests as it takes."""

    def __init__(
        self,
        remote: _Remote,
        partial: PartialFile,
        show: Callable[[DownloadProgress], None],
        pause: Callable[[float], None],
    ) -> None:
        self._remote, self._partial, self._show, self._pause = remote, partial, show, pause
        self._has_answered = False

    def run(self) -> None:
        """Returns when all bytes are there. Raises `DownloadError`, and `OutputError` of writing."""
        n_failures = 0
        while self._partial.n_bytes < self._remote.n_bytes:
            before = self._partial.n_bytes
            try:
                self._receive()
                continue
            except BytemillError:
                raise
            except (OSError, http.client.HTTPException) as error:
                n_failures = 1 if self._partial.n_bytes > before else n_failures + 1
                wait = self._seconds_to_wait(error, n_failures)
            self._pause(wait)

    def _receive(self) -> None:
        """One request, and what comes of it."""
        partial = self._partial
        with self._request() as response:
            self._has_answered = True
            validator = _validator(response)
            if response.status == http.client.PARTIAL_CONTENT:
                if not self._goes_on(response, validator):
                    partial.start_afresh()
                    return
            elif response.status == http.client.OK:
                # The server knows no ranges, or has another file by now: this is all of it.
                length = response.headers.get("Content-Length")
                self._check_size(int(length) if length and length.isdecimal() else None)
                partial.start_afresh()
                partial.remember(validator)
            else:
                raise DownloadError(f"{self._remote.url}: unexpected status {response.status}")
            while block := response.read1(_BLOCK_BYTES):
                self._check_more(len(block))
                partial.append(block)
                self._show(DownloadProgress("fetching", partial.n_bytes, self._remote.n_bytes))
        if partial.n_bytes < self._remote.n_bytes:
            raise ConnectionError("the connection ended early")

    def _request(self) -> Any:
        # Without a compression of its own: the bytes are counted and hashed as they are published.
        headers = {"User-Agent": f"bytemill/{__version__}", "Accept-Encoding": "identity"}
        if self._partial.n_bytes:
            headers["Range"] = f"bytes={self._partial.n_bytes}-"
            validator = self._partial.validator()
            if validator is not None:
                headers["If-Range"] = validator
        request = urllib.request.Request(self._remote.url, headers=headers)  # noqa: S310 (http and https alone)
        return urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310 (as above)

    def _goes_on(self, response: Any, validator: str | None) -> bool:
        """Whether an answer in part is the one that was asked for, and of the same file."""
        known = self._partial.validator()
        if known is not None and validator is not None and known != validator:
            return False
        content_range = re.fullmatch(
            r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip()
        )
        if content_range is None or int(content_range[1]) != self._partial.n_bytes:
            return False
        if content_range[2] != "*":
            self._check_size(int(content_range[2]))
        return True

    def _check_size(self, n_bytes: int | None) -> None:
        if n_bytes is not None and n_bytes != self._remote.n_bytes:
            raise DownloadError(
                f"{self._remote.url} is not the file that was published: it has {n_bytes:,} bytes, not "
                f"{self._remote.n_bytes:,}"
            )

    def _check_more(self, n_bytes: int) -> None:
        """A server that does not say how much it sends may send too much."""
        total = self._partial.n_bytes + n_bytes
        if total > self._remote.n_bytes:
            self._partial.start_afresh()
            self._check_size(total)

    def _seconds_to_wait(self, error: OSError | http.client.HTTPException, n_failures: int) -> float:
        """How long to wait before the next request. Raises `DownloadError` where there is to be none."""
        pause = min(_LONGEST_PAUSE, 2.0 ** (n_failures - 1))
        if isinstance(error, urllib.error.HTTPError):
            status, headers = error.code, error.headers
            error.close()
            if status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and self._partial.n_bytes:
                self._partial.start_afresh()
            elif status not in _TRANSIENT:
                raise self._refused(status) from error
            asked = headers.get("Retry-After", "")
            pause = max(pause, min(_LONGEST_PAUSE, float(asked))) if asked.isdecimal() else pause
        reason: object = error
        if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
            reason = error.reason
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise DownloadError(
                f"{self._remote.host} cannot be trusted: {reason.verify_message}",
                hint="the certificates of this machine may be missing or old (SSL_CERT_FILE names others)",
            ) from error
        if n_failures >= _MAX_FAILURES or (not self._has_answered and _is_offline(reason)):
            raise self._unreachable(reason) from error
        return pause

    def _refused(self, status: int) -> DownloadError:
        reason = http.client.responses.get(status, "unknown status")
        return DownloadError(f"{self._remote.url}: the server says {status} ({reason})")

    def _unreachable(self, reason: object) -> DownloadError:
        kept = self._partial.n_bytes
        what = f"; {format_bytes(kept)} are here, and the same command goes on from there" if kept else ""
        words = _words(reason, has_answered=self._has_answered)
        return DownloadError(f"{self._remote.host} {words}{what}")


def _validator(response: Any) -> str | None:
    """What tells versions of a file apart: its ETag, unless that is a weak one, else the time of its last change."""
    tag = response.headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return tag
    return response.headers.get("Last-Modified")


def _is_offline(reason: object) -> bool:
    """Whether there is nobody to talk to, so that to try again is of no use."""
    return isinstance(reason, socket.gaierror) or (
        isinstance(reason, OSError) and reason.errno in _UNREACHABLE
    )


def _words(reason: object, *, has_answered: bool) -> str:
    if isinstance(reason, urllib.error.HTTPError):
        return (
            f"says {reason.code} ({http.client.responses.get(reason.code, 'unknown status')}) time and again"
        )
    words = (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or type(reason).__name__
    return f"does not go on: {words}" if has_answered else f"cannot be reached: {words}"
