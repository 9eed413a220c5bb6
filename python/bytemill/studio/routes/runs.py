"""Routes of runs and studies."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request

from bytemill.errors import RunConfigError
from bytemill.studio.arrays import packed
from bytemill.studio.files import plain, require_regular
from bytemill.studio.models import checkpoint_paths
from bytemill.studio.routes.tokenizers import named
from bytemill.studio.run_files import read_new, read_settings
from bytemill.studio.schemas import Metrics, RunList, RunSummary, SkippedFile, SkippedList
from bytemill.studio.state import Studio

if TYPE_CHECKING:
    from bytemill.studio.jobs import Check
    from bytemill.studio.library import Entry, Shelf

router = APIRouter(tags=["runs"])

MAX_SKIPPED = 100
"""Files that are listed as left out; the rest is counted."""


@router.get("/runs")
def runs(studio: Studio) -> RunList:
    """List runs and studies."""
    shelf = studio.library.shelf()
    return RunList(
        runs=[
            summary
            for entry in shelf.runs.values()
            if (summary := _summary(entry, shelf, studio)) is not None
        ],
        studies=[named("studies", entry, studio) for entry in shelf.studies.values()],
    )


def _summary(entry: Entry, shelf: Shelf, studio: Studio) -> RunSummary | None:
    config: dict[str, Any] = {}
    try:
        changed = (entry.path / "metrics.jsonl").stat().st_mtime
        with suppress(ValueError):  # listed with what is left out
            config = read_settings(entry)
    except OSError:  # the folder was just removed
        return None
    checkpoints = list(checkpoint_paths(entry.path))
    steps = config.get("training.steps")
    return RunSummary(
        id=entry.id,
        name=entry.name,
        argument=studio.library.argument_of(entry),
        seconds_since_change=max(0.0, time.time() - changed),
        is_finished=isinstance(steps, int) and bool(checkpoints) and checkpoints[-1] >= steps,
        checkpoints=checkpoints,
        tokenizer=tokenizer_of(entry, shelf),
        config=config,
    )


def tokenizer_of(entry: Entry, shelf: Shelf) -> str | None:
    """Return the id of the tokenizer in a folder."""
    path = entry.path / "tokenizer.json"
    return next((each.id for each in shelf.tokenizers.values() if each.path == path), None)


@router.get("/skipped")
def skipped(studio: Studio) -> SkippedList:
    """List files and folders that were found and cannot be read."""
    shelf = studio.library.shelf()
    found = dict(shelf.skipped)
    for entry in shelf.runs.values():
        try:
            read_settings(entry)
        except OSError:  # the next search says more
            continue
        except ValueError as error:
            found[f"{entry.name}/config.toml"] = str(error)
    first = [SkippedFile(name=name, reason=reason) for name, reason in islice(found.items(), MAX_SKIPPED)]
    return SkippedList(n_skipped=len(found), skipped=first)


@router.get("/runs/{run_id}/metrics")
def metrics(run_id: str, studio: Studio, cursor: str = "") -> Metrics:
    """Return the records of a run after `cursor`."""
    entry = studio.library.entry("runs", run_id)
    try:
        new = read_new(entry.path / "metrics.jsonl", cursor, entry.root)
    except OSError as error:
        raise RunConfigError(f"the metrics of {entry.name} cannot be read: {error.strerror}") from error
    return Metrics(
        cursor=new.cursor,
        is_reset=new.is_reset,
        columns={name: packed(values, "f8") for name, values in new.columns.items()},
        others=new.others,
    )


@router.get("/studies/{study_id}")
async def study(study_id: str, request: Request, studio: Studio) -> dict[str, Any]:
    """Return the findings of a study, as `bytemill experiment report --json` prints them, with their stamp."""

    def work(_: Check) -> dict[str, Any]:
        from bytemill.experiment.findings import Findings

        entry = studio.library.entry("studies", study_id)
        parts = ("*.json*", "cells/*/*.?64", "cells/*/run/metrics.jsonl")
        files = [path for part in parts for path in entry.path.glob(part)]
        require_regular(files, entry.root, RunConfigError)
        findings, stamp = studio.library.read_study(entry, lambda: Findings(entry.path).to_dict())
        return plain({**findings, "stamp": stamp})

    return await studio.jobs.run(request, work)
