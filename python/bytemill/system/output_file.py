"""Whether a result can be written: asked before the work that makes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import OutputError
from bytemill.system.atomic_files import AtomicFile

if TYPE_CHECKING:
    import os


def check_output_file(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Raises `OutputError` where `path` cannot be written, or is there already and `overwrite` is not set.

    Devices and named pipes are taken as they are.
    """
    target = Path(path)
    if target.exists() and not target.is_file() and not target.is_dir():
        return
    if target.is_file() and not overwrite:
        raise OutputError(
            f"{target} is there already",
            hint="give another name, or --overwrite (overwrite=True) to replace it",
        )
    # To begin the file under its temporary name is the one test that finds everything that can be in the way.
    AtomicFile(target).discard()
