"""Uploads in parts that did not end, in stores with the protocol of S3.

A process that is killed leaves the parts that it has uploaded. They cost storage, are not listed among the objects, and
obstore has no request for them. The requests here are signed by version 4 of Amazon's signatures
(https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html), which needs keys: those of the
environment or of a profile, and with the package boto3 those of a role.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import html
import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bytemill.storage.aws_profile import Keys, access_keys, region

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_TIMEOUT_SECONDS = 30
_ATTEMPTS = 3


@dataclass(frozen=True)
class UnfinishedUpload:
    """An upload that has begun and not ended."""

    name: str
    """Name of the object, relative to the folder."""
    id: str
    started: str
    """When, as the store says it (ISO 8601, UTC)."""


@dataclass(frozen=True)
class S3Requests:
    """Signed requests to a bucket."""

    bucket: str
    keys: Keys

    def send(self, method: str, key: str, query: dict[str, str]) -> str:
        """Send a request without a body and return the body of the answer.

        Raises:
            OSError: The store refuses the request, or cannot be reached.
        """
        host = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
        base = urllib.parse.urlsplit(host or f"https://s3.{region()}.amazonaws.com")
        path = urllib.parse.quote(f"{base.path.rstrip('/')}/{self.bucket}/{key}")
        url = urllib.parse.urlunsplit((base.scheme, base.netloc, path, _canonical_query(query), ""))
        for attempt in range(_ATTEMPTS):
            headers = _signed_headers(method, base.netloc, path, query, self.keys)
            request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - http or https
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
                    return answer.read().decode()
            except http.client.HTTPException as error:
                failure: OSError = OSError(str(error))
            except OSError as error:
                if isinstance(error, urllib.error.HTTPError):
                    with error:
                        error.read()
                    if error.code < 500:
                        raise
                failure = error
            if attempt == _ATTEMPTS - 1:
                raise failure
        raise AssertionError


def unfinished_uploads(url: str) -> list[UnfinishedUpload]:
    """Return the uploads in parts that have begun and not ended in a folder, at any depth.

    Args:
        url: URL of the folder.

    Returns:
        The uploads; none where they cannot be listed: in other stores, without keys, or without the permission.
    """
    requests = _requests(url)
    if requests is None:
        return []
    prefix, found = _prefix(url), list[UnfinishedUpload]()
    with contextlib.suppress(OSError):
        for key, upload_id, started in _listed(requests, prefix):
            found.append(UnfinishedUpload(key.removeprefix(prefix), upload_id, started))
    return found


def abort_uploads(url: str, uploads: Iterable[UnfinishedUpload]) -> None:
    """Remove the parts of uploads in a folder. Those that have ended, and those that must not be removed, are left."""
    requests = _requests(url)
    if requests is None:
        return
    for upload in uploads:
        with contextlib.suppress(OSError):
            requests.send("DELETE", _prefix(url) + upload.name, {"uploadId": upload.id})


def _requests(url: str) -> S3Requests | None:
    scheme, _, rest = url.partition("://")
    keys = access_keys() if scheme in ("s3", "s3a") else None
    return S3Requests(rest.partition("/")[0], keys) if keys else None


def _prefix(url: str) -> str:
    folder = url.partition("://")[2].partition("/")[2]
    return f"{folder}/" if folder else ""


def _listed(requests: S3Requests, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Yield key, id and start of every upload."""
    query = {"uploads": "", "prefix": prefix, "encoding-type": "url"}
    while True:
        answer = requests.send("GET", "", query)
        decoded = urllib.parse.unquote if _element(answer, "EncodingType") == "url" else str
        for upload in re.findall(r"<Upload>(.*?)</Upload>", answer, re.DOTALL):
            key, upload_id, started = (_element(upload, name) for name in ("Key", "UploadId", "Initiated"))
            yield decoded(key), upload_id, started
        if _element(answer, "IsTruncated") != "true":
            return
        query["key-marker"] = decoded(_element(answer, "NextKeyMarker"))
        query["upload-id-marker"] = _element(answer, "NextUploadIdMarker")


def _element(xml: str, name: str) -> str:
    found = re.search(f"<{name}>([^<]*)</{name}>", xml)
    return html.unescape(found[1]) if found else ""


def _canonical_query(query: dict[str, str]) -> str:
    return "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(query.items()))


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="-_.~")


def _signed_headers(method: str, host: str, path: str, query: dict[str, str], keys: Keys) -> dict[str, str]:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    body = hashlib.sha256(b"").hexdigest()
    headers = {"host": host, "x-amz-content-sha256": body, "x-amz-date": now}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = "\n".join((method, path, _canonical_query(query), lines, names, body))
    scope = f"{now[:8]}/{region()}/s3/aws4_request"
    to_sign = "\n".join(("AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    credential = f"Credential={keys.id}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": f"AWS4-HMAC-SHA256 {credential}"}
