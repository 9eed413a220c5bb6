"""Libraries that only some inputs need, brought in with the first of these."""

from __future__ import annotations

import importlib
from typing import Any

from bytemill.errors import CorpusError


def zstandard(name: str) -> Any:
    """zstandard. Raises `CorpusError` naming the input that needs it where it is not installed."""
    return _library("zstandard", name, "zstd-compressed files need")


def pyarrow(name: str, module: str = "pyarrow") -> Any:
    """pyarrow, or a module of it; as `zstandard`."""
    return _library(module, name, "Parquet and Arrow files need")


def warcio(name: str) -> Any:
    """warcio.archiveiterator; as `zstandard`."""
    return _library("warcio.archiveiterator", name, "WARC files need")


def fsspec(name: str) -> Any:
    """fsspec; as `zstandard`."""
    return _library("fsspec", name, "URLs need")


def _library(module: str, name: str, need: str) -> Any:
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise CorpusError(
            f"{name}: {need} {package}, which is not installed", hint="pip install 'bytemill[data]'"
        ) from error
