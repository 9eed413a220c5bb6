"""Optional libraries, imported with the first input that needs one."""

from __future__ import annotations

import importlib
from typing import Any

from bytemill.errors import CorpusError
from bytemill.system.extras import install_hint


def zstandard(name: str) -> Any:
    """Import zstandard.

    Args:
        name: The input that needs the library, for the error message.

    Raises:
        CorpusError: The library is not installed.
    """
    return _library("zstandard", name, "zstd-compressed files need")


def pyarrow(name: str, module: str = "pyarrow") -> Any:
    """Import pyarrow, or a module of it; see `zstandard`."""
    return _library(module, name, "Parquet, Arrow, CSV and TSV files need")


def warcio(name: str) -> Any:
    """Import warcio.archiveiterator; see `zstandard`."""
    return _library("warcio.archiveiterator", name, "WARC files need")


def fsspec(name: str) -> Any:
    """Import fsspec; see `zstandard`."""
    return _library("fsspec", name, "URLs need")


def _library(module: str, name: str, need: str) -> Any:
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise CorpusError(
            f"{name}: {need} {package}, which is not installed", hint=install_hint("data")
        ) from error
