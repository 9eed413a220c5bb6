"""Names of folders and files in object stores."""

from __future__ import annotations

import os
import re

from bytemill.errors import StorageError

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
"""Stores that are read and written."""
READ_SCHEMES = (*SCHEMES, "http", "https")
"""Stores that are read."""

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
    if "@" in rest.partition("/")[0] and not scheme.startswith(("abfs", "az")):
        raise StorageError(
            f"the URL {without_secrets(url)} contains credentials",
            hint="leave them to the store's usual environment variables or files",
        )
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


def without_secrets(text: str) -> str:
    """Remove user names, passwords and query strings from the URLs in a message.

    >>> without_secrets("PUT https://me:pw@host/a?sv=2024&sig=abc failed")
    'PUT https://host/a failed'
    """
    text = re.sub(r"(\w+://)[^\s/@]*@", r"\1", text)
    return re.sub(r"(\w+://[^\s?\"']*)\?[^\s\"']*", r"\1", text)
