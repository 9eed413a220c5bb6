"""Route of the conversations that a run is trained on, with their targets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request

from bytemill.data import TokenShards
from bytemill.data.conversations import first_conversations
from bytemill.data.manifest import MANIFEST_NAME, files_of, parts_of, read_manifest, sets_of
from bytemill.errors import RunConfigError, ShardError
from bytemill.storage import url_of
from bytemill.studio.files import require_regular
from bytemill.studio.routes.runs import read_settings, tokenizer_of
from bytemill.studio.schemas import ExampleSet, TrainingExample, TrainingExamples
from bytemill.studio.state import State, Studio

if TYPE_CHECKING:
    from bytemill.studio.jobs import Check
    from bytemill.studio.library import Entry
    from bytemill.tokenizer.tokenizer import Tokenizer

router = APIRouter(tags=["runs"])

N_EXAMPLES, MAX_TOKENS = 3, 512
"""Conversations of a set, and tokens of one, that are shown."""


@router.get("/runs/{run_id}/conversations")
async def conversations(run_id: str, request: Request, studio: Studio) -> TrainingExamples:
    """Return the first conversations of the first shard folder of a run, whose shards are below the studio's folder."""

    def work(_: Check) -> TrainingExamples:
        entry = studio.library.entry("runs", run_id)
        tokenizer = _tokenizer(entry, studio)
        return TrainingExamples(sets=[_example_set(each, tokenizer) for each in _sets(entry)])

    return await studio.jobs.run(request, work)


def _tokenizer(run: Entry, studio: State) -> Tokenizer:
    tokenizer_id = tokenizer_of(run, studio.library.shelf())
    if tokenizer_id is None:
        raise RunConfigError(f"{run.name} has no tokenizer.json", hint="restore the tokenizer of the run")
    return studio.library.open_tokenizer(tokenizer_id).tokenizer


def _sets(run: Entry) -> list[Path]:
    """Return the shard folders of the first training data of a run, after a check of their files."""
    from bytemill.lm.training.config import file_layer

    require_regular([run.path / "config.toml"], run.root, RunConfigError)
    try:
        read_settings(run)
    except (OSError, ValueError) as error:
        raise RunConfigError(f"the settings of {run.name} cannot be read: {error}") from error
    folders = file_layer(run.path)[1].get("data.train")
    if not isinstance(folders, list) or not folders:
        raise RunConfigError(f"{run.name} was not trained on shards")
    name = str(folders[0])  # pyright: ignore[reportUnknownArgumentType]
    folder = Path(os.path.realpath(name))
    if url_of(name) is not None or not folder.is_relative_to(run.root):
        raise RunConfigError(
            f"the training data of {run.name} is not below the folder of the studio, which shows no other files",
            hint="start the studio with --root FOLDER, above both",
        )
    if not folder.is_dir():
        raise ShardError(f"the training data of {run.name} is gone: {name} is no folder")
    found = [parts_of(each)[0] for each in sets_of(folder)]
    for each in found:
        require_regular([each / MANIFEST_NAME], run.root, ShardError)
        require_regular([each / info.file for info in files_of(read_manifest(each))], run.root, ShardError)
    return found


def _example_set(folder: Path, tokenizer: Tokenizer) -> ExampleSet:
    shards = TokenShards(folder)
    ends = shards.document_ends()
    found = list(first_conversations(shards, tokenizer, N_EXAMPLES))
    return ExampleSet(
        name=folder.name,
        n_conversations=0 if ends is None else len(ends),
        examples=[
            TrainingExample(
                n_tokens=len(ids),
                tokens=[tokenizer.decode_single_token_bytes(i).hex() for i in ids[:MAX_TOKENS]],
                special=[tokenizer.is_special_token(i) for i in ids[:MAX_TOKENS]],
                is_target=mask[:MAX_TOKENS],
            )
            for ids, mask in found
        ],
    )
