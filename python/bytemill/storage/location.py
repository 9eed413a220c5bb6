"""Names of folders and files in object stores."""

from __future__ import annotations

import os
import re

from bytemill.errors import StorageError

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
"""Stores that are read and written."""
READ_SCHEMES = (*SCHEMES, "http", "https")
"""Stores that are read."""

_SIGNATURE = re.compile(r"(?i)(x-amz-|x-goog-)?(signature|sig|credential|security-token|token|access_token)=")
# `Path` turns `s3://` into `s3:/`, on Windows into `s3:\`.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):[/\\]+")


def url_of(path: str | os.PathLike[str]) -> str | None:
    """Return a path as the URL of a store, without a slash at its end; None if it is a path of this machine.

    Raises:
        StorageError: The scheme is unknown, or the URL contains credentials.

    >>> url_of("s3://bucket/shards/"), url_of("shards"), url_of("C:/shards")
    ('s3://bucket/shards', None, None)
    """
    text = os.fspath(path)
    match = _URL.match(text)
    if match is None:
        return None
    scheme, rest = match[1].lower(), text[match.end() :]
    if not text.startswith("//", match.end(1) + 1):
        rest = rest.replace("\\", "/")
    rest = rest.rstrip("/")
    url = f"{scheme}://{rest}"
    if scheme not in READ_SCHEMES:
        raise StorageError(
            f"{scheme}:// names no store that is known here",
            hint=f"use one of {', '.join(f'{name}://' for name in READ_SCHEMES)}, or a local path",
        )
    check_no_credentials(url)
    if not rest:
        raise StorageError(f"{url} names no bucket", hint=f"write {scheme}://BUCKET/FOLDER")
    return url


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path or URL as people write it."""
    return url_of(path) or os.fspath(path)


def is_url(path: str | os.PathLike[str]) -> bool:
    """Check whether a path is the URL of a store; raises as `url_of`."""
    return url_of(path) is not None


def split_url(url: str) -> tuple[str, str]:
    """Return the URL of the folder of a file, and the name of the file in it.

    Raises:
        StorageError: The URL names a bucket alone.

    >>> split_url("s3://bucket/tokenizers/own.json")
    ('s3://bucket/tokenizers', 'own.json')
    """
    folder, _, name = url.rpartition("/")
    if folder.count("/") < 2 or folder.endswith("/"):
        raise StorageError(f"{url} names no file", hint=f"write {url}/NAME")
    return folder, name


def check_no_credentials(url: str) -> None:
    """Raise StorageError if a URL contains a user name or password."""
    scheme, _, rest = url.rpartition("::")[2].partition("://")
    # Elsewhere the part before an @ is a branch, a container or the name of an account.
    if "@" in rest.partition("/")[0] and scheme.lower() in ("s3", "s3a", "gs", "gcs", "http", "https"):
        raise StorageError(
            f"the URL {without_secrets(url)} contains credentials",
            hint="leave them to the store's usual environment variables or files",
        )


def without_signature(url: str) -> str:
    """Remove what signs a request from the query of a URL.

    >>> without_signature("https://host/a.jsonl?X-Amz-Date=1&X-Amz-Signature=0a")
    'https://host/a.jsonl'
    >>> without_signature("https://host/a?id=3")
    'https://host/a?id=3'
    """
    base, _, query = url.partition("?")
    is_signed = any(_SIGNATURE.match(each) for each in query.split("&"))
    return base if is_signed else url


def without_secrets(text: str) -> str:
    """Remove user names, passwords and query strings from the URLs in a message.

    >>> without_secrets("PUT https://me:pw@host/a?sv=2024&sig=abc failed")
    'PUT https://host/a failed'
    """
    text = re.sub(r"(\w+://)[^\s/@]*@", r"\1", text)
    return re.sub(r"(\w+://[^\s?\"']*)\?[^\s\"']*", r"\1", text)
