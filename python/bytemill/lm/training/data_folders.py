"""Locate the shard folders that a run trains and validates on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.shards.manifest import parts_of

if TYPE_CHECKING:
    from bytemill.lm.training.config import DataConfig


def data_folders(data: DataConfig) -> tuple[list[Path], list[Path]]:
    """Return the folders to train on and to validate on.

    A folder split by `bytemill data encode --validation-fraction` stands for its train part. Its validation part is
    the default for validation.
    """
    parts = [parts_of(Path(folder)) for folder in data.train]
    if data.validation:
        validation = [parts_of(Path(folder))[-1] for folder in data.validation]
    else:
        validation = [part[1] for part in parts if len(part) > 1]
    return [part[0] for part in parts], validation
