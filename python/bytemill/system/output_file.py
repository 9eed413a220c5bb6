"""Check that an output file can be written before the work that produces it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import OutputError
from bytemill.system.atomic_files import AtomicFile

if TYPE_CHECKING:
    import os


def check_output_file(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Check that a file can be created at `path`. Devices and named pipes always pass.

    Args:
        path: Output file.
        overwrite: Accept an existing file.

    Raises:
        OutputError: If the file cannot be written, exists already without `overwrite`, or is a URL.
    """
    target = Path(path)
    if target.exists() and not target.is_file() and not target.is_dir():
        return
    if target.is_file() and not overwrite:
        raise OutputError(
            f"{target} already exists",
            hint="choose another name, or replace it with --overwrite (overwrite=True)",
        )
    # Only creating the temporary file finds every possible obstacle.
    AtomicFile(target).discard()
