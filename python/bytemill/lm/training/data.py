"""The data of a run: shard folders, batches, validation sets, and how documents are divided."""

from __future__ import annotations

import glob
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.data.layouts import layout_named
from bytemill.data.manifest import MANIFEST_NAME, UNFINISHED_NAME, is_shard_name, parts_of
from bytemill.errors import RunConfigError, ShardError
from bytemill.lm.batches import JoinedShards, ShardBatches
from bytemill.lm.packing import DocumentMask, PackedBatches
from bytemill.storage import exists, is_url, url_of

if TYPE_CHECKING:
    from bytemill.lm.processes import Processes
    from bytemill.lm.training.config import DataConfig, TrainConfig
    from bytemill.tokenizer.tokenizer import Tokenizer

_ID_FILES = (".bin", ".idx", ".npy")
"""Ends of the names of files with ids that other programs have written."""
UNNAMED = "validation"
"""Name of the validation set without a name."""


def data_folders(data: DataConfig) -> tuple[list[Path], dict[str, list[Path]]]:
    """Return the folders to train on, and those of each validation set.

    A folder split by `bytemill data encode --validation-fraction` stands for its train part. Its validation part is
    the default for validation.

    Raises:
        RunConfigError: Two validation sets have the same name, or a text is not encoded.
    """
    if texts := [name for name in data.train if _is_text(name)]:
        folder = "shards" if not Path("shards").exists() else f"{Path(texts[0]).stem}_shards"
        arguments = shlex.join([data.tokenizer, *texts, "-o", folder])
        raise RunConfigError(
            f"{texts[0]} is not a folder of shards",
            hint=f"encode it first: bytemill data encode {arguments}; then train with --data.train "
            f"{shlex.quote(folder)}",
        )
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


def _is_text(name: str) -> bool:
    """Return whether a name is that of a file or glob, or of a folder with files none of which is of shards."""
    path = Path(name)
    if url_of(name) is not None:
        return False
    if not path.is_dir():
        found = glob.iglob(name, recursive=True) if glob.has_magic(name) else iter(())  # noqa: PTH207 (may be absolute)
        return path.is_file() or next(found, None) is not None
    if (path / UNFINISHED_NAME).exists() or any(exists(part / MANIFEST_NAME) for part in parts_of(path)):
        return False
    files = [file.name for file in path.iterdir() if file.is_file()]
    return bool(files) and not any(is_shard_name(file) or file.endswith(_ID_FILES) for file in files)


def require_data(config: TrainConfig) -> None:
    """Check that the data of a run that is resumed is where the settings say.

    Raises:
        ShardError: A folder is missing; the hint is the command that names its new path.
    """
    settings = {"--data.train": config.data.train, "--data.validation": config.data.validation}
    for option, entries in settings.items():
        missing = [entry for entry in entries if not (_is_there(entry) or _is_there(entry.partition("=")[2]))]
        if missing:
            run = shlex.quote(config.run.folder)
            paths = " ".join(
                _with_new_path(entry) if entry in missing else shlex.quote(entry) for entry in entries
            )
            raise ShardError(
                f"there is no folder {missing[0]}, which the run was trained on",
                hint=f"name its new path: bytemill lm train {run} {option} {paths}",
            )


def _is_there(folder: str) -> bool:
    return bool(folder) and (is_url(folder) or Path(folder).exists())


def _with_new_path(entry: str) -> str:
    name, equals, _ = entry.partition("=")
    return f"{shlex.quote(name)}=NEW_PATH" if equals else "NEW_PATH"


def validation_set(
    folders: list[Path], train_folders: list[Path], tokenizer: Tokenizer, config: TrainConfig
) -> JoinedShards:
    """Open a validation set; raise RunConfigError if it is smaller than a window."""
    shards, length = JoinedShards(folders, tokenizer.fingerprint), config.model.context_length
    if len(shards) <= length:
        names = " ".join(shlex.quote(str(path)) for path in train_folders)
        raise RunConfigError(
            f"the validation shards in {', '.join(map(str, folders))} hold {len(shards):,} tokens, too few for a "
            f"window of {length:,} and its targets",
            hint=f"validate on more text, or train without validation: --data.train {names}"
            + (" and no --data.validation" if config.data.validation else ""),
        )
    return shards


def open_batches(
    folders: list[Path], config: TrainConfig, tokenizer: Tokenizer, processes: Processes
) -> ShardBatches:
    """Return the batches that `data.packing` asks for."""
    options: dict[str, Any] = {
        "seed": config.training.seed,
        "fingerprint": tokenizer.fingerprint,
        "rank": processes.rank,
        "n_processes": processes.count,
    }
    length = config.model.context_length
    if config.data.packing == "stream":
        return ShardBatches(folders, length, sequential=config.data.order == "sequential", **options)
    documents = document_mask(config, JoinedShards(folders, tokenizer.fingerprint), tokenizer, "data.packing")
    return PackedBatches(folders, length, documents, **options)


def bos_id_of(tokens: JoinedShards, tokenizer: Tokenizer) -> int | None:
    """Return the id of the special token at the start of every document; None if folders differ or have none."""
    found = {part.manifest.settings.prepended for part in tokens.parts}
    return tokenizer.special_tokens.get(found.pop() or "") if len(found) == 1 else None


def separator_of(tokens: JoinedShards) -> int | None:
    """Return the id of the token between documents, from the first folder that has one."""
    separators = (part.manifest.separator_id for part in tokens.parts)
    return next((separator for separator in separators if separator is not None), None)


def document_mask(
    config: TrainConfig, tokens: JoinedShards | None, tokenizer: Tokenizer, setting: str
) -> DocumentMask:
    """Return how the separator of the shards, or else <|endoftext|>, divides documents, as `setting` needs it."""
    manifest = None if tokens is None else tokens.parts[0].manifest
    separator = None if manifest is None else manifest.separator_id
    if separator is None:
        separator = tokenizer.special_tokens.get("<|endoftext|>")
    if separator is None:
        raise RunConfigError(
            f"{setting} needs a separator between documents, and the shards have none",
            hint="encode it with a tokenizer that has <|endoftext|>, or add --documents TOKEN to: "
            "bytemill data encode TOKENIZER TEXT -o DIR",
        )
    return DocumentMask(
        separator,
        separator_first=manifest is not None and layout_named(manifest.layout).separator_in_front,
        reset_positions=config.training.reset_positions,
    )
