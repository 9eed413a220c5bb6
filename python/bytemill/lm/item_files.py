"""Read files of evaluation items, which may be compressed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.corpus import read_decompressed, resolve_inputs
from bytemill.errors import CorpusError
from bytemill.storage import url_of

if TYPE_CHECKING:
    import os


def read_text(path: str | os.PathLike[str], *, hint: str | None = None) -> str:
    """Return the text of a file, decompressed and without a byte-order mark.

    Args:
        path: The file.
        hint: How to get the file, if it is missing or empty.

    Raises:
        CorpusError: The file is missing, empty, damaged or not UTF-8.
    """
    if url_of(path) is None:
        try:
            n_bytes = Path(path).stat().st_size
        except OSError as error:
            raise CorpusError(f"cannot read {path}: {error.strerror or error}", hint=hint) from error
        if not n_bytes:
            raise CorpusError(f"{path} contains no items", hint=hint)
    data = b"".join(block for source in resolve_inputs([path]) for block in read_decompressed(source))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} is not UTF-8: {error}") from error
