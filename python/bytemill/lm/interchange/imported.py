"""Models of other programs by path: an import in the cache folder stands for each.

models/NAME-KEY/    a model folder; the key is a hash of the source's path and of size, time and inode of its files
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from bytemill.formats.files import GGUF_MAGIC
from bytemill.lm.interchange.import_model import import_model, open_source
from bytemill.lm.training.run_checkpoint import MANIFEST
from bytemill.lm.training.saved_model import files_in, find_saved_model, is_model_folder
from bytemill.storage import url_of
from bytemill.system.atomic_files import make_folder, output_errors
from bytemill.system.file_stamp import FileStamp
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from bytemill.lm.interchange.import_model import Imported

_FORMAT = 1
"""Changes where older imports must not be used any more."""


def is_of_another_program(path: str | os.PathLike[str]) -> bool:
    """Return True for a folder of transformers and for a GGUF file; not for URLs."""
    if url_of(path) is not None:
        return False
    path = Path(path)
    if path.is_dir():
        own = (path / MANIFEST, path / "config.toml")
        is_own = is_model_folder(path) or any(file.exists() for file in own)
        return not is_own and (path / "config.json").is_file()
    try:
        with path.open("rb") as file:
            return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
    except OSError:
        return False


def usable_model(
    path: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> tuple[Path, Imported | None]:
    """Return a folder that `find_saved_model` reads.

    Args:
        path: A run, a checkpoint or a model folder, which is returned, or a model of another program, which is
            imported into the cache folder unless that has it already.
        progress: Called with the bytes of weights that are written, and their total.

    Returns:
        The folder, and the import if it was made now.

    Raises:
        CheckpointError: As `import_model`, like the other errors.
    """
    if not is_of_another_program(path):
        return Path(path), None
    source, absolute = Path(path), Path(path).resolve()
    name = absolute.name if absolute.is_dir() else absolute.stem
    folder = cache_folder("models") / f"{name}-{_key(absolute)}"
    make_folder(folder.parent)
    with output_errors(folder), FileLock(folder.with_name(f".{folder.name}.lock")):
        if is_model_folder(folder):
            return folder, None
        return folder, import_model(source, folder, overwrite=True, progress=progress)


def _key(source: Path) -> str:
    stamps = [(file.name, vars(FileStamp.of(file.stat()))) for file in sorted(files_in(source))]
    return hashlib.sha256(json.dumps([_FORMAT, str(source), stamps]).encode()).hexdigest()[:16]


def model_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the settings of a model by key, without reading its weights.

    Args:
        path: As for `usable_model`.

    Raises:
        CheckpointError: There is no model.
    """
    if is_of_another_program(path):
        with open_source(Path(path)) as source:
            config = source.config
    else:
        config = find_saved_model(path).config.model
    return {f"model.{name}": value for name, value in config.to_dict().items()}
