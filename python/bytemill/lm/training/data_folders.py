"""Locate the shard folders that a run trains and validates on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import RunConfigError
from bytemill.shards.manifest import parts_of

if TYPE_CHECKING:
    from bytemill.lm.training.config import DataConfig

UNNAMED = "validation"
"""Name of the validation set without a name."""


def data_folders(data: DataConfig) -> tuple[list[Path], dict[str, list[Path]]]:
    """Return the folders to train on, and those of each validation set.

    A folder split by `bytemill data encode --validation-fraction` stands for its train part. Its validation part is
    the default for validation.

    Raises:
        RunConfigError: Two validation sets have the same name.
    """
    parts = [parts_of(Path(folder)) for folder in data.train]
    sets: dict[str, list[Path]] = {}
    for entry in data.validation:
        name, is_named, folder = entry.partition("=")
        if not is_named or Path(entry).exists():
            name, folder = UNNAMED, entry
        elif name in sets or name == UNNAMED or not name:
            raise RunConfigError(
                f"data.validation has two sets named {name!r}"
                if name in sets
                else f"{name!r} cannot name a set",
                hint="choose another name: --data.validation NAME=FOLDER",
            )
        sets.setdefault(name, []).append(parts_of(Path(folder))[-1])
    if not data.validation and (split := [part[1] for part in parts if len(part) > 1]):
        sets[UNNAMED] = split
    return [part[0] for part in parts], sets
